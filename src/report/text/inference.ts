/** Prints how a model is served: the best layout with its latency, throughput and memory. */

import type { InferenceAnswer, ServedLayout } from '../../sweep/inference/inference.ts';
import { bytesText, countedText, countText, percentText, secondsText } from '../../units.ts';
import type { ScreenRow } from '../model/first-screen.ts';
import { screenText } from './first-screen.ts';
import { narrowTable } from './narrow-table.ts';
import { amountText, moneyText } from './run-cost.ts';

/** Layouts of the table on the first screen. */
const SHOWN = 8;

/**
 * The answer in 80 columns.
 *
 * @param isWhole whether every layout stands in the table, and what was refused
 */
export function inferenceText(answer: InferenceAnswer, isWhole = false): string {
  const { plans, refused } = answer;
  const shown = isWhole ? plans : plans.slice(0, SHOWN);
  const left = plans.length - shown.length;
  return [
    screenText(rowsOf(answer)),
    layoutsText(shown, answer),
    ...(isWhole && refused.length > 0
      ? [refused.map(({ mesh, reason }) => `${mesh}: refused: ${reason}`).join('\n')]
      : []),
    ...(left === 0
      ? []
      : [screenText([{ label: 'more', texts: [`-v prints ${plans.length} layouts`] }])]),
  ].join('\n\n');
}

function rowsOf(answer: InferenceAnswer): ScreenRow[] {
  const { model, devices, cluster, plans, prompt, generated, weights, cache } = answer;
  const best = plans.find((p) => p.name === answer.best);
  const question = {
    label: 'question',
    texts: [
      `${model} on ${countedText(devices, 'device')} of ${cluster}, ` +
        `${bytesText(answer.budgetBytes)} each: prompts of ${countText(prompt)} tokens, ` +
        `${countText(generated)} generated; weights ${weights}, keys and values ${cache}`,
      ...limitTexts(answer),
    ],
  };
  if (best === undefined) return [question, { label: 'answer', texts: [nothingText(answer)] }];
  return [question, ...bestRows(best, answer)];
}

function bestRows(best: ServedLayout, answer: InferenceAnswer): ScreenRow[] {
  const { plans, devices } = answer;
  const fit = plans.filter((p) => p.fits).length;
  const quick = plans.find((p) => p.name === answer.fastest);
  const { pricePerMillionTokens: price } = best;
  return [
    {
      label: 'best',
      texts: [`${best.mesh}, of ${countedText(plans.length, 'layout')}: ${fit} fit`],
    },
    { label: 'do', texts: [wordsOf(best)] },
    {
      label: 'serves',
      texts: [
        `${countText(Math.round(best.tokensPerSecond))} generated tokens/s, ` +
          `${amountText(best.tokensPerSecondPerDevice)} a device, from ` +
          `${countedText(best.requests, 'request')} at once (at most ` +
          `${countText(best.mostRequests)} fit)`,
        answer.experts
          ? 'no range: no measured runs of this kind. Published figures of mixtures of experts ' +
            'are half to two thirds of such predictions (docs/inference.md)'
          : 'no range: no measured runs of this kind; docs/inference.md has published figures',
      ],
    },
    ...costRows(best, answer),
    ...(quick === undefined || quick.name === best.name
      ? []
      : [
          {
            label: 'fastest',
            texts: [
              `${quick.mesh} for one request alone: ${secondsText(quick.aloneSeconds)} a token, ` +
                `first token after ${secondsText(quick.firstTokenSeconds)}`,
            ],
          },
        ]),
    ...(price === undefined
      ? []
      : [
          {
            label: 'money',
            texts: [
              `${moneyText(price.amount, price.currency)} for a million generated tokens on ` +
                countedText(devices, 'device'),
            ],
          },
        ]),
  ];
}

