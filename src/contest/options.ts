/**
 * The options of the anytime solver of contest problems, in addition to the limits of every solve.
 */
import type { SolveOptions } from '../solver/types.ts';

/** The limits and listeners that `solve` takes too, and how the search with threads is run. */
export interface ContestOptions extends Pick<
  SolveOptions,
  | 'certify'
  | 'gap'
  | 'onProgress'
  | 'onStep'
  | 'seed'
  | 'signal'
  | 'starts'
  | 'timeLimitSeconds'
  | 'workLimit'
> {
  /**
   * A bound known beforehand. The search ends once its best choice is within the gap of it, too;
   * the bound of the answer does not rest on it.
   */
  readonly lowerBound?: number;
  /** Worker threads; 1 works in the calling thread. The answer does not depend on it. Default 2. */
  readonly threads?: number;
  /** Lines of search that meet after every round. The answer depends on it. Default 2. */
  readonly members?: number;
  /**
   * Most rounds of search, the deterministic limit. Default: none when there is a time limit, else
   * 400.
   */
  readonly rounds?: number;
  /**
   * True if the exact engine may close small models, and the bound of others be raised by parts.
   * Default true.
   */
  readonly close?: boolean;
  /**
   * Seconds that closing may take in all where there is no time limit. Default: as many as the
   * rounds of search took, and at least 30.
   */
  readonly closeSeconds?: number;
}
