/**
 * Makes the first screen of a comparison: the best plan in words, its step, memory and risk, what
 * it beats, the layout that was asked about, and the run. The rest is behind `-v`.
 */

import { NO_RUNS } from '../../cost/error-bands.ts';
import { allocationText } from '../../cost/hardware/topology.ts';
import { bestPlan, bestRecipe, stepTime } from '../../recipes/compare/best-plan.ts';
import type { AskedLayout, ComparedPlan, Comparison } from '../../recipes/compare/comparison.ts';
import {
  bytesText,
  countedText,
  countText,
  percentText,
  probabilityText,
  secondsText,
  slowerText,
} from '../../units.ts';
import { fittingText, noBestText, outsideText, riskTexts } from './certainty.ts';
import { comparedPaddingText } from './compared-padding.ts';
import type { ScreenRow } from './first-screen.ts';
import { layoutWords } from './layout-words.ts';
import { codedReason } from './mesh-status.ts';
import { refitLines } from './refit-text.ts';
import { trainerText } from './trainer-text.ts';

/** Rows that a first screen lists of plans, of edits and of refusals. */
export const FEW = 5;

/** The rows of the first screen, in their order; `run`: the lines of a run, where one is asked. */
export function comparedScreen(c: Comparison, run: readonly string[]): ScreenRow[] {
  const best = bestPlan(c);
  return [
    { label: 'question', texts: questionTexts(c) },
    ...row('for', c.question?.trainer === undefined ? [] : [trainerText(c.question.trainer)]),
    ...(best === undefined ? noBestRows(c) : bestRows(c, best)),
    ...row('refit', c.refit === undefined ? [] : refitLines(c.refit)),
    ...row('run', run),
    ...(c.layout === undefined ? [] : layoutRows(c.layout, c)),
    ...row('padding', comparedPaddingText(c)),
  ];
}

/** A row, or none where there is nothing to say. */
function row(label: string, texts: readonly string[]): ScreenRow[] {
  return texts.length === 0 ? [] : [{ label, texts }];
}

function questionTexts({
  question,
  model,
  devices,
  cluster,
  microbatches,
  budgetBytes,
  held,
  holds,
}: Comparison): string[] {
  const name = question?.model ?? model;
  const limits =
    question !== undefined || holds === 'peak'
      ? 'for peak memory, activations included'
      : 'for states (activations are not counted)';
  const idle = held === undefined ? undefined : allocationText(held);
  return [
    `${name === undefined ? '' : `${name} on `}${countedText(devices, 'device')} of ${cluster}, ` +
      `${bytesText(budgetBytes)} each ${limits}`,
    ...(question === undefined
      ? []
      : [
          `${question.layers} layers, sequences of ${question.sequence} (--seq), ` +
            `${question.globalBatch} a step (--global-batch)`,
          ...adapterTexts(question),
        ]),
    ...(microbatches === undefined
      ? []
      : [`a step of ${microbatches} microbatches, each a pass of the graph (--accumulate)`]),
    ...(idle === undefined ? [] : [`idle: ${idle}`]),
  ];
}

/** The adapters, where they alone are trained. */
function adapterTexts({ adapters }: NonNullable<Comparison['question']>): string[] {
  if (adapters === undefined) return [];
  const { text, trained, parameters } = adapters;
  return [
    `${text}: ${countText(trained)} of ${countText(parameters)} parameters are trained ` +
      `(${percentText(trained / parameters)})`,
  ];
}

function bestRows(c: Comparison, best: ComparedPlan): ScreenRow[] {
  const counts = `of ${countedText(c.plans.length, 'plan')}: ${fittingText(c)}`;
  return [
    { label: 'best', texts: [`${best.plan} on ${best.mesh}, ${counts}`] },
    ...row('do', layoutWords(best, c.question?.layers)),
    { label: 'step time', texts: stepTexts(c, best) },
    { label: 'memory', texts: [memoryText(c, best)] },
    ...row('beats', beatsTexts(c, best)),
    ...row('ties', tieTexts(c)),
    ...row('proof', proofTexts(best)),
    // That the best fits as surely as is asked is said with its memory.
    ...row('risk', riskTexts(c).slice(1)),
  ];
}

function stepTexts({ certainty, question }: Comparison, best: ComparedPlan): string[] {
  const { layout, stepBand } = best;
  const rate =
    layout === undefined
      ? ''
      : `, ${countText(Math.round(layout.tokensPerSecond))} tokens/s, MFU ` +
        percentText(layout.mfu);
  const how = question === undefined ? ' simulated, communication overlapped' : '';
  const from =
    certainty === undefined ? '' : ` (${certainty.from}: ${countedText(certainty.runs, 'run')})`;
  return [
    `${secondsText(stepTime(best))}${how}${rate}`,
    stepBand === undefined || stepBand === null
      ? `no range: ${NO_RUNS}`
      : `${secondsText(stepBand[0])} to ${secondsText(stepBand[1])} in eight of ten measured ` +
        `steps${from}${certainty === undefined ? '' : outsideText(certainty)}`,
  ];
}

