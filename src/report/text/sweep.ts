/**
 * Prints a comparison by model name as text: the best plan, the best mesh of each plan, the next
 * best.
 */

import { NO_RUNS } from '../../cost/error-bands.ts';
import { allocationText } from '../../cost/hardware/topology.ts';
import { bestPlan } from '../../recipes/compare/best-plan.ts';
import type { AskedLayout, ComparedPlan, Comparison } from '../../recipes/compare/comparison.ts';
import { shownFront } from '../../recipes/compare/pareto.ts';
import { recomputeText } from '../../recipes/recompute-text.ts';
import {
  bytesText,
  countedText,
  countText,
  percentText,
  secondsText,
  tableText,
} from '../../units.ts';
import type { TableBlock } from '../model/blocks.ts';
import { fitText, fittingText, noBestText, outsideText, riskTexts } from '../model/certainty.ts';
import { comparedPaddingText } from '../model/compared-padding.ts';
import { refusalCounts } from '../model/compared-screen.ts';
import { figureColumns, nextBestTable, whatIfTable } from '../model/compared-tables.ts';
import { meshCountsText } from '../model/mesh-status.ts';
import { refitLines } from '../model/refit-text.ts';
import { type ColumnOf, tableOf, terminalTable } from '../model/table.ts';
import { trainerText } from '../model/trainer-text.ts';
import { stageLines } from './compared-stages.ts';
import { runLines } from './run-cost.ts';

/** Plans that cannot be told apart which a text names. */
const TIES_NAMED = 6;

/** The risk of the best plan, how sure the figures are, and which plans are as good as the best. */
export function certaintyLines(c: Comparison): string[] {
  const risk = riskTexts(c).map((text, i) => `${i === 0 ? 'risk      ' : '          '}${text}`);
  return [...risk, ...rangeLines(c)];
}

/** How sure the figures are, and which plans are as good as the best by all that is known. */
export function rangeLines(c: Comparison): string[] {
  const { certainty, unsure, plans, best } = c;
  if (certainty === undefined) return unsure === undefined ? [] : [`range     ${unsure}`];
  const { p10, p90, from, runs, alikeShare, alike } = certainty;
  const band = bestPlan(c)?.stepBand;
  const lines = [
    band === undefined || band === null
      ? `range     ${NO_RUNS}`
      : `range     ${secondsText(band[0])} to ${secondsText(band[1])}: eight of ten measured ` +
        `steps lie at ${p10.toFixed(2)} to ${p90.toFixed(2)} of the predicted ones (${from}: ` +
        `${countedText(runs, 'run')})${outsideText(certainty)}`,
  ];
  const simplest = plans.find((p) => p.name === (certainty.simplest ?? certainty.recommended));
  if (alike.length < 2 || simplest === undefined) return lines;
  const more = alike.length > TIES_NAMED ? ` and ${alike.length - TIES_NAMED} more` : '';
  const what =
    simplest.name === best
      ? 'the best is the simplest of them'
      : `the simplest of them is ${simplest.plan} on ${simplest.mesh}, ` +
        `${secondsText(simplest.seconds)}${fitWords(simplest)}`;
  return [
    ...lines,
    `ties      ${alike.length} plans within ${percentText(alikeShare)} cannot be told apart: ` +
      `${alike.slice(0, TIES_NAMED).join(', ')}${more}`,
    `          ${what}`,
  ];
}

function fitWords({ fitProbability }: Pick<ComparedPlan, 'fitProbability'>): string {
  return typeof fitProbability !== 'number' ? '' : `, ${fitText(fitProbability)}`;
}

/** `(4.91 s to 6.02 s)`; nothing where no measured run tells. */
function bandWords({ secondsBand }: Pick<ComparedPlan, 'secondsBand'>): string {
  return secondsBand === undefined
    ? ''
    : ` (${secondsText(secondsBand[0])} to ${secondsText(secondsBand[1])})`;
}

/** Plans that the text lists; `--json` has all of them. */
const LISTED = 24;

