/** Runs `check.py` of exported folders on gloo processes that import PyTorch once. */

import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

import { afterAll } from 'vitest';

/** What `check.py` prints, and how its processes ended. */
export interface Checked {
  readonly status: number;
  readonly compared: number;
  readonly worst: number;
  readonly failed: readonly string[];
}

/**
 * A function that runs the check of a folder on so many processes. They are forks of one Python,
 * which ends with the tests of the file.
 */
export function startChecks(): (folder: string, processes: number) => Promise<Checked> {
  const python = process.env.SHARDWRIGHT_PYTHON ?? 'python3';
  const script = fileURLToPath(new URL('run_checks.py', import.meta.url));
  const server = spawn(python, ['-B', script], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: server.stdout })[Symbol.asyncIterator]();
  afterAll(() => void server.kill());
  return async (folder, processes) => {
    server.stdin.write(`${JSON.stringify({ folder, processes })}\n`);
    const line = await lines.next();
    if (line.done === true) throw new Error('the Python that runs the checks has ended');
    const { status, out, err } = JSON.parse(line.value) as {
      status: number;
      out: string;
      err: string;
    };
    const said = out.split('\n').find((text) => text.startsWith('{'));
    if (said === undefined) throw new Error(err);
    return { status, ...(JSON.parse(said) as Omit<Checked, 'status'>) };
  };
}
