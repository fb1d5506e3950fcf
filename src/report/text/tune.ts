/** Prints the answer of `tune`: how far a file is from the best, what to set, and its diff. */
import type { Tuned, TunedChange, TunedStep } from '../../sweep/layout/tune.ts';
import type { TunedFile } from '../../sweep/layout/tune-file.ts';
import {
  bytesText,
  countedText,
  differenceText,
  excessOver,
  percentText,
  probabilityText,
  secondsText,
} from '../../units.ts';
import type { ScreenRow } from '../model/first-screen.ts';
import { COLUMNS, screenText, wrapped } from './first-screen.ts';
import { narrowTable } from './narrow-table.ts';

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

/**
 * The answer of `tune` in 80 columns: the distance from the best and what to set, the steps before
 * and after, and the diff of the file.
 *
 * @param isWhole whether every setting that has no price is named
 */
export function tuneText(tuned: TunedFile, isWhole = false): string {
  const { current, best, changes, pairs, diff, file } = tuned;
  const listed = [...pairs, ...changes].sort((a, b) => a.stepSeconds - b.stepSeconds);
  const shown = listed.slice(0, MOST_CHANGES);
  const steps: ScreenRow[] = [
    { label: 'now', texts: [stepText(current), layoutText(current.layout)] },
    ...(best === null ? [] : [{ label: 'best', texts: [stepText(best), layoutText(best.layout)] }]),
  ];
  return [
    wrapped(headline(tuned), COLUMNS).join('\n'),
    ...(shown.length === 0 ? [] : [`Set in ${file}\n${changesText(shown, current)}`]),
    screenText(steps),
    ...(diff === '' ? [] : [diff.trimEnd()]),
    screenText(noteRows(tuned, isWhole)),
  ].join('\n\n');
}

/** A layout as `--layout` takes it, with room to break between its settings. */
function layoutText(layout: string): string {
  return layout.replaceAll(',', ', ');
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
  const rows = changes.map((change) => [
    settingText(change.set),
    secondsText(change.stepSeconds),
    gainText(change, current),
    bytesText(change.peakBytes),
    probabilityText(change.fitProbability),
  ]);
  return narrowTable([['', 'step time', '', 'memory', 'fits'], ...rows], [1, 2, 3, 4]);
}

function gainText({ stepSeconds }: TunedStep, current: TunedStep): string {
  return differenceText(excessOver(current.stepSeconds, stepSeconds));
}

/** `recompute=none` in words. */
function settingText(set: string): string {
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

/** Settings without a price that are named on the first screen. */
const NOT_PRICED = 3;

function noteRows(tuned: TunedFile, isWhole: boolean): ScreenRow[] {
  const { trainer, model, devices, cluster, sequence, globalBatch, notStated, notPriced } = tuned;
  const named = notPriced
    .slice(0, isWhole ? notPriced.length : NOT_PRICED)
    .map(({ key, value, why }) => `${key}${value === '' ? '' : ` ${value}`}: ${why}`);
  const left = notPriced.length - named.length;
  return [
    {
      label: 'question',
      texts: [
        `${model} by ${trainer} on ${countedText(devices, 'device')} of ${cluster}: sequences of ` +
          `${sequence}, ${globalBatch} a step`,
      ],
    },
    ...(notStated === 0
      ? []
      : [
          {
            label: 'note',
            texts: [`${countedText(notStated, 'faster layout')} cannot be stated in this file`],
          },
        ]),
    ...(named.length === 0
      ? []
      : [
          {
            label: 'not priced',
            texts: [...named, ...(left === 0 ? [] : [`${left} more (-v names them)`])],
          },
        ]),
  ];
}
