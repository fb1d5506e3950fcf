/**
 * Reads the measured collectives of a user's own cluster from a table of text: a header `Group Size
 * Collective 1MB 2MB ... 2048MB`, a line of dashes, and a row for each group, number of devices and
 * collective, with its times in milliseconds. Sizes are the *input* of one rank: for an all_gather
 * its own piece, not the result.
 *
 * A group is a mesh dim by its name, several of them in mesh order (`dp,tp`), or `intra` and
 * `inter`: groups inside one host, and over several. A row with a name has priority over one of
 * `intra` or `inter`.
 */

import * as z from 'zod';

import { checkKinds } from '../../arguments.ts';
import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import { COLLECTIVE_KINDS, type CollectiveKind } from '../../mesh/collective-kinds.ts';

const collectiveRow = z
  .strictObject({
    group: z.string().min(1).max(200),
    devices: z.int().min(2).max(1e6),
    collective: z.enum(COLLECTIVE_KINDS),
    /** Input bytes of one rank, rising. */
    bytes: z.array(z.number().positive()).min(1).max(200),
    seconds: z.array(z.number().positive().max(1e5)).min(1).max(200),
    level: z.enum(['intra', 'inter']).optional(),
    spread: z.array(z.number().nonnegative().max(1e5)).max(200).optional(),
    besideSeconds: z.array(z.number().nonnegative().max(1e5)).max(200).optional(),
    source: z
      .string()
      .max(200)
      .regex(/^[^\n\r]*$/, 'one line')
      .optional(),
  })
  .refine((row) => row.bytes.length === row.seconds.length, 'as many seconds as bytes')
  .refine(
    ({ bytes, besideSeconds = bytes, spread = bytes }) =>
      besideSeconds.length === bytes.length && spread.length === bytes.length,
    'as many values of spread and besideSeconds as bytes',
  )
  .refine((row) => row.bytes.every((b, i) => i === 0 || b > row.bytes[i - 1]), 'bytes rise');

/**
 * The field `collectiveTable` of a cluster file: rows, each of another group, number of devices or
 * collective.
 *
 * @internal
 */
export const collectiveTableSchema = z
  .array(collectiveRow)
  .min(1)
  .max(10_000)
  .refine(
    (rows) => new Set(rows.map(collectiveRowKey)).size === rows.length,
    'a group, number of devices and collective twice',
  );

/** Times of one collective over one group, in seconds by the input bytes of a rank. */
export interface CollectiveRow {
  readonly group: string;
  readonly devices: number;
  readonly collective: CollectiveKind;
  readonly bytes: readonly number[];
  readonly seconds: readonly number[];
  /**
   * Where the group lies: groups of other meshes at that level with as many devices take the row,
   * too, where none is theirs.
   */
  readonly level?: 'intra' | 'inter' | undefined;
  /** By size: half of the samples lie in a range of so many medians. */
  readonly spread?: readonly number[] | undefined;
  /** By size: what the collective adds to compute that is called between its start and its end. */
  readonly besideSeconds?: readonly number[] | undefined;
  /** The tool that measured it; absent: that of the table. */
  readonly source?: string | undefined;
}

/** The key of a row: no two rows of a table share it. */
export function collectiveRowKey({
  group,
  devices,
  collective,
}: Pick<CollectiveRow, 'group' | 'devices' | 'collective'>): string {
  return `${group} ${devices} ${collective}`;
}

/** Characters of a table that are read at most. */
const TEXT_LIMIT = 4 * 2 ** 20;
const UNIT_BYTES: Readonly<Record<string, number>> = {
  B: 1,
  KB: 1e3,
  MB: 1e6,
  GB: 1e9,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
};
const MILLI = 1e-3;
const SPELLED = new Map(COLLECTIVE_KINDS.map((kind) => [kind.replaceAll('_', ''), kind]));

interface Word {
  readonly text: string;
  readonly column: number;
}

/**
 * Reads a table of collectives. `MB` is 10^6 bytes, `MiB` 2^20; times are milliseconds.
 *
 * @throws E_COLLECTIVES with line and column for what is no such table
 */
export function parseCollectiveTable(text: string): CollectiveRow[] {
  checkKinds('parseCollectiveTable', { text: [text, 'string'] });
  if (text.length > TEXT_LIMIT)
    throw new ShardwrightError(
      'E_COLLECTIVES',
      `the table has ${text.length} characters; at most ${TEXT_LIMIT} are read`,
    );
  return new TableReader(text.replace(/^\uFEFF/, '').split(/\r?\n/)).read();
}

/** A line that is not empty, by its number from 0. */
interface Line {
  readonly line: number;
  readonly words: readonly Word[];
}

class TableReader {
  /** Line of each row that was read, by its key. */
  private readonly seen = new Map<string, number>();

  constructor(private readonly lines: readonly string[]) {}

