import { pathToFileURL } from 'node:url';

import { runCli } from '../../src/cli/program.ts';
import { tuneRuntime } from '../../src/cli/runtime.ts';
import type { Answer, Ask, CliRun } from './own-process.ts';

/**
 * The other side of `OwnProcess`: answers each message with what its command line or program gave.
 */

tuneRuntime();

async function runLine(argv: readonly string[]): Promise<CliRun> {
  let [out, err] = ['', ''];
  const code = await runCli(argv, {
    stdout: (text) => void (out += text),
    stderr: (text) => void (err += text),
    isTerminal: false,
  });
  return { code, out, err };
}

/** Programs tell by their name on the command line that they are run and not imported. */
async function runProgram(file: string): Promise<CliRun> {
  process.argv[1] = file;
  const write = process.stdout.write.bind(process.stdout);
  let out = '';
  process.stdout.write = (text: string | Uint8Array): boolean => {
    out += typeof text === 'string' ? text : Buffer.from(text).toString('utf8');
    return true;
  };
  try {
    // A command that traced the file has loaded it: under another address it runs again.
    await import(`${pathToFileURL(file).href}?program`);
  } finally {
    process.stdout.write = write;
  }
  return { code: 0, out, err: '' };
}

process.on('message', (message) => {
  const ask = message as Ask;
  const run = ask.kind === 'cli' ? runLine(ask.argv) : runProgram(ask.file);
  run.then(
    (answer: Answer) => process.send?.(answer),
    (error: unknown) =>
      process.send?.({
        fault: error instanceof Error ? (error.stack ?? error.message) : String(error),
      }),
  );
});

process.on('disconnect', () => process.exit());
