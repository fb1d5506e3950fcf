/**
 * Reads files of users: a path, or `-` for stdin, as bytes or text, or an error that names the
 * file. Reading stops at a stated size, whatever the file says of itself: a device or a pipe has no
 * size, and a file can grow while it is read.
 */

import { closeSync, fstatSync, openSync, readSync } from 'node:fs';

import { messageOf, ShardwrightError } from '../errors.ts';
import { decodeUtf8 } from '../utf8.ts';

/** Most bytes of a file, where nothing else is said. */
const MOST_FILE_BYTES = 256 * 2 ** 20;

interface ReadOptions {
  /** The role of the file, for messages: `plan`, `cluster file`. */
  readonly what?: string;
  /** Code of a file that is not there or cannot be read; default `E_IO`. */
  readonly code?: string;
  /** The edit that fixes it. */
  readonly hint?: string;
  readonly maxBytes?: number;
}

/** Name of a file in messages. */
export function shownPath(path: string): string {
  return path === '-' ? '<stdin>' : path;
}

/** @throws E_IO (or `code`) for what cannot be read, E_LIMIT for more than `maxBytes` */
export function readFileBytes(path: string, options: ReadOptions = {}): Buffer {
  if (path === '-') return (stdin ??= readAll(0, path, options));
  let handle: number | undefined;
  try {
    handle = openSync(path, 'r');
    return readAll(handle, path, options);
  } catch (error) {
    throw error instanceof ShardwrightError ? error : unreadable(path, error, options);
  } finally {
    if (handle !== undefined) closeSync(handle);
  }
}

/** The same as text. @throws E_ENCODING for what is not UTF-8 */
export function readFileText(path: string, options: ReadOptions = {}): string {
  return fileText(readFileBytes(path, options), path);
}

/** Text of bytes that were read from a file. @throws E_ENCODING naming it */
export function fileText(bytes: Uint8Array, path: string): string {
  try {
    return decodeUtf8(bytes);
  } catch (error) {
    throw error instanceof ShardwrightError ? error.with({ file: shownPath(path) }) : error;
  }
}

/** Stdin can be read once: who asks again gets the same. */
let stdin: Buffer | undefined;

const FIRST_BYTES = 1 << 16;

function readAll(handle: number, path: string, options: ReadOptions): Buffer {
  const { maxBytes = MOST_FILE_BYTES } = options;
  const stat = fstatSync(handle);
  if (stat.isDirectory())
    throw new ShardwrightError(
      options.code ?? 'E_IO',
      `${path} is a folder, ${aFile(options)} is needed`,
      {
        file: path,
        hint: options.hint ?? 'name the file inside it',
      },
    );
  if (stat.size > maxBytes) throw tooLarge(path, `${stat.size} bytes, more than ${maxBytes}`);
  // One byte more than is known or allowed, to see that there is no more.
  let buffer = Buffer.allocUnsafe(Math.min(maxBytes, stat.size > 0 ? stat.size : FIRST_BYTES) + 1);
  let length = 0;
  for (;;) {
    const more = readSome(handle, buffer, length);
    if (more === 0) return buffer.subarray(0, length);
    length += more;
    if (length > maxBytes) throw tooLarge(path, `more than ${maxBytes} bytes`);
    if (length < buffer.length) continue;
    const larger = Buffer.allocUnsafe(Math.min(maxBytes, 2 * length) + 1);
    buffer.copy(larger);
    buffer = larger;
  }
}

/** Bytes read, 0 at the end. A terminal or pipe that has nothing yet is asked again. */
function readSome(handle: number, buffer: Buffer, from: number): number {
  for (;;)
    try {
      return readSync(handle, buffer, from, buffer.length - from, null);
    } catch (error) {
      const code = codeOf(error);
      if (code === 'EOF') return 0;
      if (code !== 'EAGAIN') throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10);
    }
}

function tooLarge(path: string, size: string): ShardwrightError {
  return new ShardwrightError('E_LIMIT', `${shownPath(path)} has ${size}`, {
    file: shownPath(path),
    hint: 'check that it is the file you mean; a smaller part of the program can be read by itself',
  });
}

function aFile({ what = 'file' }: ReadOptions): string {
  return /^[aeiou]/.test(what) ? `an ${what}` : `a ${what}`;
}

function unreadable(
  path: string,
  error: unknown,
  { what, code = 'E_IO', hint }: ReadOptions,
): ShardwrightError {
  const reason = codeOf(error);
  const denied = reason === 'EACCES' || reason === 'EPERM';
  const why =
    reason === 'ENOENT'
      ? `there is no file ${path}`
      : denied
        ? `${path} may not be read`
        : `${path} cannot be read: ${messageOf(error)}`;
  return new ShardwrightError(code, what === undefined ? why : `cannot read the ${what}: ${why}`, {
    file: path,
    hint: denied ? 'check its permissions' : (hint ?? 'check the path'),
  });
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : '';
}