/** The layout that was asked about, and what makes it faster. */
function layoutLines(asked: AskedLayout): string[] {
  const {
    text,
    name,
    mesh,
    seconds,
    tokensPerSecond,
    peakBytes,
    fits,
    overBest,
    edits,
    run,
    from,
    assumes,
    ...parts
  } = asked;
  const distance =
    overBest === undefined
      ? ''
      : overBest < 0
        ? `; ${percentText(-overBest)} faster than the best that fits as surely as is asked`
        : `; ${percentText(overBest)} slower than the best`;
  return [
    `layout    ${text}`,
    ...(from === undefined ? [] : [`          read from ${from.file}, ${from.format}`]),
    `          ${name} on ${mesh}: ${secondsText(seconds)}${bandWords(asked)}, ` +
      `${countText(Math.round(tokensPerSecond))} tokens/s${distance}`,
    `          compute ${secondsText(parts.computeSeconds)}, communication ` +
      `${secondsText(parts.communicationSeconds)}, bubble ${secondsText(parts.bubbleSeconds)}, ` +
      `${countedText(parts.microbatches, 'microbatch', 'microbatches')}`,
    `          ${bytesText(peakBytes)} at the peak, ` +
      (fits ? 'which fits' : 'which does not fit') +
      fitWords(asked).replace(', fits', ' the budget; fits'),
    ...(run === undefined
      ? []
      : runLines(run)
          .slice(0, 1)
          .map((line) => line.replace(/^run   /, '      '))),
    ...(edits.length === 0
      ? ['          no change of one setting that fits as surely as the best is faster']
      : edits.map(
          (e) =>
            `          ${e.change}: ${secondsText(e.seconds)}, ` +
            `${percentText(1 - e.seconds / seconds)} less, ${bytesText(e.peakBytes)}` +
            fitWords(e).replace('fits with a probability of', 'fits with'),
        )),
    ...(assumes === undefined ? [] : [`          ${assumes}`]),
    ...(from?.notPriced ?? []).map(
      ({ key, value, why }) => `          not counted: ${[key, value].join(' ').trim()}: ${why}`,
    ),
  ];
}

/**
 * A comparison by model name as text: the answer, the best mesh of every plan, what is next and
 * what would change it.
 */
export function sweepText(c: Comparison, question: NonNullable<Comparison['question']>): string {
  const best = c.plans.find((p) => p.name === c.best);
  const lines = [...questionLines(c, question), ''];
  if (c.plans.length === 0) lines.push('no plan could be priced');
  else if (best === undefined) lines.push(noBestText(c));
  else lines.push(...answerLines(best, question));
  lines.push(...certaintyLines(c));
  if (c.refit !== undefined)
    lines.push(
      ...refitLines(c.refit).map((line, i) => `${i === 0 ? 'refit     ' : '          '}${line}`),
    );
  if (c.run !== undefined) lines.push(...runLines(c.run));
  if (c.smallestBudgetBytes !== undefined && best === undefined && c.safest === undefined)
    lines.push(`smallest  ${bytesText(c.smallestBudgetBytes)} would be needed by the leanest plan`);
  if (c.plans.length === 0) return [...lines, ...refusalLines(c)].join('\n');
  lines.push(
    '',
    ...planLines(c),
    ...tableLines(nextBestTable(c)),
    ...tableLines(whatIfTable(c)),
    ...frontLines(c),
  );
  if (c.layout !== undefined) lines.push('', ...layoutLines(c.layout));
  if (c.stopped !== undefined) lines.push('', stoppedText(c.stopped, best?.seconds));
  for (const note of [...comparedPaddingText(c), ...(c.notes ?? [])])
    lines.push(`note      ${note}`);
  return lines.join('\n');
}

function questionLines(c: Comparison, question: NonNullable<Comparison['question']>): string[] {
  return [
    `model     ${question.model}, ${question.layers} layers, sequences of ` +
      `${question.sequence}, ${question.globalBatch} a step (--seq, --global-batch)`,
    `cluster   ${c.devices} devices of ${c.cluster}, ${bytesText(c.budgetBytes)} ` +
      `each${idleText(c)}`,
    ...(question.trainer === undefined ? [] : [`for       ${trainerText(question.trainer)}`]),
    `priced    ${countedText(c.plans.length, 'plan')}, ${fittingText(c)}; ` +
      `meshes: ${meshCountsText(c)}`,
  ];
}

/** Every plan on its best mesh: those that fit, then some that do not. */
function planLines(c: Comparison): string[] {
  const first = firstOfEach(c.plans);
  const shown = [
    ...first.filter((p) => p.fits).slice(0, LISTED),
    ...first.filter((p) => !p.fits).slice(0, LISTED / 2),
  ];
  const legend =
    c.plans.find((p) => p.name === c.best) === undefined
      ? ''
      : '* best   + no other plan is better in both time and memory; ';
  return [
    planTable(shown, c),
    `${legend}each plan on its best mesh, --json has all`,
    ...(first.length > shown.length
      ? [`${first.length - shown.length} more plans are left out`]
      : []),
  ];
}

/** A table below an empty line; nothing where it has no rows. */
function tableLines(table: Pick<TableBlock, 'columns' | 'rows'>): string[] {
  return table.rows.length === 0 ? [] : ['', terminalTable(table)];
}

function frontLines({ frontier = [] }: Comparison): string[] {
  const front = shownFront(frontier);
  if (front.length <= 1) return [];
  const points = front.map((p) => `${bytesText(p.peakBytes)}: ${secondsText(p.seconds)}`);
  return ['', `memory    ${points.join('   ')}`];
}

