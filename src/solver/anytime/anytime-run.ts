/** One run of the anytime solver: its clock, its stop, and who hears of progress. */
import { sharedBytes } from '../../platform/platform.ts';
import { gapOf } from '../problem/cost.ts';
import type { Problem, SolveOptions } from '../types.ts';

export class AnytimeRun {
  readonly problem: Problem;
  readonly options: SolveOptions;
  /** Element 0 is set to 1 to stop all threads. Lies in shared memory. */
  readonly control = new Int32Array(sharedBytes(4));
  readonly #started = performance.now();
  #lastBound = -Infinity;

  constructor(problem: Problem, options: SolveOptions) {
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
  progress(
    phase: 'reduce' | 'search' | 'finish' | 'close' | 'parts' | 'certify',
    objective: number,
    bound: number,
  ): void {
    this.#lastBound = Math.max(this.#lastBound, bound);
    const best = Math.min(this.#lastBound, objective);
    this.options.onProgress?.({ phase, seconds: this.elapsed(), objective, bound: best, gap: gapOf(objective, best) });
  }
}
