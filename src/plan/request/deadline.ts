/**
 * The deadline of a request. In: a time limit, a clock. Out: the seconds left for each stage.
 */
import { ShardwrightError } from '../../errors.ts';
import { secondsText } from '../../units.ts';

/** Milliseconds since some fixed moment, as `performance` counts them; a test may count its own. */
export interface Clock {
  now(): number;
}

/**
 * When the time limit of a request is over. One limit holds for a whole solve, however many stages it has: who begins a stage
 * gives it what is left.
 */
export class Deadline {
  private readonly at: number;

  /** @param limitSeconds from now on; absent: no limit */
  constructor(
    private readonly limitSeconds: number | undefined,
    private readonly clock: Clock = performance,
  ) {
    this.at = limitSeconds === undefined ? Infinity : clock.now() + 1e3 * limitSeconds;
  }

  /** Seconds until the limit, at least 0; Infinity without one. */
  get leftSeconds(): number {
    return this.at === Infinity ? Infinity : Math.max(0, (this.at - this.clock.now()) / 1e3);
  }

  /** Whether the limit is over: nothing new is begun then. */
  get isOver(): boolean {
    return this.leftSeconds === 0;
  }

  /** Ends work without which there is no plan. @throws E_TIME_LIMIT saying which step the limit came in */
  check(step: string): void {
    if (!this.isOver) return;
    throw new ShardwrightError(
      'E_TIME_LIMIT',
      `the time limit of ${secondsText(this.limitSeconds ?? 0)} came ${step}, before the solver began`,
      { hint: 'raise --time-limit, or plan on a mesh of fewer dims: they decide how many placements there are.' },
    );
  }

  /** What is left, as an option of the solver: empty without a limit, and never 0, which would be no time to look at a start. */
  get solveOptions(): { readonly timeLimitSeconds?: number } {
    return this.at === Infinity ? {} : { timeLimitSeconds: Math.max(LEAST_SECONDS, this.leftSeconds) };
  }
}

/** What a problem that is begun gets at least. */
const LEAST_SECONDS = 1e-3;
