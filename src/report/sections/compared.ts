/** Takes a comparison and gives its report: title, sections and the value as it was read. */

import { allocationText } from '../../cost/hardware/topology.ts';
import { itemAt } from '../../item-at.ts';
import { bestPlan, bestRecipe, stepTime } from '../../recipes/compare/best-plan.ts';
import type { ComparedPlan, Comparison } from '../../recipes/compare/comparison.ts';
import { recomputeText } from '../../recipes/recompute-text.ts';
import {
  bytesText,
  countedText,
  countText,
  percentText,
  secondsText,
  slowerText,
} from '../../units.ts';
import type { Section } from '../model/blocks.ts';
import { fitText, fittingText, noBestText, riskTexts } from '../model/certainty.ts';
import { comparedPaddingText } from '../model/compared-padding.ts';
import { meshCountsText } from '../model/mesh-status.ts';
import { refitLines } from '../model/refit-text.ts';
import { trainerText } from '../model/trainer-text.ts';
import { runLines } from '../text/run-cost.ts';
import { rangeLines, stoppedText } from '../text/sweep.ts';
import { bestSections } from './compared-best.ts';
import { layoutSection } from './compared-layout.ts';
import { meshSection, plansSection, refusedSection, shownTwins } from './compared-plans.ts';
import { runSection } from './run-cost.ts';
import { runItSection } from './run-it.ts';

/** A comparison as a report: the value as it was read, and what the formats print of it. */
export interface ComparisonReport {
  readonly schema: 'shardwright.report/1';
  readonly versions: { readonly shardwright: string };
  readonly answer: readonly { readonly label: string; readonly text: string }[];
  readonly comparison: Comparison;
  readonly run: Readonly<Record<string, never>>;
}

export function comparisonReport(comparison: Comparison, version: string): ComparisonReport {
  return {
    schema: 'shardwright.report/1',
    versions: { shardwright: version },
    answer: answerOf(comparison),
    comparison,
    run: {},
  };
}

/** Heading of the report. */
export function comparisonTitle({ devices, cluster, question, model }: Comparison): string {
  return `${question?.model ?? model ?? 'Plans'} on ${countText(devices)} devices of ${cluster}`;
}

/** Under the heading. */
export function comparisonSubtitle({ question }: Comparison): string {
  const what = 'Recipes and the free optimum, on every mesh';
  if (question === undefined) return what;
  return (
    `${what}; ${question.layers} layers, sequences of ${countText(question.sequence)} tokens, ` +
    `${countText(question.globalBatch)} in a step`
  );
}

function answerOf(c: Comparison): ComparisonReport['answer'] {
  const best = bestPlan(c);
  const searched = {
    label: 'Searched',
    text:
      `${countedText(c.plans.length, 'plan')} priced, ${fittingText(c)}; ` +
      `meshes: ${meshCountsText(c)}; ` +
      `${countedText(c.refused.length, 'plan')} refused`,
  };
  if (best === undefined) {
    const least = c.smallestBudgetBytes;
    const smallest =
      least === undefined
        ? ''
        : c.question === undefined
          ? `; the smallest budget with a plan is ${bytesText(least)}`
          : `; the leanest plan takes ${bytesText(least)}`;
    return [
      { label: 'Best', text: `${noBestText(c)}${c.safest === undefined ? smallest : ''}` },
      ...riskAnswer(c),
      searched,
    ];
  }
  return [
    { label: 'Best', text: bestLine(best, c) },
    ...trainerAnswer(c),
    ...riskAnswer(c),
    ...certaintyAnswer(c),
    { label: 'Memory', text: memoryLine(best, c) },
    ...(best.layout === undefined
      ? []
      : [{ label: 'With', text: withLine(best.layout, c.question?.layers) }]),
    ...runAnswer(c),
    ...(c.stopped === undefined
      ? []
      : [{ label: 'Stopped', text: stoppedText(c.stopped, best.seconds) }]),
    { label: 'Proof', text: proofLine(best) },
    { label: 'Against', text: againstLine(best, bestRecipe(c)) },
    searched,
  ];
}

