/** The base of placements that wait for a reduction. */

import type { Placement } from '../placement.ts';
import { Uncut } from '../uncut.ts';

/**
 * The base class of pending reductions: every rank holds an operand of a reduction that is still to
 * be done. A new kind says how operands reduce and how one value is split into operands.
 */
export abstract class Pending extends Uncut {
  /** The value that the operands of all ranks represent. Booleans are given as 0 and 1. */
  abstract reduce(operands: readonly number[], type?: OperandType): number;
  /**
   * Operand of one of `n` ranks for a value that all of them hold, so that the operands reduce to
   * the value; undefined where the step from R is refused.
   */
  abstract operand(value: number, rank: number, n: number): number | undefined;
  /**
   * Tells whether one tensor may have both, on different mesh dims: as a rule the same reduction
   * only.
   */
  standsWith(other: Placement): boolean {
    return this.equals(other);
  }
}

export type OperandType = 'number' | 'bool';
