import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

import { expect, test } from 'vitest';

/** The tests of the Python package itself, under the Python that engines are tested with. */
const python = process.env.SHARDWRIGHT_PYTHON ?? 'python3';
const cwd = fileURLToPath(new URL('../../python', import.meta.url));
const hasPytest = spawnSync(python, ['-c', 'import pytest']).status === 0;

test.skipIf(!hasPytest)(
  `pytest of the Python package${hasPytest ? '' : ' (this Python has no pytest)'}`,
  () => {
    const { status, stdout, stderr } = spawnSync(
      python,
      ['-m', 'pytest', '-q', '-p', 'no:cacheprovider', 'tests'],
      { cwd, encoding: 'utf8', env: { ...process.env, PYTHONPATH: cwd } },
    );
    expect(status, stdout.slice(-8000) + stderr.slice(-2000)).toBe(0);
    expect(stdout).toMatch(/^\d+ passed/m);
  },
  1_800_000,
);
