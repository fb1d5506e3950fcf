/**
 * Prices the steps of redistribution plans for one tensor type: exact byte counts, collectives,
 * local copies.
 */

import { defined } from '../../defined.ts';
import { internalError } from '../../errors.ts';
import { type DType, DTYPE_BYTES } from '../../graph/types.ts';
import type { Placement } from '../../mesh/placements/placement.ts';
import { Shard } from '../../mesh/placements/shards/shard.ts';
import type { Sharding } from '../../mesh/sharding/sharding.ts';
import { shardDimOfCode, type ShardingSpace } from '../../mesh/sharding/space.ts';
import { product } from '../../product.ts';
import type { CollectiveModel } from '../collective-model.ts';
import { quantizedSeconds } from './paths.ts';
import type { CutSignature, PriceSlot, SpecialCut } from './slots.ts';
import type { StateGraph } from './states.ts';

/** A tensor, as far as moving it costs. */
export interface MovedType {
  /** Global shape. */
  readonly shape: readonly number[];
  /** Bytes of one element. */
  readonly itemBytes: number;
  /** Dims from the slowest to the fastest in memory; absent of a tensor that lies row by row. */
  readonly order?: readonly number[];
}

/** A value of a program, as far as moving it costs. */
export interface MovedValue {
  readonly meta: { readonly shape: readonly number[]; readonly dtype: DType };
  readonly order?: readonly number[];
}

export function movedType({ meta: { shape, dtype }, order }: MovedValue): MovedType {
  return { shape, itemBytes: DTYPE_BYTES[dtype], ...defined({ order }) };
}

/**
 * Types with equal keys have equal prices: apart from the total, only sizes that the mesh may cut
 * unevenly matter.
 *
 * @param product number of devices that may cut one dim: the product of the mesh dims that take
 *   part
 */
export function sizeKey(type: MovedType, product: number): string {
  let total = type.itemBytes;
  for (const size of type.shape) total *= size;
  return `${total}|${dimClasses(type, product).join(',')}`;
}

/**
 * Size of a tensor dim as far as it matters: `E` divides evenly in whatever way the mesh cuts it.
 */
function sizeToken(size: number, product: number): string {
  return size > 0 && product > 1 && size % product === 0 ? 'E' : String(size);
}

/**
 * Class of each tensor dim: dims of one class cost the same (same size as far as it matters, both
 * or neither contiguous).
 */
export function dimClasses(type: MovedType, product: number): string[] {
  return type.shape.map((size, d) => `${sizeToken(size, product)}${leads(type, d) ? '!' : ''}`);
}

/**
 * Tells whether pieces along a dim are contiguous in memory: every dim that is slower has size 1.
 */
export function leads({ shape, order }: Pick<MovedType, 'shape' | 'order'>, dim: number): boolean {
  for (let place = 0; place < shape.length; place++) {
    const slow = order?.[place] ?? place;
    if (slow === dim) return true;
    if (shape[slow] !== 1) return false;
  }
  return true;
}

/**
 * Bytes of the largest local tensor of a sharding. @throws E_PLACEMENT when a dim is cut that the
 * shape lacks
 */
export function localTensorBytes(space: ShardingSpace, id: number, type: MovedType): number {
  let n = type.itemBytes;
  for (const size of space.localShape(id, type.shape)) n *= size;
  return n;
}

/** The local cuts of a sharding of a tensor of this rank. */
export function cutsOfSharding(
  space: ShardingSpace,
  sharding: Sharding,
  rank: number,
): CutSignature {
  const pieces = new Array<number>(rank).fill(1);
  const special: SpecialCut[] = [];
  for (const [dim, order] of sharding.orders) {
    let before = 1;
    for (const m of order) {
      const code = space.codeOf(sharding.placements[m]);
      const n = space.mesh.sizes[m];
      if (shardDimOfCode(code) >= 0) {
        pieces[dim] *= n;
        before *= n;
      } else {
        special.push({ dim, code, n, before });
        before = 1;
      }
    }
  }
  return { pieces, special };
}

/** Prices of steps, and of all slots of a state graph, under one collective model. */
export class SlotPricing {
  constructor(
    private readonly space: ShardingSpace,
    private readonly model: CollectiveModel,
  ) {}

  /** Seconds of every slot; Infinity where the type does not divide as the step needs. */
  slots(graph: StateGraph, type: MovedType): Float64Array {
    const prices = new Float64Array(graph.slots.length);
    const local = Float64Array.from(graph.cuts, (cuts) => this.localBytes(cuts, type));
    graph.slots.forEach((slot, i) => {
      const seconds = quantizedSeconds(
        this.seconds(slot, graph.cuts[slot.cuts], local[slot.cuts], type),
      );
      if (!(seconds >= 0))
        throw internalError(`preset ${this.model.preset} gives ${seconds} s for ${slot.kind}`);
      prices[i] = seconds;
    });
    return prices;
  }

