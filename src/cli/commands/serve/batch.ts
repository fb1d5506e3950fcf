/**
 * Runs command lines that come on stdin, one after another in this process, for programs that ask
 * often: the second plan is several times faster than the first, whose code V8 had to compile. A
 * line of stdin is one command line, `{"argv": ["plan", ...], "cwd": "/where"}`; lines of stdout
 * are what it prints, `{"stdout": text}` and `{"stderr": text}`, and then `{"code": exit code}`.
 * The first line says the version of this protocol.
 */
import { createInterface } from 'node:readline';

import * as z from 'zod';

import { messageOf, ShardwrightError } from '../../../errors.ts';
import { type CliIo, type CliStreams, printer, reportError } from '../../output/io.ts';
import { needsThread, runInThread } from '../../thread/run-in-thread.ts';
import type { CliSession } from '../flags/session.ts';

const VERSION = 1;

const requestSchema = z.strictObject({
  argv: z.array(z.string()).min(1),
  cwd: z.string().optional(),
});

/** Runs the command lines of a stream until it ends. */
export async function batchCommand(
  { stdout }: Pick<CliIo, 'stdout'>,
  runCli: CliSession['runCli'],
  input: NodeJS.ReadableStream = process.stdin,
): Promise<number> {
  const say = (line: object): void => stdout(`${JSON.stringify(line)}\n`);
  say({ version: VERSION });
  for await (const line of createInterface({ input, crlfDelay: Infinity })) {
    if (line.trim() === '') continue;
    const streams: CliStreams = {
      stdout: (text) => say({ stdout: text }),
      stderr: (text) => say({ stderr: text }),
      isTerminal: false,
    };
    let code: number;
    try {
      const { argv, cwd } = requestOf(line);
      if (cwd !== undefined) enter(cwd);
      // What a time limit ends needs a thread, whose code V8 compiles again.
      const isLimited = argv.some((word) => /^--time-limit(=|$)/.test(word));
      const isOwn = isLimited || argv[0] !== 'plan';
      code =
        isOwn && needsThread(argv) ? await runInThread(argv, streams) : await runCli(argv, streams);
    } catch (error) {
      code = reportError(error, printer(streams), true);
    }
    say({ code });
  }
  return 0;
}

/** @throws E_IO where there is no such folder */
function enter(folder: string): void {
  try {
    process.chdir(folder);
  } catch (error) {
    throw new ShardwrightError('E_IO', `cannot work there: ${messageOf(error)}`, { file: folder });
  }
}

/** @throws E_SYNTAX for a line that is not a command line */
function requestOf(line: string): z.infer<typeof requestSchema> {
  const refused = (why: string): ShardwrightError =>
    new ShardwrightError('E_SYNTAX', `it is not a command line: ${why}`, {
      file: '<stdin>',
      hint: 'a line is {"argv": ["plan", "model.fx.txt"], "cwd": "/where"}.',
    });
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (error) {
    throw refused(messageOf(error));
  }
  const read = requestSchema.safeParse(value);
  if (!read.success) throw refused(z.prettifyError(read.error));
  if (read.data.argv[0] === 'batch') throw refused('batch runs no batch');
  return read.data;
}
