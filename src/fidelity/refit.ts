/**
 * Fits the constants of a machine and its host again on a user's own runs, a table as `validate`
 * reads it, for the cluster in question. It gives the constants, the changes, and the errors
 * before, after, and on runs that were left out of the fit. Constants stay as shipped where
 * left-out runs are not predicted better.
 */

import { loadCluster } from '../cost/hardware/load-cluster.ts';
import { FITTED, type FittedConstants } from '../cost/kernels/fitted.ts';
import { ShardwrightError } from '../errors.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import type { Refit, RefitErrors } from '../recipes/compare/comparison.ts';
import { steepestSearch } from './coordinate-search.ts';
import { mean, median, weightedQuantile } from './metrics.ts';
import { RunPredictor } from './predict-run.ts';
import { type MeasuredRun, parseRuns } from './runs.ts';
import { predictedSeconds, type RunInParts, runsInParts } from './runs-under.ts';

/**
 * The constants that a machine and its host decide; the others belong to software, and to hardware
 * that all have.
 */
const OF_THE_MACHINE = [
  'tailMean',
  'pointwiseTraffic',
  'kernelGapSeconds',
  'eagerHostSeconds',
  'compiledHostSeconds',
  'hopHostSeconds',
  'stepHostSeconds',
] as const;
type Name = (typeof OF_THE_MACHINE)[number];

/** Runs with a price below which nothing is fitted. */
const LEAST_RUNS = 3;
/**
 * From this many runs on, the stated range comes from the user's own left-out errors instead of the
 * public runs'.
 */
const RUNS_OF_A_RANGE = 20;
const MOST_FOLDS = 10;
/**
 * Penalty for moving a constant by a factor of e, in log error summed over the runs; it keeps few
 * runs from moving constants far.
 */
const PRICE_OF_A_MOVE = 0.1;
const FACTORS = [1.5, 1.2, 1.1, 1.05];

type Timed = RunInParts & { readonly measured: number };

/** @param cluster that is asked about: runs on its accelerator are priced on it, with its links */
export async function refitOn(
  text: string,
  cluster: string,
  table: OperatorTable,
  onProgress?: (line: string) => void,
): Promise<{ readonly constants: FittedConstants; readonly refit: Refit }> {
  const { rows, left } = await pricedRuns(text, cluster, table, onProgress);
  if (rows.length < LEAST_RUNS) throw tooFew(rows.length, left);
  const fitter = new Fitter(rows);
  const { by, folds } = foldsOf(rows);
  const leftOut = new Map<Timed, number>();
  for (const [k, fold] of folds.entries()) {
    onProgress?.(`fitting without part ${k + 1} of ${folds.length}`);
    const without = fitter.fit(rows.filter((row) => !fold.includes(row)));
    for (const row of fold) leftOut.set(row, fitter.says(row, without));
  }
  const before = errorsOf(rows, (row) => row.seconds);
  const errors = errorsOf(rows, (row) => leftOut.get(row) ?? NaN);
  const taken = errors.mape < before.mape;
  const constants = taken ? fitter.fit(rows) : FITTED;
  const after = taken ? await repriced(rows, constants, table) : before;
  const ratios = rows.map((row) => ({
    value: row.measured / (leftOut.get(row) ?? NaN),
    weight: 1,
  }));
  return {
    constants,
    refit: {
      runs: rows.length,
      notPriced: left,
      elsewhere: rows.filter((row) => row.run.clusterText !== cluster).length,
      taken,
      constants: OF_THE_MACHINE.map((name) => ({
        name,
        before: FITTED[name],
        after: constants[name],
      })),
      before,
      after,
      leftOut: { ...errors, by },
      ...(taken && rows.length >= RUNS_OF_A_RANGE
        ? { range: { p10: weightedQuantile(ratios, 0.1), p90: weightedQuantile(ratios, 0.9) } }
        : {}),
    },
  };
}

/** The runs of a table with a step time and a price, and those without; both by line. */
async function pricedRuns(
  text: string,
  cluster: string,
  table: OperatorTable,
  onProgress?: (line: string) => void,
): Promise<{ readonly rows: readonly Timed[]; readonly left: Refit['notPriced'] }> {
  const { runs, skipped, faults } = parseRuns(text);
  // A fit to the other rows would hide the slip in one.
  const [fault] = faults;
  if (fault !== undefined) throw fault;
  const own = loadCluster(cluster);
  const timed = runs.filter((run) => run.stepSeconds !== undefined);
  const here = timed.map((run): MeasuredRun =>
    run.system.cluster.accelerator === own.accelerator
      ? { ...run, clusterText: cluster, system: { ...run.system, cluster: own } }
      : run,
  );
  const rows: Timed[] = [];
  const left = skipped.map(({ line, id, reason }) => ({ line, id, reason }));
  for await (const found of runsInParts(here, table)) {
    onProgress?.(`${rows.length + left.length + 1} of ${runs.length + skipped.length} runs priced`);
    const { run } = found;
    if ('reason' in found) left.push({ line: run.line, id: run.id, reason: found.reason });
    else rows.push({ ...found, measured: run.stepSeconds ?? NaN });
  }
  left.sort((a, b) => a.line - b.line);
  rows.sort((a, b) => a.run.line - b.run.line);
  return { rows, left };
}

