/**
 * Places recomputed nodes like their first runs: it turns a choice of a model into the same choice
 * on the graph with recomputed nodes.
 */
import { internalError } from '../../../errors.ts';
import { isKeptCopy, type Model } from '../../model/model.ts';

/**
 * The choice of a graph with recomputed nodes that places every node as the graph without them did,
 * recomputed nodes as their first ones. Shared copies and free outputs are then chosen for the
 * least seconds, one by one: nothing else depends on them.
 *
 * @param originalOf first run by the name of its second
 * @returns undefined when some node cannot be placed so
 */
export function placeRecomputedNodes(
  before: Model,
  choice: Int32Array,
  after: Model,
  originalOf: ReadonlyMap<string, string>,
): Int32Array | undefined {
  const out = new Int32Array(after.variables.length).fill(-1);
  const known = new Map<string, number>();
  for (let n = 0; n < after.graph.nodes.length; n++) {
    const variable = after.nodeVariable[n];
    if (variable < 0) continue;
    const { name } = after.graph.nodes[n];
    const from = before.flow.byName.get(name) ?? before.flow.byName.get(originalOf.get(name) ?? '');
    if (from === undefined) return undefined;
    const taken = before.nodeVariable[from];
    // A view that was another name of an earlier one: placed as that one.
    const source = taken >= 0 ? from : before.flow.values[before.flow.alias[from]]?.node;
    if (source === undefined) return undefined;
    const { set: a, content: was } = before.strategies.nodes[source]!;
    const { set: b, content: is } = after.strategies.nodes[n]!;
    const s = choice[before.nodeVariable[source]];
    const width = a.inputCount + a.outputCount;
    if (width !== b.inputCount + b.outputCount) return undefined;
    const key = `${was}:${s}>${is}`;
    let found = known.get(key);
    if (found === undefined) {
      found = -1;
      for (let t = 0; t < b.count && found < 0; t++) {
        let same = true;
        for (let k = 0; k < width && same; k++)
          same = a.specs[s * width + k] === b.specs[t * width + k];
        if (same) found = t;
      }
      known.set(key, found);
    }
    if (found < 0) return undefined;
    out[variable] = found;
  }
  return completed(after, out, keptCopies(before, choice));
}

/** The values of which a choice keeps a copy from the forward to the backward pass, by name. */
function keptCopies(model: Model, choice: Int32Array): ReadonlySet<string> {
  const kept = [...model.copies.keys()].filter((index) => {
    const copy = model.copies[index];
    return isKeptCopy(copy, choice[copy.variable]);
  });
  return new Set(kept.map((index) => producerOf(model, index)));
}

/**
 * Fills in the variables of copies and outputs, which have chosen neighbours only: copies first,
 * outputs after them. Only copies that were kept before may be: the others have no bytes in the
 * rows.
 */
function completed(model: Model, choice: Int32Array, kept: ReadonlySet<string>): Int32Array {
  const { problem } = model;
  const { edges, maps, tables } = problem;
  const at = new Map<number, number[]>();
  for (let e = 0; e < edges.first.length; e++)
    for (const v of [edges.first[e], edges.second[e]])
      if (choice[v] < 0) {
        const list = at.get(v);
        if (list === undefined) at.set(v, [e]);
        else list.push(e);
      }
  const classOf = (map: number, value: number): number => (map < 0 ? value : maps[map][value]);
  for (const kind of ['copy', 'output'] as const)
    model.variables.forEach((variable, v) => {
      if (variable.kind !== kind || choice[v] >= 0) return;
      const costs = Float64Array.from(problem.vectors[problem.unary[v]]);
      if (variable.kind === 'copy' && !kept.has(producerOf(model, variable.copy)))
        costs.forEach((_, z) => {
          if (isKeptCopy(model.copies[variable.copy], z)) costs[z] = Infinity;
        });
      for (const e of at.get(v) ?? []) {
        const isFirst = edges.first[e] === v;
        const other = choice[isFirst ? edges.second[e] : edges.first[e]];
        const { columns, costs: prices } = tables[edges.table[e]];
        if (other < 0) {
          // A copy and a free output: the best that the output can do with each copy.
          for (let a = 0; a < costs.length; a++) {
            let least = Infinity;
            const row = classOf(edges.firstMap[e], a);
            for (let b = 0; b < columns; b++) least = Math.min(least, prices[row * columns + b]);
            costs[a] += least;
          }
          continue;
        }
        for (let a = 0; a < costs.length; a++) {
          const [row, column] = isFirst ? [a, other] : [other, a];
          costs[a] +=
            prices[classOf(edges.firstMap[e], row) * columns + classOf(edges.secondMap[e], column)];
        }
      }
      let best = 0;
      for (let a = 1; a < costs.length; a++) if (costs[a] < costs[best]) best = a;
      choice[v] = best;
    });
  if (choice.includes(-1)) throw internalError('a node was left without a placement');
  return choice;
}

/** Name of the node whose value a copy is of. */
function producerOf({ copies, flow, graph }: Model, copy: number): string {
  return graph.nodes[flow.values[copies[copy].value].node].name;
}
