/**
 * Says which plan of a comparison is the best: the fastest of those that fit with the probability
 * that is asked for (`--risk`). Whatever names a best plan takes it from here. The probabilities
 * are those of measured runs (`cost/error-bands.ts`).
 */

import { safePeakBytes } from '../../cost/error-bands.ts';
import { type Cluster, type MemoryLimits, usableMemoryBytes } from '../../cost/hardware/cluster.ts';
import type { ComparedPlan, Comparison, RiskierPlan } from './comparison.ts';

/** The probability with which a best plan fits, where nobody asks for another. */
export const DEFAULT_RISK = 0.9;

/** The bytes that plans may take. */
export interface MemoryBounds {
  /** A plan that takes more does not fit. */
  readonly budgetBytes: number;
  /** A plan that takes no more fits with the probability that is asked for. */
  readonly safeBytes: number;
}

/**
 * The bytes that plans on a cluster may take.
 *
 * @param limits `risk`: the least probability of fitting; absent: the budget alone counts
 * @throws E_REQUEST for a probability that no measured run confirms
 */
export function memoryBounds(
  cluster: Cluster,
  limits: MemoryLimits & { readonly risk?: number },
): MemoryBounds {
  const { memoryBytes = cluster.memoryBytes, risk } = limits;
  const budgetBytes = usableMemoryBytes(cluster, limits);
  if (risk === undefined) return { budgetBytes, safeBytes: budgetBytes };
  return { budgetBytes, safeBytes: Math.min(budgetBytes, safePeakBytes(memoryBytes, risk)) };
}

/** The figures that rank a plan. */
interface Ranked {
  readonly stepSeconds?: number;
  readonly seconds: number;
  readonly peakBytes: number;
}

/** The step time of a plan: what ranks it and what is shown as its time. */
export function stepTime({ stepSeconds, seconds }: Omit<Ranked, 'peakBytes'>): number {
  return stepSeconds ?? seconds;
}

/**
 * Orders plans, the best first: those within the safe bytes by step time, then the others by bytes,
 * the safest first. Of equals it says 0.
 */
export function byRank(safeBytes: number): (a: Ranked, b: Ranked) => number {
  return (a, b) => {
    const isSafe = a.peakBytes <= safeBytes;
    if (isSafe !== b.peakBytes <= safeBytes) return isSafe ? -1 : 1;
    const [time, bytes] = [stepTime(a) - stepTime(b), a.peakBytes - b.peakBytes];
    return isSafe ? time || bytes : bytes || time;
  };
}

/** The best of plans in the order of `byRank`; undefined where none is within the safe bytes. */
export function bestOf<T extends Pick<Ranked, 'peakBytes'>>(
  plans: readonly T[],
  safeBytes: number,
): T | undefined {
  const first = plans.at(0);
  return first !== undefined && first.peakBytes <= safeBytes ? first : undefined;
}

/**
 * The name of the plan that comes nearest where there is no best: of plans in the order of `byRank`
 * the first, if it fits at all.
 */
export function safestOf(
  plans: readonly Pick<ComparedPlan, 'name' | 'fits'>[],
  best: unknown,
): Pick<Comparison, 'safest'> {
  const first = plans.at(0);
  return best === undefined && first?.fits === true ? { safest: first.name } : {};
}

/**
 * The fastest of plans that fit, but not with the probability that is asked for; undefined where
 * none is faster than the best.
 *
 * @param known found before, of the same question
 */
export function riskierOf(
  comparison: Comparison,
  known: readonly RiskierPlan[] = [],
): RiskierPlan | undefined {
  const best = bestPlan(comparison);
  const bestSeconds = best === undefined ? undefined : stepTime(best);
  const listed = comparison.plans.flatMap((p) => {
    const { plan, mesh, peakBytes, fits, fitProbability } = p;
    const seconds = stepTime(p);
    return !fits || isSafe(p, comparison) || typeof fitProbability !== 'number'
      ? []
      : [{ plan, mesh, seconds, peakBytes, fitProbability }];
  });
  const [first] = [...known, ...listed]
    .filter(({ seconds }) => bestSeconds === undefined || seconds < bestSeconds)
    .sort((a, b) => a.seconds - b.seconds || b.fitProbability - a.fitProbability);
  if (first === undefined) return undefined;
  return { ...first, faster: bestSeconds === undefined ? null : 1 - first.seconds / bestSeconds };
}

/** Tells whether a plan of a comparison fits with the probability that is asked for. */
export function isSafe(
  { peakBytes }: Pick<ComparedPlan, 'peakBytes'>,
  { budgetBytes, safeBytes = budgetBytes }: Pick<Comparison, 'budgetBytes' | 'safeBytes'>,
): boolean {
  return peakBytes <= safeBytes;
}

/** The fastest recipe that fits as surely as the best plan; undefined where none does. */
export function bestRecipe(comparison: Comparison): ComparedPlan | undefined {
  return comparison.plans.find((p) => p.origin === 'zoo' && isSafe(p, comparison));
}

/** The best plan of a comparison; undefined where it has none. */
export function bestPlan({ plans, best }: Comparison): ComparedPlan | undefined {
  return plans.find(({ name }) => name === best);
}
