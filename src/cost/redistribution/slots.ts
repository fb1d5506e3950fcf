/**
 * Names the prices of the steps of a state graph, apart from the tensor: equal steps share a slot,
 * and a tensor type prices each slot once.
 */

import type { CollectiveKind } from '../../mesh/collective-kinds.ts';

export type StepKind = CollectiveKind | 'slice' | 'to_partial';

const KINDS: readonly StepKind[] = [
  'all_gather',
  'reduce_scatter',
  'all_reduce',
  'all_to_all',
  'collective_permute',
  'slice',
  'to_partial',
];

/** A cut that is not in ceil chunks. */
export interface SpecialCut {
  readonly dim: number;
  readonly code: number;
  /** Size of the mesh dim. */
  readonly n: number;
  /**
   * Plain pieces that the dim is cut into between the special cut before this one (or the whole
   * dim) and this one.
   */
  readonly before: number;
}

/** Local cuts of a tensor: pieces of each dim, and the cuts that are not ceil chunks. */
export interface CutSignature {
  /** Number of pieces of each tensor dim by plain shards. */
  readonly pieces: readonly number[];
  /** Further cuts, by dim and in the order in which they cut it. */
  readonly special: readonly SpecialCut[];
}

/**
 * The facts that decide the price of a step, apart from the tensor: equal slots have equal prices.
 */
export interface PriceSlot {
  readonly kind: StepKind;
  /** Mesh dims of the flattened group, ascending. */
  readonly meshDims: readonly number[];
  /** Devices of the group. */
  readonly devices: number;
  /** Index of the local cuts whose size the step moves; bytes = local bytes x `times`. */
  readonly cuts: number;
  readonly times: number;
  /**
   * Tensor dims along which pieces are put together or taken apart, for local copies; of `cuts` the
   * last cut of the dim.
   */
  readonly copyDims: readonly number[];
  /**
   * Tensor dims that must divide evenly by the pieces of the cuts (merged steps and permutations).
   */
  readonly evenDims: readonly number[];
}

/** Tells whether a step communicates. */
export function communicates(slot: PriceSlot): boolean {
  return slot.kind !== 'slice' && slot.kind !== 'to_partial' && slot.devices > 1;
}

/**
 * Slots and local cuts of one graph, each once. Keys are numbers where these are exact: building a
 * graph is hot.
 */
export class SlotTable {
  readonly slots: PriceSlot[] = [];
  readonly cuts: CutSignature[] = [];
  private readonly slotIndex = new Map<number, number>();
  private readonly slotKeys: number[] = [];
  private readonly cutIndex = new Map<number | string, number>();
  /** Index of every product of mesh dims that a dim can be cut into. */
  private readonly products = new Map<number, number>();
  private readonly exact: boolean;
  private readonly masks: number;

  /**
   * @param active mesh dims that matter
   * @param sizes their sizes
   */
  constructor(
    private readonly active: readonly number[],
    private readonly sizes: readonly number[],
    private readonly rank: number,
  ) {
    this.masks = 2 ** active.length;
    let all = [1];
    for (const n of sizes) all = [...new Set([...all, ...all.map((p) => p * n)])];
    all.forEach((product, i) => this.products.set(product, i));
    this.exact = Math.pow(this.products.size, rank) < 2 ** 52;
  }

  cutsOf(pieces: readonly number[], special: readonly SpecialCut[]): number {
    let key: number | string = 0;
    if (this.exact && special.length === 0) {
      for (let d = 0; d < pieces.length; d++)
        key = key * this.products.size + (this.products.get(pieces[d]) ?? 0);
    } else {
      const cuts = special.map((c) => `${c.dim}:${c.before}:${c.code}:${c.n}`);
      key = `${pieces.join(',')}|${cuts.join(',')}`;
    }
    let i = this.cutIndex.get(key);
    if (i === undefined) {
      i = this.cuts.length;
      this.cuts.push({ pieces: [...pieces], special });
      this.cutIndex.set(key, i);
    }
    return i;
  }

  /**
   * Slot of a step; tensor dims are -1 where there is none. Called for every edge, so the parts are
   * not an object.
   *
   * @param mask active mesh dims of the group, one bit each
   * @param even whether dims must divide evenly: those of the step, or (permutations) all that are
   *   cut
   */
  slotOf(
    kind: StepKind,
    mask: number,
    cuts: number,
    times: number,
    gathered: number,
    scattered: number,
    even: boolean,
  ): number {
    const dims = this.rank + 1;
    let key = (cuts * KINDS.length + KINDS.indexOf(kind)) * dims + gathered + 1;
    key = ((key * dims + scattered + 1) * 2 + (even ? 1 : 0)) * this.masks + mask;
    let i = this.slotIndex.get(key);
    if (i !== undefined) return i;
    i = this.slots.length;
    this.slotIndex.set(key, i);
    this.slotKeys.push(key);
    const axes = this.sizes.map((_, a) => a).filter((a) => (mask & (1 << a)) !== 0);
    const copyDims = [gathered, scattered].filter((d) => d >= 0);
    const cutDims = (): number[] => {
      const { pieces, special } = this.cuts[cuts];
      return pieces
        .map((_, d) => d)
        .filter((d) => pieces[d] > 1 || special.some((c) => c.dim === d));
    };
    this.slots.push({
      kind,
      meshDims: axes.map((a) => this.active[a]),
      devices: axes.reduce((n, a) => n * this.sizes[a], 1),
      cuts,
      times,
      copyDims,
      evenDims: !even ? [] : kind === 'collective_permute' ? cutDims() : copyDims,
    });
    return i;
  }
  /**
   * Slot of the same step with two axes of equal size exchanged, for each slot; undefined when one
   * has none.
   */
  swapped(a: number, b: number): Int32Array | undefined {
    const out = new Int32Array(this.slots.length);
    for (let i = 0; i < out.length; i++) {
      const key = this.slotKeys[i];
      // The mesh dims of the group are the lowest digits of the key; local cuts do not say which
      // mesh dims made them.
      const mask = key % this.masks;
      const bits = ((mask >> a) ^ (mask >> b)) & 1;
      const mirror = this.slotIndex.get(key - mask + (mask ^ ((bits << a) | (bits << b))));
      if (mirror === undefined) return undefined;
      out[i] = mirror;
    }
    return out;
  }
}
