/**
 * Compares predictions of measured training runs with the measurements, by source and by group of
 * comparable runs: rank, regret and errors of the deciding model and of the baselines.
 */

import { fitProbability } from '../cost/error-bands.ts';
import { ShardwrightError } from '../errors.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { calculonSeconds, fittedUtilisation } from './baselines.ts';
import { mean, median, regret, relativeErrors, SMALLEST_GROUP, spearman } from './metrics.ts';
import { RunPredictor, sharingPrograms } from './predict-run.ts';
import { type MeasuredRun, parseRuns, type SkippedRun } from './runs.ts';

/** A plan is safe when its predicted peak fits the device with this probability. */
export const SAFE = 0.9;

/** The prediction of a run. */
interface RunPrediction {
  readonly run: MeasuredRun;
  readonly seconds: number;
  readonly peakBytes: number;
}

/** How well one predictor does on some runs. */
export interface Score {
  /** Mean over groups of at least `SMALLEST_GROUP` runs; absent without such groups. */
  readonly spearman?: number;
  readonly regretMean?: number;
  readonly regretMax?: number;
  readonly mape?: number;
  readonly medianApe?: number;
}

export interface SourceReport {
  readonly source: string;
  /** Rows of the source in the table. */
  readonly rows: number;
  readonly timedRows: number;
  /**
   * Groups with at least two timed rows that may be compared, and those large enough to be ranked.
   */
  readonly groups: number;
  readonly rankedGroups: number;
  readonly ours: Score;
  readonly calculon: Score;
  readonly constantUtilisation: Score;
  readonly constantUtilisationBubble: Score;
  readonly memoryRows: number;
  readonly memoryMape?: number;
  readonly memoryMedianApe?: number;
  /** Median of predicted minus measured over measured. */
  readonly memoryBias?: number;
  readonly oomRows: number;
  /** Share of them that are predicted not to be safe, and that are predicted beyond the device. */
  readonly oomCorrect?: number;
  readonly oomBeyondDevice?: number;
  /** Runs that did run but are predicted not to be safe, and those predicted beyond the device. */
  readonly falseAlarms: number;
  readonly beyondDevice: number;
  readonly flopConvention: string;
}

interface GroupReport {
  readonly group: string;
  readonly source: string;
  readonly rows: number;
  readonly spearman?: number;
  readonly regret: number;
  readonly mape: number;
  /** Row that we would have picked, and the best measured one. */
  readonly pick: string;
  readonly best: string;
}

export interface Validation {
  readonly sources: readonly SourceReport[];
  readonly groups: readonly GroupReport[];
  readonly predictions: readonly RunPrediction[];
  readonly skipped: readonly SkippedRun[];
  readonly assumptions: readonly { readonly text: string; readonly rows: number }[];
}

/**
 * Predicts every run of a table as `compare --layout` would price it, and compares. Rows whose
 * layout has no price are among the skipped ones, with the reason.
 *
 * @throws E_CSV for text that is not a table of runs
 */
export async function validateRuns(
  text: string,
  table: OperatorTable,
  onProgress?: (line: string) => void,
): Promise<Validation> {
  const { runs, skipped } = parseRuns(text);
  const predictions: RunPrediction[] = [];
  const left: SkippedRun[] = [...skipped];
  let done = 0;
  // The programs of the next model take the place of those of the last.
  for (const list of sharingPrograms(runs)) {
    onProgress?.(`${done} of ${runs.length} runs priced`);
    done += list.length;
    const predictor = new RunPredictor(table);
    for (const run of list) {
      const found = await predictor.predict(run).catch(refused);
      if ('reason' in found)
        left.push({ id: run.id, line: run.line, source: run.source, reason: found.reason });
      else predictions.push(found);
    }
  }
  const inOrder = predictions.sort((a, b) => a.run.line - b.run.line);
  return validationOf(
    inOrder,
    left.sort((a, b) => a.line - b.line),
  );
}

/** The reason why a row is left out: its model or machine is refused. @throws faults of ours */
function refused(error: unknown): { readonly reason: string } {
  if (!(error instanceof ShardwrightError) || error.code === 'E_INTERNAL') throw error;
  return { reason: error.headline };
}

/** Predictions that are there, compared. */
export function validationOf(
  predictions: readonly RunPrediction[],
  skipped: readonly SkippedRun[],
): Validation {
  const names = [...new Set([...predictions.map((p) => p.run), ...skipped].map((r) => r.source))];
  const counts = new Map<string, number>();
  for (const { run } of predictions)
    for (const a of run.assumptions) counts.set(a, (counts.get(a) ?? 0) + 1);
  return {
    sources: names.map((source) =>
      sourceReport(
        source,
        predictions.filter((p) => p.run.source === source),
        skipped,
      ),
    ),
    groups: rankedGroups(predictions).map(groupReport),
    predictions,
    skipped,
    assumptions: [...counts]
      .map(([t, rows]) => ({ text: t, rows }))
      .sort((a, b) => (a.text < b.text ? -1 : 1)),
  };
}

/**
 * Tells whether a predicted peak is within the device, and whether it is so with the probability
 * `SAFE`.
 */
export function fitsDevice({ run, peakBytes }: RunPrediction): {
  readonly fits: boolean;
  readonly safe: boolean;
} {
  const { memoryBytes } = run.system.cluster;
  return { fits: peakBytes <= memoryBytes, safe: fitProbability(peakBytes, memoryBytes) >= SAFE };
}