/** The trainer whose step it is. */
function trainerAnswer({ question }: Comparison): ComparisonReport['answer'] {
  const trainer = question?.trainer;
  return trainer === undefined ? [] : [{ label: 'For', text: trainerText(trainer) }];
}

/** How surely the best plan fits, and what fits less surely. */
function riskAnswer(c: Comparison): ComparisonReport['answer'] {
  const texts = riskTexts(c);
  return texts.length === 0 ? [] : [{ label: 'Risk', text: texts.join('; ') }];
}

/** The range of the seconds, and the plans that cannot be told apart. */
function certaintyAnswer(c: Comparison): ComparisonReport['answer'] {
  const [range, alike, simplest] = rangeLines(c).map((line) => line.replace(/^\w* +/, ''));
  if (range === undefined) return [];
  return [
    { label: 'Range', text: range },
    ...(alike === undefined ? [] : [{ label: 'Ties', text: `${alike}; ${simplest}` }]),
  ];
}

/** The cost of a run, and the devices that stay idle. */
function runAnswer({ run, held }: Comparison): ComparisonReport['answer'] {
  const idle = held === undefined ? undefined : allocationText(held);
  return [
    ...(idle === undefined ? [] : [{ label: 'Holds', text: idle }]),
    ...(run === undefined
      ? []
      : [{ label: 'Run', text: itemAt(runLines(run), 0).replace(/^run +/, '') }]),
  ];
}

function bestLine(best: ComparedPlan, { question }: Comparison): string {
  const what = `${best.plan} on ${best.mesh}: ${secondsText(stepTime(best))}`;
  const { layout } = best;
  if (layout === undefined)
    return (
      `${what} with communication overlapped; call by call ${secondsText(best.seconds)}, ` +
      `of it ${secondsText(best.communicationSeconds)} communication`
    );
  const convention =
    question === undefined ? '' : ` (${question.mfuConvention.replace(/^MFU: /, '')})`;
  const bubble =
    layout.sizes.pp > 1 ? `, pipeline bubble ${secondsText(layout.bubbleSeconds)}` : '';
  return (
    `${what} a step: compute ${secondsText(layout.computeSeconds)}, communication ` +
    `${secondsText(layout.exposedCommunicationSeconds)}${bubble}; ` +
    `${countText(Math.round(layout.tokensPerSecond))} tokens/s, MFU ` +
    `${percentText(layout.mfu)}${convention}`
  );
}

function memoryLine(
  { peakBytes, layout, fitProbability }: ComparedPlan,
  { budgetBytes, holds }: Comparison,
): string {
  const fit = typeof fitProbability !== 'number' ? '' : `, ${fitText(fitProbability)}`;
  const of = `${bytesText(peakBytes)} of ${bytesText(budgetBytes)} per device${fit}`;
  if (layout === undefined)
    return holds === 'peak'
      ? `${of} at the peak, activations included`
      : `${of} for states; activations are not counted`;
  const m = layout.memory;
  return (
    `${of}: parameters ${bytesText(m.parameterBytes)}, gradients ` +
    `${bytesText(m.gradientBytes)}, optimizer ${bytesText(m.optimizerBytes)}, activations ` +
    `${bytesText(m.activationBytes)}, other ${bytesText(m.temporaryBytes)}`
  );
}

function withLine(layout: NonNullable<ComparedPlan['layout']>, layers: number | undefined): string {
  const { microbatch, microbatches, schedule, chunks, sizes } = layout;
  const pipeline =
    sizes.pp > 1
      ? `, ${schedule}${chunks > 1 ? ` by ${chunks} chunks` : ''} over ${sizes.pp} devices`
      : '';
  const pairs =
    layout.pairsMicrobatches === true
      ? ', forward passes overlapped with backward passes of another'
      : '';
  return (
    `${countedText(microbatches, 'microbatch', 'microbatches')} of ` +
    `${countedText(microbatch, 'sequence')} on a data rank${pipeline}${pairs}, ` +
    `${recomputeText(layout, layers)}`
  );
}

