/** Counts the matrix FLOPs of a graph by phase. */

import { checkKinds } from '../arguments.ts';
import { ShardwrightError } from '../errors.ts';
import { typesByName } from '../graph/nodes.ts';
import type { Graph, ValueType } from '../graph/types.ts';
import { bind } from './record/infer.ts';
import type { TypedContext } from './record/record.ts';
import type { OperatorTable } from './record/table.ts';

/**
 * Matrix FLOPs of a graph, 2 per multiply-add; products, convolutions and attention, nothing
 * elementwise.
 */
interface GraphFlops {
  readonly forward: number;
  readonly backward: number;
  /** Forward, backward and whatever has another phase. */
  readonly total: number;
  /** Targets with work, in order of name. */
  readonly byTarget: Readonly<Record<string, number>>;
}

/**
 * Counts the top level of a graph by `meta.phase`; a node without a phase counts as forward.
 * Operators that the table does not know count nothing, as do bodies of control flow (the
 * convention of the framework counters we compare with).
 *
 * @throws E_TYPE when a call does not fit its operator
 */
export function graphFlops(graph: Graph, table: OperatorTable): GraphFlops {
  checkKinds('graphFlops', { graph: [graph, 'graph'], table: [table, 'operators'] });
  const types = typesByName(graph);
  const typeOf = (name: string): ValueType => {
    const type = types.get(name);
    if (type === undefined)
      throw new ShardwrightError('E_REF', `value '${name}' is not defined in the graph`);
    return type;
  };
  const sums = new Map<string, number>();
  const phases = { forward: 0, backward: 0, optimizer: 0 };
  // Equal calls share one context, so repeated layers are counted by look-up.
  const known = new Map<TypedContext, number>();
  for (const node of graph.nodes) {
    const record = node.kind === 'call' ? table.get(node.target) : undefined;
    const context = record === undefined ? undefined : bind(table, node, typeOf);
    if (record === undefined || context === undefined) continue;
    let work = known.get(context);
    if (work === undefined) {
      work = record.flops(context).matrix;
      known.set(context, work);
    }
    if (work === 0) continue;
    sums.set(node.target, (sums.get(node.target) ?? 0) + work);
    phases[node.meta.phase ?? 'forward'] += work;
  }
  const byTarget = Object.fromEntries([...sums].sort(([a], [b]) => (a < b ? -1 : 1)));
  const { forward, backward, optimizer } = phases;
  return { forward, backward, total: forward + backward + optimizer, byTarget };
}