/** `; 64 of the 72 devices of each of 4 hosts, 32 idle`, where something stays idle. */
function idleText({ held }: Comparison): string {
  const text = held === undefined ? undefined : allocationText(held);
  return text === undefined ? '' : `; ${text}`;
}

/** Names of what was not asked that a text lists. */
const NOT_ASKED = 12;

/**
 * The cause that ended a comparison, the possible distance of the best so far from the best recipe,
 * and the missing parts.
 */
export function stoppedText(
  { by, notAsked, boundSeconds }: NonNullable<Comparison['stopped']>,
  bestSeconds?: number,
): string {
  const rest = notAsked.length > NOT_ASKED ? [`and ${notAsked.length - NOT_ASKED} more`] : [];
  const distance =
    boundSeconds === undefined || bestSeconds === undefined
      ? ''
      : boundSeconds >= bestSeconds
        ? '; no recipe that fits as surely is faster'
        : `; no recipe that fits as surely has a step below ${secondsText(boundSeconds)}, ` +
          `${percentText(1 - boundSeconds / bestSeconds)} less`;
  return (
    `${by}: the best so far${distance}; not asked: ` +
    `${[...notAsked.slice(0, NOT_ASKED), ...rest].join(', ')}`
  );
}

/** Why nothing was priced: the reasons by how many meshes they stop. */
function refusalLines(c: Comparison): string[] {
  return [tableText([['meshes', 'why'], ...refusalCounts(c).slice(0, 8)], [0])];
}

function answerLines(
  p: ComparedPlan,
  { mfuConvention, layers }: NonNullable<Comparison['question']>,
): string[] {
  const { layout } = p;
  const lines = [`best      ${p.plan} on ${p.mesh}`];
  if (layout === undefined) return lines;
  const { memory } = layout;
  const schedule = layout.chunks > 1 ? `${layout.schedule} by ${layout.chunks}` : layout.schedule;
  const pipeline = layout.sizes.pp > 1 ? `, ${schedule}` : '';
  lines.push(
    `step time ${secondsText(p.seconds)}${bandWords(p)}   compute ` +
      `${secondsText(layout.computeSeconds)}   communication ` +
      `${secondsText(layout.exposedCommunicationSeconds)}   ` +
      (layout.sizes.pp > 1 ? `bubble ${secondsText(layout.bubbleSeconds)}   ` : '') +
      `${countText(Math.round(layout.tokensPerSecond))} tokens/s   ` +
      `MFU ${percentText(layout.mfu)} (${mfuConvention.replace(/^MFU: /, '')})`,
    `memory    ${bytesText(p.peakBytes)}${fitWords(p)}   parameters ` +
      `${bytesText(memory.parameterBytes)}   gradients ${bytesText(memory.gradientBytes)}   ` +
      `optimizer ${bytesText(memory.optimizerBytes)}   activations ` +
      `${bytesText(memory.activationBytes)}   other ${bytesText(memory.temporaryBytes)}`,
    `with      ${countedText(layout.microbatches, 'microbatch', 'microbatches')} of ` +
      `${layout.microbatch}${pipeline}` +
      (layout.pairsMicrobatches === true
        ? ', forward passes overlapped with backward passes of another, '
        : ', ') +
      recomputeText(layout, layers),
  );
  if (layout.placements !== undefined)
    lines.push(
      `placed    as ${layout.placements}: in all cheaper than what is proven optimal for the ` +
        'priced layers alone',
    );
  if (layout.shallowProof !== undefined)
    lines.push(
      `proof     ${layout.shallowProof.status} for the ${layout.pricedLayers} priced layers ` +
        `of a data rank (gap ${percentText(layout.shallowProof.gap)}); not a bound on the ` +
        'whole model',
    );
  return [...lines, ...stageLines(layout)];
}

/** The best mesh of every plan. */
export function firstOfEach(plans: readonly ComparedPlan[]): ComparedPlan[] {
  const seen = new Set<string>();
  return plans.filter((p) => !seen.has(p.plan) && seen.add(p.plan));
}

/** Plans as lines of a table: a mark, name, mesh, figures, and why each is not the best. */
export function planTable(plans: readonly ComparedPlan[], c: Comparison): string {
  const named = (short: string, cell: (p: ComparedPlan) => string): ColumnOf<ComparedPlan> => ({
    column: { head: short },
    cell,
  });
  return terminalTable(
    tableOf(plans, [
      named('', (p) => (p.name === c.best ? '*' : c.pareto.includes(p.name) ? '+' : '')),
      named('plan', (p) => p.plan),
      named('mesh', (p) => p.mesh),
      ...figureColumns(c),
      named('', (p) => (p.name === c.best ? 'best' : (p.why ?? ''))),
    ]),
  );
}
