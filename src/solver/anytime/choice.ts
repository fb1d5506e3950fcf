/** What goes into `solveChoice` and comes out of it, and what the stages of one run share. */
import type { DualCertificate } from '../check/dual.ts';
import type { Certificate, Problem } from '../types.ts';

export interface ChoiceOptions {
  /** Wall-clock limit of everything, reading excluded. Default: none, stop at proof or after `rounds`. */
  readonly timeLimitSeconds?: number;
  /** Stop once (objective - bound) / max(1, |objective|) is at most this. Default 0. */
  readonly gap?: number;
  readonly seed?: number;
  /** Worker threads; 1 works in the calling thread. The answer does not depend on it. Default 2. */
  readonly threads?: number;
  /** Lines of search that meet after every round: more use more threads. The answer depends on it. Default 2. */
  readonly members?: number;
  /** Most rounds of search: the deterministic limit. Default: none when there is a time limit, else 400. */
  readonly rounds?: number;
  /** Whether the exact engine may close small models (at most a minute of it without a time limit). Default true. */
  readonly close?: boolean;
  readonly signal?: AbortSignal;
  readonly onProgress?: (event: ChoiceProgress) => void;
}

/** Objective falls and bound rises; the bound of an event is not yet certified, the one of the solution is. */
export interface ChoiceProgress {
  readonly phase: 'reduce' | 'search' | 'finish' | 'close' | 'certify';
  readonly seconds: number;
  readonly objective: number;
  readonly bound: number;
  readonly gap: number;
}

export interface ChoiceSolution {
  readonly status: 'optimal' | 'feasible' | 'infeasible';
  readonly choice: Int32Array;
  /** Cost by the checker; absent when infeasible. */
  readonly objective?: bigint;
  /** Lower bound by the checker; absent when infeasible. */
  readonly bound?: bigint;
  readonly gap: number;
  readonly seconds: number;
  readonly rounds: number;
  readonly certificate?: Certificate | DualCertificate;
  /** What HiGHS said about the reduced model, where it was asked, and the size of its last program. Evidence, no proof. */
  readonly finisher?: {
    readonly word: string;
    readonly runs: number;
    readonly rows: number;
    readonly columns: number;
  };
  readonly conflict?: readonly string[];
  readonly smallestBudget?: number;
}

/** (objective - bound) / max(1, |objective|), at least 0; Infinity without a bound. */
export function gapOf(objective: number, bound: number): number {
  return bound === -Infinity ? Infinity : Math.max(0, objective - bound) / Math.max(1, Math.abs(objective));
}

/** One run of `solveChoice`: its clock, its stop, and who hears of progress. */
export class ChoiceRun {
  readonly problem: Problem;
  readonly options: ChoiceOptions;
  /** Element 0 is set to 1 to stop all threads. Lies in shared memory. */
  readonly control = new Int32Array(new SharedArrayBuffer(4));
  readonly #started = performance.now();
  #lastBound = -Infinity;

  constructor(problem: Problem, options: ChoiceOptions) {
    this.problem = problem;
    this.options = options;
  }

  /** Seconds since the run began. */
  elapsed(): number {
    return (performance.now() - this.#started) / 1000;
  }

  stop(): void {
    Atomics.store(this.control, 0, 1);
  }

  stopped(): boolean {
    // A signal may be known before its event is heard.
    if (this.options.signal?.aborted === true) this.stop();
    return Atomics.load(this.control, 0) !== 0;
  }

  /** Tells the caller; the bound of an event is never below that of an earlier one, nor above the objective. */
  progress(phase: ChoiceProgress['phase'], objective: number, bound: number): void {
    this.#lastBound = Math.max(this.#lastBound, bound);
    const best = Math.min(this.#lastBound, objective);
    this.options.onProgress?.({ phase, seconds: this.elapsed(), objective, bound: best, gap: gapOf(objective, best) });
  }
}
