/**
 * `inspect` of a compiled program: HLO text is not a graph to plan, but says which collectives the
 * compiler chose.
 */

import { closeSync, openSync, readSync, statSync } from 'node:fs';
import { basename } from 'node:path';
import { constants, gunzipSync } from 'node:zlib';

import { ShardwrightError } from '../../../errors.ts';
import { detectFormat } from '../../../import/detect.ts';
import { isGzip } from '../../../import/file/unpack.ts';
import { type HloCollective, type HloSummary, readHlo } from '../../../import/hlo/collectives.ts';
import { shownPath } from '../../../platform/read-file.ts';
import { bytesText, countText, tableText } from '../../../units.ts';
import { readModelFile } from '../../input/read-model-file.ts';

interface HloInspection {
  readonly name: string;
  readonly format: 'hlo';
  /** Instructions over all computations. */
  readonly nodes: number;
  readonly ops: Readonly<Record<string, number>>;
  readonly collectives: HloSummary['collectives'];
  readonly collectiveList: readonly HloCollective[];
}

/** The summary of an HLO file; undefined for anything else. @throws what `readHlo` throws */
export function inspectHlo(path: string, format: string | undefined): HloInspection | undefined {
  if (format === undefined ? !beginsAsHlo(path) : format !== 'hlo') return undefined;
  const { name, instructions, ops, collectives, collectiveList } = readHlo(readModelFile(path), {
    file: shownPath(path),
  });
  return {
    name: name === '' ? basename(shownPath(path)) : name,
    format: 'hlo',
    nodes: instructions,
    ops,
    collectives,
    collectiveList,
  };
}

const HEAD = 1 << 16;

/**
 * Looks at the beginning of the file only; whatever is wrong with it is for the importer to say.
 */
function beginsAsHlo(path: string): boolean {
  try {
    const bytes = path === '-' ? readModelFile(path).subarray(0, HEAD) : beginningOf(path);
    // A part of a stream is unpacked as far as it reaches; the limit holds before memory is taken.
    const options = { finishFlush: constants.Z_SYNC_FLUSH, maxOutputLength: HEAD * 200 };
    return (
      detectFormat(isGzip(bytes) ? new Uint8Array(gunzipSync(bytes, options)) : bytes) === 'hlo'
    );
  } catch (error) {
    if (error instanceof ShardwrightError || (error instanceof Error && 'code' in error))
      return false;
    throw error;
  }
}

/** Reads the beginning of a file, never of a pipe: the bytes of a pipe can be read only once. */
function beginningOf(path: string): Uint8Array {
  const head = new Uint8Array(HEAD);
  if (!statSync(path).isFile()) return head.subarray(0, 0);
  const handle = openSync(path, 'r');
  try {
    return head.subarray(0, readSync(handle, head, 0, HEAD, 0));
  } finally {
    closeSync(handle);
  }
}

export function hloText({ name, nodes, ops, collectives, collectiveList }: HloInspection): string {
  const kinds = Object.entries(collectives).map(([kind, n]) => `${countText(n)} ${kind}`);
  const rows = collectiveList.map(
    ({ kind, name: own, resultBytes, groups, pairs, computation }) => [
      kind,
      own,
      bytesText(resultBytes),
      devicesText(groups, pairs),
      computation,
    ],
  );
  return [
    `${name}  (hlo: the program of one device, as compiled)`,
    `instructions  ${countText(nodes)}`,
    `collectives   ${kinds.length === 0 ? 'none' : kinds.join(', ')}`,
    ...(rows.length === 0
      ? []
      : [
          '',
          tableText([['collective', 'name', 'result', 'devices', 'computation'], ...rows], [2]),
        ]),
    '',
    tableText(
      [['operation', 'places'], ...Object.entries(ops).map(([op, n]) => [op, countText(n)])],
      [1],
    ),
  ].join('\n');
}

function devicesText(groups: HloCollective['groups'], pairs: HloCollective['pairs']): string {
  if (pairs !== undefined) {
    const moved = pairs.filter(([from, to]) => from !== to);
    const list = moved.map(([from, to]) => `${from}>${to}`).join(' ');
    return `${moved.length} transfers: ${cut(list)}`;
  }
  return groups.length === 0 ? 'all' : cut(groups.map((group) => `{${group.join(',')}}`).join(''));
}

function cut(text: string): string {
  return text.length <= 60 ? text : `${text.slice(0, 57)}...`;
}
