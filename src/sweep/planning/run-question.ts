/**
 * Prices the run of a comparison's question on a layout: its cost at the seconds of a step, and the
 * hosts that it holds.
 */

import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import type { Price } from '../../cost/hardware/operation.ts';
import { type RunCost, runCost, type RunQuestion } from '../../cost/training/run-cost.ts';
import { defined, nonEmpty } from '../../defined.ts';
import { bestPlan, stepTime } from '../../recipes/compare/best-plan.ts';
import type { Comparison } from '../../recipes/compare/comparison.ts';
import { allocationOfLayout, type LayoutSizes } from '../../step/layout.ts';
import { countedText, countText } from '../../units.ts';
import type { SweepQuestion } from '../model/question.ts';

/** A run of so many tokens, and what is asked for instead of what the cluster states. */
export interface AskedRun {
  readonly tokens: number;
  /** The price of a device-hour. */
  readonly price?: Price;
  /** `Operation.gramsCarbonPerKilowattHour`. */
  readonly carbon?: number;
}

/** The cost of a run on a layout. */
export function runOfLayout(
  question: SweepQuestion,
  sizes: LayoutSizes,
  { stepSeconds, stepBand }: Pick<RunQuestion, 'stepSeconds' | 'stepBand'>,
  { tokens, price, carbon }: AskedRun,
): RunCost {
  const cluster = loadCluster(question.cluster);
  const { operation = {} } = cluster;
  return runCost({
    devices: question.devices,
    stepSeconds,
    stepBand,
    tokensPerStep: question.globalBatch * question.sequence,
    tokens,
    allocation: allocationOfLayout(cluster, sizes),
    operation: {
      ...operation,
      ...defined({ pricePerDeviceHour: price, gramsCarbonPerKilowattHour: carbon }),
    },
  });
}

/** A comparison with what a run takes on its best plan. */
export function withRun(
  comparison: Comparison,
  question: SweepQuestion,
  run: AskedRun | undefined,
): Comparison {
  const best = bestPlan(comparison);
  if (run === undefined || best?.layout === undefined) return comparison;
  const warnings = [...(comparison.warnings ?? []), ...wholeSteps(question, run)];
  return {
    ...comparison,
    run: runOfLayout(
      question,
      best.layout.sizes,
      { stepSeconds: stepTime(best), stepBand: best.stepBand },
      run,
    ),
    ...nonEmpty({ warnings }),
  };
}

/** Share of a run that whole steps may add to it without a word. */
const ROUNDED_UP = 0.01;

/** A run is priced in whole steps, which may be far more tokens than were asked for. */
function wholeSteps({ globalBatch, sequence }: SweepQuestion, { tokens }: AskedRun): string[] {
  const each = globalBatch * sequence;
  const steps = Math.ceil(tokens / each);
  if (steps * each <= tokens * (1 + ROUNDED_UP)) return [];
  const unit = tokens < each ? ' Give the unit of --tokens: 15T is 15e12.' : '';
  return [
    `${countedText(tokens, 'token')} are not a whole number of steps of ${countText(each)} ` +
      `(${globalBatch} x ${sequence}): the run is priced as ${countedText(steps, 'step')} of ` +
      `${countedText(steps * each, 'token')}.${unit}`,
  ];
}
