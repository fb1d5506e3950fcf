/**
 * Finds the batch dim of each input of a program, by its rules and indices: the index whose parts
 * reach the loss separately.
 */

import { elements, type TensorMeta } from '../../ops/record/record.ts';
import { P, R, type Rule, type RuleSlot, S } from '../../ops/record/rule.ts';
import type { Indices, RuleLists } from './indices.ts';
import { type Dims, inputsOf, type InputTensor, isPlain, type Program } from './program.ts';
import { walk } from './sequence.ts';

/**
 * The index that the most inputs have among those that reach the loss in parts; the outermost where
 * several do.
 */
export function batchOf(
  model: Program,
  rules: RuleLists,
  indices: Indices,
  inputs: readonly InputTensor[],
): Dims {
  const candidates = new Map<number, Map<number, number>>();
  // An index that a weight has as well is one of features.
  const features = new Set(
    model.graph.nodes.flatMap((node, n) =>
      node.kind === 'placeholder' && node.meta.role === 'parameter'
        ? dimsOf(model, n).map(([value, dim]) => indices.of(value, dim))
        : [],
    ),
  );
  for (const { node, value, shape } of inputs)
    shape.forEach((size, dim) => {
      const index = indices.of(value, dim);
      if (size <= 1 || features.has(index)) return;
      const dims = candidates.get(index) ?? new Map<number, number>();
      // An input that has the index twice compares its parts with each other.
      dims.set(node, dims.has(node) ? -1 : dim);
      candidates.set(index, dims);
    });
  const ranked = [...candidates.values()]
    .filter((dims) => ![...dims.values()].includes(-1))
    .sort((a, b) => b.size - a.size || total(a) - total(b));
  for (const meeting of MEETINGS)
    for (const dims of ranked) {
      if (!reachesLoss(model, rules, dims, meeting)) continue;
      // A sequence also comes back to the loss on a way that does not pass its attention.
      if (
        meeting === 'anywhere' &&
        [...dims].some(([node, dim]) => walk(model, rules, node, dim).mixed)
      )
        continue;
      return { dims, stated: false };
    }
  return { dims: new Map(), stated: false };
}

function dimsOf({ flow }: Program, node: number): (readonly [value: number, dim: number])[] {
  const [value] = flow.results[node];
  return value === undefined || value < 0
    ? []
    : flow.values[value].meta.shape.flatMap((size, dim) =>
        size > 1 ? [[value, dim] as const] : [],
      );
}

/**
 * The places where parts may meet before the loss: nowhere but in numbers (the count of valid
 * labels); in reductions and normalisations of a batch too, as batch norm does; anywhere, as in the
 * routing of tokens to experts, where the index comes back to the loss on another way.
 */
const MEETINGS = ['numbers', 'statistics', 'anywhere'] as const;
type Meeting = (typeof MEETINGS)[number];

const total = (dims: ReadonlyMap<number, number>): number =>
  [...dims.values()].reduce((a, b) => a + b, 0);

/** How a value lies over the parts: whole, cut on a dim, or still to be added up. */
interface Spread {
  readonly slot: Exclude<RuleSlot, null>;
  /** Inputs whose parts are in it. */
  readonly from: ReadonlySet<number>;
  /**
   * Depends on an input that is not cut: to cut it now would be to choose a batch for that input.
   */
  readonly foreign: boolean;
}
const WHOLE: Spread = { slot: R, from: new Set(), foreign: false };

/**
 * Tells whether the forward pass runs with these dims cut and all parameters whole, each call by a
 * rule, and a result or the loss comes out in parts.
 */
function reachesLoss(
  model: Program,
  rules: RuleLists,
  dims: ReadonlyMap<number, number>,
  meeting: Meeting,
): boolean {
  const { graph, flow } = model;
  const spread = new Array<Spread>(flow.values.length).fill(WHOLE);
  for (const { node, value, shape } of inputsOf(model)) {
    const dim = dims.get(node);
    spread[value] =
      dim === undefined
        ? { ...WHOLE, foreign: shape.length > 0 }
        : { slot: S(dim), from: new Set([node]), foreign: false };
  }
  for (let n = 0; n < graph.nodes.length; n++) {
    const list = rules.of(n);
    if (list !== undefined && !spreadCall(model, list, { n, spread, meeting })) return false;
  }
  // The result must have the parts of every input, not of the labels alone.
  return flow.outputs.some(
    ({ output, value }) =>
      value >= 0 && output.role === 'output' && spread[value].from.size === dims.size,
  );
}

