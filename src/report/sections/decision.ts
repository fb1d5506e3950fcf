/**
 * Makes the first screen of a report for whoever decides: what to run, its time, money, energy and
 * risk as ranges, what to do next, and the question as it was asked. The rest is an appendix.
 */

import { itemAt } from '../../item-at.ts';
import { bestPlan, stepTime } from '../../recipes/compare/best-plan.ts';
import type { ComparedPlan, Comparison } from '../../recipes/compare/comparison.ts';
import type { Planning, PlanningPoint } from '../../sweep/planning/planning.ts';
import { countedText, countText, percentText, secondsText } from '../../units.ts';
import { fitsWithText, noBestText, riskTexts } from '../model/certainty.ts';
import { comparedScreen } from '../model/compared-screen.ts';
import { layoutWords } from '../model/layout-words.ts';
import { trainerText } from '../model/trainer-text.ts';
import { goalTexts } from '../text/goals.ts';
import { moneyText, withRange } from '../text/run-cost.ts';
import {
  askedRow,
  type DecisionRow,
  doubtRow,
  memoryText,
  type ReportOrigin,
  row,
  runTexts,
} from './decision-rows.ts';

/** The next step of whoever has a plan: what turns a prediction into a measurement. */
const MEASURE =
  'run 50 steps of it with torch.profiler, and give the trace to shardwright doctor: it says ' +
  'where the step is slower than priced';

/** A flag in parentheses: a word for a terminal. */
const FLAG = / \(--[a-z-]+\)/g;

/** The decision of a comparison. */
export function comparedDecision(c: Comparison, origin: ReportOrigin = {}): DecisionRow[] {
  const best = bestPlan(c);
  const [question, ...more] = itemAt(comparedScreen(c, []), 0).texts;
  const asked = askedRow([question, ...more].join('; ').replace(FLAG, ''), origin);
  if (best === undefined)
    return [
      ...row('Decision', [`Do not run it so: ${noBestText(c)}`], 'bad'),
      ...row('Nearest', riskTexts(c)),
      ...row('Next', ['ask for more devices, or for shorter sequences']),
      ...asked,
    ];
  const { trainer } = c.question ?? {};
  const by = trainer === undefined ? '' : ` by ${trainerText(trainer).replace(/ \(.*/, '')}`;
  return [
    ...row('Decision', [
      `Run ${best.plan} on ${best.mesh}${by}`,
      ...layoutWords(best, c.question?.layers),
    ]),
    ...doubtRow(best.fitProbability, c.risk),
    ...row('Step', [stepText(best)]),
    ...row('Run', runTexts(c.run)),
    ...row('Memory', [memoryText(best.peakBytes, c.budgetBytes, best.fitProbability)]),
    ...yoursRows(c),
    ...row('As good', screenTexts(c, 'ties')),
    ...row('Riskier', screenTexts(c, 'risk')),
    ...row('Next', [`keep the plan (compare ... -o plan), ${MEASURE}`]),
    ...asked,
  ];
}

function screenTexts(c: Comparison, label: string): readonly string[] {
  return comparedScreen(c, []).find((one) => one.label === label)?.texts ?? [];
}

function stepText(best: ComparedPlan): string {
  const { stepBand, layout } = best;
  const range =
    stepBand === undefined || stepBand === null
      ? ''
      : ` (${secondsText(stepBand[0])} to ${secondsText(stepBand[1])} in eight of ten ` +
        'measured runs)';
  const rate =
    layout === undefined ? '' : `, ${countText(Math.round(layout.tokensPerSecond))} tokens/s`;
  return `${secondsText(stepTime(best))}${range}${rate}`;
}

/** The layout that was asked about, and the first thing to set in it. */
function yoursRows({ layout, risk }: Comparison): DecisionRow[] {
  if (layout === undefined) return [];
  const { from, name, mesh, seconds, overBest, edits, fitProbability } = layout;
  const [first] = edits;
  const distance =
    overBest === undefined
      ? ''
      : ` (${percentText(Math.abs(overBest))} ${overBest < 0 ? 'faster' : 'slower'})`;
  const set =
    first === undefined
      ? []
      : [`set ${first.change}: ${percentText(1 - first.seconds / seconds)} less`];
  const file = from === undefined ? '' : `${from.file}: `;
  return [
    ...row('Yours', [`${file}${name} on ${mesh}, ${secondsText(seconds)}${distance}`, ...set]),
    ...doubtRow(fitProbability, risk).map((one) => ({ ...one, label: 'Yours' })),
  ];
}

