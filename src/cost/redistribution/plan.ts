/**
 * The answer of the redistribution planner: the steps from one sharding of a tensor to another,
 * with their bytes and seconds.
 */

import type { CollectiveKind } from '../../mesh/collective-kinds.ts';
import type { SourceTarget } from './permutation.ts';

/** One step on the way. */
export interface RedistributionStep {
  /**
   * A collective, or a local step: `slice` (R to S), `to_partial` (R to P), `relabel` (mesh dims of
   * one device).
   */
  readonly kind: CollectiveKind | 'slice' | 'to_partial' | 'relabel';
  /** Mesh dims of the group; their order is the gather or scatter order. */
  readonly meshDims: readonly number[];
  /** Devices of the group. */
  readonly groupSize: number;
  /**
   * Bytes of the collective (the convention of its kind); of a local step the bytes written, 0 for
   * views.
   */
  readonly bytes: number;
  readonly seconds: number;
  /** Sharding after the step. */
  readonly to: number;
  /**
   * Bytes of the pieces of a collective beside its operand and its result: of those that are no
   * runs in memory, which a copy lays in place, and of those that are padded.
   */
  readonly pieceBytes?: number;
  /**
   * For a permutation, the sender and receiver of every tile, by source; ranks that keep their tile
   * send to themselves.
   */
  readonly pairs?: readonly SourceTarget[];
}

/**
 * Tells whether a step does nothing on the devices: it has another name, a group of one, or shows a
 * part of what is there.
 */
export function isFree({ kind, groupSize, bytes }: RedistributionStep): boolean {
  return kind === 'relabel' || groupSize === 1 || (kind === 'slice' && bytes === 0);
}

/** All steps of a redistribution. */
export interface RedistributionPlan {
  readonly from: number;
  readonly to: number;
  readonly seconds: number;
  readonly steps: readonly RedistributionStep[];
  /** Number of steps that communicate. */
  readonly collectives: number;
  /** Largest local tensor of all states on the way, bytes. */
  readonly peakBytes: number;
  /** `S(0)S(1)->RS(1)->RR`; a step over several mesh dims is written `-->`. */
  readonly text: string;
}

/** The order between ways of equal price. */
interface Rank {
  readonly collectives: number;
  readonly steps: number;
  readonly text: string;
}

/**
 * Tells whether a way comes before another of equal price: fewer collectives, fewer steps, then by
 * its text.
 */
export function before(a: Rank, b: Rank): boolean {
  if (a.collectives !== b.collectives) return a.collectives < b.collectives;
  if (a.steps !== b.steps) return a.steps < b.steps;
  return a.text < b.text;
}
