/**
 * Reads the layout of a job from the configuration of its trainer: the layout in the form of
 * `--layout`, the sequence and the batch where the file states them, and every setting of it that
 * has no price.
 */

import { defined } from '../defined.ts';
import { ShardwrightError } from '../errors.ts';
import { UNCUT_STREAM } from '../recipes/expert-mesh.ts';
import { readYaml } from '../text/yaml.ts';
import { keptLayout } from './kept-row.ts';
import {
  type LayoutDraft,
  type LayoutSetting,
  type NotPriced,
  type SettledLayout,
  settleLayout,
} from './layout/layout-draft.ts';
import type { TrainerRuns } from './runs.ts';
import type { ConfigFormat } from './trainer.ts';
import { TRAINERS } from './trainers.ts';

/** A layout that a file states. */
export interface LayoutFile extends SettledLayout {
  readonly format: string;
  /** Trainers that have files of this form. */
  readonly trainers: readonly string[];
  /** The layouts that this form can state, if they are not all that its trainer runs. */
  readonly runs?: TrainerRuns;
  readonly notPriced: readonly NotPriced[];
}

const MOST_CHARACTERS = 2 ** 20;

/** Aliases that a configuration may repeat parts with. */
const MOST_ALIASES = 100;

const CONFIGURATIONS = TRAINERS.flatMap(({ reads }) => reads ?? []).join(', ');

const FORMATS = `read are ${CONFIGURATIONS}, and layout.json of compare -o.`;

/** @throws E_INPUT naming the key, or where the file is none of the formats */
export function readLayoutFile(text: string, setting: LayoutSetting): LayoutFile {
  const { file } = setting;
  if (text.length > MOST_CHARACTERS)
    throw new ShardwrightError(
      'E_INPUT',
      `the file has ${text.length} characters; at most ${MOST_CHARACTERS} are read`,
      { file, hint: FORMATS },
    );
  const kept = keptLayout(text, file);
  if (kept !== undefined) {
    const { trainer, ...settled } = kept;
    const trainers = TRAINERS.flatMap(({ id }) => (id === trainer ? [id] : []));
    return { ...settled, format: 'a row that compare kept', trainers, notPriced: [] };
  }
  const yaml = (): unknown => readYaml(text, file, FORMATS, MOST_ALIASES);
  const found = formatOf(text) ?? noFormat(file, yaml);
  const { name: format, read, wantsCutTokens = false } = found;
  const trainers = TRAINERS.flatMap(({ id, formats = [] }) =>
    formats.some((form: ConfigFormat) => form.name === format) ? [id] : [],
  );
  const of = { format, trainers, ...defined({ runs: found.runs }) };
  const { draft, notPriced: counted } = read({ text, setting, yaml });
  const notPriced = [...counted, ...looseAccumulation(draft)];
  const uncut =
    setting.model.routed !== undefined && (draft.tp ?? 1) > 1 && draft.sequenceParallel === false;
  if (!uncut) return { ...settleLayout(draft, setting), ...of, notPriced };
  if (wantsCutTokens)
    throw new ShardwrightError(
      'E_INPUT',
      `sequence_parallel: found false with tensor_model_parallel_size ${draft.tp}, wanted ` +
        'true for routed experts',
      { file, hint: `${UNCUT_STREAM}: state it in the file.` },
    );
  const why = 'priced with it: tokens are sent to experts from where they lie';
  return {
    ...settleLayout({ ...draft, sequenceParallel: true }, setting),
    ...of,
    notPriced: [...notPriced, { key: 'sequence parallelism', value: 'off', why }],
  };
}

/** A note where a number of microbatches stands without their size: it makes no batch. */
function looseAccumulation(draft: LayoutDraft): NotPriced[] {
  const { accumulation = 1, microbatch, globalBatch } = draft;
  const isLoose = accumulation > 1 && microbatch === undefined && globalBatch === undefined;
  const why = 'the script has the size of a microbatch: give the sequences of a step with --batch';
  return isLoose ? [{ key: 'microbatches', value: String(accumulation), why }] : [];
}

/** The first form that a text is in. */
export function formatOf(text: string): ConfigFormat | undefined {
  const isJson = /^\s*\{/.test(text.replace(/^(\s|#.*|\/\/.*|\/\*[\s\S]*?\*\/)*/, ''));
  return TRAINERS.flatMap(({ formats = [] }) => formats).find(
    (format) => (format.isJson === true) === isJson && format.isIn(text),
  );
}

/** @throws E_SYNTAX for a text that is not YAML either, E_INPUT for one that states no layout */
function noFormat(file: string, yaml: () => unknown): never {
  yaml();
  throw new ShardwrightError(
    'E_INPUT',
    'the file has none of the settings that trainers state a layout in',
    { file, hint: FORMATS },
  );
}
