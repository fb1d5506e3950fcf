/**
 * Opens a file in the browser of the person at the terminal, with the program that the system has
 * for it. Where there is none, that is said, and the command has done its work all the same.
 */
import { spawn } from 'node:child_process';
import { platform } from 'node:process';

import type { CliIo } from './io.ts';

/** A program and the words before the file. */
type Opener = readonly [program: string, ...words: string[]];

/** The opener of a system: `open` of macOS, the shell of Windows, xdg-utils of the others. */
function openerOf(system: NodeJS.Platform): Opener {
  if (system === 'darwin') return ['open'];
  // `start` takes its first quoted word for a title.
  return system === 'win32' ? ['cmd', '/c', 'start', '""'] : ['xdg-open'];
}

/**
 * Opens the file; resolves when the opener runs, not when it ends.
 *
 * @param opener of this system, where no other is given
 */
export function openFile(
  path: string,
  io: Pick<CliIo, 'stderr'>,
  [program, ...words]: Opener = openerOf(platform),
): Promise<void> {
  const child = spawn(program, [...words, path], { stdio: 'ignore', detached: true });
  return new Promise((resolve) => {
    child.once('spawn', () => {
      child.unref();
      resolve();
    });
    child.once('error', () => {
      io.stderr(`--open: there is no ${program} here; open ${path} in a browser\n`);
      resolve();
    });
  });
}
