/**
 * Holds the workspace of one solve on the pool of its problem: presolve, elimination and
 * reduced-cost fixing with their memos, and one meter of the work that they do.
 */
import { Eliminator } from '../eliminate/buckets.ts';
import { Reducer } from '../reduce/presolve.ts';
import { ReducedCostFixing } from '../reduce/reduced-cost-fixing.ts';
import type { Pool } from '../store/pool.ts';
import type { SolverStep } from '../types.ts';
import { PriceMemo } from './price-memo.ts';
import { StepRecorder } from './steps.ts';

/** A message step takes about as long as so many combinations of labels. */
const WORK_PER_STEP = 100;

/**
 * Counts the work of a solve, in combinations of labels: a clock that is the same on every machine.
 */
class WorkMeter {
  private messageStepCount = 0;
  private labelCount = 0;

  /** Message steps taken. */
  get messageSteps(): number {
    return this.messageStepCount;
  }

  /** Work of Pareto eliminations: combinations tried and cells looked up. */
  get labels(): number {
    return this.labelCount;
  }

  get total(): number {
    return this.messageStepCount * WORK_PER_STEP + this.labelCount;
  }

  spend({
    messageSteps = 0,
    labels = 0,
  }: {
    readonly messageSteps?: number;
    readonly labels?: number;
  }): void {
    this.messageStepCount += messageSteps;
    this.labelCount += labels;
  }
}

/** Steps, memos and meter of one solve. */
export interface Workspace {
  readonly reducer: Reducer;
  readonly eliminator: Eliminator;
  readonly fixing: ReducedCostFixing;
  readonly meter: WorkMeter;
  /**
   * The results at prices of a row, for other solves of the same problem under another bound of
   * that row.
   */
  readonly prices: PriceMemo;
  /** Tells what steps come to. */
  readonly steps: StepRecorder;
}

export function makeWorkspace(
  { pool, prices }: { readonly pool: Pool; readonly prices?: PriceMemo },
  onStep?: (step: SolverStep) => void,
): Workspace {
  const meter = new WorkMeter();
  return {
    reducer: new Reducer(),
    eliminator: new Eliminator(pool),
    fixing: new ReducedCostFixing(),
    meter,
    prices: prices ?? new PriceMemo(),
    steps: new StepRecorder(onStep, () => meter.total),
  };
}
