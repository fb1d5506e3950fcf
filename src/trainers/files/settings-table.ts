/**
 * Reads settings of a trainer's configuration, as keys with text values, by a table into a draft of
 * the layout and a list of the settings without a price. A key that the table does not have is
 * ignored, unless it is in a section that the table should know completely, or almost the name of a
 * key that the table has: then it is an error.
 */

import { editDistance, ShardwrightError, suggestion } from '../../errors.ts';
import type { LayoutDraft, NotPriced } from './layout-draft.ts';

/** A setting of a file: its full path for messages, and the name that tables have. */
export interface FileSetting {
  readonly path: string;
  readonly key: string;
  readonly value: string;
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

/**
 * @param closed whether the table should know all keys there
 * @throws E_INPUT naming the key
 */
export function readSettings(
  settings: readonly FileSetting[],
  table: SettingsTable,
  file: string,
  closed: (setting: FileSetting) => boolean = () => false,
): ReadSettings {
  const draft: LayoutDraft = {};
  const notPriced: NotPriced[] = [];
  const known = Object.keys(table);
  for (const { path, key, value } of settings) {
    if (UNSTATED.has(value.toLowerCase())) continue;
    if (!Object.hasOwn(table, key)) {
      const mistyped =
        key.length >= TYPED_WRONG && known.some((name) => editDistance(key, name) <= 2);
      if (mistyped || closed({ path, key, value }))
        throw new ShardwrightError('E_INPUT', `unknown key '${path}'`, {
          file,
          hint: suggestion(key, known, 'keys'),
        });
      continue;
    }
    const wrong = (wanted: string): ShardwrightError =>
      new ShardwrightError('E_INPUT', `${path}: found '${value}', wanted ${wanted}`, {
        file,
        hint: 'change the file, or write the layout out: --layout tp=8,pp=4,dp=8.',
      });
    const why = value === 'auto' ? 'the trainer chooses it' : table[key](value, draft, wrong);
    if (why !== undefined) notPriced.push({ key: path, value, why });
  }
  return { draft, notPriced };
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
    return rows.length < value.length
      ? []
      : [{ path, key: lastOf(path), value: rows.map((row) => row.join(' ')).join('|') }];
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