/** Fits the constants that runs show. */
class Fitter {
  /** Seconds that a comparison with these constants says of a run. */
  readonly says: Says;
  private readonly shown: readonly Name[];

  constructor(rows: readonly Timed[]) {
    this.says = remembered(
      (row, constants) =>
        (row.seconds * predictedSeconds(row, constants)) / predictedSeconds(row, FITTED),
    );
    // Constants that no run shows are not searched.
    this.shown = OF_THE_MACHINE.filter((name) =>
      rows.some(
        (row) =>
          Math.abs(this.says(row, { ...FITTED, [name]: 2 * FITTED[name] }) / row.seconds - 1) >
          1e-4,
      ),
    );
  }

  fit(on: readonly Timed[]): FittedConstants {
    return steepestSearch<Name, FittedConstants>({
      start: FITTED,
      free: this.shown,
      loss: (c) =>
        on.reduce((sum, row) => sum + Math.abs(Math.log(this.says(row, c) / row.measured)), 0) +
        moveOf(c),
      factors: FACTORS,
    });
  }
}

type Says = (row: Timed, constants: FittedConstants) => number;

/** The same, once for each row and constants: searches without a part go much the same way. */
function remembered(says: Says): Says {
  const known = new Map<Timed, Map<string, number>>();
  return (row, constants) => {
    const own = known.get(row) ?? new Map<string, number>();
    known.set(row, own);
    const key = OF_THE_MACHINE.map((name) => constants[name]).join(' ');
    let found = own.get(key);
    if (found === undefined) own.set(key, (found = says(row, constants)));
    return found;
  };
}

/** The penalty of moving constants. */
function moveOf(constants: FittedConstants): number {
  return OF_THE_MACHINE.reduce(
    (sum, name) => sum + PRICE_OF_A_MOVE * Math.abs(Math.log(constants[name] / FITTED[name])),
    0,
  );
}

/**
 * The runs that are left out together: whole groups where there are enough, because runs of one
 * group are alike.
 */
function foldsOf(rows: readonly Timed[]): {
  readonly by: Refit['leftOut']['by'];
  readonly folds: readonly Timed[][];
} {
  const groups = new Map<string, Timed[]>();
  for (const row of rows) groups.set(row.run.group, [...(groups.get(row.run.group) ?? []), row]);
  const by = groups.size >= LEAST_RUNS ? 'group' : 'run';
  const lists = by === 'group' ? [...groups.values()] : rows.map((row) => [row]);
  const count = Math.min(MOST_FOLDS, lists.length);
  return {
    by,
    folds: Array.from({ length: count }, (_, k) => lists.filter((_, i) => i % count === k).flat()),
  };
}

function errorsOf(rows: readonly Timed[], said: (row: Timed) => number): RefitErrors {
  const errors = rows.map((row) => said(row) / row.measured - 1);
  return { bias: median(errors) ?? NaN, mape: mean(errors.map(Math.abs)) ?? NaN };
}

/** The errors of what a comparison with these constants says. */
async function repriced(
  rows: readonly Timed[],
  constants: FittedConstants,
  table: OperatorTable,
): Promise<RefitErrors> {
  const predictor = new RunPredictor(table, { constants });
  const seconds = new Map<Timed, number>();
  for (const row of rows) {
    const found = await predictor.predict(row.run);
    if (!('reason' in found)) seconds.set(row, found.seconds);
  }
  return errorsOf(rows, (row) => seconds.get(row) ?? NaN);
}

function tooFew(count: number, left: Refit['notPriced']): ShardwrightError {
  const [first] = left;
  const why = first === undefined ? '' : `; line ${first.line}: ${first.reason}`;
  return new ShardwrightError(
    'E_INPUT',
    `the table has ${count} runs with a step time and a price; a fit needs ${LEAST_RUNS}${why}`,
    {
      hint: 'shardwright validate prints what is read of each row.',
    },
  );
}