function proofLine({ proof, layout, origin }: ComparedPlan): string {
  if (proof !== undefined) return `${proof.status} on its mesh, gap ${percentText(proof.gap)}`;
  const shallow = layout?.shallowProof;
  const placed =
    layout?.placements === undefined
      ? ''
      : `; placed as ${layout.placements}, which is cheaper in all`;
  if (layout !== undefined && shallow !== undefined)
    return (
      `${shallow.status} for the ${layout.pricedLayers} priced layers of a data rank (gap ` +
      `${percentText(shallow.gap)}), not for the whole model${placed}`
    );
  if (layout !== undefined)
    return (
      `none for the whole model: priced from ${layout.pricedLayers} of its ` +
      `layers${placed === '' ? '' : `${placed} than what is proven optimal for these layers alone`}`
    );
  return origin === 'zoo'
    ? 'a recipe; no optimum is cheaper call by call on the meshes that were solved'
    : 'none';
}

function againstLine(best: ComparedPlan, recipe: ComparedPlan | undefined): string {
  if (recipe === undefined || recipe === best)
    return 'no other recipe that fits as surely is faster';
  const [own, other] = [stepTime(best), stepTime(recipe)];
  const where = `${recipe.plan} on ${recipe.mesh}: ${secondsText(other)}`;
  if (other === own) return `the best recipe is as fast: ${where}`;
  return `the best recipe is ${where} (${slowerText(other, own)})`;
}

/** Refused plans in the data of a page. */
const MOST_REFUSED = 200;

/** Digits of the figures of plans other than the best in the data of a page. */
const DIGITS = 9;

/** The same plan with figures of so many digits. */
function shortened(plan: ComparedPlan): ComparedPlan {
  const text = JSON.stringify(plan, (_, value: unknown) =>
    typeof value === 'number' && !Number.isInteger(value)
      ? Number(value.toPrecision(DIGITS))
      : value,
  );
  return JSON.parse(text) as ComparedPlan;
}

/**
 * The report as a page carries it: plans of the rows that the page has; collectives, stages and
 * findings only of the best. `leftOut` says so; `--format json` has all.
 */
export function pageData(
  report: ComparisonReport,
): ComparisonReport & { readonly leftOut?: string } {
  const { comparison } = report;
  const shown = shownTwins(comparison).flatMap(({ first, others }) => [first, ...others]);
  const names = new Set(shown.map((p) => `${p.plan} ${p.mesh}`));
  const plans = comparison.plans
    .filter((p) => names.has(`${p.plan} ${p.mesh}`))
    .map((p): ComparedPlan => {
      if (p.name === comparison.best || p.layout === undefined) return p;
      // Why is what its cause and standing say in a sentence.
      const { traffic: _, why: __, ...rest } = p;
      return shortened({ ...rest, layout: { ...p.layout, stages: [], boundaries: [] } });
    });
  const best = comparison.plans.find((p) => p.name === comparison.best);
  const findings = comparison.findings.filter((f) => f.plan === best?.plan && f.mesh === best.mesh);
  const left = comparison.plans.length - plans.length;
  if (left === 0 && comparison.question === undefined) return report;
  const leftOut =
    `${countText(left)} plans; of all but the best, collectives, stages, findings, sentences and ` +
    `digits after the ${DIGITS}th; report --format json has them`;
  return {
    ...report,
    comparison: {
      ...comparison,
      plans,
      findings,
      refused: comparison.refused.slice(0, MOST_REFUSED),
    },
    leftOut,
  };
}

export function comparisonSections(c: Comparison): Section[] {
  return [
    plansSection(c),
    ...layoutSection(c),
    ...runSection(c),
    ...bestSections(c),
    ...runItSection(c),
    meshSection(c),
    refusedSection(c),
    ...notesSection(c),
  ];
}

function notesSection(c: Comparison): Section[] {
  const items = [
    ...(c.warnings ?? []).map((warning) => `Warning: ${warning}`),
    ...(c.refit === undefined ? [] : refitLines(c.refit)),
    ...comparedPaddingText(c),
    ...(c.notes ?? []),
  ];
  if (items.length === 0) return [];
  return [
    { id: 'assumptions', title: 'How the figures were made', blocks: [{ kind: 'list', items }] },
  ];
}