  /**
   * Seconds of one step: a collective or a slice, and a read and a write of its bytes for every dim
   * along which pieces are not contiguous, and of what is padded and cut off where pieces are not
   * equally large. A slice that is a view costs nothing. Rounded as `quantizedSeconds` says.
   */
  price(slot: PriceSlot, cuts: CutSignature, type: MovedType): number {
    return quantizedSeconds(this.seconds(slot, cuts, this.localBytes(cuts, type), type));
  }

  /** Bytes of a step by the convention of its kind; of a slice the bytes that are written. */
  bytes(slot: PriceSlot, cuts: CutSignature, type: MovedType): number {
    return this.slotBytes(slot, cuts, this.localBytes(cuts, type), type);
  }

  private seconds(slot: PriceSlot, cuts: CutSignature, local: number, type: MovedType): number {
    if (slot.kind === 'to_partial') return 0;
    // A kind refuses to cut this size: no state of it can be reached.
    if (local === Infinity) return Infinity;
    const { model } = this;
    const bytes = this.slotBytes(slot, cuts, local, type);
    if (slot.kind === 'slice')
      return slot.devices === 1 ? 0 : (model.sliceSeconds?.(bytes) ?? model.copySeconds(2 * bytes));
    for (const d of slot.evenDims) if (!this.divides(cuts, d, type.shape[d])) return Infinity;
    const copied = 2 * this.copiedBytes(slot, cuts, type);
    return (
      model.seconds(slot.kind, bytes, slot.meshDims) + (copied > 0 ? model.copySeconds(copied) : 0)
    );
  }

  /**
   * Bytes beside the operand and the result of a collective: the pieces that they are laid from,
   * and of pieces that are only padded the padded ones. Undefined where there are none.
   *
   * @param most bytes of the larger of operand and result
   */
  pieceBytes(
    slot: PriceSlot,
    cuts: CutSignature,
    type: MovedType,
    most: number,
  ): number | undefined {
    if (this.copiedDims(slot, cuts, type) > 0) return most;
    if (!this.pads(slot, cuts, type)) return undefined;
    const bytes = this.bytes(slot, cuts, type);
    return slot.kind === 'all_gather' ? bytes / slot.devices : bytes;
  }

  /** Number of dims of a collective along which pieces are copied. */
  private copiedDims(
    { devices, copyDims }: PriceSlot,
    cuts: CutSignature,
    type: MovedType,
  ): number {
    return devices > 1 ? copyDims.filter((d) => this.copies(cuts, d, type)).length : 0;
  }

  /**
   * Tells whether some pieces of a collective are not full. Cuts other than in ceil chunks are
   * taken to be even.
   */
  private pads({ devices, copyDims }: PriceSlot, cuts: CutSignature, type: MovedType): boolean {
    return devices > 1 && copyDims.some((d) => !rowsOfCut(cuts, d, devices, type).even);
  }

  /**
   * Bytes that the copies beside a collective write, each on the device that writes most. Of pieces
   * that are not equally large all are padded before, and padding that comes back is cut off: by a
   * view along the leading dim, by a copy along another. Dims behind one that is cut to one row
   * still count as not contiguous.
   */
  private copiedBytes(slot: PriceSlot, cuts: CutSignature, type: MovedType): number {
    const bytes = this.bytes(slot, cuts, type);
    const { kind, devices, copyDims } = slot;
    const even = bytes * this.copiedDims(slot, cuts, type);
    if (!this.pads(slot, cuts, type)) return even;
    const rows = (d: number): RowsOfCut => rowsOfCut(cuts, d, devices, type);
    const uneven = (d: number): boolean => !rows(d).even;
    const inner = (d: number): boolean => uneven(d) && !leads(type, d);
    const [first, second] = copyDims;
    switch (kind) {
      case 'all_gather': {
        const { whole, padded } = rows(first);
        return bytes / devices + (inner(first) ? (bytes * whole) / padded : even);
      }
      case 'reduce_scatter':
        return (
          bytes + even + (inner(first) ? (bytes * rows(first).partial) / rows(first).padded : 0)
        );
      default: {
        const [a, b] = [rows(first), rows(second)];
        const own = (bytes * a.whole) / a.padded;
        return (
          even +
          (uneven(first) ? (bytes * b.whole) / b.padded : 0) +
          (uneven(second) ? bytes : 0) +
          (inner(first) ? own : inner(second) ? (own * devices * b.partial) / b.padded : 0)
        );
      }
    }
  }

