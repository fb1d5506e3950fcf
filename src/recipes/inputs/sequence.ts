/**
 * Finds the sequence dim of each input of a program, by its rules: the index over which attention
 * mixes.
 */

import { takesAnyCut } from '../../ops/expansion/row.ts';
import { isStrided, type ShardSlot } from '../../ops/record/rule.ts';
import type { RuleLists } from './indices.ts';
import { type InputTensor, isPlain, type Program } from './program.ts';

/**
 * The places that one dim of an input reaches: by value, the dims that are the index, and those of
 * which it is a later part.
 */
type Reached = Map<number, ReadonlyMap<number, 'whole' | 'inside'>>;

/**
 * Dims that attention mixes, and those of other inputs (labels, positions) that the program takes
 * together with them.
 */
export function sequences(
  model: Program,
  rules: RuleLists,
  inputs: readonly InputTensor[],
  batch: ReadonlyMap<number, number>,
): Map<number, number> {
  const open = inputs.flatMap(({ node, shape }) =>
    [...shape.keys()]
      .filter((d) => shape[d] > 1 && d !== batch.get(node))
      .map((dim) => ({ node, dim })),
  );
  const found = new Map<number, number>();
  const reached: Reached = new Map();
  const add = ({ node, dim }: { readonly node: number; readonly dim: number }): void =>
    void (found.has(node) || found.set(node, dim));
  for (const seed of open) {
    const way = walk(model, rules, seed.node, seed.dim);
    if (!way.mixed) continue;
    add(seed);
    for (const [value, dims] of way.reached)
      reached.set(value, new Map([...(reached.get(value) ?? []), ...dims]));
  }
  // Labels that are shifted against the logits are not one index with them, but as long and cut the
  // same way.
  const lengths = new Set([...found].map(([node, dim]) => sizeAt(inputs, node, dim)));
  if (found.size > 0)
    for (const seed of open)
      if (
        !found.has(seed.node) &&
        (walk(model, rules, seed.node, seed.dim, reached).met ||
          (batch.has(seed.node) && lengths.has(sizeAt(inputs, seed.node, seed.dim))))
      )
        add(seed);
  return found;
}

/**
 * Follows one dim of an input through the forward pass, into dims that views merge and out again;
 * `others` is what it may meet.
 */
export function walk(
  model: Program,
  rules: RuleLists,
  input: number,
  dim: number,
  others: Reached = new Map(),
): { readonly mixed: boolean; readonly met: boolean; readonly reached: Reached } {
  const { graph, flow } = model;
  const start = flow.results[input][0];
  const size = flow.values[start].meta.shape[dim];
  const reached: Reached = new Map([[start, new Map([[dim, 'whole' as const]])]]);
  let mixed = false;
  let met = false;
  for (let n = 0; n < graph.nodes.length; n++) {
    const list = rules.of(n);
    const given = flow.inputs[n];
    if (list === undefined || !given.some((value) => reached.has(value))) continue;
    mixed ||= isMixedBy(graph.nodes[n].target, given.subarray(0, 2), flow, reached);
    for (const { inputs, outputs } of list)
      for (const [i, slot] of inputs.entries()) {
        const how = slot?.kind === 'shard' ? reached.get(given[i])?.get(slot.dim) : undefined;
        if (slot?.kind !== 'shard' || how === undefined || !passes(slot, how)) continue;
        met ||= inputs.some(
          (mate, j) =>
            j !== i &&
            mate?.kind === 'shard' &&
            mate.tie === slot.tie &&
            others.get(given[j])?.get(mate.dim) === how,
        );
        outputs.forEach((out, k) => {
          const value = flow.results[n][k];
          if (out?.kind !== 'shard' || out.tie !== slot.tie || value === undefined || value < 0)
            return;
          const next =
            isStrided(out) || (how === 'inside' && !isStrided(slot)) ? 'inside' : 'whole';
          if (next === 'whole' && flow.values[value].meta.shape[out.dim] !== size) return;
          const known = reached.get(value);
          if (known?.get(out.dim) !== 'whole')
            reached.set(value, new Map([...(known ?? []), [out.dim, next]]));
        });
      }
  }
  return { mixed, met, reached };
}

function passes(slot: ShardSlot, how: 'whole' | 'inside'): boolean {
  return how === 'whole' ? isPlain(slot) : isStrided(slot) || takesAnyCut(slot);
}

/** Tells whether the index is the rows of fused attention, or both sides of a table of scores. */
function isMixedBy(
  target: string,
  values: Int32Array,
  flow: Program['flow'],
  reached: Reached,
): boolean {
  const isRow = (value: number, fromEnd: number): boolean =>
    reached.get(value)?.get(flow.values[value].meta.shape.length - fromEnd) === 'whole';
  if (target.includes('scaled_dot_product')) return values.some((value) => isRow(value, 2));
  const [scores] = values;
  return (
    target.includes('softmax') &&
    flow.values[scores].meta.shape.length > 2 &&
    isRow(scores, 1) &&
    isRow(scores, 2)
  );
}

function sizeAt(inputs: readonly InputTensor[], node: number, dim: number): number | undefined {
  return inputs.find((input) => input.node === node)?.shape[dim];
}
