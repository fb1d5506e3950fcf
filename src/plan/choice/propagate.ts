/**
 * Makes choices that never look ahead: the greedy baseline and starting placements. Source:
 * node-by-node propagation, as an eager tensor library shards.
 */
import type { Problem } from '../../solver/types.ts';
import type { Model } from '../model/model.ts';
import { costsAround, incidentEdges } from './costs-around.ts';

/**
 * The greedy baseline: placements of inputs and parameters are pushed through the program node by
 * node; each node takes the strategy that is cheapest given what came before it, and never looks
 * ahead. This is how an eager tensor library propagates shardings. Its distance from the optimum is
 * the price of looking no step ahead.
 *
 * @param start placement (value of the variable) of every placeholder; others are decided here
 * @returns a choice, or undefined when some node had no finite strategy left
 */
export function propagate(
  model: Model,
  problem: Problem,
  start: ReadonlyMap<number, number>,
): Int32Array | undefined {
  const { variables } = model;
  const choice = new Int32Array(variables.length).fill(-1);
  const incident = incidentEdges(problem);
  const decide = (v: number): boolean => {
    const best = cheapest(problem, incident[v], choice, v);
    choice[v] = best;
    return best >= 0;
  };
  for (const [v, value] of start) choice[v] = value;
  const copiesOfNode = new Map<number, number[]>();
  for (const copy of model.copies) {
    const { node } = model.flow.values[copy.value];
    const list = copiesOfNode.get(node);
    if (list === undefined) copiesOfNode.set(node, [copy.variable]);
    else list.push(copy.variable);
  }
  for (let n = 0; n < model.nodeVariable.length; n++) {
    const v = model.nodeVariable[n];
    if (v < 0) continue;
    if (choice[v] < 0 && !decide(v)) return undefined;
    // Until its uses are known a value has no copy, and a value without copy is the cheapest; see
    // the second pass.
    for (const c of copiesOfNode.get(n) ?? []) if (!decide(c)) return undefined;
  }
  for (let v = 0; v < choice.length; v++) if (choice[v] < 0 && !decide(v)) return undefined;
  for (const copy of model.copies) if (!decide(copy.variable)) return undefined;
  return choice;
}

/**
 * The value of `v` with the least unary cost plus edges to decided neighbours; -1 if none is
 * finite.
 */
function cheapest(problem: Problem, edges: Int32Array, choice: Int32Array, v: number): number {
  const total = costsAround(problem, edges, choice, v);
  let best = -1;
  for (let a = 0; a < total.length; a++)
    if (total[a] !== Infinity && (best < 0 || total[a] < total[best])) best = a;
  return best;
}

/**
 * The start of propagation where the user gives none: inputs cut on dim 0 by as many outer mesh
 * dims as divide it, parameters replicated, or, when that does not fit the memory row, every
 * parameter in the placement of least bytes. Values that the problem forbids (pins) are not taken.
 */
export function defaultStart(model: Model, problem: Problem): Map<number, number> {
  const { graph, space, strategies, nodeVariable } = model;
  const [row] = problem.rows ?? [];
  const start = new Map<number, number>();
  const allowed = (v: number, a: number): boolean =>
    problem.vectors[problem.unary[v]][a] !== Infinity;
  graph.nodes.forEach((node, n) => {
    if (node.kind !== 'placeholder' || nodeVariable[n] < 0) return;
    const v = nodeVariable[n];
    const { set } = strategies.nodes[n]!;
    let best = -1;
    let most = -1;
    for (let a = 0; a < set.count; a++) {
      if (!allowed(v, a)) continue;
      const cuts =
        node.meta.role === 'input'
          ? leadingBatchDims(space, set.specs[a])
          : set.specs[a] === space.replicated
            ? 1
            : 0;
      if (cuts > most) [best, most] = [a, cuts];
    }
    if (best >= 0) start.set(v, best);
  });
  if (row === undefined) return start;
  let used = 0;
  row.variables.forEach((v, k) => (used += row.amounts[k][start.get(v) ?? 0]));
  if (used <= row.bound) return start;
  row.variables.forEach((v, k) => {
    let least = start.get(v) ?? 0;
    row.amounts[k].forEach((bytes, a) => {
      if (allowed(v, a) && bytes < row.amounts[k][least]) least = a;
    });
    start.set(v, least);
  });
  return start;
}

/** Number of outer mesh dims that cut dim 0, when no other dim is cut; -1 otherwise. */
function leadingBatchDims(space: Model['space'], spec: number): number {
  let count = 0;
  for (let d = 0; d < space.meshRank; d++) {
    const dim = space.dimAt(spec, d);
    if (dim > 0 || (dim === 0 && count < d)) return -1;
    if (dim === 0) count++;
  }
  return count;
}
