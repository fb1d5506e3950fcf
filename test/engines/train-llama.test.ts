import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { stripVTControlCharacters } from 'node:util';

import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { FULL } from '../support/full.ts';
import { torchrun } from './support/torchrun.ts';

/**
 * `examples/train_llama` as its README says, on this machine: under torchrun, by its SLURM script
 * with a stand-in of `srun` and `scontrol` that starts two launchers here, and under Ray Train,
 * which has an environment of its own (`scripts/test-engines.sh`).
 */
const python = process.env.SHARDWRIGHT_PYTHON ?? 'python3';
const root = fileURLToPath(new URL('../../', import.meta.url));
const example = join(root, 'examples/train_llama');
const folder = mkdtempSync(join(tmpdir(), 'shardwright-llama-'));
const rayPython = process.env.SHARDWRIGHT_RAY_PYTHON ?? python;
const hasRay = spawnSync(rayPython, ['-c', 'import ray.train.torch, pyarrow']).status === 0;
const env = {
  ...process.env,
  PYTHONPATH: join(root, 'python'),
  PATH: `${folder}:${process.env.PATH ?? ''}`,
  OMP_NUM_THREADS: '1',
};
const run = (...argv: string[]): string =>
  execFileSync(python, argv, {
    env,
    cwd: folder,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
  });
const losses = (text: string): number[] =>
  [...stripVTControlCharacters(text).matchAll(/(?:^|\) )\d+ (\d\.\d+)$/gm)].map(([, loss]) =>
    Number(loss),
  );
const committed = readFileSync(join(example, 'loss.txt'), 'utf8')
  .trim()
  .split('\n')
  .slice(1)
  .map((line) => line.trim().split(/ +/).map(Number));

function expectCurve(found: readonly number[], column: number): void {
  expect(found.length).toBe(20);
  found.forEach((loss, step) =>
    expect(Math.abs(loss / committed[step][column] - 1), `step ${step}`).toBeLessThan(1e-5),
  );
}

describe('a small Llama, by its plan', () => {
  beforeAll(() => {
    const loader = join(root, 'node_modules/tsx/dist/loader.mjs');
    const command = join(folder, 'shardwright');
    writeFileSync(
      command,
      `#!/bin/sh\nexec '${process.execPath}' --import '${loader}' '${join(root, 'src/cli/main.ts')}' "$@"\n`,
    );
    chmodSync(command, 0o755);
    run(join(example, 'plan.py'));
  }, 600_000);
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test('both curves of loss.txt are one curve', () => {
    for (const [step, one, four] of committed)
      expect(Math.abs(four / one - 1), `step ${step}`).toBeLessThan(1e-5);
    expect(committed[19][1]).toBeLessThan(committed[0][1] / 1.5);
  });

  test(
    'one process',
    () => expectCurve(losses(run(join(example, 'train.py'), '--single')), 1),
    300_000,
  );

  test('four processes under torchrun, with the collectives that the README counts', () => {
    expectCurve(losses(run(...torchrun(folder, join(example, 'train.py')))), 2);
    const { collectives } = JSON.parse(
      readFileSync(join(folder, 'plan/torch/collectives.json'), 'utf8'),
    ) as { collectives: { kind: string }[] };
    const count = (kind: string): number => collectives.filter((c) => c.kind === kind).length;
    const readme = readFileSync(join(example, 'README.md'), 'utf8');
    expect(readme).toContain(
      `${count('all_gather')} all-gathers, ${count('all_reduce')} all-reduces and ${count('reduce_scatter')} reduce-scatters`,
    );
  }, 600_000);

  describe('slurm.sh on two hosts of two devices', () => {
    beforeAll(() => {
      const scripts = {
        torchrun: `exec '${python}' -m torch.distributed.run --log-dir '${folder}' "$@"`,
        scontrol: 'test "$1 $2 $3" = "show hostnames here[1-2]" && printf "localhost\\nother\\n"',
        srun: 'SLURM_NODEID=0 "$@" & first=$!; SLURM_NODEID=1 "$@" & second=$!; wait $first; a=$?; wait $second && exit $a',
      };
      for (const [name, text] of Object.entries(scripts))
        writeFileSync(join(folder, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
    });
    const slurm = async (cwd: string, train = join(example, 'train.py')) => {
      const job = { SLURM_JOB_ID: '7', SLURM_NNODES: '2', SLURM_JOB_NODELIST: 'here[1-2]' };
      const asked = {
        DEVICES_PER_HOST: '2',
        DEVICE: 'cpu',
        PORT: String(await freePort()),
        TRAIN: train,
      };
      return spawnSync('bash', [join(example, 'slurm.sh')], {
        cwd,
        env: { ...env, ...job, ...asked },
        encoding: 'utf8',
      });
    };

    test('starts four ranks, those of a host one after the other', async () => {
      const train = join(folder, 'ranks.py');
      writeFileSync(
        train,
        // One write: lines of several ranks must not mix.
        `import os, sys
ranks = [os.environ[f"{of}_RANK"] for of in ("GROUP", "LOCAL")] + [os.environ["RANK"]]
os.write(1, (" ".join(["ranks", *ranks, *sys.argv[1:]]) + "\\n").encode())
`,
      );
      const { status, stdout, stderr } = await slurm(folder, train);
      expect(status, stderr.slice(-3000)).toBe(0);
      const ranks = stdout.split('\n').filter((line) => line.startsWith('ranks'));
      expect(ranks.sort()).toEqual(
        ['0 0 0', '0 1 1', '1 0 2', '1 1 3'].map((of) => `ranks ${of} --device cpu`),
      );
    }, 600_000);

    // Daily the same script trains under one launcher, above.
    test.skipIf(!FULL)(
      'trains as one process by a plan for such hosts',
      async () => {
        const cluster = JSON.parse(readFileSync(join(example, 'cluster.json'), 'utf8')) as object;
        const cwd = join(folder, 'hosts');
        mkdirSync(cwd);
        writeFileSync(join(cwd, 'two.json'), JSON.stringify({ ...cluster, devicesPerHost: 2 }));
        execFileSync(python, [join(example, 'plan.py'), 'dp=2,tp=2', 'two.json'], {
          env,
          cwd,
          stdio: 'ignore',
        });
        const { status, stdout, stderr } = await slurm(cwd);
        expect(status, stderr.slice(-3000)).toBe(0);
        expectCurve(losses(stdout), 2);
      },
      600_000,
    );

    // As two launchers of PyTorch do it in `python/tests/test_launch.py`.
    test.skipIf(!FULL)(
      'refuses a plan for four devices on one host',
      async () => {
        const { status, stderr } = await slurm(folder);
        expect(status).not.toBe(0);
        expect(stderr).toContain(
          'E_HOSTS the plan has ranks [0, 1, 2, 3] on one host each, the launcher has host 0: ranks [0, 1]; host 1: ranks [2, 3]',
        );
      },
      600_000,
    );
  });

  test.skipIf(!hasRay)(
    `four workers of Ray Train${hasRay ? '' : ' (no ray[train]: SHARDWRIGHT_FULL=1 npm run test:engines installs it)'}`,
    () => {
      const out = execFileSync(rayPython, [join(example, 'train_ray.py')], {
        env,
        cwd: folder,
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      expectCurve(losses(out), 2);
    },
    600_000,
  );
});

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().once('error', reject);
    server.listen(0, () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}
