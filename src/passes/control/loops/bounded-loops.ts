/** Rewrites `while_loop` calls with a bound into scans of that length. */

import { checkKinds } from '../../../arguments.ts';
import { GraphBuilder } from '../../../graph/build.ts';
import { bodyResult, placeholdersOf } from '../../../graph/control.ts';
import type { Arg, Graph, Node, ValueType } from '../../../graph/types.ts';
import { isRef } from '../../../graph/value.ts';
import { builtinOperators } from '../../../ops/builtin.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import { BodyWriter } from '../body-writer.ts';
import type { WhileForm } from '../control-form.ts';
import { rewriteControl } from '../rewrite-control.ts';

/** Which loops become scans. */
export interface BoundedLoopOptions {
  readonly table?: OperatorTable;
  /** Which loops become scans; by default all that have `max_trips`. */
  readonly only?: (node: Node) => boolean;
  /** True if loops inside bodies are turned as well. Default true. */
  readonly nested?: boolean;
}

/**
 * `while_loop` with `max_trips` as a scan of that length: each trip asks the condition, and an
 * ended loop hands its carry on (a `cond` on the active flag). Thus a gradient can pass it.
 */
export function boundedLoopsToScans(graph: Graph, options: BoundedLoopOptions = {}): Graph {
  checkKinds('boundedLoopsToScans', {
    graph: [graph, 'graph'],
    options: [options, 'record', 'undefined'],
  });
  const { table = builtinOperators(), only = () => true, nested = true } = options;
  const replace = rewriteControl(
    graph,
    table,
    ({ node, form, calls, writer }) => {
      if (form.kind !== 'while' || form.maxTrips === undefined || !only(node)) return undefined;
      const body = writer.body('scan_body', tripOf(form));
      const { type } = node;
      const scan = calls.graph.call(
        'scan',
        [{ kind: 'graph', name: body }, form.carry, [], form.captured],
        type,
        {
          kwargs: { length: form.maxTrips },
          meta: node.meta,
          name: calls.freshName('scan'),
        },
      );
      const items: readonly ValueType[] = type.kind === 'tuple' ? type.items : [];
      return items.map((_, i) => calls.item(scan, i));
    },
    nested,
  );
  return replace;
}

/** One trip: `(carry, captured) -> cond(condition(carry), step(carry), carry)`. */
function tripOf({ condition, step, carry }: WhileForm): Graph {
  const builder = new GraphBuilder('scan_body');
  const writer = new BodyWriter(builder);
  const inputs: Arg[] = placeholdersOf(step).map((node, roleIndex) =>
    builder.placeholder(node.name, node.type, { role: 'arg', roleIndex }),
  );
  const [active] = writer.inline(condition, inputs);
  const type: ValueType = { kind: 'tuple', items: bodyResult(step) };
  const result = builder.call(
    'cond',
    [
      active,
      { kind: 'graph', name: writer.body('step', step) },
      { kind: 'graph', name: writer.body('done', identityOf(step, carry.length)) },
      inputs,
    ],
    type,
    { meta: { phase: 'forward' } },
  );
  type.items.forEach((item, index) => {
    const read = builder.call('operator.getitem', [result, index], item, {
      meta: { phase: 'forward' },
    });
    builder.output({ value: isRef(read) ? read.name : null, role: 'output', index });
  });
  return builder.build();
}

/** The inputs of `step`, of which the first `count` are returned. */
function identityOf(step: Graph, count: number): Graph {
  const builder = new GraphBuilder('done');
  placeholdersOf(step).forEach((node, index) => {
    const value = builder.placeholder(node.name, node.type, { role: 'arg', roleIndex: index });
    if (index < count) builder.output({ value: value.name, role: 'output', index });
  });
  return builder.build();
}
