/**
 * States the certainty of a plan's figures on its cluster, by measured runs: the range in which
 * measured steps lie, and the probability that the peak fits.
 */

import {
  type Circumstances,
  type ErrorPool,
  fitProbability,
  hasAdapters,
  hasExperts,
  nearestPool,
  NO_RUNS,
  poolText,
} from '../../cost/error-bands.ts';
import type { Cluster } from '../../cost/hardware/cluster.ts';
import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import type { Plan } from '../../plan/record/types.ts';
import { EXPORTED } from '../../recipes/chosen-step.ts';
import { bestPlan, isSafe } from '../../recipes/compare/best-plan.ts';
import type { Comparison, RiskierPlan } from '../../recipes/compare/comparison.ts';
import {
  bytesText,
  countedText,
  countText,
  percentText,
  probabilityText,
  secondsText,
} from '../../units.ts';

/** The circumstances that the errors of a plan's figures depend on. */
export function circumstancesOf(
  { parameters, mesh }: Pick<Plan, 'parameters' | 'mesh'>,
  { accelerator }: Cluster,
): Circumstances {
  return {
    accelerator,
    experts: hasExperts(parameters.map((p) => p.name)),
    adapters: hasAdapters(parameters.map((p) => p.name)),
    hosts: Math.max(1, ...mesh.map((d) => d.hosts)),
  };
}

/**
 * Measured steps that resemble a plan's: those of trainers, under the prices that were set against
 * them; undefined where none do.
 */
function poolOf(plan: Plan): ErrorPool | undefined {
  const { step, request } = plan;
  if (step === undefined || step.trainer === EXPORTED || request.cost !== 'nccl') return undefined;
  const { trainer } = step;
  const assumed = request.trainerAssumed;
  return nearestPool({ ...circumstancesOf(plan, loadCluster(request.cluster)), trainer, assumed });
}

/** The range of a plan's step that eight of ten measured steps like it lie in. */
export function planBand(plan: Plan): readonly [low: number, high: number] | undefined {
  const pool = poolOf(plan);
  if (pool === undefined || plan.step === undefined) return undefined;
  const { stepSeconds } = plan.step;
  return [stepSeconds * pool.step.p10, stepSeconds * pool.step.p90];
}

/** `0.85 to 1.35 s in eight of ten measured steps (...)`, or why there is no range. */
export function planBandText(plan: Plan): string {
  const pool = poolOf(plan);
  if (pool === undefined || plan.step === undefined) return `no range: ${NO_RUNS}`;
  return (
    `${rangeText(plan.step.stepSeconds, pool.step)} in eight of ten measured steps ` +
    `(${poolText(pool)}: ${countedText(pool.runs, 'run')})`
  );
}

/**
 * The range of the step of stages, which is summed call by call, or why there is none; `seconds`
 * are those of the plan's own prices.
 */
export function stagesBandText(plan: Plan, seconds: number): string {
  const { cost, cluster } = plan.request;
  if (cost !== 'nccl') return `no range: ${NO_RUNS}`;
  const pool = nearestPool(circumstancesOf(plan, loadCluster(cluster)));
  if (pool === undefined) return `no range: ${NO_RUNS}`;
  return (
    `${rangeText(seconds, pool.calls)} in eight of ten measured steps (${poolText(pool)}: ` +
    `${countedText(pool.runs, 'run')})`
  );
}

/** The bytes that a plan takes as its trainer runs it; undefined where activations do not count. */
export function planPeakBytes({ step, memory }: Plan): number | undefined {
  const { peakBytes, timeline } = memory;
  return step?.peakBytes ?? (timeline && Math.max(peakBytes, timeline.peakBytes));
}

/** The probability that the peak of a plan fits; undefined where the plan counts no activations. */
export function planFits(plan: Plan): number | undefined {
  const { memoryBytes, cluster } = plan.request;
  const bytes = planPeakBytes(plan);
  // A trainer's step counts activations, whether the plan does or not.
  const isRun = plan.step !== undefined && plan.step.trainer !== EXPORTED;
  if ((plan.memory.timeline === undefined && !isRun) || bytes === undefined) return undefined;
  return fitProbability(bytes, memoryBytes ?? loadCluster(cluster).memoryBytes);
}

