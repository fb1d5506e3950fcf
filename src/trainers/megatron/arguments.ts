/**
 * Reads arguments of Megatron-LM where people keep them: in a launch script, in a file of
 * arguments, and under `MODEL_ARGS:` in the YAML files of its tests. A script is read as a shell
 * reads it, and the words are taken as `argparse` takes them: the last of a name counts, and a name
 * is never shortened (`allow_abbrev=False`). Sources: `megatron/training/arguments.py` of
 * megatron-core 0.16; `_run_training.sh` of its functional tests.
 */

import { ShardwrightError } from '../../errors.ts';
import { placeAt } from '../../text/place.ts';
import type { LayoutSetting, NotPriced } from '../layout/layout-draft.ts';
import { type FileSetting, settingsOf } from '../layout/settings-table.ts';
import { readShell, type ShellCommand, type ShellScript } from '../shell/read-shell.ts';
import { type ShellWord, textOf, type Unknown, unknownIn, type Value } from '../shell/value.ts';
import type { ReadLayout } from '../trainer.ts';
import { LISTS, SWITCHES } from './flags.ts';
import { MEGATRON_TABLE, megatronLayout } from './settings.ts';

/** A text and what is asked of it. */
interface Source {
  readonly text: string;
  readonly setting: LayoutSetting;
}

