/**
 * The platform (`types.ts`) as a page gives it: one thread unless it gives a way to start others,
 * no files of the user.
 */
import { internalError, ShardwrightError } from '../errors.ts';
import { localThread } from './local-thread.ts';
import { PACKAGE_DATA } from './package-data.ts';
import type { Thread, ThreadCode } from './types.ts';
import { unpackGzip } from './unpack-gzip.ts';

export { crc32, md5, sha256 } from './hash.ts';

export function packageData(path: string): string {
  const text = PACKAGE_DATA[path];
  if (text === undefined) throw internalError(`data/${path} was not bundled with the planner`);
  return text;
}

/**
 * The lanes of a search run one after another: without shared memory threads would each need a copy
 * of the problem.
 */
export function threadsAtMost(): number {
  return 1;
}

export function defaultThreads(): number {
  return 1;
}

type StartTask = (task: string, data: unknown) => Thread;
let startTask: StartTask | undefined;

/**
 * Gives a way to start a thread that does a task of its own. Without it every task runs in the
 * thread that asks.
 */
export function provideThreads(start: StartTask): void {
  startTask = start;
}

export function startThread(code: ThreadCode, data?: unknown): Thread {
  const { task } = code;
  return task === undefined || startTask === undefined
    ? localThread(code, data)
    : startTask(task, data);
}

/** Pages that are not cross-origin isolated have no shared memory, and one thread needs none. */
export function sharedBytes(length: number): ArrayBuffer {
  return new ArrayBuffer(length);
}

export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve));
}

export function monotonicMilliseconds(): number {
  return performance.now();
}

export function gunzip(bytes: Uint8Array, maxBytes: number): Uint8Array | undefined {
  return unpackGzip(bytes, maxBytes);
}

/** Characters that one call makes at once: engines limit the number of arguments. */
const AT_ONCE = 8192;

export function latin1(bytes: Uint8Array): string {
  let text = '';
  for (let at = 0; at < bytes.length; at += AT_ONCE)
    text += String.fromCharCode(...bytes.subarray(at, at + AT_ONCE));
  return text;
}

export function readUserFile(path: string): undefined {
  throw noFiles(path);
}

export function appendToFile(path: string): never {
  throw noFiles(path);
}

export function truncateFile(path: string): never {
  throw noFiles(path);
}

function noFiles(path: string): ShardwrightError {
  return new ShardwrightError('E_IO', `a page has no file ${path}`, {
    hint: 'use the command line',
  });
}

/** The folder of the page's scripts: a stack frame elsewhere is the user's. */
export function libraryFolder(): string {
  return import.meta.url.slice(0, import.meta.url.lastIndexOf('/') + 1);
}

export function localPath(file: string): string {
  return file.replace(/[?#].*$/, '');
}

export function relativePath(path: string): string {
  return path;
}
