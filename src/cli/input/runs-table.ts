/**
 * Reads a table of measured runs for a command: takes a path, plain or packed, gives its text;
 * errors of the table name the file.
 */

import { gunzipSync } from 'node:zlib';

import { messageOf, ShardwrightError } from '../../errors.ts';
import { fileText, readFileBytes } from '../../platform/read-file.ts';

/** Bytes of a table, unpacked, at most. */
const UNPACKED_LIMIT = 64 * 2 ** 20;

/** Runs `use` on the table of runs. @throws E_IO; E_CSV of `use` with the file */
export async function withRunsTable<T>(
  path: string,
  use: (text: string) => Promise<T>,
): Promise<T> {
  const text = readTable(path);
  try {
    return await use(text);
  } catch (error) {
    throw error instanceof ShardwrightError && /^E_(CSV|INPUT)$/.test(error.code)
      ? error.with({ file: path })
      : error;
  }
}

function readTable(path: string): string {
  const bytes = readFileBytes(path, {
    what: 'table',
    hint: 'give a CSV file of measured runs, or a .csv.gz',
    maxBytes: UNPACKED_LIMIT,
  });
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return fileText(bytes, path);
  try {
    return gunzipSync(bytes, { maxOutputLength: UNPACKED_LIMIT }).toString('utf8');
  } catch (error) {
    throw new ShardwrightError('E_IO', `cannot unpack '${path}': ${messageOf(error)}`);
  }
}