/** Tells whether a text has arguments of Megatron-LM. */
export function isMegatronArguments(text: string): boolean {
  return /(^|[\s"'(])--(tensor-model-parallel-size|pipeline-model-parallel-size|micro-batch-size|global-batch-size|num-layers|use-distributed-optimizer)([\s="')\\]|$)/m.test(
    text,
  );
}

/** Arguments in a file of them or in a script. @throws E_INPUT, E_SYNTAX with line and column */
export function readMegatronArguments(text: string, setting: LayoutSetting): ReadLayout {
  const source = { text, setting };
  const [first = ''] = text.split('\n').filter((line) => !/^\s*(#|$)/.test(line));
  if (/^\s*--[a-z]/.test(first)) {
    const given = argumentsOf(wordsOfFile(text), source);
    return finished(given, [], source);
  }
  const script = readShell(text, setting.file);
  const { words, more } = launch(script, source);
  const given = argumentsOf(words, source);
  const assumed = script.assumedUnset.map(({ name }) => ({
    key: `$${name}`,
    value: '',
    why: /^\w*[A-Za-z_]/.test(name)
      ? 'a condition is decided as if the environment did not set it'
      : 'a condition is decided as if the script was called without arguments',
  }));
  const sourced = script.sourced.map(({ text: other }) => ({
    key: 'source',
    value: other,
    why: 'what that file sets is not read',
  }));
  const found = finished(given, [...assumed, ...sourced, ...more], source);
  return withPrecision(found);
}

/**
 * A test of Megatron-LM: its runner hands `true` over as a name alone, and a list as its words.
 * @throws E_INPUT with line and column
 */
export function readMegatronTest(value: unknown, text: string, setting: LayoutSetting): ReadLayout {
  const source = { text, setting };
  const given = (value as { MODEL_ARGS?: unknown }).MODEL_ARGS;
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw new ShardwrightError('E_INPUT', 'MODEL_ARGS: wanted arguments with their values', {
      ...placeAt(text, Math.max(0, text.search(/^MODEL_ARGS/m)), setting.file),
      hint: 'write --tensor-model-parallel-size: 2, and --sequence-parallel: true.',
    });
  const start = Math.max(0, text.search(/^MODEL_ARGS/m));
  const words = settingsOf(given).flatMap(({ path, value: stated }): ShellWord[] => {
    const at = Math.max(start, text.indexOf(`${path}:`, start));
    const word = (part: string): ShellWord => ({
      at,
      value: /\$\{?\w/.test(part)
        ? [{ text: part, at, why: 'which the file does not set' }]
        : [part],
    });
    return [word(path), ...(stated === 'true' || stated === 'null' ? [] : [word(stated)])];
  });
  return withPrecision(finished(argumentsOf(words, source), [], source));
}

/** Megatron-LM trains in float32 where it is not told another precision. */
function withPrecision(found: ReadLayout): ReadLayout {
  found.draft.dtype ??= 'f32';
  return found;
}

/** Words of a file of arguments: blanks part them, quotes keep blanks, `#` begins a comment. */
function wordsOfFile(text: string): ShellWord[] {
  const words: ShellWord[] = [];
  for (const { 0: word, index } of text.matchAll(/(?:"[^"\n]*"|'[^'\n]*'|\\\n|[^\s"'])+/g)) {
    if (word.startsWith('#')) continue;
    const lineStart = text.lastIndexOf('\n', index) + 1;
    if (/(^|\s)#/.test(text.slice(lineStart, index))) continue;
    const plain = word.replaceAll('\\\n', '').replace(/["']/g, '');
    if (plain === '' || plain === '\\') continue;
    const unknown: Unknown = { text: plain, at: index, why: 'which the file does not set' };
    const isSet = /^--[\w-]+=/.exec(plain)?.[0];
    const value: Value = !/\$[\w{(]/.test(plain)
      ? [plain]
      : isSet === undefined
        ? [unknown]
        : [isSet, { ...unknown, text: plain.slice(isSet.length) }];
    words.push({ value, at: index });
  }
  return words;
}

const PRINTS = new Set(['echo', 'printf', 'cat', 'tee', 'grep', 'sed', 'awk']);

/** The words of the command that starts the training. */
function launch(
  script: ShellScript,
  source: Source,
): { readonly words: readonly ShellWord[]; readonly more: readonly NotPriced[] } {
  const bare = script.commands.filter(({ words }) => startsWithFlag(words));
  const takes = script.commands.filter(
    ({ words }) =>
      !startsWithFlag(words) && !PRINTS.has(textOf(words[0].value)) && words.some(isPriced),
  );
  const trains = takes.filter(({ words }) =>
    words.some(({ value }) => /(pretrain|train|finetune)\w*\.py$/.test(textOf(value))),
  );
  const found = distinct(trains.length > 0 ? trains : takes);
  if (found.length > 1) throw severalLaunches(found, source);
  if (found.length === 1) {
    const { words } = found[0];
    const program = words.findIndex(({ value }) => /\.py$/.test(textOf(value)));
    const launcher = program < 0 ? words : words.slice(0, program);
    return { words: words.slice(program + 1), more: startedProcesses(launcher, source.setting) };
  }
  if (bare.length > 0) return { words: bare.flatMap(({ words }) => words), more: [] };
  return { words: wordsOfVariable(script, source), more: [] };
}

function startsWithFlag(words: readonly ShellWord[]): boolean {
  return words.length > 0 && textOf(words[0].value).startsWith('--');
}

/** Tells whether a word is an argument that decides the layout. */
function isPriced({ value }: ShellWord): boolean {
  return keyOf(textOf(value)) !== undefined || (unknownIn(value)?.adds ?? []).some(keyOf);
}

/** The name of a priced argument in a word, as the table has it. */
function keyOf(word: string): string | undefined {
  const key = /^--([a-z][\w-]*)/.exec(word)?.[1].replaceAll('-', '_');
  return key !== undefined && Object.hasOwn(MEGATRON_TABLE, key) ? key : undefined;
}

function distinct(commands: readonly ShellCommand[]): readonly ShellCommand[] {
  const seen = new Map<string, ShellCommand>();
  for (const command of commands)
    seen.set(command.words.map(({ value }) => textOf(value)).join(' '), command);
  return [...seen.values()];
}

function severalLaunches(
  found: readonly ShellCommand[],
  { text, setting }: Source,
): ShardwrightError {
  const lines = found.map(({ at }) => String(placeAt(text, at).position?.line));
  return new ShardwrightError(
    'E_INPUT',
    `found ${found.length} commands with arguments of Megatron-LM (lines ${lines.join(', ')}), ` +
      'wanted one',
    {
      ...placeAt(text, found[1].at, setting.file),
      hint: 'keep the one that is asked for, or set what its condition reads.',
    },
  );
}

/** The arguments that a variable keeps, where no command of the script takes them. */
function wordsOfVariable(script: ShellScript, { text, setting }: Source): readonly ShellWord[] {
  const holding = [...script.variables].flatMap(([name, variable]) => {
    const values = variable.kind === 'array' ? variable.values : [variable.value];
    const words = values.flatMap((value) =>
      splitWords(value, Math.max(0, text.indexOf(`${name}=`))),
    );
    return words.some(isPriced) ? [{ name, words }] : [];
  });
  if (holding.length === 1) return holding[0].words;
  throw new ShardwrightError(
    'E_INPUT',
    'found no command with arguments of Megatron-LM' +
      (holding.length === 0
        ? ''
        : `; variables hold them: ${holding.map((h) => h.name).join(', ')}`),
    {
      file: setting.file,
      hint: 'add the command, such as: torchrun pretrain_gpt.py "${ARGS[@]}"',
    },
  );
}

function splitWords(value: Value, at: number): ShellWord[] {
  const words: ShellWord[] = [];
  let open: Value | undefined;
  const end = (): void => {
    if (open !== undefined) words.push({ value: open, at });
    open = undefined;
  };
  for (const part of value)
    if (typeof part !== 'string') open = [...(open ?? []), part];
    else
      part.split(/\s+/).forEach((piece, i) => {
        if (i > 0) end();
        if (piece !== '') open = [...(open ?? []), piece];
      });
  end();
  return words;
}

/** A note where the launcher starts another number of processes than there are devices. */
function startedProcesses(words: readonly ShellWord[], { devices }: LayoutSetting): NotPriced[] {
  const stated = (name: RegExp): number | undefined => {
    const at = words.findIndex(({ value }) => name.test(textOf(value)));
    if (at < 0) return undefined;
    const [, same] = textOf(words[at].value).split('=');
    const n = Number(same ?? textOf(words[at + 1]?.value ?? []));
    return Number.isInteger(n) ? n : undefined;
  };
  const each = stated(/^--nproc[_-]per[_-]node(=|$)/);
  const nodes =
    stated(/^--nnodes(=|$)/) ??
    (words.some(({ value }) => /^--nnodes/.test(textOf(value))) ? undefined : 1);
  if (each === undefined || nodes === undefined || each * nodes === devices) return [];
  return [{ key: 'processes', value: String(each * nodes), why: `--devices is ${devices}` }];
}

/** The settings in a list of words, and the parts that only the run knows. */
interface Given {
  readonly settings: readonly FileSetting[];
  readonly notPriced: readonly NotPriced[];
}

/** Splits words into arguments as `argparse` does. @throws E_INPUT with line and column */
function argumentsOf(words: readonly ShellWord[], { text, setting }: Source): Given {
  const settings = new Map<string, FileSetting>();
  const notPriced: NotPriced[] = [];
  const fail = (at: number, what: string, hint: string): ShardwrightError =>
    new ShardwrightError('E_INPUT', what, { ...placeAt(text, at, setting.file), hint });
  const extra = ({ value }: ShellWord): void => {
    const unknown = unknownIn(value);
    if (unknown === undefined) return;
    const decides = (unknown.adds ?? []).find((word) => keyOf(word) !== undefined);
    if (decides !== undefined)
      throw fail(
        unknown.at,
        `${decides}: found in one branch alone, ${unknown.why}`,
        'set what the condition reads, or write the arguments without it.',
      );
    notPriced.push({ key: textOf(value), value: '', why: unknown.why });
  };
  for (let i = 0; i < words.length;) {
    const word = words[i++];
    const written = textOf(word.value);
    if (!/^--?[a-z]/i.test(written)) {
      extra(word);
      continue;
    }
    if (/\s/.test(written) && /^--[\w-]+\s/.test(written))
      throw fail(
        word.at,
        `'${written}' is one word, wanted a name and its value apart`,
        'leave the quotes out, or expand the array without quotes.',
      );
    const [, path, stated] = /^(--?[^=\s]+)(?:=([\s\S]*))?$/.exec(written) ?? [undefined, written];
    const key = path.replace(/^--?/, '').replaceAll('-', '_');
    const isKnown = Object.hasOwn(MEGATRON_TABLE, key);
    const values: ShellWord[] =
      stated === undefined ? [] : [{ ...word, value: afterEquals(word.value) }];
    const most =
      stated !== undefined || SWITCHES.has(key)
        ? values.length
        : LISTS.has(key) || !isKnown
          ? Infinity
          : 1;
    while (
      i < words.length &&
      values.length < most &&
      isValue(words[i], values.length > 0 || !isKnown)
    )
      values.push(words[i++]);
    if (isKnown) checkKnown(key, path, { word, values, next: words[i] }, fail);
    settings.delete(key);
    settings.set(key, {
      path,
      key,
      value: values.length === 0 ? 'true' : values.map(({ value }) => textOf(value)).join(' '),
      at: word.at,
    });
  }
  return { settings: [...settings.values()], notPriced };
}

/** Names of variables that hold arguments, not values of one. */
const HOLDS_ARGUMENTS = /\[@\]|\$[@*]|arg|opt|param|flag|extra|cmd/i;

/** Tells whether a word is a value of the argument before it. */
function isValue({ value }: ShellWord, isLoose: boolean): boolean {
  const unknown = value.length === 1 ? unknownIn(value) : undefined;
  if (unknown !== undefined)
    return unknown.adds === undefined && !(isLoose && HOLDS_ARGUMENTS.test(unknown.text));
  return !/^--?[a-z]/i.test(textOf(value));
}

function afterEquals(value: Value): Value {
  const [first, ...rest] = value;
  return typeof first === 'string' ? [first.slice(first.indexOf('=') + 1), ...rest] : value;
}

/** @throws E_INPUT where Megatron-LM does not take the values of a priced argument so */
function checkKnown(
  key: string,
  path: string,
  {
    word,
    values,
    next,
  }: {
    readonly word: ShellWord;
    readonly values: readonly ShellWord[];
    readonly next: ShellWord | undefined;
  },
  fail: (at: number, what: string, hint: string) => ShardwrightError,
): void {
  for (const { value } of values) {
    const unknown = unknownIn(value);
    if (unknown !== undefined)
      throw fail(
        unknown.at,
        `${path}: found '${textOf(value)}', ${unknown.why}`,
        'write the value.',
      );
  }
  if (path.includes('_'))
    throw fail(
      word.at,
      `unknown argument '${path}'`,
      `did you mean '${path.replaceAll('_', '-')}'?`,
    );
  const isSwitch = SWITCHES.has(key);
  const left = isSwitch && values.length > 0 ? values[0] : next;
  if (
    left === undefined ||
    unknownIn(left.value) !== undefined ||
    /^--?[a-z]/i.test(textOf(left.value))
  )
    return;
  throw fail(
    left.at,
    `${path}: found '${textOf(left.value)}' after it, ` +
      `wanted ${isSwitch ? 'no value' : 'one value'}`,
    isSwitch ? 'leave the argument out to turn it off.' : 'leave the other out.',
  );
}

function finished(given: Given, more: readonly NotPriced[], { text, setting }: Source): ReadLayout {
  const found = megatronLayout(given.settings, { text, setting, isWhole: true });
  // The argument parser sets it together with bf16.
  if (given.settings.some(({ key }) => key === 'bf16')) found.draft.gradients ??= 'fp32';
  // One microbatch a data rank, where no batch is stated.
  if (found.draft.globalBatch === undefined) found.draft.accumulation ??= 1;
  return { draft: found.draft, notPriced: [...more, ...given.notPriced, ...found.notPriced] };
}
