/** One run of the anytime solver: its clock, its stop, and who hears of progress. */
import { sharedBytes } from '../platform/platform.ts';
import { gapOf } from '../solver/problem/cost.ts';
import { type Problem, type Solution, type SolverStep, STEP_ABOUT } from '../solver/types.ts';
import type { ContestOptions } from './options.ts';

/** The source of an event. */
type Phase = 'reduce' | 'search' | 'finish' | 'close' | 'parts' | 'certify';

/** The last event of a phase, and the seconds at which it came. */
interface LastEvent {
  readonly name: Phase;
  readonly cost: number;
  readonly bound: number;
  readonly until: number;
}

/** Least seconds that closing gets where there is no time limit. */
const LEAST_CLOSING_SECONDS = 30;

/**
 * The time of what closes the gap after rounds of search, where no time limit ends it: as long as
 * the search took.
 */
class ClosingTime {
  private spent = 0;
  private isOver = false;

  constructor(private readonly run: AnytimeRun) {}

  /** Seconds that are left; Infinity where a time limit counts instead. */
  get left(): number {
    const { timeLimitSeconds, closeSeconds } = this.run.options;
    if (timeLimitSeconds !== undefined) return Infinity;
    const searched = this.run.elapsed() - this.spent;
    const allowed = closeSeconds ?? Math.max(LEAST_CLOSING_SECONDS, searched);
    const left = Math.max(0, allowed - this.spent);
    this.isOver ||= left === 0;
    return left;
  }

  /** Counts what a step of closing takes. */
  async counted<T>(step: () => Promise<T>): Promise<T> {
    const since = this.run.elapsed();
    try {
      return await step();
    } finally {
      this.spent += this.run.elapsed() - since;
    }
  }

  /** Which limit closing had, in a sentence; none where it was not begun, or was interrupted. */
  get words(): readonly string[] {
    const { timeLimitSeconds, closeSeconds } = this.run.options;
    if (timeLimitSeconds !== undefined || this.run.stopped()) return [];
    if (this.spent === 0 && !this.isOver) return [];
    if (closeSeconds !== undefined) return [`closing had a limit of ${closeSeconds} s`];
    return [
      'closing had as many seconds as the rounds of search took, and at least ' +
        `${LEAST_CLOSING_SECONDS}; a time limit gives it others`,
    ];
  }
}

export class AnytimeRun {
  readonly closing = new ClosingTime(this);
  readonly problem: Problem;
  readonly options: ContestOptions;
  /** Element 0 is set to 1 to stop all threads. Lies in shared memory. */
  readonly control = new Int32Array(sharedBytes(4));
  private readonly started = performance.now();
  private lastBound = -Infinity;
  /** The step that events come from, and what the last one said. */
  private step: LastEvent | undefined;
  private steps = 1;
  private toldUntil = 0;

  constructor(problem: Problem, options: ContestOptions) {
    this.problem = problem;
    this.options = options;
  }

  /** Seconds since the run began. */
  elapsed(): number {
    return (performance.now() - this.started) / 1000;
  }

  stop(): void {
    Atomics.store(this.control, 0, 1);
  }

  stopped(): boolean {
    // A signal may be known before its event is heard.
    if (this.options.signal?.aborted === true) this.stop();
    return Atomics.load(this.control, 0) !== 0;
  }

  /**
   * Tells the caller; the bound of an event is never below that of an earlier one, nor above the
   * objective.
   */
  progress(phase: Phase, objective: number, bound: number): void {
    this.lastBound = Math.max(this.lastBound, bound);
    if (this.step !== undefined && this.step.name !== phase) this.tellStep(this.step);
    this.step = { name: phase, cost: objective, bound: this.lastBound, until: this.elapsed() };
    const best = Math.min(this.lastBound, objective);
    this.options.onProgress?.({
      phase,
      seconds: this.elapsed(),
      objective,
      bound: best,
      gap: gapOf(objective, best),
    });
  }

  /** Tells the last step, and the whole solve. */
  done<T extends Solution>(solution: T): T {
    const { status, objective: cost, bound } = solution;
    if (this.step !== undefined) this.tellStep(this.step);
    this.tell({
      order: 0,
      level: 0,
      step: 'solve',
      outcome: status,
      seconds: this.elapsed(),
      cost,
      bound,
    });
    return solution;
  }

  private tellStep({ name, cost, bound, until }: LastEvent): void {
    const seconds = until - this.toldUntil;
    this.toldUntil = until;
    this.tell({
      order: this.steps++,
      level: 1,
      step: name,
      outcome: 'done',
      seconds,
      cost,
      bound,
    });
  }

  private tell({
    cost,
    bound,
    ...step
  }: Omit<SolverStep, 'about' | 'cost' | 'bound'> & {
    readonly cost: number;
    readonly bound: number;
  }): void {
    const known = {
      ...(cost === Infinity ? {} : { cost }),
      ...(bound === -Infinity ? {} : { bound }),
    };
    this.options.onStep?.({ ...step, about: STEP_ABOUT[step.step], ...known });
  }
}
