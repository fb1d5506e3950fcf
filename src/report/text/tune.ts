/** Prints the answer of `tune`: how far a file is from the best, what to set, and its diff. */
import type { Tuned, TunedChange, TunedStep } from '../../sweep/layout/tune.ts';
import type { TunedFile } from '../../sweep/layout/tune-file.ts';
import {
  bytesText,
  countedText,
  percentText,
  probabilityText,
  secondsText,
  tableText,
} from '../../units.ts';

/** Settings in words. */
const WORDS: Readonly<Record<string, string>> = {
  recompute: 'activation checkpointing',
  mbs: 'the microbatch',
  tp: 'tensor parallelism',
  cp: 'context parallelism',
  pp: 'pipeline stages',
  ep: 'expert parallelism',
  vp: 'chunks of a stage',
  schedule: 'the pipeline schedule',
  zero: 'the ZeRO stage',
  dp_replicate: 'replicas of shards',
  reshard: 'resharding after the forward pass',
  sp: 'sequence parallelism',
  context: 'the way the sequence is cut',
  pair: 'overlap of expert exchanges',
};
const SWITCHES = new Set(['reshard', 'sp', 'pair']);
const MOST_CHANGES = 8;

export function tuneText(tuned: TunedFile): string {
  const { current, best, changes, pairs, diff, file, notPriced } = tuned;
  const listed = [...pairs, ...changes].sort((a, b) => a.stepSeconds - b.stepSeconds);
  const shown = listed.slice(0, MOST_CHANGES);
  return [
    headline(tuned),
    ...(shown.length === 0 ? [] : ['', `Set in ${file}`, changesText(shown, current)]),
    '',
    `${'Now'.padEnd(6)}${stepText(current)}  ${current.layout}`,
    ...(best === null ? [] : [`${'Best'.padEnd(6)}${stepText(best)}  ${best.layout}`]),
    ...(diff === '' ? [] : ['', diff]),
    ...noteLines(tuned),
    ...notPriced.map(
      ({ key, value, why }) => `Not priced: ${key}${value === '' ? '' : ` ${value}`}: ${why}`,
    ),
  ].join('\n');
}

/** The distance to the best, and the first thing to do. */
function headline({
  file,
  current,
  best,
  layouts,
  trainer,
  changes,
  risk,
}: Tuned & { file: string }): string {
  const among = `the best of ${countedText(layouts, 'layout')} that ${trainer} can run`;
  if (best === null)
    return (
      `${file}: none of ${countedText(layouts, 'layout')} that ${trainer} can run fits with ` +
      `${percentText(risk)}`
    );
  const risky = current.fitProbability < risk;
  const over = current.stepSeconds / best.stepSeconds - 1;
  const distance = risky
    ? `fits with ${probabilityText(current.fitProbability)} only`
    : over <= 0
      ? among
      : `${percentText(over)} slower than ${among}`;
  const [first] = changes;
  const step =
    first === undefined
      ? ''
      : `; set ${settingText(first.set)}: ${gainText(first, current)}, ` +
        `${bytesText(first.peakBytes)}, fits with ${probabilityText(first.fitProbability)}`;
  return `${file}: ${distance}${step}`;
}

function changesText(changes: readonly TunedChange[], current: TunedStep): string {
  return tableText([
    ['', 'step time', '', 'memory', 'fits'],
    ...changes.map((change) => [
      settingText(change.set),
      secondsText(change.stepSeconds),
      gainText(change, current),
      bytesText(change.peakBytes),
      probabilityText(change.fitProbability),
    ]),
  ]);
}

function gainText({ stepSeconds }: TunedStep, current: TunedStep): string {
  const share = stepSeconds / current.stepSeconds - 1;
  return `${share < 0 ? '-' : '+'}${percentText(Math.abs(share))}`;
}

/** `recompute=none` in words. */
export function settingText(set: string): string {
  return set
    .split(', ')
    .map((one) => {
      const [key, value] = one.split('=');
      const words = WORDS[key ?? ''] ?? key;
      return SWITCHES.has(key ?? '')
        ? `${words} ${value === '1' ? 'on' : 'off'}`
        : `${words} to ${value}`;
    })
    .join(' and ');
}

function stepText({ stepSeconds, stepBand, peakBytes, fitProbability }: TunedStep): string {
  const band =
    stepBand === null ? '' : ` (${secondsText(stepBand[0])} to ${secondsText(stepBand[1])})`;
  const fits = `fits with ${probabilityText(fitProbability)}`;
  return `${secondsText(stepSeconds)}${band}, ${bytesText(peakBytes)}, ${fits}`;
}

function noteLines({
  trainer,
  model,
  devices,
  cluster,
  sequence,
  globalBatch,
  notStated,
}: Tuned): string[] {
  return [
    '',
    `${model} by ${trainer} on ${countedText(devices, 'device')} of ${cluster}: sequences of ` +
      `${sequence}, ${globalBatch} a step`,
    ...(notStated === 0
      ? []
      : [`${countedText(notStated, 'faster layout')} cannot be stated in this file`]),
  ];
}
