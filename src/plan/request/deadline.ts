/** Divides the time limit of a request among its stages: it gives the seconds that are left. */
import { checkKinds } from '../../arguments.ts';
import { defined } from '../../defined.ts';
import { interrupted, ShardwrightError } from '../../errors.ts';
import type { SolveOptions, SolverStep } from '../../solver/types.ts';
import { secondsText } from '../../units.ts';

/** Milliseconds since some fixed time, as `performance` counts them; a test may count its own. */
export interface Clock {
  now(): number;
}

/** How a limit is counted, and what else ends the work. */
export interface DeadlineOptions {
  /** Default: the monotonic clock of the thread. */
  readonly clock?: Clock;
  /** When the limit began to count, by the clock; default: now. */
  readonly since?: number;
  /** Ends the work as the limit does, with or without one. */
  readonly signal?: AbortSignal | undefined;
  /** Called after each step of every solve under this deadline. */
  readonly onStep?: ((step: SolverStep) => void) | undefined;
}

/**
 * When the time limit of a request is over, or its user ends it. One limit holds for a whole solve,
 * however many stages it has: who begins a stage gives it what is left.
 */
export class Deadline {
  private readonly at: number;
  private readonly clock: Clock;
  readonly signal: AbortSignal | undefined;
  private readonly onStep: ((step: SolverStep) => void) | undefined;

  /** @param limitSeconds absent: no limit */
  constructor(
    private readonly limitSeconds: number | undefined,
    options: DeadlineOptions = {},
  ) {
    checkKinds('Deadline', {
      limitSeconds: [limitSeconds, 'number', 'undefined'],
      options: [options, 'record'],
    });
    const { clock = performance, since, signal, onStep } = options;
    checkKinds('Deadline', {
      clock: [clock, ['now']],
      since: [since, 'number', 'undefined'],
      signal: [signal, ['aborted'], 'undefined'],
    });
    this.clock = clock;
    this.signal = signal;
    this.onStep = onStep;
    this.at = limitSeconds === undefined ? Infinity : (since ?? clock.now()) + 1e3 * limitSeconds;
  }

  /** Seconds until the limit, at least 0; Infinity without one. */
  get leftSeconds(): number {
    if (this.isInterrupted) return 0;
    return this.at === Infinity ? Infinity : Math.max(0, (this.at - this.clock.now()) / 1e3);
  }

  /** Seconds since the limit began to count; undefined without one. */
  get usedSeconds(): number | undefined {
    if (this.limitSeconds === undefined) return undefined;
    return (this.clock.now() - this.at) / 1e3 + this.limitSeconds;
  }

  /** Tells whether a signal, and not the limit, ends the work. */
  get isInterrupted(): boolean {
    return this.signal?.aborted === true;
  }

  /** The cause that ended the work, or would end it. */
  get cause(): 'interrupted' | 'time limit' {
    return this.isInterrupted ? 'interrupted' : 'time limit';
  }

  /**
   * A deadline that leaves so many seconds to work that must follow, but at least half of what is
   * left to what comes first.
   */
  reserving(seconds: number): Deadline {
    const left = this.leftSeconds;
    return this.part(left === Infinity || left === 0 ? 1 : Math.max(0.5, 1 - seconds / left));
  }

  /**
   * A deadline that comes sooner: work that must follow gets the rest.
   *
   * @param share part of what is left, 0..1
   */
  part(share: number): Deadline {
    const { clock, signal, onStep } = this;
    const left = this.leftSeconds;
    return new Deadline(left === Infinity ? undefined : share * left, { clock, signal, onStep });
  }

  /** The same deadline; every solve under it tells its steps. */
  telling(onStep: (step: SolverStep) => void): Deadline {
    const { clock, signal, limitSeconds } = this;
    return new Deadline(limitSeconds, {
      clock,
      signal,
      onStep,
      since: this.at - 1e3 * (limitSeconds ?? 0),
    });
  }

  /** Tells whether the limit is over: nothing new is begun then. */
  get isOver(): boolean {
    return this.leftSeconds === 0;
  }

  /**
   * Ends work without which there is no plan. @throws E_TIME_LIMIT saying which step the limit came
   * in, E_INTERRUPTED
   */
  check(step: string): void {
    if (!this.isOver) return;
    if (this.isInterrupted) throw interrupted();
    throw new ShardwrightError(
      'E_TIME_LIMIT',
      `the time limit of ${secondsText(this.limitSeconds ?? 0)} came ${step}, before the ` +
        'solver began',
      {
        hint:
          'raise --time-limit, or plan on a mesh of fewer dims: they decide how many ' +
          'placements there are.',
      },
    );
  }

  /**
   * The remaining time as options of the solver: without a limit no time limit, and never 0, which
   * would leave no time to look at a start.
   */
  get solveOptions(): Pick<SolveOptions, 'timeLimitSeconds' | 'signal' | 'onStep'> {
    return {
      ...(this.at === Infinity
        ? {}
        : { timeLimitSeconds: Math.max(LEAST_SECONDS, this.leftSeconds) }),
      ...defined({ signal: this.signal, onStep: this.onStep }),
    };
  }
}

/** The least time that a problem gets once it is begun. */
const LEAST_SECONDS = 1e-3;
