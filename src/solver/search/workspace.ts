/**
 * What one solve works with, and a clock of its work.
 */
import { Eliminator } from '../eliminate/buckets.ts';
import type { Pool } from '../store/pool.ts';
import { Pruner } from '../reduce/reduced-cost-fixing.ts';
import { Reducer } from '../reduce/presolve.ts';

/** Engines and memos of one solve. */
export interface Engines {
  readonly reducer: Reducer;
  readonly eliminator: Eliminator;
  readonly pruner: Pruner;
  /** Message steps taken. */
  steps: number;
  /** Work of label eliminations: combinations tried and cells looked up. */
  labelWork: number;
}

export function makeEngines({ pool }: { readonly pool: Pool }): Engines {
  return { reducer: new Reducer(), eliminator: new Eliminator(pool), pruner: new Pruner(), steps: 0, labelWork: 0 };
}

/** A message step takes about as long as so many combinations of labels. */
const WORK_PER_STEP = 100;

/** What a solve has done so far, in combinations of labels: a clock that goes alike on every machine. */
export function workOf({ steps, labelWork }: Engines): number {
  return steps * WORK_PER_STEP + labelWork;
}
