/**
 * Measures how a plan lays out its data and its weights over each mesh dim: what the words of the
 * first screen are made of.
 */

import { itemAt } from '../../item-at.ts';
import { elements } from '../../ops/record/record.ts';
import { isKeptCopy, type Model } from '../../plan/model/model.ts';
import { DATA_CUTS, type DataCut, DimMeanings } from '../../recipes/inputs/dim-meanings.ts';

/**
 * Shares of the kinds of tensors that the forward pass makes of its inputs; 1 in all. Each counts
 * once: by their bytes the logits of a large vocabulary would speak for all layers.
 */
export type DataShares = Readonly<Record<DataCut, number>>;

/** How a weight lies over one mesh dim. */
export type WeightPlace =
  | { readonly kind: 'whole' }
  /** Each device computes with its part. */
  | { readonly kind: 'cut'; readonly dim: number }
  /**
   * Each device has a part and gathers the whole for the forward pass; `kept`: it keeps the whole
   * for the backward pass.
   */
  | { readonly kind: 'gathered'; readonly dim: number; readonly kept: boolean };

/** A choice of a planning model. */
interface Chosen {
  readonly model: Model;
  readonly choice: Int32Array;
}

/** The shares of the data over each mesh dim, in mesh order. */
export function dataShares({ model, choice }: Chosen): DataShares[] {
  const { flow, space } = model;
  const meanings = new DimMeanings(model);
  const isData = fromInputs(model);
  const sums = space.mesh.sizes.map(() => ({
    batch: 0,
    sequence: 0,
    features: 0,
    pending: 0,
    whole: 0,
  }));
  flow.values.forEach(({ node, meta }, value) => {
    const isTensor = elements(meta.shape) > 1;
    if (!isTensor || !isData[value] || flow.phases[node] !== 'forward') return;
    const spec = madeAs({ model, choice }, value);
    if (spec < 0) return;
    sums.forEach((sum, m) => {
      sum[meanings.cutOf(value, space.kindAt(spec, m))]++;
    });
  });
  return sums.map((sum) => {
    const all = DATA_CUTS.reduce((total, cut) => total + sum[cut], 0);
    const share = (part: number): number => (all === 0 ? 0 : part / all);
    return {
      batch: share(sum.batch),
      sequence: share(sum.sequence),
      features: share(sum.features),
      pending: share(sum.pending),
      whole: share(sum.whole),
    };
  });
}

/** Calls on data that the program makes again in its backward pass; views of weights are none. */
export function recomputedCalls({ graph, flow }: Model): number {
  const isData = fromInputs({ graph, flow });
  return graph.nodes.filter(
    ({ meta }, n) =>
      meta.repeats !== undefined &&
      itemAt(flow.results, n).some((value) => value >= 0 && isData[value]),
  ).length;
}

/** Per value: whether it depends on an input of the program. */
function fromInputs({ graph, flow }: Pick<Model, 'graph' | 'flow'>): boolean[] {
  const isData = new Array<boolean>(flow.values.length).fill(false);
  graph.nodes.forEach(({ kind, meta }, n) => {
    const is =
      kind === 'placeholder'
        ? meta.role === 'input'
        : itemAt(flow.inputs, n).some((value) => value >= 0 && isData[value]);
    if (is) for (const value of itemAt(flow.results, n)) if (value >= 0) isData[value] = true;
  });
  return isData;
}

/** The sharding that a value is made in; -1 where its node decides nothing. */
function madeAs({ model, choice }: Chosen, value: number): number {
  const { node, result } = itemAt(model.flow.values, value);
  return specAt({ model, choice }, node, 'output', result);
}

function specAt(
  { model, choice }: Chosen,
  node: number,
  side: 'input' | 'output',
  at: number,
): number {
  const entry = itemAt(model.strategies.nodes, node);
  const variable = itemAt(model.nodeVariable, node);
  if (entry === null || variable < 0) return -1;
  const { specs, inputCount, outputCount } = entry.set;
  const first = itemAt(choice, variable) * (inputCount + outputCount);
  return itemAt(specs, first + at + (side === 'output' ? inputCount : 0));
}

/**
 * How each parameter lies over each mesh dim, by the index of its node: cut where the forward pass
 * computes with the parts, gathered where some use takes the whole.
 */
export function weightPlaces(chosen: Chosen): ReadonlyMap<number, readonly WeightPlace[]> {
  const { model } = chosen;
  const { graph, flow, space } = model;
  const places = new Map<number, WeightPlace[]>();
  const weightOf = new Int32Array(flow.values.length).fill(-1);
  const kept = keptValues(chosen);
  graph.nodes.forEach(({ kind, meta }, n) => {
    if (kind === 'placeholder') {
      const value = itemAt(itemAt(flow.results, n), 0);
      if (meta.role !== 'parameter' || value < 0) return;
      const spec = specAt(chosen, n, 'output', 0);
      if (spec < 0) return;
      weightOf[value] = n;
      places.set(
        n,
        space.mesh.sizes.map((_, m): WeightPlace => {
          const dim = space.dimAt(spec, m);
          return dim < 0 ? { kind: 'whole' } : { kind: 'cut', dim };
        }),
      );
      return;
    }
    if (flow.phases[n] !== 'forward') return;
    const weights = new Set(
      Array.from(itemAt(flow.inputs, n), (value) => (value < 0 ? -1 : weightOf[value])),
    );
    const [only = -1, ...others] = [...weights];
    // Casts and views of one weight are the weight.
    if (only >= 0 && others.length === 0)
      for (const value of itemAt(flow.results, n)) if (value >= 0) weightOf[value] = only;
    itemAt(flow.inputs, n).forEach((value, at) =>
      noteGathers(chosen, places, { n, at, value, weightOf, kept: kept.has(value) }),
    );
  });
  return places;
}

/** Values of which a copy stays from the forward to the backward pass. */
function keptValues({ model, choice }: Chosen): ReadonlySet<number> {
  const kept = model.copies.filter((copy) => isKeptCopy(copy, itemAt(choice, copy.variable)));
  return new Set(kept.map(({ value }) => value));
}

/** Marks the mesh dims over which a use takes a weight whole that is made in parts. */
function noteGathers(
  chosen: Chosen,
  places: ReadonlyMap<number, WeightPlace[]>,
  use: {
    readonly n: number;
    readonly at: number;
    readonly value: number;
    readonly weightOf: Int32Array;
    readonly kept: boolean;
  },
): void {
  const own = use.value < 0 ? undefined : places.get(itemAt(use.weightOf, use.value));
  if (own === undefined) return;
  const { space } = chosen.model;
  const [from, to] = [madeAs(chosen, use.value), specAt(chosen, use.n, 'input', use.at)];
  if (from < 0 || to < 0) return;
  own.forEach((place, m) => {
    const wasCut = space.dimAt(from, m) >= 0;
    if (place.kind === 'cut' && wasCut && space.dimAt(to, m) < 0)
      own[m] = { kind: 'gathered', dim: place.dim, kept: use.kept };
  });
}
