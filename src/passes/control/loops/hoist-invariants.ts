/** Moves calls that give the same value on every trip out of loops. */

import { checkKinds } from '../../../arguments.ts';
import { defined } from '../../../defined.ts';
import { GraphBuilder } from '../../../graph/build.ts';
import { placeholdersOf } from '../../../graph/control.ts';
import { typesByName } from '../../../graph/nodes.ts';
import type { Arg, Graph, Node, NodeMeta } from '../../../graph/types.ts';
import { eachGraphRef, eachOperand, isRef } from '../../../graph/value.ts';
import { builtinOperators } from '../../../ops/builtin.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import { spmdName } from '../../../ops/spmd/operators.ts';
import { BodyWriter } from '../body-writer.ts';
import { rewriteControl, type Site } from '../rewrite-control.ts';

/** Which loops lose their invariant calls. */
export interface HoistOptions {
  readonly table?: OperatorTable;
  /** Which loops; all by default. */
  readonly only?: (node: Node) => boolean;
  /** True if loops inside bodies are treated as well. Default true. */
  readonly nested?: boolean;
}

/**
 * Moves calls that give the same value on every trip out of `scan`, `map` and `while_loop`: they
 * are made once before the loop and captured. Constants stay, they cost nothing; so do random draws
 * without a key, calls with bodies, and verbs of typed code: the collective of its gradient runs at
 * the verb's place.
 */
export function hoistInvariants(graph: Graph, options: HoistOptions = {}): Graph {
  checkKinds('hoistInvariants', {
    graph: [graph, 'graph'],
    options: [options, 'record', 'undefined'],
  });
  const { table = builtinOperators(), only = () => true, nested = true } = options;
  return rewriteControl(
    graph,
    table,
    (site) => (only(site.node) ? hoisted(site, table) : undefined),
    nested,
  );
}

function hoisted(
  { node, form, calls, writer }: Site,
  table: OperatorTable,
): readonly Arg[] | undefined {
  if (form.kind === 'branch') return undefined;
  const { captured } = form;
  const changing = form.kind === 'scan' ? form.init.length + form.xs.length : form.carry.length;
  const names = new Map<string, Arg>();
  const { step } = form;
  placeholdersOf(step)
    .slice(changing)
    .forEach((input, i) => names.set(input.name, captured[i]));
  const invariant = invariantCalls(step, new Set(names.keys()), table);
  const frontier = [...readOutside(step, invariant)];
  if (frontier.length === 0) return undefined;
  for (const call of step.nodes) {
    if (!invariant.has(call.name)) continue;
    const { phase } = node.meta;
    const meta: NodeMeta = { ...call.meta, ...defined({ phase }) };
    names.set(call.name, writer.copy(call, step, names, meta));
  }
  const operands = [...captured, ...frontier.map((name) => names.get(name) ?? null)];
  const types = typesByName(step);
  const added = frontier.map((name) => ({
    name,
    type: types.get(name) ?? { kind: 'none' as const },
  }));
  const body = writer.body(step.name, withInputs(step, added, invariant));
  const [bodies, lists] =
    form.kind === 'scan'
      ? [[body], node.target === 'scan' ? [form.init, form.xs, operands] : [form.xs, operands]]
      : [
          [writer.body(form.condition.name, withInputs(form.condition, added, new Set())), body],
          [form.carry, operands],
        ];
  const args: Arg[] = [...bodies.map((name): Arg => ({ kind: 'graph', name })), ...lists];
  const call = calls.graph.call(node.target, args, node.type, {
    kwargs: node.kwargs,
    meta: node.meta,
    name: calls.freshName(node.target),
  });
  return node.type.kind === 'tuple'
    ? node.type.items.map((_, i) => calls.item(call, i))
    : undefined;
}

/** Calls of a body that depend on nothing but the given inputs, on at least one of them. */
function invariantCalls(
  body: Graph,
  inputs: ReadonlySet<string>,
  table: OperatorTable,
): Set<string> {
  const found = new Set<string>();
  for (const node of body.nodes) {
    if (node.kind !== 'call' || !isMovable(node, table) || spmdName(node.target) !== undefined)
      continue;
    let reads = 0;
    let fixed = true;
    eachOperand(node, (name) => {
      reads++;
      fixed &&= inputs.has(name) || found.has(name);
    });
    if (fixed && reads > 0) found.add(node.name);
  }
  return found;
}

/**
 * Tells whether a call gives the same value at any place: no body, no random draw without a key.
 */
export function isMovable(node: Node, table: OperatorTable): boolean {
  let bodies = 0;
  eachGraphRef(node, () => bodies++);
  return bodies === 0 && !drawsWithoutKey(node, table);
}

export function drawsWithoutKey(node: Node, table: OperatorTable): boolean {
  if (table.get(node.target)?.cls !== 'random') return false;
  const key: Arg | undefined = node.kwargs.generator;
  return key === undefined || !isRef(key);
}

/**
 * Members of a set of calls that other calls read, or that the body returns; tuples only through
 * their reads.
 */
function readOutside(body: Graph, set: ReadonlySet<string>): Set<string> {
  const read = new Set<string>();
  for (const node of body.nodes)
    if (!set.has(node.name)) eachOperand(node, (name) => void (set.has(name) && read.add(name)));
  for (const { value } of body.outputs) if (value !== null && set.has(value)) read.add(value);
  return read;
}

/**
 * The body with more inputs at its end, which replace the calls of the same names; `dropped` calls
 * are left out.
 */
function withInputs(
  body: Graph,
  added: readonly Pick<Node, 'name' | 'type'>[],
  dropped: ReadonlySet<string>,
): Graph {
  const builder = new GraphBuilder(body.name);
  const writer = new BodyWriter(builder);
  const names = new Map<string, Arg>();
  const inputs = placeholdersOf(body);
  for (const node of inputs) names.set(node.name, builder.keep(node));
  added.forEach(({ name, type }, i) => {
    const value = builder.placeholder(name, type, { role: 'arg', roleIndex: inputs.length + i });
    if (dropped.has(name)) names.set(name, value);
  });
  for (const node of body.nodes)
    if (node.kind !== 'placeholder' && !dropped.has(node.name))
      names.set(node.name, writer.copy(node, body, names));
  for (const output of body.outputs) {
    const value: Arg | undefined = output.value === null ? null : names.get(output.value);
    builder.output({ ...output, value: value !== undefined && isRef(value) ? value.name : null });
  }
  return builder.build();
}
