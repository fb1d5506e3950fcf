/** The platform (`types.ts`) as Node gives it. */

import { createHash } from 'node:crypto';
import { appendFileSync, existsSync, readFileSync, truncateSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { constants, crc32 as zlibCrc32, gunzipSync } from 'node:zlib';

import { ShardwrightError } from '../errors.ts';
import { PACKAGE_DATA } from './package-data.ts';
import { readFileText } from './read-file.ts';
import type { Thread, ThreadCode } from './types.ts';

export function threadsAtMost(): number {
  return Infinity;
}

/**
 * As many threads as `SHARDWRIGHT_THREADS` says, or as there are cores.
 *
 * @throws E_USAGE for a variable that is not a number of threads
 */
export function defaultThreads(): number {
  const asked = process.env['SHARDWRIGHT_THREADS'] ?? '';
  if (asked === '') return availableParallelism();
  if (/^[1-9]\d{0,3}$/.test(asked)) return Number(asked);
  throw new ShardwrightError('E_USAGE', `SHARDWRIGHT_THREADS is '${asked}'`, {
    hint: 'give a number of threads from 1 on, or none for as many as there are cores.',
  });
}

export function startThread({ from, file }: ThreadCode, data?: unknown): Thread {
  return new Worker(new URL(file, from), { workerData: data, execArgv: [] });
}

export function sharedBytes(length: number): SharedArrayBuffer {
  return new SharedArrayBuffer(length);
}

export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

export function monotonicMilliseconds(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1000 + nanoseconds / 1e6;
}

export function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

export function md5(text: string): string {
  return createHash('md5').update(text).digest('hex');
}

export function crc32(bytes: Uint8Array): number {
  return zlibCrc32(bytes);
}

export function gunzip(bytes: Uint8Array, maxBytes: number): Uint8Array | undefined {
  try {
    return gunzipSync(bytes, {
      maxOutputLength: Math.max(1, maxBytes),
      finishFlush: constants.Z_FINISH,
    });
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ERR_BUFFER_TOO_LARGE')
      return undefined;
    throw error;
  }
}

export function latin1(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('latin1');
}

export function packageData(path: string): string {
  return PACKAGE_DATA[path] ?? readFileSync(new URL(`../../data/${path}`, import.meta.url), 'utf8');
}

export function readUserFile(path: string, what: string): string | undefined {
  return existsSync(path) ? readFileText(path, { what }) : undefined;
}

export function appendToFile(path: string, text: string): void {
  appendFileSync(path, text);
}

export function truncateFile(path: string, bytes: number): void {
  truncateSync(path, bytes);
}

/** `.../src/` or `.../dist/`. */
export function libraryFolder(): string {
  return fileURLToPath(new URL('../', import.meta.url));
}

export function localPath(file: string): string {
  const plain = file.replace(/[?#].*$/, '');
  return plain.startsWith('file://') ? fileURLToPath(plain) : plain;
}

export function relativePath(path: string): string {
  return path.startsWith('/') || /^[A-Za-z]:/.test(path)
    ? relative(process.cwd(), path).replaceAll('\\', '/')
    : path;
}