  private slotBytes(slot: PriceSlot, cuts: CutSignature, local: number, type: MovedType): number {
    if (slot.kind === 'to_partial') return 0;
    if (slot.kind === 'slice' && !this.copies(cuts, slot.copyDims[0], type)) return 0;
    return local * slot.times;
  }

  /**
   * Tells whether what the last cut of a dim takes apart is not one run in memory: pieces of an
   * inner dim, and pieces of the leading dim that take rows here and there (`_S(0, 2)`). Putting
   * such pieces together copies as well.
   */
  private copies(cuts: CutSignature, dim: number, type: MovedType): boolean {
    if (!leads(type, dim)) return true;
    const special = cuts.special.filter((cut) => cut.dim === dim);
    const last = special.at(-1);
    if (last === undefined || this.space.placementOf(last.code).oneRun) return false;
    // Plain pieces that no special cut comes after belong to the last cut.
    return product(special.map((cut) => cut.before)) === cuts.pieces[dim];
  }

  /** Tells whether every piece of a dim is equally large. */
  private divides(cuts: CutSignature, dim: number, size: number): boolean {
    if (size % cuts.pieces[dim] !== 0) return false;
    return cuts.special.every(
      (c) => c.dim !== dim || this.space.placementOf(c.code).isEven(size, c.n),
    );
  }

  /**
   * Bytes of the largest local tensor under some cuts; Infinity where a kind refuses to cut the
   * dim.
   */
  private localBytes(cuts: CutSignature, type: MovedType): number {
    let bytes = type.itemBytes;
    if (this.model.byteRule === 'fraction') {
      for (const size of type.shape) bytes *= size;
      let pieces = 1;
      for (const n of cuts.pieces) pieces *= n;
      for (const cut of cuts.special) pieces *= cut.n;
      for (const cut of cuts.special)
        if (this.cutSize(cuts, cut.dim, type.shape[cut.dim]) === Infinity) return Infinity;
      return bytes / pieces;
    }
    for (let d = 0; d < type.shape.length; d++)
      bytes *=
        cuts.special.length === 0
          ? Math.ceil(type.shape[d] / cuts.pieces[d])
          : this.cutSize(cuts, d, type.shape[d]);
    return bytes;
  }

  /**
   * Rows of a dim that the largest rank holds, cut by cut; Infinity where a kind refuses a size
   * that some rank has.
   */
  private cutSize(cuts: CutSignature, dim: number, size: number): number {
    let sizes: readonly number[] = [size];
    let pieces = cuts.pieces[dim];
    for (const cut of cuts.special) {
      if (cut.dim !== dim) continue;
      const p = this.space.placementOf(cut.code);
      sizes = localSizes(PLAIN, sizes, cut.before);
      if (sizes.some((s) => p.refusal(s, cut.n) !== undefined)) return Infinity;
      sizes = localSizes(p, sizes, cut.n);
      pieces /= cut.before;
    }
    return Math.max(...localSizes(PLAIN, sizes, pieces));
  }
}

const PLAIN = Shard.of(0);

/** Rows of a dim at its last cut into some pieces, on the devices that have most. */
interface RowsOfCut {
  /** Before the cut. */
  readonly whole: number;
  /** Rows of as many full pieces. */
  readonly padded: number;
  /** The largest piece that is not full. */
  readonly partial: number;
  /** True if all pieces of a device's rows are equally large. */
  readonly even: boolean;
}

/** @param n pieces of the last cut, in ceil chunks */
function rowsOfCut(cuts: CutSignature, dim: number, n: number, { shape }: MovedType): RowsOfCut {
  if (cuts.special.some((cut) => cut.dim === dim))
    return { whole: shape[dim], padded: shape[dim], partial: 0, even: true };
  const whole = Math.ceil(shape[dim] / (cuts.pieces[dim] / n));
  const last = shape[dim] % whole;
  const rest = (rows: number): number => rows % Math.ceil(rows / n);
  return {
    whole,
    padded: n * Math.ceil(shape[dim] / cuts.pieces[dim]),
    partial: Math.max(rest(whole), last > 0 ? rest(last) : 0),
    even: whole % n === 0 && last % n === 0,
  };
}

/** Distinct sizes that ranks hold after a cut of dims of these sizes. */
function localSizes(p: Placement, sizes: readonly number[], n: number): readonly number[] {
  if (n === 1 && p === PLAIN) return sizes;
  const out = new Set<number>();
  for (const size of sizes) for (let r = 0; r < n; r++) out.add(p.localSize(size, n, r));
  return [...out];
}
