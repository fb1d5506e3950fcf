/**
 * Runs the command line in a process of its own, for a page that waits, and gives its exit code and
 * output. A page that goes away ends the process.
 */
import { spawn } from 'node:child_process';
import type { ServerResponse } from 'node:http';

interface Ended {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

/** A program and its arguments. */
export type CommandLine = readonly [program: string, ...args: string[]];

export function runCommand(
  [program, ...args]: CommandLine,
  response: ServerResponse,
  step: (text: string) => void,
): Promise<Ended> {
  const child = spawn(program, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const gone = (): void => void child.kill('SIGKILL');
  response.once('close', gone);
  let [out, err] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    err += text;
    const line = text
      .trim()
      .split(/[\r\n]+/)
      .at(-1);
    if (line !== undefined && line !== '') step(line);
  });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => {
      response.off('close', gone);
      resolve({ code, out, err });
    });
  });
}
