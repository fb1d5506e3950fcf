import { internalError } from '../errors.ts';
import type { ShardingSpace } from '../mesh/space.ts';
import type { CollectiveModel } from './collectives.ts';
import { quantized } from './paths.ts';
import type { CutSignature, PriceSlot, StateGraph } from './states.ts';

/** What the steps of redistribution plans cost for one tensor type: exact byte counts, collectives, local copies. */

/** A tensor, as far as moving it costs. */
export interface MovedType {
  /** Global shape. */
  readonly shape: readonly number[];
  /** Bytes of one element. */
  readonly itemBytes: number;
}

/**
 * Types with equal keys have equal prices: beside the total only sizes that the mesh may cut unevenly matter.
 *
 * @param product devices that may cut one dim: product of the mesh dims that take part
 */
export function sizeKey(type: MovedType, product: number): string {
  let total = type.itemBytes;
  for (const size of type.shape) total *= size;
  return `${total}|${type.shape.map((size) => sizeToken(size, product)).join(',')}`;
}

/** Size of a tensor dim as far as it matters: `E` divides evenly in whatever way the mesh cuts it. */
function sizeToken(size: number, product: number): string {
  return size > 0 && product > 1 && size % product === 0 ? 'E' : String(size);
}

/** Class of each tensor dim: dims of one class cost the same (same size as far as it matters, both or neither contiguous). */
export function dimClasses(type: MovedType, product: number): string[] {
  return type.shape.map((size, d) => `${sizeToken(size, product)}${leads(type.shape, d) ? '!' : ''}`);
}

/** Whether pieces along a dim are contiguous in memory: every dim before it has size 1. */
function leads(shape: readonly number[], dim: number): boolean {
  for (let d = 0; d < dim; d++) if (shape[d] !== 1) return false;
  return true;
}

/** Prices of the slots of a state graph under one collective model. */
export class SlotPricing {
  constructor(
    private readonly space: ShardingSpace,
    private readonly model: CollectiveModel,
  ) {}

  /** Seconds of every slot; Infinity where the type does not divide as the step needs. */
  slots(graph: StateGraph, type: MovedType): Float64Array {
    const prices = new Float64Array(graph.slots.length);
    graph.slots.forEach((slot, i) => {
      const seconds = quantized(this.seconds(slot, graph.cuts[slot.cuts], type));
      if (!(seconds >= 0)) throw internalError(`preset ${this.model.preset} gives ${seconds} s for ${slot.kind}`);
      prices[i] = seconds;
    });
    return prices;
  }

  /** Bytes of a step by the convention of its kind; of a slice the bytes that are written. */
  bytes(slot: PriceSlot, cuts: CutSignature, type: MovedType): number {
    if (slot.kind === 'to_partial') return 0;
    if (slot.kind === 'slice' && leads(type.shape, slot.copyDims[0])) return 0;
    return this.localBytes(cuts, type) * slot.times;
  }

  /**
   * A collective, and a read and a write of its bytes for every dim along which pieces are not contiguous; a slice costs
   * what it writes, nothing where it is a view.
   */
  private seconds(slot: PriceSlot, cuts: CutSignature, type: MovedType): number {
    for (const d of slot.evenDims) if (type.shape[d] % cuts.pieces[d] !== 0) return Infinity;
    const { model } = this;
    switch (slot.kind) {
      case 'to_partial':
        return 0;
      case 'slice':
        return slot.devices === 1 ? 0 : model.copySeconds(this.bytes(slot, cuts, type));
      default: {
        const bytes = this.bytes(slot, cuts, type);
        let copied = 0;
        if (slot.devices > 1) for (const d of slot.copyDims) if (!leads(type.shape, d)) copied += 2 * bytes;
        return model.seconds(slot.kind, bytes, slot.meshDims) + (copied > 0 ? model.copySeconds(copied) : 0);
      }
    }
  }

  /** Bytes of the largest local tensor under some cuts. */
  private localBytes(cuts: CutSignature, type: MovedType): number {
    let bytes = type.itemBytes;
    if (this.model.byteRule === 'fraction') {
      for (const size of type.shape) bytes *= size;
      let pieces = 1;
      for (const n of cuts.pieces) pieces *= n;
      for (const cut of cuts.special) pieces *= cut.n;
      return bytes / pieces;
    }
    for (let d = 0; d < type.shape.length; d++) {
      let local = Math.ceil(type.shape[d] / cuts.pieces[d]);
      for (const cut of cuts.special)
        if (cut.dim === d) local = this.space.placementOf(cut.code).localSize(local, cut.n);
      bytes *= local;
    }
    return bytes;
  }
}