/** The decision between questions side by side: which to take, and what would change that. */
export function planningDecision(planning: Planning, origin: ReportOrigin = {}): DecisionRow[] {
  const { points, goals } = planning;
  const models = [...new Set(points.map((p) => p.model))].join(', ');
  const question =
    `${models}: ${countedText(points.length, 'question')} ` +
    `(${points.slice(0, SOME).map(whereText).join(', ')}${points.length > SOME ? ' ...' : ''})`;
  const chosen = recommendedPoint(planning);
  if (chosen === undefined || chosen.best === null)
    return [
      ...row('Decision', ['Rent none of them so: no plan fits as surely as is asked'], 'bad'),
      ...askedRow(question, origin),
    ];
  const why = reasonText(planning, chosen);
  return [
    ...row('Decision', [
      `Take ${whereText(chosen)}: ${why}, with ${chosen.best.plan} on ${chosen.best.mesh}`,
    ]),
    ...doubtRow(chosen.best.fitProbability, chosen.risk),
    ...row('Asked for', goalTexts(points, goals), isMissed(planning) ? 'bad' : undefined),
    ...row('Step', [withRange(stepTime(chosen.best), chosen.best.stepBand, secondsText)]),
    ...row('Run', runTexts(chosen.run)),
    ...row('Memory', [
      memoryText(chosen.best.peakBytes, chosen.budgetBytes, chosen.best.fitProbability),
    ]),
    ...row('Break-even', breakEvenTexts(points, chosen)),
    ...points.flatMap((p) =>
      p.best === null
        ? row('No plan', [`${whereText(p)}: ${missingText(p)}`], 'bad')
        : p === chosen
          ? []
          : doubtRow(p.best.fitProbability, p.risk),
    ),
    ...row('Next', [`rent one host of it for an hour, ${MEASURE}`]),
    ...askedRow(question, origin),
  ];
}

/** Points that a sentence names. */
const SOME = 4;

/** `128 devices of dgx-b200`. */
export function whereText({ devices, cluster }: PlanningPoint): string {
  return `${countText(devices)} devices of ${cluster}`;
}

function missingText({ safest, stopped }: PlanningPoint): string {
  if (stopped !== undefined) return `the ${stopped} came first`;
  return safest === undefined ? 'no plan fits' : fitsWithText(safest.fitProbability ?? 0);
}

/** The place of the point that answers a question about a time or a sum, if one does. */
function goalAt({ goals }: Planning): number | null | undefined {
  return goals?.within?.at ?? goals?.spend?.at;
}

/** True if no point ends the run in the time that is asked for. */
function isMissed({ goals }: Planning): boolean {
  return goals?.within?.at === null;
}

function reasonText(planning: Planning, { run }: PlanningPoint): string {
  const { within, spend } = planning.goals ?? {};
  if (typeof within?.at === 'number') return 'the cheapest run of those that end in time';
  if (typeof spend?.at === 'number') return 'most tokens for the sum';
  return run?.price === undefined ? 'most tokens a second' : 'the cheapest run';
}

/**
 * The point that answers a question about a time or a sum; else the cheapest point, where the runs
 * of all have prices of one currency, or the fastest.
 */
export function recommendedPoint(planning: Planning): PlanningPoint | undefined {
  const { points } = planning;
  const at = goalAt(planning);
  if (typeof at === 'number') return itemAt(points, at);
  const done = points.filter((p) => p.best !== null);
  const currencies = new Set(done.map((p) => p.run?.price?.currency));
  const isPriced = currencies.size === 1 && !currencies.has(undefined);
  const rank = (p: PlanningPoint): number =>
    isPriced ? (p.run?.price?.amount ?? Infinity) : -(p.best?.tokensPerSecond ?? 0);
  return done.reduce<PlanningPoint | undefined>(
    (least, p) => (least === undefined || rank(p) < rank(least) ? p : least),
    undefined,
  );
}

/** The price of a device-hour at which a run on another cluster costs what the chosen one does. */
function breakEvenTexts(points: readonly PlanningPoint[], chosen: PlanningPoint): string[] {
  const least = chosen.run?.price;
  if (least === undefined) return [];
  return points.flatMap((p) => {
    const { run } = p;
    const isOther = p.cluster !== chosen.cluster && p.best !== null;
    if (!isOther || run?.price?.currency !== least.currency) return [];
    const at = least.amount / run.deviceHours;
    const now = run.price.amount / run.deviceHours;
    return [
      `${whereText(p)} cost the same at ${hourText(at, least.currency)} a device-hour ` +
        `(${hourText(now, least.currency)} now, ${percentText(Math.abs(1 - at / now))} ` +
        `${at < now ? 'less' : 'more'})`,
    ];
  });
}

function hourText(amount: number, currency: string): string {
  return moneyText(Number(amount.toPrecision(3)), currency);
}
