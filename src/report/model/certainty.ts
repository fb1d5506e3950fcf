/**
 * States the certainty of a plan's figures on its cluster, by measured runs: the range in which
 * measured steps lie, and the probability that the peak fits.
 */

import { nearestPool, NO_RUNS, poolText } from '../../cost/error-bands.ts';
import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import { circumstancesOf, planFits, planPool } from '../../plan/record/answer.ts';
import type { Plan } from '../../plan/record/types.ts';
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

/** `0.85 to 1.35 s in eight of ten measured steps (...)`, or why there is no range. */
export function planBandText(plan: Plan): string {
  const pool = planPool(plan);
  if (pool === undefined || plan.step === undefined) return `no range: ${NO_RUNS}`;
  return (
    `${rangeText(plan.step.stepSeconds, pool.step)} in eight of ten measured steps ` +
    `(${poolText(pool)}: ${countedText(pool.runs, 'run')})${outsideText(pool.step)}`
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

/** `planFits` in words. */
export function planFitText(plan: Plan): string | undefined {
  const probability = planFits(plan);
  return probability === undefined ? undefined : fitText(probability);
}

/**
 * Says of a range that the predicted step lies outside of it, and on which side; nothing of others.
 *
 * @param quantiles measured over predicted
 */
export function outsideText({ p10, p90 }: { readonly p10: number; readonly p90: number }): string {
  if (p10 > 1) return '; nine of ten of them took longer than was predicted';
  return p90 < 1 ? '; nine of ten of them took less than was predicted' : '';
}

/** `4.91 to 6.02 s`. */
function rangeText(
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
