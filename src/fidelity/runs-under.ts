/**
 * Prices measured runs with the deciding model under any constants: each program is placed once and
 * priced at several points of the fitted constants, so that other constants cost next to nothing,
 * because compute is linear in products of them. Routed experts keep the shipped constants.
 */

import { clocksOf } from '../cost/kernels/clocks.ts';
import { FITTED, type FittedConstants } from '../cost/kernels/fitted.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import type { CoreUnit } from '../step/units.ts';
import { type LayoutParts, LayoutPricer } from '../sweep/layout/price-layout.ts';
import { type PredictedRun, RunPredictor, sharingPrograms } from './predict-run.ts';
import type { MeasuredRun } from './runs.ts';

const NONE = {
  ...FITTED,
  kernelGapSeconds: 0,
  tailShare: 0,
  tailMean: 1,
  hotMatmulTime: 1,
  pointwiseTraffic: 0,
  unfusedTraffic: 1,
};
const POINTS = [
  NONE,
  { ...NONE, tailMean: 0.5 },
  { ...NONE, tailShare: 1 },
  { ...NONE, pointwiseTraffic: 1 },
  { ...NONE, kernelGapSeconds: 1 },
];
type Ways = NonNullable<ConstructorParameters<typeof LayoutPricer>[1]>;

/**
 * A run with what it is put together from: `cores` at the shipped constants, at `POINTS`, and at
 * further ways that were asked for.
 */
export interface RunInParts extends PredictedRun {
  readonly parts: LayoutParts;
}

/** A run of the table, or why it has no price. */
type PricedRun = RunInParts | { readonly run: MeasuredRun; readonly reason: string };

/**
 * Rows one by one, in an order in which those that share programs follow one another.
 *
 * @param ways in which programs are priced besides
 * @param solverOf who places and prices programs
 */
export async function* runsInParts(
  runs: readonly MeasuredRun[],
  table: OperatorTable,
  ways: Ways = [],
  solverOf?: ConstructorParameters<typeof LayoutPricer>[2],
): AsyncGenerator<PricedRun> {
  const all = [{}, ...POINTS.map((constants) => ({ constants })), ...ways];
  for (const list of sharingPrograms(runs)) {
    const pricer = new LayoutPricer(table, all, solverOf);
    const predictor = new RunPredictor(table, { pricer });
    for (const run of list) {
      const found = await predictor.predict(run);
      if ('reason' in found) yield { run, reason: found.reason };
      else yield { ...found, parts: await pricer.parts(found.asked.question, found.asked.layout) };
    }
  }
}

const SCALED: ReadonlySet<string> = new Set(['compute', 'products', 'attentionSeconds']);

/** The same record with its seconds of compute composed again. */
function mixed<T>(list: readonly T[], of: (values: readonly number[]) => number): T {
  const [first] = list;
  if (Array.isArray(first))
    return first.map((_, i) =>
      mixed(
        list.map((x) => (x as unknown[])[i]),
        of,
      ),
    ) as T;
  if (typeof first !== 'object' || first === null) return first;
  // Which sets of modules a program was priced with depends on their seconds: those are left that
  // all have.
  const keys = Object.keys(first).filter((key) =>
    list.every((x) => Object.hasOwn(x as object, key)),
  );
  return Object.fromEntries(
    keys.map((key) => {
      const values = list.map((x) => x[key as keyof T]);
      // `products` is also the name of a policy of checkpointing, whose record is not a number.
      return [
        key,
        SCALED.has(key) && typeof values[0] === 'number'
          ? of(values as number[])
          : mixed(values, of),
      ];
    }),
  ) as T;
}

/** Seconds of a row under other constants. */
export function predictedSeconds({ asked, parts }: RunInParts, constants: FittedConstants): number {
  const { question, layout } = asked;
  const { tailShare, tailMean, hotMatmulTime, pointwiseTraffic, unfusedTraffic, kernelGapSeconds } =
    constants;
  const hot = clocksOf(parts.composer.cluster).powerLimited ? hotMatmulTime : 1;
  const traffic =
    pointwiseTraffic * (question.software?.fusedPointwise === true ? 1 : unfusedTraffic);
  const [core, ...others] = parts.cores;
  const points = others.slice(0, POINTS.length);
  const units = mixed<readonly CoreUnit[]>(
    points.map((c) => c.units),
    ([none, twice, waves, bytes, gaps]) => {
      const products = twice - none;
      const other = none - products + traffic * (bytes - none) + kernelGapSeconds * (gaps - none);
      return other + ((products + tailShare * (waves - none)) * hot) / tailMean;
    },
  );
  const composer = constants === FITTED ? parts.composer : parts.composer.under({ constants });
  return (
    composer.compose({ ...layout, core: { ...core, units }, routed: parts.routed })?.seconds ?? NaN
  );
}
