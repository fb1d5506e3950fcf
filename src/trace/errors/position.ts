/**
 * Finds the place of a call in the user's program: the first stack frame outside the library.
 * Frames are read raw, which is cheap; only a position that was not seen before is put through the
 * source maps of the running environment.
 */

import { libraryFolder, localPath, relativePath } from '../../platform/platform.ts';

/** The folder of the library's own code, `.../src/` or `.../dist/`. */
const LIBRARY = libraryFolder();
/**
 * The frames that are looked at first; most calls are closer. Layers of the library may nest
 * deeper.
 */
const DEPTH = 12;
const FULL_DEPTH = 200;

/** Texts of positions by raw position. A pure function of the loaded code. */
const known = new Map<string, string>();

/**
 * `models/mlp.ts:14:7`, relative to the working directory; undefined where no frame is the user's.
 */
export function sourcePosition(): string | undefined {
  return at(DEPTH) ?? at(FULL_DEPTH);
}

function at(depth: number): string | undefined {
  const frames = rawFrames(depth);
  const index = frames.findIndex(isForeign);
  if (index < 0) return undefined;
  const frame = frames[index];
  const key = `${frame.getFileName()}:${frame.getLineNumber()}:${frame.getColumnNumber()}`;
  let text = known.get(key);
  if (text === undefined) {
    text = shown(mappedFrame(depth, index) ?? key);
    known.set(key, text);
  }
  return text;
}

/**
 * Both readers below are at the same depth below `at`, so frame `i` of one is frame `i` of the
 * other.
 */
function rawFrames(depth: number): NodeJS.CallSite[] {
  const { stackTraceLimit } = Error;
  const prepareStackTrace: typeof Error.prepareStackTrace = Reflect.get(Error, 'prepareStackTrace');
  const holder: { stack?: NodeJS.CallSite[] } = {};
  try {
    Error.stackTraceLimit = depth;
    Error.prepareStackTrace = (_error, sites) => sites;
    Error.captureStackTrace(holder, at);
    // Engines other than V8 give a text here, and no frames.
    return Array.isArray(holder.stack) ? holder.stack : [];
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
    // Assigning undefined to a property that was absent would hide the environment's own formatter.
    if (prepareStackTrace === undefined) Reflect.deleteProperty(Error, 'prepareStackTrace');
    else Error.prepareStackTrace = prepareStackTrace;
  }
}

function mappedFrame(depth: number, index: number): string | undefined {
  const { stackTraceLimit } = Error;
  const holder: { stack?: unknown } = {};
  try {
    Error.stackTraceLimit = depth;
    Error.captureStackTrace(holder, at);
    if (typeof holder.stack !== 'string') return undefined;
    const frames = holder.stack.split('\n').filter((line) => /^\s+at /.test(line));
    return /\(?([^()\s]*:\d+:\d+)\)?\s*$/.exec(frames[index] ?? '')?.[1];
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}

/** By file name, true for a file of the user: a trace asks for the same few with every call. */
const foreign = new Map<string, boolean>();

function isForeign(frame: NodeJS.CallSite): boolean {
  const file: unknown = frame.getFileName();
  if (typeof file !== 'string' || file === '' || file.startsWith('node:') || file.startsWith('<'))
    return false;
  let found = foreign.get(file);
  if (found === undefined) foreign.set(file, (found = !localPath(file).startsWith(LIBRARY)));
  return found;
}

function shown(position: string): string {
  const [, file, line, column] = /^(.*):(\d+):(\d+)$/.exec(position) ?? [];
  if (file === undefined) return position;
  return `${shownFile(file)}:${line}:${column}`;
}

/** A file name as positions show it: relative to the working directory, with forward slashes. */
export function shownFile(file: string): string {
  return relativePath(localPath(file));
}
