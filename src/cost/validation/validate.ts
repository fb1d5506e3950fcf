/** Predicted against measured training runs, by source and by group of comparable runs. */

import { FITTED } from '../kernels/fitted.ts';
import { stepMemory } from '../training/memory.ts';
import { modelFlops, type RecomputeMode } from '../training/shape.ts';
import { stepTime } from '../training/step.ts';
import { calculonSeconds, fittedUtilisation } from './baselines.ts';
import { mean, median, regret, relativeErrors, spearman } from './metrics.ts';
import { parseRuns, type MeasuredRun, type SkippedRun } from './runs.ts';

export type { MeasuredRun } from './runs.ts';
export { FRAMEWORK_NAMES, type FrameworkName } from './frameworks.ts';
export { frameworkSoftware, stepSoftware } from './software.ts';

/** Groups of fewer runs are not ranked. */
export const SMALLEST_GROUP = 5;
/**
 * Nine of ten memory readings of the public runs lie below the prediction times this. A plan is safe when even then it stays
 * within the device. What the process holds beside tensors is part of the prediction (`StepMemory.reservedBytes`), so the
 * limit is all that the driver reports: nothing is set aside twice.
 */
export const MEMORY_BAND = 1.25;

export interface RunPrediction {
  readonly run: MeasuredRun;
  readonly seconds: number;
  readonly peakBytes: number;
  /** The predicted peak is within the device. */
  readonly fits: boolean;
  /** So is `MEMORY_BAND` times the predicted peak. */
  readonly safe: boolean;
  readonly recompute: RecomputeMode;
  /** Model FLOPs (causal attention) over the dense peak of the unit that does the matmuls. */
  readonly utilisation: number;
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
  /** Groups with at least two timed rows that may be compared, and those large enough to be ranked. */
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
 * Predicts every run of a table from its dimensions and compares.
 *
 * @throws E_CSV for text that is no table of runs
 */
export function validateRuns(text: string, constants = FITTED): Validation {
  const { runs, skipped } = parseRuns(text);
  const predictions = runs.map((run) => predictRun(run, constants));
  const names = [...new Set([...runs, ...skipped].map((r) => r.source))];
  const counts = new Map<string, number>();
  for (const { assumptions } of runs) for (const a of assumptions) counts.set(a, (counts.get(a) ?? 0) + 1);
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
    assumptions: [...counts].map(([t, rows]) => ({ text: t, rows })).sort((a, b) => (a.text < b.text ? -1 : 1)),
  };
}

/** Step time and memory of one run; recomputation that the source does not state is the least that fits. */
export function predictRun(run: MeasuredRun, constants = FITTED): RunPrediction {
  const { shape } = run;
  const system = { ...run.system, constants };
  const deviceBytes = system.cluster.memoryBytes;
  let chosen = { plan: run.plan, peakBytes: Infinity };
  // What recomputation cannot free goes to the host where the links allow it.
  const tries = run.recomputeModes.map((recompute) => ({ recompute, offloadedActivations: false }));
  if (system.offloadedActivations) tries.push({ recompute: run.recomputeModes[0], offloadedActivations: true });
  for (const { recompute, offloadedActivations } of tries) {
    const plan = { ...run.plan, recompute };
    chosen = { plan, peakBytes: stepMemory(shape, plan, { ...system, offloadedActivations }).peakBytes };
    if (chosen.peakBytes <= deviceBytes) break;
  }
  const { seconds } = stepTime(shape, chosen.plan, system);
  const peaks = system.cluster.peakFlopsPerSecond;
  const peak = peaks[system.matmulUnit] ?? peaks.bf16 ?? peaks.fp16 ?? 1;
  return {
    run,
    seconds,
    peakBytes: chosen.peakBytes,
    fits: chosen.peakBytes <= deviceBytes,
    safe: chosen.peakBytes * MEMORY_BAND <= deviceBytes,
    recompute: chosen.plan.recompute,
    utilisation: modelFlops(shape, run.plan.globalBatch, true) / (seconds * run.devices * peak),
  };
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

/** Runs of one group of the table; a group of two sources is two groups, because software differs. */
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
  const scoreOf = (predict: (p: RunPrediction) => number | undefined): Score => score(rows, groups, predict);
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
      oomCorrect: oom.filter((p) => !p.safe).length / oom.length,
      oomBeyondDevice: oom.filter((p) => !p.fits).length / oom.length,
    }),
    falseAlarms: rows.filter((t) => !t.prediction.safe).length,
    beyondDevice: rows.filter((t) => !t.prediction.fits).length,
    flopConvention: 'step time or tokens/s where stated; TFLOPS and MFU rows by the convention that the row names',
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
