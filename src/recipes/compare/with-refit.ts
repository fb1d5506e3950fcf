/**
 * Adds to a comparison that its constants were fitted on the user's own runs, and the result of
 * that fit; its ranges of seconds are those of the left-out runs where there are enough.
 */

import type { Comparison, Refit } from './comparison.ts';

export function withRefit(comparison: Comparison, refit: Refit): Comparison {
  const { certainty } = comparison;
  const { range, runs } = refit;
  if (range === undefined || certainty === undefined) return { ...comparison, refit };
  return {
    ...comparison,
    refit,
    plans: comparison.plans.map((plan) => {
      const secondsBand = [plan.seconds * range.p10, plan.seconds * range.p90] as const;
      return { ...plan, secondsBand, stepBand: secondsBand };
    }),
    certainty: {
      ...certainty,
      ...range,
      from: 'runs of your own, left out of the fit',
      runs,
      families: [],
    },
  };
}