function memoryText({ budgetBytes, risk }: Comparison, best: ComparedPlan): string {
  const { peakBytes, fitProbability: fits } = best;
  const of = `${bytesText(peakBytes)} of ${bytesText(budgetBytes)} a device`;
  if (typeof fits !== 'number') return of;
  const asked = risk === undefined ? '' : `, asked for ${probabilityText(risk)} (--risk)`;
  return `${of}; fits with ${probabilityText(fits)}${asked}`;
}

/** The next plan of another kind, and of a graph the best recipe. */
function beatsTexts(c: Comparison, best: ComparedPlan): string[] {
  const more = (p: ComparedPlan): string =>
    `${p.name} on ${p.mesh} takes ${secondsText(stepTime(p))} ` +
    `(${slowerText(stepTime(p), stepTime(best))})`;
  const recipe = bestRecipe(c);
  if (recipe !== undefined && recipe !== best) return [`${more(recipe)}, the best recipe`];
  const next = c.plans.find((p) => p.fits && p.plan !== best.plan && stepTime(p) >= stepTime(best));
  return next === undefined ? [] : [`${more(next)}, the next`];
}

function tieTexts({ certainty, best, plans }: Comparison): string[] {
  if (certainty === undefined || certainty.alike.length < 2) return [];
  const { alike, alikeShare } = certainty;
  const name = certainty.simplest ?? certainty.recommended;
  const simplest = plans.find((p) => p.name === name);
  const is =
    simplest === undefined
      ? ''
      : simplest.name === best
        ? '; the best is the simplest of them'
        : `; the simplest of them is ${simplest.plan} on ${simplest.mesh}`;
  return [`${alike.length} plans within ${percentText(alikeShare)} cannot be told apart${is}`];
}

function proofTexts({ proof, layout, pipeline }: ComparedPlan): string[] {
  if (pipeline !== undefined)
    return [
      pipeline.gap === 0
        ? 'each stage is optimal call by call; no bound on other cuts'
        : `each stage within ${percentText(pipeline.gap)} call by call; no bound on other cuts`,
    ];
  if (layout?.shallowProof !== undefined)
    return [
      `${layout.shallowProof.status} for the ${layout.pricedLayers} priced layers (gap ` +
        `${percentText(layout.shallowProof.gap)}); no bound on the whole model`,
    ];
  if (proof === undefined) return [];
  return [`${proof.status} on its mesh call by call, gap ${percentText(proof.gap)}`];
}

function noBestRows(c: Comparison): ScreenRow[] {
  if (c.plans.length === 0) return [{ label: 'best', texts: ['no plan could be priced'] }];
  const { smallestBudgetBytes: least } = c;
  return [
    { label: 'best', texts: [noBestText(c)] },
    ...row('risk', riskTexts(c)),
    ...row(
      'smallest',
      least === undefined || c.safest !== undefined
        ? []
        : [`${bytesText(least)} would be needed by the leanest plan`],
    ),
  ];
}

/** The layout that was asked about: its distance from the best, its memory, and what to set. */
function layoutRows(asked: AskedLayout, { budgetBytes }: Comparison): ScreenRow[] {
  const { from, overBest, fitProbability, edits, seconds } = asked;
  const distance =
    overBest === undefined
      ? ''
      : `, ${percentText(Math.abs(overBest))} ${overBest < 0 ? 'faster' : 'slower'} than the best`;
  const read = from === undefined ? '' : `${from.file}, ${from.format}: `;
  const fits =
    typeof fitProbability === 'number' ? `fits with ${probabilityText(fitProbability)}` : '';
  return [
    {
      label: 'yours',
      texts: [
        `${read}${asked.name} on ${asked.mesh}`,
        `${secondsText(seconds)}${distance}`,
        `${bytesText(asked.peakBytes)} of ${bytesText(budgetBytes)} a device; ` +
          (asked.fits ? fits : `does not fit${fits === '' ? '' : `, ${fits}`}`),
        ...notCounted(from?.notPriced ?? []),
      ],
    },
    {
      label: 'set',
      texts:
        edits.length === 0
          ? ['no change of one setting that fits as surely as the best is faster']
          : edits.slice(0, FEW).map((e) => {
              const fit = e.fitProbability;
              return (
                `${e.change}: ${secondsText(e.seconds)}, ${percentText(1 - e.seconds / seconds)} ` +
                `less, ${bytesText(e.peakBytes)}` +
                (fit === undefined ? '' : `, fits with ${probabilityText(fit)}`)
              );
            }),
    },
  ];
}

/** Settings of a file that are named on the first screen where they have no price. */
const NOT_COUNTED = 3;

function notCounted(settings: NonNullable<AskedLayout['from']>['notPriced']): string[] {
  const named = settings
    .slice(0, NOT_COUNTED)
    .map(({ key, value, why }) => `not counted: ${[key, value].join(' ').trim()}: ${why}`);
  const left = settings.length - named.length;
  return left === 0 ? named : [...named, `${left} more are not counted (-v)`];
}

/** Why nothing was priced: the reasons by how many meshes they stop. */
export function refusalCounts({ meshes }: Comparison): string[][] {
  const counts = new Map<string, number>();
  for (const { code, reason } of meshes)
    if (reason !== undefined) {
      const text = codedReason(code, reason);
      counts.set(text, (counts.get(text) ?? 0) + 1);
    }
  return [...counts]
    .sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))
    .map(([text, n]) => [String(n), text]);
}
