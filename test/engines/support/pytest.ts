/** Runs files of the Python package's own tests under the Python that engines are tested with. */

import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

import { expect, test } from 'vitest';

const python = process.env.SHARDWRIGHT_PYTHON ?? 'python3';
const cwd = fileURLToPath(new URL('../../../python', import.meta.url));

/** A test that runs pytest on these files of `python/tests`, and passes where all of theirs do. */
export function testByPytest(title: string, files: readonly string[]): void {
  const hasPytest = spawnSync(python, ['-c', 'import pytest']).status === 0;
  test.skipIf(!hasPytest)(
    `${title}${hasPytest ? '' : ' (this Python has no pytest)'}`,
    () => {
      const { status, stdout, stderr } = spawnSync(
        python,
        ['-m', 'pytest', '-q', '-p', 'no:cacheprovider', ...files.map((file) => `tests/${file}`)],
        { cwd, encoding: 'utf8', env: { ...process.env, PYTHONPATH: cwd } },
      );
      expect(status, stdout.slice(-8000) + stderr.slice(-2000)).toBe(0);
      expect(stdout).toMatch(/^\d+ passed/m);
    },
    1_800_000,
  );
}