/** Spreads the parts of a call's inputs over its results; false where no rule takes them. */
function spreadCall(
  { flow, strategies }: Program,
  list: NonNullable<ReturnType<RuleLists['of']>>,
  {
    n,
    spread,
    meeting,
  }: { readonly n: number; readonly spread: Spread[]; readonly meeting: Meeting },
): boolean {
  const given = flow.inputs[n];
  const coming = Array.from(given, (value) => spread[value]);
  const foreign = coming.some((c) => c.foreign);
  const from = union(coming.map((c) => c.from));
  const leave = (k: number, slot: Spread['slot'], whose = from): void => {
    const value = flow.results[n][k];
    if (value !== undefined && value >= 0) spread[value] = { slot, from: whose, foreign };
  };
  if (coming.every(({ slot }) => slot.kind === 'replicate')) {
    flow.results[n].forEach((_, k) => leave(k, R));
    return true;
  }
  const metas = Array.from(given, (value) => flow.values[value].meta);
  const outputs = outputsOf(list, coming, metas);
  const cls = strategies.nodes[n]?.record?.cls ?? '';
  if (outputs === undefined) {
    const normal =
      meeting !== 'numbers' && cls === 'norm'
        ? coming.find(({ slot }) => slot.kind === 'shard')
        : undefined;
    if (normal === undefined && meeting !== 'anywhere') return false;
    const shape = normal === undefined ? '' : metas[coming.indexOf(normal)].shape.join();
    flow.results[n].forEach((value, k) => {
      if (value < 0) return;
      const isEqual = normal !== undefined && flow.values[value].meta.shape.join() === shape;
      leave(k, isEqual ? normal.slot : R, isEqual ? from : new Set());
    });
    return true;
  }
  const adds = meeting !== 'numbers' && (cls === 'reduction' || cls === 'norm');
  outputs.forEach((slot, k) => {
    const meta = metaOf(flow, flow.results[n][k]);
    if (slot === null || meta === undefined) return;
    if (slot.kind === 'partial' && adds && elements(meta.shape) > 1) leave(k, R, new Set());
    else leave(k, slot);
  });
  return true;
}

function union(sets: readonly ReadonlySet<number>[]): ReadonlySet<number> {
  const [first = new Set<number>(), ...rest] = sets.filter((set) => set.size > 0);
  return rest.every((set) => set === first) ? first : new Set(sets.flatMap((set) => [...set]));
}

function metaOf(flow: Program['flow'], value: number | undefined): TensorMeta | undefined {
  return value === undefined || value < 0 ? undefined : flow.values[value].meta;
}

/**
 * The results of a call under the first rule that takes the inputs as they come: cut ones as cut,
 * whole ones whole or sliced.
 */
function outputsOf(
  rules: readonly Rule[],
  coming: readonly Spread[],
  metas: readonly TensorMeta[],
): readonly RuleSlot[] | undefined {
  const cost = (r: Rule): number | undefined => {
    let sliced = 0;
    for (const [i, { slot, foreign }] of coming.entries()) {
      const wanted = r.inputs[i] ?? R;
      const isNumber = elements(metas[i].shape) <= 1;
      if (
        slot.kind === 'shard' ? isPlain(wanted) && wanted.dim === slot.dim : sameKind(slot, wanted)
      )
        continue;
      if (slot.kind === 'replicate' && isPlain(wanted) && !foreign) sliced++;
      else if (slot.kind === 'partial' && isNumber && wanted.kind === 'replicate') sliced++;
      // The number that a sum of StableHLO begins with counts in one part.
      else if (slot.kind === 'replicate' && isNumber && !foreign && wanted.kind === 'partial')
        sliced++;
      else return undefined;
    }
    return sliced;
  };
  let best: { readonly rule: Rule; readonly cost: number } | undefined;
  for (const rule of rules) {
    const c = cost(rule);
    if (c !== undefined && (best === undefined || c < best.cost)) best = { rule, cost: c };
  }
  if (best !== undefined) return best.rule.outputs;
  // Numbers alone that are still to be added up: they are, and what is made of them is a mean.
  if (
    !coming.every(
      ({ slot }, i) =>
        slot.kind === 'replicate' || (slot.kind === 'partial' && elements(metas[i].shape) <= 1),
    )
  )
    return undefined;
  return [P('sum')];
}

function sameKind(a: RuleSlot, b: RuleSlot): boolean {
  return a?.kind === 'partial' ? b?.kind === 'partial' && a.op === b.op : a?.kind === b?.kind;
}
