import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/**
 * Runs a script of scripts/engines with the Python that scripts/test-engines.sh chose. One process
 * a test file: PyTorch takes seconds to load.
 */
export function runPython(script: string, args: readonly string[], input = ''): string {
  const python = process.env['SHARDWRIGHT_PYTHON'];
  if (python === undefined)
    throw new Error('SHARDWRIGHT_PYTHON is not set: run `npm run test:engines`');
  const path = fileURLToPath(new URL(`../../../scripts/engines/${script}`, import.meta.url));
  const run = spawnSync(python, ['-B', '-W', 'ignore', path, ...args], {
    input,
    encoding: 'utf8',
    maxBuffer: 1 << 28,
  });
  if (run.error !== undefined) throw run.error;
  if (run.status !== 0)
    throw new Error(
      `${script} ended with ${run.status ?? run.signal}:\n${run.stderr.slice(-4000)}`,
    );
  return run.stdout;
}

/** Asks one of the scripts; the answer is what the script documents. */
export function askTorch<T>(script: string, request: unknown): T & { readonly torch: string } {
  return JSON.parse(runPython(script, [], JSON.stringify(request))) as T & {
    readonly torch: string;
  };
}
