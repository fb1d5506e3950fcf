/**
 * The public measured runs as the deciding model has them, each program placed once and priced at several points of the fitted
 * constants, so that other constants cost next to nothing: compute is linear in products of them. In: rows of the table. Out:
 * rows with their seconds under any constants. Routed experts keep the shipped constants.
 */

import { clocksOf } from '../src/cost/kernels/clocks.ts';
import { FITTED, type FittedConstants } from '../src/cost/kernels/fitted.ts';
import type { MeasuredRun } from '../src/cost/validation/runs.ts';
import { builtinOperators } from '../src/ops/builtin.ts';
import { LayoutPricer, type LayoutParts } from '../src/zoo/layout/price-layout.ts';
import { KeptSolver } from './kept-programs.ts';
import type { CoreUnit } from '../src/zoo/sweep/model/types.ts';
import { RunPredictor, type PredictedRun } from '../src/zoo/validation/predict-run.ts';

const NONE = { ...FITTED, kernelGapSeconds: 0, tailShare: 0, tailMean: 1, hotMatmulTime: 1, pointwiseTraffic: 0, unfusedTraffic: 1 }; // prettier-ignore
const POINTS = [NONE, { ...NONE, tailMean: 0.5 }, { ...NONE, tailShare: 1 }, { ...NONE, pointwiseTraffic: 1 }, { ...NONE, kernelGapSeconds: 1 }]; // prettier-ignore
const WAYS = [{}, { priced: 'calls' as const }, ...POINTS.map((constants) => ({ constants }))];

export interface SolvedRun extends PredictedRun {
  /** Call by call, nothing beside compute, as a plan is priced. */
  readonly callSeconds: number;
  readonly parts: LayoutParts;
}

/**
 * Rows in an order in which those that share programs follow one another; `onRow` sees each when it is there.
 *
 * @param kept directory in which priced programs are kept for the next time; absent: nowhere
 */
export async function solvedRuns(
  runs: readonly MeasuredRun[],
  onRow: (row: SolvedRun) => void,
  onRefused: (run: MeasuredRun, reason: string) => void,
  kept?: string,
): Promise<void> {
  const table = builtinOperators();
  const shared = new Map<string, MeasuredRun[]>();
  for (const run of runs) {
    const key = JSON.stringify([run.clusterText, run.shape, run.framework]);
    shared.set(key, [...(shared.get(key) ?? []), run]);
  }
  for (const list of shared.values()) {
    const pricer = kept === undefined ? new LayoutPricer(table, WAYS) : new LayoutPricer(table, WAYS, (q) => new KeptSolver(kept, q, table)); // prettier-ignore
    const predictor = new RunPredictor(table, 'nccl', pricer);
    for (const run of list) {
      const found = await predictor.predict(run);
      if ('reason' in found) {
        onRefused(run, found.reason);
        continue;
      }
      const { question, layout } = found.asked;
      const parts = await pricer.parts(question, layout);
      const bare = parts.composer.under({ priced: 'calls', overlap: false });
      const plain = bare.compose(parts.cores[1], parts.routed, layout.sizes, layout.kind, layout.tuning);
      onRow({ ...found, callSeconds: plain?.seconds ?? NaN, parts });
    }
  }
}

const SCALED: ReadonlySet<string> = new Set(['compute', 'products', 'attentionSeconds']);

/** The same record with its seconds of compute put together anew. */
function mixed<T>(list: readonly T[], of: (values: readonly number[]) => number): T {
  const [first] = list;
  if (Array.isArray(first)) return first.map((_, i) => mixed(list.map((x) => (x as unknown[])[i]), of)) as T; // prettier-ignore
  if (typeof first !== 'object' || first === null) return first;
  return Object.fromEntries(
    Object.keys(first).map((key) => {
      const values = list.map((x) => x[key as keyof T]);
      // `products` is also the name of a policy of checkpointing, whose record is no number.
      return [key, SCALED.has(key) && typeof values[0] === 'number' ? of(values as number[]) : mixed(values, of)];
    }),
  ) as T;
}

/** Seconds of a row under other constants. */
export function secondsUnder({ asked, parts }: SolvedRun, constants: FittedConstants): number {
  const { question, layout } = asked;
  const { tailShare, tailMean, hotMatmulTime, pointwiseTraffic, unfusedTraffic, kernelGapSeconds } = constants;
  const hot = clocksOf(parts.composer.cluster).powerLimited ? hotMatmulTime : 1;
  const traffic = pointwiseTraffic * (question.software?.fusedPointwise === true ? 1 : unfusedTraffic);
  const [core, , ...points] = parts.cores;
  const units = mixed<readonly CoreUnit[]>(points.map((c) => c.units), ([none, twice, waves, bytes, gaps]) => {
    const products = twice - none;
    const other = none - products + traffic * (bytes - none) + kernelGapSeconds * (gaps - none);
    return other + ((products + tailShare * (waves - none)) * hot) / tailMean;
  }); // prettier-ignore
  const composer = constants === FITTED ? parts.composer : parts.composer.under({ constants });
  return composer.compose({ ...core, units }, parts.routed, layout.sizes, layout.kind, layout.tuning)?.seconds ?? NaN;
}