  read(): CollectiveRow[] {
    const filled = this.lines.flatMap((content, line): Line[] => {
      const words = [...content.matchAll(/\S+/g)].map((m): Word => ({
        text: m[0],
        column: m.index + 1,
      }));
      return words.length === 0 ? [] : [{ line, words }];
    });
    if (filled.length === 0) throw this.fail(0, 1, 'the table is empty', FORM);
    const [head, dashes, ...rows] = filled as [Line, Line?, ...Line[]];
    const bytes = this.readHead(head);
    if (dashes?.words.every((word) => /^-+$/.test(word.text)) !== true)
      throw this.fail(dashes?.line ?? head.line, 1, 'no line of dashes below the header', FORM);
    if (rows.length === 0) throw this.fail(dashes.line, 1, 'the table has no rows', FORM);
    return rows.map((row) => this.readRow(row, bytes));
  }

  /** The sizes of the columns, in bytes. */
  private readHead({ line, words }: Line): readonly number[] {
    ['group', 'size', 'collective'].forEach((title, i) => {
      const word = words.at(i);
      if (word?.text.toLowerCase() !== title)
        throw this.fail(line, word?.column ?? 1, `column ${i + 1} is not ${title}`, FORM);
    });
    const sizes = words.slice(3);
    if (sizes.length === 0)
      throw this.fail(line, words[2].column, 'no sizes behind the column Collective', FORM);
    const bytes: number[] = [];
    for (const { text, column } of sizes) {
      const match = /^(\d{1,12}(?:\.\d{1,6})?)([KMG]i?B|B)$/.exec(text);
      const value = match === null ? NaN : Number(match[1]) * UNIT_BYTES[match[2]];
      if (!(value > 0))
        throw this.fail(
          line,
          column,
          `'${text}' is not a size`,
          'write 1MB (10^6 bytes) or 1MiB (2^20).',
        );
      if (bytes.length > 0 && value <= bytes[bytes.length - 1])
        throw this.fail(line, column, `size ${text} is not above the one before`);
      bytes.push(value);
    }
    return bytes;
  }

  private readRow({ line, words }: Line, bytes: readonly number[]): CollectiveRow {
    const wanted = 3 + bytes.length;
    if (words.length !== wanted) {
      const column = words.length > wanted ? words[wanted].column : this.lines[line].length + 1;
      throw this.fail(line, column, `${words.length} cells; the header has ${wanted}`);
    }
    const [{ text: group }, size, name, ...cells] = words;
    const devices = Number(size.text);
    if (!/^\d{1,6}$/.test(size.text) || devices < 2)
      throw this.fail(
        line,
        size.column,
        `size '${size.text}' is not a number of devices from 2 on`,
      );
    const collective = SPELLED.get(name.text.toLowerCase().replace(/[-_]/g, ''));
    if (collective === undefined)
      throw this.fail(
        line,
        name.column,
        `no collective '${name.text}'`,
        `collectives: ${COLLECTIVE_KINDS.join(', ')}.`,
      );
    const key = collectiveRowKey({ group, devices, collective });
    const before = this.seen.get(key);
    if (before !== undefined) throw this.fail(line, 1, `${key} is on line ${before + 1} too`);
    this.seen.set(key, line);
    const seconds = cells.map((cell) => this.readSeconds(line, cell));
    return { group, devices, collective, bytes, seconds };
  }

  private readSeconds(line: number, { text, column }: Word): number {
    const millis = /^\d+(\.\d+)?([eE][-+]?\d{1,3})?$/.test(text) ? Number(text) : NaN;
    if (!(millis > 0 && millis * MILLI <= 1e5))
      throw this.fail(line, column, `'${text}' is not a time in milliseconds above 0`);
    return millis * MILLI;
  }

  private fail(line: number, column: number, message: string, hint?: string): ShardwrightError {
    return new ShardwrightError('E_COLLECTIVES', message, {
      position: { line: line + 1, column },
      excerpt: this.lines[line] ?? '',
      ...defined({ hint }),
    });
  }
}
const FORM =
  'a header `Group Size Collective 1MB 2MB ...`, a line of dashes, and rows of times in ' +
  'milliseconds.';

/**
 * Cluster file of a cluster with a table of collectives: JSON that `loadCluster` reads, so that a
 * plan can be made again from its request.
 *
 * @param clusterText a node design or JSON
 * @param name of the table, for the plan
 */
export function tabledClusterText(
  clusterText: string,
  rows: readonly CollectiveRow[],
  name: string,
): string {
  checkKinds('tabledClusterText', {
    clusterText: [clusterText, 'string'],
    rows: [rows, 'list'],
    name: [name, 'string'],
  });
  const trimmed = clusterText.trim();
  const file = trimmed.startsWith('{')
    ? (JSON.parse(trimmed) as Record<string, unknown>)
    : { base: trimmed };
  const sources = typeof file.sources === 'object' ? file.sources : {};
  return JSON.stringify({
    ...file,
    collectiveTable: rows,
    sources: { ...sources, collectiveTable: name },
  });
}
