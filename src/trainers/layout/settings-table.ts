/**
 * Reads settings of a trainer's configuration, as keys with text values, by a table into a draft of
 * the layout and a list of the settings without a price. A key that the table does not have is
 * known to change nothing, or listed as not counted. In a section that the table should know
 * completely it is an error, and so is one that is almost the name of a key that the table has.
 */

import { editDistance, ShardwrightError, suggestion } from '../../errors.ts';
import { placeAt } from '../../text/place.ts';
import type { LayoutDraft, NotPriced } from './layout-draft.ts';

/** A setting of a file: its full path for messages, and the name that tables have. */
export interface FileSetting {
  readonly path: string;
  readonly key: string;
  readonly value: string;
  /** The place in the file; absent: it is looked for by the path. */
  readonly at?: number;
}

/** The file that settings are of. */
interface SettingsFile {
  readonly text: string;
  readonly file: string;
  /** Tells whether the table should know every key at this place. */
  readonly closed?: (setting: FileSetting) => boolean;
  /**
   * Tells whether a setting that the table does not have changes neither time nor memory of a step;
   * the others are listed. Absent: the file states every default, and nothing is listed.
   */
  readonly changesNothing?: (setting: FileSetting) => boolean;
}

/**
 * Takes a value into the draft; says why where it has no price. Undefined: it has, or it does not
 * matter.
 */
export type Take = (
  value: string,
  draft: LayoutDraft,
  wrong: (wanted: string) => ShardwrightError,
) => string | undefined;

export type SettingsTable = Readonly<Record<string, Take>>;

interface ReadSettings {
  readonly draft: LayoutDraft;
  readonly notPriced: readonly NotPriced[];
}

/** A name this long and this near to another is that name, mistyped. */
const TYPED_WRONG = 12;

/** @throws E_INPUT naming the key, with line and column */
export function readSettings(
  settings: readonly FileSetting[],
  table: SettingsTable,
  source: SettingsFile,
): ReadSettings {
  const draft: LayoutDraft = {};
  const notPriced: NotPriced[] = [];
  const known = Object.keys(table);
  for (const setting of settings) {
    const { path, key, value } = setting;
    if (UNSTATED.has(value.toLowerCase())) continue;
    const fail = (what: string, hint: string): ShardwrightError =>
      new ShardwrightError('E_INPUT', what, { ...placeOf(setting, source), hint });
    if (!Object.hasOwn(table, key)) {
      if (source.changesNothing?.(setting) === true) continue;
      const mistyped =
        key.length >= TYPED_WRONG && known.some((name) => editDistance(key, name) <= 2);
      if (mistyped || source.closed?.(setting) === true)
        throw fail(`unknown key '${path}'`, suggestion(key, known, 'keys'));
      if (source.changesNothing !== undefined && !isOff(value))
        notPriced.push({ key: path, value: value === 'true' ? '' : value, why: 'it has no price' });
      continue;
    }
    const wrong = (wanted: string): ShardwrightError =>
      fail(
        `${path}: found '${value}', wanted ${wanted}`,
        'change the file, or write the layout out: --layout tp=8,pp=4,dp=8.',
      );
    const why = value === 'auto' ? 'the trainer chooses it' : table[key](value, draft, wrong);
    if (why !== undefined) notPriced.push({ key: path, value, why });
  }
  return { draft, notPriced };
}

/** Line and column of a setting: where its names follow each other in the file. */
export function placeOf(
  { path, at }: Pick<FileSetting, 'path' | 'at'>,
  { text, file }: Pick<SettingsFile, 'text' | 'file'>,
): ReturnType<typeof placeAt> {
  if (at !== undefined) return placeAt(text, at, file);
  let offset = 0;
  for (const name of path.split('.')) {
    const found = new RegExp(`(?<![\\w-])${name.replace(/\W/g, '\\$&')}(?![\\w-])`, 'g');
    found.lastIndex = offset;
    offset = found.exec(text)?.index ?? offset;
  }
  return placeAt(text, offset, file);
}

const UNSTATED = new Set(['', 'null', 'none', '~']);

/** Keys of the draft whose values are numbers. */
type NumberKey = {
  [K in keyof LayoutDraft]-?: LayoutDraft[K] extends number | undefined ? K : never;
}[keyof LayoutDraft];

/** A whole number from `least` on. */
export function count(key: NumberKey, least = 1): Take {
  return (value, draft, wrong) => {
    const n = Number(value);
    if (!Number.isInteger(n) || (n < least && n !== -1))
      throw wrong(`a whole number from ${least} on`);
    if (n >= least || key === 'shards' || key === 'replicas') draft[key] = n;
    return undefined;
  };
}

export function isOff(value: string): boolean {
  return /^(false|no|0|off)$/i.test(value);
}

export function isOn(value: string): boolean {
  return /^(true|yes|1|on)$/i.test(value);
}

/** A switch that has no price where it is on. */
export function noPrice(why: string, off: readonly string[] = []): Take {
  return (value) =>
    /^(false|no|0|0\.0|off|-1)$/i.test(value) || off.includes(value) ? undefined : why;
}

/** Nested records as settings; the key is the last name of the path. */
export function settingsOf(value: unknown, path = ''): FileSetting[] {
  if (Array.isArray(value)) {
    const flat = value.every((item) => typeof item !== 'object');
    if (flat) return [{ path, key: lastOf(path), value: value.join(' ') }];
    const rows = value.filter(
      (item): item is unknown[] =>
        Array.isArray(item) && item.every((word) => typeof word !== 'object'),
    );
    const records = `${value.length} records`;
    const text = rows.length < value.length ? records : rows.map((row) => row.join(' ')).join('|');
    return [{ path, key: lastOf(path), value: text }];
  }
  if (typeof value === 'object' && value !== null)
    return Object.entries(value).flatMap(([key, inner]) =>
      settingsOf(inner, path === '' ? key : `${path}.${key}`),
    );
  return [{ path, key: lastOf(path), value: String(value) }];
}

function lastOf(path: string): string {
  return path.slice(path.lastIndexOf('.') + 1);
}
