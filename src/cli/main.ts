#!/usr/bin/env node
/**
 * The `shardwright` executable: runs the command line on this process's streams and sets its exit
 * code.
 */

import { ShardwrightError } from '../errors.ts';
import { surroundings } from './input/defaults.ts';
import { printer, reportError } from './output/io.ts';
import { tuneRuntime } from './runtime.ts';
import { compiledProgram } from './thread/compiled-program.mjs';
import { needsThread, runInThread } from './thread/run-in-thread.ts';

tuneRuntime();

// A write that fails takes no other work away: files are still written, and what is lost is said at
// the end. A reader that stops early, as `| head` does, is not a fault of ours. Node throws where a
// file is written, and tells later where a pipe is.
let failed: NodeJS.ErrnoException | undefined;
const remember = (error: NodeJS.ErrnoException): void => void (failed ??= error);
process.stdout.on('error', remember);
// Where stderr itself fails, the failure cannot be reported.
process.stderr.on('error', () => undefined);

const stderr = (text: string): void => {
  try {
    process.stderr.write(text);
  } catch {
    // Where stderr itself fails, the failure cannot be reported.
  }
};
/** A terminal with colours that nobody switched off (NO_COLOR, FORCE_COLOR=0, TERM=dumb). */
function showsColours(stream: NodeJS.WriteStream): boolean {
  return stream.isTTY && stream.hasColors();
}

const streams = {
  stdout: (text: string): void => {
    if (failed !== undefined) return;
    try {
      process.stdout.write(text);
    } catch (error) {
      remember(error as NodeJS.ErrnoException);
    }
  },
  stderr,
  isTerminal: process.stderr.isTTY === true,
  colours: { stdout: showsColours(process.stdout), stderr: showsColours(process.stderr) },
};

// The last write may fail after the command is done.
process.on('exit', () => {
  if (failed === undefined || failed.code === 'EPIPE') return;
  const error = new ShardwrightError(
    'E_IO',
    `cannot write the answer to stdout: ${failed.message.split(', ')[0]}`,
    {
      file: '<stdout>',
      hint: 'give stdout a place with room.',
    },
  );
  process.exitCode = reportError(error, printer(streams), false);
});

const argv = process.argv.slice(2);
if (needsThread(argv)) process.exitCode = await runInThread(argv, streams);
else {
  const { runCli } = compiledProgram(argv) ?? (await import('./program.ts'));
  process.exitCode = await runCli(argv, streams, undefined, surroundings());
}
