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
import { countedText, probabilityText, secondsText } from '../../units.ts';

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

/** `fits with a probability of 93 %`. */
export function fitText(probability: number): string {
  return `fits with a probability of ${probabilityText(probability)}`;
}