/** The latency and the memory of the best layout. */
function costRows(best: ServedLayout, { budgetBytes }: InferenceAnswer): ScreenRow[] {
  return [
    {
      label: 'latency',
      texts: [
        `first token after ${secondsText(best.firstTokenSeconds)} if the prompt does not wait`,
        `then a token each ${secondsText(best.outputTokenSeconds)}, ` +
          `${secondsText(best.decodeSeconds)} without the prompts of others ` +
          `(${percentText(best.communicationShare)} of it communication)`,
        `${secondsText(best.aloneSeconds)} a token of one request alone`,
      ],
    },
    {
      label: 'memory',
      texts: [
        `${bytesText(best.peakBytes)} of ${bytesText(budgetBytes)} a device: weights ` +
          `${bytesText(best.weightBytes)}, caches ${bytesText(best.cacheBytes)} ` +
          `(${bytesText(best.requestCacheBytes)} a request), workspace ` +
          bytesText(best.workspaceBytes),
      ],
    },
  ];
}

/** The cuts of a layout in words. */
function wordsOf({ dp, pp, tp, ep }: ServedLayout): string {
  const words = [
    ...(dp > 1 ? [`requests on dp=${dp} ${ep > tp ? 'ranks' : 'replicas'}`] : []),
    ...(pp > 1 ? [`the layers in stages over pp=${pp}`] : []),
    ...(tp > 1 ? [`heads, MLP width and vocabulary cut over tp=${tp}`] : []),
    ...(ep > 1 ? [`experts whole, over ep=${ep}`] : []),
  ];
  return words.length === 0 ? 'one device holds all' : words.join('; ');
}

function limitTexts({ limits }: InferenceAnswer): string[] {
  const { requests, firstTokenSeconds, outputTokenSeconds } = limits;
  const words = [
    ...(requests === null ? [] : [`${countedText(requests, 'request')} at once`]),
    ...(firstTokenSeconds === null
      ? []
      : [`the first token within ${secondsText(firstTokenSeconds)}`]),
    ...(outputTokenSeconds === null
      ? []
      : [`a token each ${secondsText(outputTokenSeconds)} at the latest`]),
  ];
  return words.length === 0 ? [] : [`asked: ${words.join('; ')}`];
}

/** Why there is no best layout. */
function nothingText({ plans, budgetBytes }: InferenceAnswer): string {
  const fitting = plans.filter((p) => p.fits);
  const [least] = [...plans].sort((a, b) => a.peakBytes - b.peakBytes);
  if (fitting.length > 0) {
    const [quick] = [...fitting].sort((a, b) => a.outputTokenSeconds - b.outputTokenSeconds);
    return (
      `no layout keeps the limits: ${quick?.mesh ?? ''} has the first token after ` +
      `${secondsText(quick?.firstTokenSeconds ?? 0)}, then one each ` +
      secondsText(quick?.outputTokenSeconds ?? 0)
    );
  }
  if (least === undefined) return 'no layout has a price';
  return (
    `nothing fits: ${least.mesh} takes ${bytesText(least.peakBytes)} a device for ` +
    `${countedText(least.requests, 'request')}, of ${bytesText(budgetBytes)}; at most ` +
    `${countedText(least.mostRequests, 'request')} fit`
  );
}

function layoutsText(
  plans: readonly ServedLayout[],
  { best, pareto }: Pick<InferenceAnswer, 'best' | 'pareto'>,
): string {
  const mark = (p: ServedLayout): string =>
    p.name === best ? '*' : pareto.includes(p.name) ? '+' : '';
  const rows = plans.map((p) => [
    mark(p),
    p.mesh,
    countText(p.requests),
    secondsText(p.firstTokenSeconds),
    secondsText(p.outputTokenSeconds),
    countText(Math.round(p.tokensPerSecond)),
    bytesText(p.peakBytes),
    p.fits ? (p.keepsLimits ? 'yes' : 'too slow') : 'no',
  ]);
  const head = ['', 'layout', 'requests', 'first', 'each', 'tokens/s', 'memory', 'fits'];
  return (
    narrowTable([head, ...rows], [2, 3, 4, 5, 6]) +
    '\n* best   + no other layout has more tokens/s and a shorter time a token'
  );
}
