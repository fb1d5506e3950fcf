/**
 * Reports the steps of a solve to a listener: the result of each, its work, the best cost and the
 * bound after it. Where nobody listens, the work runs and nothing else is done.
 */
import type { Network } from '../network/network.ts';
import { type SolverStep, STEP_ABOUT, type StepName } from '../types.ts';

/** The knowledge after a step. */
export interface StepState {
  readonly outcome: string;
  /** The network as the step left it. */
  readonly net?: Network;
  readonly cost?: number;
  readonly bound?: number;
}

/** The outcome of a step that may succeed. */
export const either =
  (done: string, not: string) =>
  (isDone: boolean): StepState => ({ outcome: isDone ? done : not });

export class StepRecorder {
  private readonly listener: ((step: SolverStep) => void) | undefined;
  /** Work done so far, in the unit of `SolveOptions.workLimit`. */
  private readonly work: () => number;
  private begun = 0;
  private level = 0;
  /** True if a step runs that is reported as one. */
  private isWhole = false;

  constructor(listener: ((step: SolverStep) => void) | undefined, work: () => number) {
    this.listener = listener;
    this.work = work;
  }

  /**
   * Runs a step, and reports its result. The steps inside it are reported before it, one level
   * deeper.
   */
  run<T>(step: StepName, work: () => T, state: (result: T) => StepState): T {
    const listener = this.listener;
    if (listener === undefined || this.isWhole) return work();
    const order = this.begun++;
    const before = this.work();
    const began = performance.now();
    this.level++;
    let result: T;
    try {
      result = work();
    } finally {
      this.level--;
    }
    const { outcome, net, cost = Infinity, bound = -Infinity } = state(result);
    listener({
      order,
      level: this.level,
      step,
      about: STEP_ABOUT[step],
      outcome,
      work: this.work() - before,
      seconds: (performance.now() - began) / 1e3,
      ...(net === undefined ? {} : { values: valuesOf(net), cells: net.cells }),
      ...(cost === Infinity ? {} : { cost }),
      ...(bound === -Infinity ? {} : { bound }),
    });
    return result;
  }

  /**
   * `run` for a step that tells nothing of the steps that it takes, because there may be thousands.
   */
  runWhole<T>(step: StepName, work: () => T, state: (result: T) => StepState): T {
    const whole = (): T => {
      const before = this.isWhole;
      this.isWhole = true;
      try {
        return work();
      } finally {
        this.isWhole = before;
      }
    };
    return this.run(step, whole, state);
  }
}

/** Values left of all variables. */
export function valuesOf(net: Network): number {
  let sum = 0;
  for (let i = 0; i < net.count; i++) if (net.gone[i] === 0) sum += net.size[i];
  return sum;
}
