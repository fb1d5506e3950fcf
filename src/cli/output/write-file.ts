/**
 * Every file that a command writes. A file is written beside its place and renamed, so that a full
 * disk or a kill leaves the old one whole. Only regular files are replaced: links, devices and
 * pipes are left alone. What cannot be written is `E_IO` with its path.
 */
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  fchmodSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  openSync,
  renameSync,
  rmdirSync,
  rmSync,
  type Stats,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, resolve } from 'node:path';

import { ShardwrightError } from '../../errors.ts';

/** Name of a file that is written and not yet in its place. */
export const NEXT = '.new';

/**
 * Writes a text that a command was asked for; `what` names it where it cannot be written. Throws
 * `E_IO`.
 */
export function writeText(path: string, text: string | Uint8Array, what: string): void {
  orRefuse(path, what, () =>
    inTurn(() => {
      stage(path, text);
      renameSync(path + NEXT, path);
    }),
  );
}

/** Finds out before the work whether a file could be written after it. Throws `E_IO`. */
export function tryFile(path: string, what: string): void {
  orRefuse(path, what, () => probe(path));
}

/**
 * The same for files of a folder, which may have to be made; nothing is left behind. Throws `E_IO`.
 */
export function tryFolder(folder: string, names: readonly string[], what: string): void {
  orRefuse(folder, what, () => {
    const made = makeFolder(folder);
    for (const path of names.map((name) => join(folder, name)))
      orRefuse(path, what, () =>
        inTurn(() => {
          made.push(...makeFolder(folder));
          probe(path);
        }),
      );
    // Another process may have put its own folder into one of them meanwhile.
    for (const path of made.reverse()) orGone(['ENOTEMPTY', 'ENOENT'], () => rmdirSync(path));
  });
}

/** Writes an empty file under a name of its own: another process may be writing the real one. */
function probe(path: string): void {
  const tried = `.${process.pid}${NEXT}`;
  stage(path, '', tried);
  rmSync(path + tried);
}

/**
 * Writes the files of a folder that belong together. All of them are on the disk before the first
 * is put in its place, and the first one decides: it has the hashes of the others, and a reader
 * takes one that is still under its next name. Of processes that write one folder at the same time,
 * the last one's files stand, all of them.
 *
 * @param files by name; without content: removed
 */
export function writeFolder(
  folder: string,
  files: readonly (readonly [name: string, content: string | Uint8Array | undefined])[],
  what: string,
): void {
  orRefuse(folder, what, () => {
    makeFolder(folder);
    const written = files
      .filter(([, content]) => content !== undefined)
      .map(([name]) => join(folder, name));
    inTurn(() => {
      makeFolder(folder);
      try {
        for (const [name, content] of files)
          if (content !== undefined) stage(join(folder, name), content);
      } catch (error) {
        for (const path of written) rmSync(path + NEXT, { force: true });
        throw error;
      }
      for (const path of written) renameSync(path + NEXT, path);
    });
    for (const [name, content] of files)
      if (content === undefined) rmSync(join(folder, name), { force: true });
  });
}

/** How often something is made again that other processes move or remove while it is made. */
const MOST_TRIES = 100;

/**
 * Stages files and puts them in their places, once more where another process has taken one of them
 * meanwhile: whoever comes second writes all of its own again.
 */
function inTurn(write: () => void): void {
  for (let tries = 1; tries < MOST_TRIES; tries++) {
    let isDone = false;
    orGone(['EEXIST', 'ENOENT'], () => {
      write();
      isDone = true;
    });
    if (isDone) return;
  }
  write();
}

/**
 * Makes a folder and its missing parents, outermost first; returns the folders that it made. Node's
 * own way does not end under /proc. Other processes may make and remove the outer ones at the same
 * time.
 */
function makeFolder(folder: string): string[] {
  if (folder === '') throw new Error('the path is empty');
  const made: string[] = [];
  for (let tries = 0; !existsSync(folder) && tries < MOST_TRIES; tries++) {
    const missing: string[] = [];
    for (let at = resolve(folder); !existsSync(at); at = dirname(at)) missing.unshift(at);
    for (const path of missing)
      orGone(tries < MOST_TRIES - 1 ? ['EEXIST', 'ENOENT'] : [], () => {
        mkdirSync(path);
        made.push(path);
      });
  }
  if (!statSync(folder).isDirectory()) throw new Error('there is a file of this name');
  return made;
}

/** Does it, unless another process has changed the folders so that it cannot be done. */
function orGone(codes: readonly string[], run: () => void): void {
  try {
    run();
  } catch (error) {
    if (!codes.includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
  }
}

/** Writes a file beside its place, all the way to the disk. */
function stage(path: string, content: string | Uint8Array, next = NEXT): void {
  if (path === '') throw new Error('the path is empty');
  const old = statOf(path);
  if (old !== undefined && !old.isFile()) throw new Error(kindOf(old));
  if (old !== undefined) accessSync(path, constants.W_OK);
  rmSync(path + next, { force: true });
  // Exclusive: nothing that somebody put there meanwhile is followed.
  const file = openSync(path + next, 'wx');
  try {
    if (old !== undefined) fchmodSync(file, old.mode);
    writeFileSync(file, content);
    fsyncSync(file);
  } catch (error) {
    rmSync(path + next, { force: true });
    throw error;
  } finally {
    closeSync(file);
  }
}

function statOf(path: string): Stats | undefined {
  return lstatSync(path, { throwIfNoEntry: false });
}

function kindOf(stats: Stats): string {
  if (stats.isDirectory()) return 'there is a folder of this name';
  if (stats.isSymbolicLink()) return 'it is a symbolic link, which is not followed';
  return 'it is not a regular file';
}

function orRefuse(path: string, what: string, write: () => void): void {
  try {
    write();
  } catch (error) {
    if (error instanceof ShardwrightError) throw error;
    // Node's own text ends with its call and the path under which the file was being written.
    const why = error instanceof Error ? error.message.split(', ')[0] : String(error);
    throw new ShardwrightError(
      'E_IO',
      `cannot write the ${what} to ${path === '' ? "''" : path}: ${why}`,
      {
        file: path,
        path,
        hint: 'name a file in a folder that exists and that you may write, on a disk with room.',
      },
    );
  }
}
