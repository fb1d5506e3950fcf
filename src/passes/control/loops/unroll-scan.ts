/** Replaces `scan` and `map` by one copy of their body for each trip. */

import { checkKinds } from '../../../arguments.ts';
import { defined } from '../../../defined.ts';
import { ShardwrightError } from '../../../errors.ts';
import type { Arg, Graph, Node, ValueRef } from '../../../graph/types.ts';
import { isRef, ref } from '../../../graph/value.ts';
import { builtinOperators } from '../../../ops/builtin.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import { type ScanForm, scanLength } from '../control-form.ts';
import { rewriteControl, type Site } from '../rewrite-control.ts';

/** Which loops are unrolled, and how far. */
export interface UnrollOptions {
  readonly table?: OperatorTable;
  /** Which scans and maps are unrolled; all by default. */
  readonly only?: (node: Node) => boolean;
  /** Most trips of one loop. Default 10,000. */
  readonly maxTrips?: number;
}

/**
 * Writes `scan` and `map` out, one copy of the body for each trip, for planning and for comparison.
 * Symbolic lengths count at their examples.
 *
 * @throws E_LIMIT for a loop of more than `maxTrips` trips
 */
export function unrollScan(graph: Graph, options: UnrollOptions = {}): Graph {
  checkKinds('unrollScan', {
    graph: [graph, 'graph'],
    options: [options, 'record', 'undefined'],
  });
  const { table = builtinOperators(), only = () => true, maxTrips = 10_000 } = options;
  return rewriteControl(graph, table, (site) =>
    site.form.kind === 'scan' && only(site.node) ? unrolled(site, site.form, maxTrips) : undefined,
  );
}

function unrolled(
  { node, calls, writer }: Site,
  form: ScanForm,
  maxTrips: number,
): readonly Arg[] | undefined {
  const length = scanLength(node, form, (name) => calls.typeOf(ref(name)));
  // Where there are results to stack, an empty loop stays, because no trip shows their types.
  if (length === undefined || (length === 0 && form.step.outputs.length > form.init.length))
    return undefined;
  if (length > maxTrips)
    throw new ShardwrightError(
      'E_LIMIT',
      `${node.name} has ${length} trips, unrolling stops at ${maxTrips}`,
      {
        node: node.name,
        hint: 'leave it a scan, or raise maxTrips',
      },
    );
  const { init, xs, captured, reverse, step } = form;
  const { path } = node.meta;
  const stacks: ValueRef[][] = step.outputs.slice(init.length).map(() => []);
  let carry: readonly Arg[] = init;
  for (let trip = 0; trip < length; trip++) {
    const row = reverse ? length - 1 - trip : trip;
    const rows = xs.map((x) => (isRef(x) ? calls.call('aten.select.int', [x, 0, row]) : x));
    const results = writer.inline(step, [...carry, ...rows, ...captured], (inner) => ({
      ...inner.meta,
      ...defined({ phase: node.meta.phase }),
      ...(inner.meta.path === undefined && path !== undefined ? { path } : {}),
    }));
    carry = results.slice(0, init.length);
    results.slice(init.length).forEach((y, k) => {
      if (isRef(y)) stacks[k][row] = y;
    });
  }
  return [
    ...carry,
    ...stacks.map((ys) => (ys.length === 0 ? null : calls.call('aten.stack.default', [ys, 0]))),
  ];
}
