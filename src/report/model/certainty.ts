/**
 * States the certainty of a plan's figures on its cluster, by measured runs: the range in which
 * measured steps lie, and the probability that the peak fits.
 */

import {
  type Circumstances,
  fitProbability,
  hasExperts,
  nearestPool,
  poolText,
} from '../../cost/error-bands.ts';
import type { Cluster } from '../../cost/hardware/cluster.ts';
import { loadCluster } from '../../cost/hardware/load-cluster.ts';
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

/** The circumstances that the errors of a plan's figures depend on. */
export function circumstancesOf(
  { parameters, mesh }: Plan,
  { accelerator }: Cluster,
): Circumstances {
  return {
    accelerator,
    experts: hasExperts(parameters.map((p) => p.name)),
    hosts: Math.max(1, ...mesh.map((d) => d.hosts)),
  };
}

/**
 * `0.85 to 1.35 s in eight of ten measured steps (...)`, or why there is no range; `seconds` are
 * those of the plan's own prices.
 */
export function planBandText(plan: Plan, seconds: number): string {
  const { cost, cluster } = plan.request;
  if (cost !== 'nccl') return `no range: the prices of ${cost} were not set against measured runs`;
  if (plan.memory.gradientBytes === 0 && !plan.outputs.some(({ role }) => role === 'newstate'))
    return 'no range: only training steps were measured';
  const pool = nearestPool(circumstancesOf(plan, loadCluster(cluster)));
  return (
    `${rangeText(seconds, pool.calls)} in eight of ten measured steps (${poolText(pool)}: ` +
    `${countedText(pool.runs, 'run')})`
  );
}

/** The probability that the peak of a plan fits; undefined where the plan counts no activations. */
export function planFitText(plan: Plan): string | undefined {
  const { peakBytes, timeline } = plan.memory;
  if (timeline === undefined) return undefined;
  const { memoryBytes, cluster } = plan.request;
  return fitText(
    fitProbability(
      Math.max(peakBytes, timeline.peakBytes),
      memoryBytes ?? loadCluster(cluster).memoryBytes,
    ),
  );
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

function riskierText({
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
function fitsWithText(probability: number): string {
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