interface Timed {
  readonly prediction: RunPrediction;
  readonly measured: number;
}

function timed(predictions: readonly RunPrediction[]): Timed[] {
  return predictions.flatMap((p) =>
    p.run.stepSeconds === undefined ? [] : [{ prediction: p, measured: p.run.stepSeconds }],
  );
}

/**
 * Runs of one group of the table; a group of two sources is two groups, because software differs.
 */
function rankedGroups(predictions: readonly RunPrediction[], least = SMALLEST_GROUP): Timed[][] {
  const groups = new Map<string, Timed[]>();
  for (const t of timed(predictions)) {
    const { source, group } = t.prediction.run;
    const key = `${source}\n${group}`;
    const list = groups.get(key);
    if (list === undefined) groups.set(key, [t]);
    else list.push(t);
  }
  return [...groups.values()].filter((g) => g.length >= least);
}

function groupReport(group: readonly Timed[]): GroupReport {
  const predicted = group.map((t) => t.prediction.seconds);
  const measured = group.map((t) => t.measured);
  const { run } = group[0].prediction;
  const rho = spearman(predicted, measured);
  return {
    group: run.group,
    source: run.source,
    rows: group.length,
    ...(rho !== undefined && { spearman: rho }),
    regret: regret(predicted, measured),
    mape: mean(relativeErrors(predicted, measured)) ?? 0,
    pick: group[predicted.indexOf(Math.min(...predicted))].prediction.run.id,
    best: group[measured.indexOf(Math.min(...measured))].prediction.run.id,
  };
}

function sourceReport(
  source: string,
  predictions: readonly RunPrediction[],
  skipped: readonly SkippedRun[],
): SourceReport {
  const rows = timed(predictions);
  const runs = rows.map((t) => t.prediction.run);
  const calculon = new Map(runs.map((r) => [r.id, calculonSeconds(r)]));
  const byId = (seconds: readonly number[]): ReadonlyMap<string, number> =>
    new Map(runs.map((r, i) => [r.id, seconds[i]]));
  const constant = byId(fittedUtilisation(runs, false));
  const withBubble = byId(fittedUtilisation(runs, true));
  const groups = rankedGroups(predictions);
  const scoreOf = (predict: (p: RunPrediction) => number | undefined): Score =>
    score(rows, groups, predict);
  const memory = predictions.filter((p) => p.run.memoryBytes !== undefined);
  const memoryRatios = memory.map((p) => p.peakBytes / (p.run.memoryBytes ?? 1) - 1);
  const memoryErrors = memoryRatios.map(Math.abs);
  const oom = predictions.filter((p) => p.run.outOfMemory);
  return {
    source,
    rows: predictions.length + skipped.filter((s) => s.source === source).length,
    timedRows: rows.length,
    groups: rankedGroups(predictions, 2).length,
    rankedGroups: groups.length,
    ours: scoreOf((p) => p.seconds),
    calculon: scoreOf((p) => calculon.get(p.run.id)),
    constantUtilisation: scoreOf((p) => constant.get(p.run.id)),
    constantUtilisationBubble: scoreOf((p) => withBubble.get(p.run.id)),
    memoryRows: memory.length,
    ...defined({
      memoryMape: mean(memoryErrors),
      memoryMedianApe: median(memoryErrors),
      memoryBias: median(memoryRatios),
    }),
    oomRows: oom.length,
    ...(oom.length > 0 && {
      oomCorrect: oom.filter((p) => !fitsDevice(p).safe).length / oom.length,
      oomBeyondDevice: oom.filter((p) => !fitsDevice(p).fits).length / oom.length,
    }),
    falseAlarms: rows.filter((t) => !fitsDevice(t.prediction).safe).length,
    beyondDevice: rows.filter((t) => !fitsDevice(t.prediction).fits).length,
    flopConvention:
      'step time or tokens/s where stated; TFLOPS and MFU rows by the convention that the ' +
      'row names',
  };
}

function score(
  rows: readonly Timed[],
  groups: readonly (readonly Timed[])[],
  predict: (p: RunPrediction) => number | undefined,
): Score {
  const pairs = (list: readonly Timed[]): readonly [number[], number[]] => {
    const predicted: number[] = [];
    const measured: number[] = [];
    for (const t of list) {
      const p = predict(t.prediction);
      if (p === undefined) continue;
      predicted.push(p);
      measured.push(t.measured);
    }
    return [predicted, measured];
  };
  const errors = relativeErrors(...pairs(rows));
  if (errors.length < rows.length || errors.length === 0) return {};
  const regrets = groups.map((g) => regret(...pairs(g)));
  // A predictor that says the same of every run of a group ranks nothing: correlation 0.
  const rhos = groups.map((g) => spearman(...pairs(g)) ?? 0);
  return defined({
    spearman: mean(rhos),
    regretMean: mean(regrets),
    regretMax: regrets.length === 0 ? undefined : Math.max(...regrets),
    mape: mean(errors),
    medianApe: median(errors),
  });
}

/** The record without its undefined fields. */
function defined<T extends Readonly<Record<string, number | undefined>>>(
  record: T,
): { readonly [K in keyof T]?: number } {
  return Object.fromEntries(Object.entries(record).filter(([, v]) => v !== undefined)) as {
    readonly [K in keyof T]?: number;
  };
}