/** `planFits` in words. */
export function planFitText(plan: Plan): string | undefined {
  const probability = planFits(plan);
  return probability === undefined ? undefined : fitText(probability);
}

/** The answer of a plan under the keys that all commands have for it; null: not known. */
export interface PlanAnswer {
  /** Wall clock of a whole step, communication overlapped as the trainer does it. */
  readonly stepSeconds: number | null;
  /** The range of eight in ten comparable measured steps. */
  readonly stepBand: readonly [low: number, high: number] | null;
  readonly peakBytes: number | null;
  readonly fitProbability: number | null;
  readonly trainer: string;
}

export function planAnswer(plan: Plan): PlanAnswer {
  return {
    stepSeconds: plan.step?.stepSeconds ?? null,
    stepBand: planBand(plan) ?? null,
    peakBytes: planPeakBytes(plan) ?? null,
    fitProbability: planFits(plan) ?? null,
    trainer: plan.step?.trainer ?? plan.request.trainer ?? EXPORTED,
  };
}

/** `4.91 to 6.02 s`. */
export function rangeText(
  seconds: number,
  { p10, p90 }: { readonly p10: number; readonly p90: number },
): string {
  return `${secondsText(seconds * p10)} to ${secondsText(seconds * p90)}`;
}

/** How surely the best plan fits, and the plans that fit less surely: a sentence each. */
export function riskTexts(c: Comparison): string[] {
  const { risk, riskier } = c;
  if (risk === undefined) return [];
  const asked = probabilityText(risk);
  const best = bestPlan(c);
  const safest = c.plans.find((p) => p.name === c.safest);
  if (best === undefined && safest === undefined) return [];
  const note =
    riskier === undefined || riskier.fitProbability === safest?.fitProbability
      ? []
      : [riskierText(riskier)];
  if (best !== undefined)
    return [`the best is the fastest that fits with ${asked} (--risk)`, ...note];
  const nearest =
    safest === undefined
      ? []
      : [
          `the safest is ${safest.plan} on ${safest.mesh}, ${secondsText(safest.seconds)}, ` +
            `${bytesText(safest.peakBytes)}, and ${fitsWithText(safest.fitProbability ?? 0)}`,
        ];
  return [...nearest, ...note];
}

/** A faster, riskier plan in a sentence. */
export function riskierText({
  plan,
  mesh,
  settings,
  seconds,
  faster,
  fitProbability,
}: RiskierPlan): string {
  const how = settings === undefined ? '' : ` (${settings})`;
  const gain = faster === null ? 'the fastest that fits at all' : `${percentText(faster)} faster`;
  return (
    `${plan} on ${mesh}${how}, ${secondsText(seconds)}, is ${gain} and ` +
    fitsWithText(fitProbability)
  );
}

/** `fits with 57 %: --risk 57% takes it`. */
export function fitsWithText(probability: number): string {
  const risk = Math.floor(100 * probability);
  return `fits with ${probabilityText(probability)}: --risk ${risk}% takes it`;
}

/** `627 fit, 431 of them with 90 %`. */
export function fittingText(c: Comparison): string {
  const count = (list: readonly unknown[]): string =>
    `${countText(list.length)} ${list.length === 1 ? 'fits' : 'fit'}`;
  const fitting = c.plans.filter((p) => p.fits);
  if (c.risk === undefined) return count(fitting);
  const safe = fitting.filter((p) => isSafe(p, c));
  return `${count(fitting)}, ${countText(safe.length)} with ${probabilityText(c.risk)}`;
}

/** Why a comparison has no best plan. */
export function noBestText({ safest, risk, budgetBytes }: Comparison): string {
  return safest === undefined || risk === undefined
    ? `no plan fits the budget of ${bytesText(budgetBytes)} per device`
    : `no plan fits with a probability of ${probabilityText(risk)}`;
}

/** `fits with a probability of 93 %`. */
export function fitText(probability: number): string {
  return `fits with a probability of ${probabilityText(probability)}`;
}
