import { execFileSync, spawnSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { afterAll, expect, test } from 'vitest';

import { FULL } from '../support/full.ts';
import { torchrun } from './support/torchrun.ts';
import { losses, lossesAlone } from './support/train-mlp.ts';

/**
 * The road of README.md, as a newcomer walks it: install the package, start four processes, train.
 * Four processes train in the full run; daily those of the wheel do, in `wheel.test.ts`.
 */
const python = process.env.SHARDWRIGHT_PYTHON ?? 'python3';
const root = fileURLToPath(new URL('../../', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'shardwright-road-'));
const bin = join(folder, 'venv', 'bin');
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const title = FULL
  ? 'pip install, torchrun of four processes, five steps: the losses of one process'
  : 'pip install of the sources gives the package and its command';
test(
  title,
  () => {
    execFileSync(python, ['-m', 'venv', join(folder, 'venv')]);
    const own = join(bin, 'python');
    // pip builds in the folder that it installs: in the checkout, the tests that run at the same time
    // would find a package `shardwright` that is half built.
    const source = join(folder, 'python');
    cpSync(join(root, 'python'), source, { recursive: true });
    execFileSync(
      own,
      ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--no-deps', source],
      { stdio: ['ignore', 'ignore', 'inherit'] },
    );
    // PyTorch and what it needs are those at hand: they are large.
    const paths = execFileSync(
      python,
      ['-c', "import sys; print(*(p for p in sys.path if 'packages' in p), sep='\\n')"],
      { encoding: 'utf8' },
    );
    const [packages] = readdirSync(join(folder, 'venv', 'lib'));
    writeFileSync(join(folder, 'venv', 'lib', packages, 'site-packages', 'torch.pth'), paths);
    // The command of this checkout, from its sources.
    const loader = join(root, 'node_modules/tsx/dist/loader.mjs');
    writeFileSync(
      join(bin, 'shardwright'),
      `#!/bin/sh\nexec '${process.execPath}' --import '${loader}' '${join(root, 'src/cli/main.ts')}' "$@"\n`,
    );
    chmodSync(join(bin, 'shardwright'), 0o755);
    const env = {
      ...process.env,
      PYTHONPATH: '',
      PATH: `${bin}:${process.env.PATH ?? ''}`,
      OMP_NUM_THREADS: '1',
    };
    expect(
      execFileSync(own, ['-c', 'import shardwright; print(shardwright.__file__)'], {
        env,
        cwd: folder,
        encoding: 'utf8',
      }),
    ).toContain(join(folder, 'venv'));
    const version = execFileSync(own, ['-m', 'shardwright', '--version'], {
      env,
      cwd: folder,
      encoding: 'utf8',
    });
    const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
      version: string;
    };
    expect(version).toContain(manifest.version);
    if (!FULL) return;
    const run = spawnSync(own, torchrun(folder, join(root, 'examples/train_mlp.py')), {
      env,
      cwd: folder,
      encoding: 'utf8',
    });
    expect(run.status, run.stderr.slice(0, 6000)).toBe(0);
    const found = losses(run.stdout);
    const single = lossesAlone(python);
    expect(found.length).toBe(5);
    expect(single[4]).toBeLessThan(single[0]);
    // Float32: sums of 1,024 products are taken in another order.
    found.forEach((loss, step) => expect(Math.abs(loss / single[step] - 1)).toBeLessThan(1e-6));
    const { collectives } = JSON.parse(
      readFileSync(join(folder, 'plan/torch/collectives.json'), 'utf8'),
    ) as { collectives: unknown[] };
    expect(collectives.length).toBeGreaterThan(0);
  },
  600_000,
);
