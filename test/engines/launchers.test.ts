import { spawn } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

import { afterAll, beforeAll, expect, it } from 'vitest';
import { parse } from 'yaml';

import { cli, fixture } from '../cli/support.ts';
import { FULL } from '../support/full.ts';

/**
 * The launch files of a plan on two hosts of two devices, started on this machine by the real
 * `torchrun`: only the scheduler is played, which gives each host its number and the name of the
 * first. Slurm's are started in every run, the others, which call the same `torchrun`, in the full
 * one.
 */
const python = process.env['SHARDWRIGHT_PYTHON'] ?? 'python3';
const root = mkdtempSync(join(tmpdir(), 'shardwright-launch-'));
const bin = join(root, 'bin');
afterAll(() => rmSync(root, { recursive: true, force: true }));

/** Each rank says who it is, after all of them have found each other. */
const SCRIPT = `
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(())
dist.all_reduce(total)
group, local = os.environ["GROUP_RANK"], os.environ["LOCAL_RANK"]
open(os.path.join(sys.argv[1], f"rank-{dist.get_rank()}"), "w").write(f"{group} {local} {int(total)}")
dist.destroy_process_group()
# Not by the interpreter: it aborts where a thread of gloo still holds a tensor when it ends.
os._exit(0)
`;

beforeAll(async () => {
  mkdirSync(bin);
  const own = (name: string, text: string): void => {
    writeFileSync(join(bin, name), `#!/bin/bash\n${text}\n`);
    chmodSync(join(bin, name), 0o755);
  };
  own('torchrun', `exec '${python}' -m torch.distributed.run "$@"`);
  // It goes on after the first line, as for a long list of hosts.
  own('scontrol', 'printf "127.0.0.1\\n"; seq 100000');
  own('srun', '"$@" & "$@" & wait -n && wait -n');
  writeFileSync(join(root, 'fit.py'), SCRIPT);
  const cluster = join(root, 'pairs.json');
  writeFileSync(cluster, JSON.stringify({ base: 'dgx-h100', id: 'pairs', devicesPerHost: 2 }));
  const words = ['--mesh', 'dp=2,tp=2', '--cluster', cluster, '--no-recipes'];
  const { code, err } = await cli('plan', fixture('mlp'), ...words, '-o', join(root, 'plan'));
  expect(code, err).toBe(0);
});

const bash = (command: string, env: Readonly<Record<string, string>>): Promise<number | null> =>
  new Promise((resolve) => {
    spawn('bash', ['-c', command], {
      cwd: root,
      stdio: ['ignore', 'ignore', 'inherit'],
      env: { PATH: `${bin}:${dirname(python)}:/usr/bin:/bin`, OMP_NUM_THREADS: '1', ...env },
    }).once('close', resolve);
  });

/** Hosts and places of the four ranks, once all of them ran. */
async function ranksOf(
  launcher: string,
  file: string,
  start: (text: string) => readonly Promise<number | null>[],
): Promise<readonly string[]> {
  const out = join(root, launcher);
  const script = `fit.py ${out}`;
  const words = ['--target', 'torch', '-o', out, '--launcher', launcher, '--script', script];
  const { code, err } = await cli('export', join(root, 'plan'), ...words);
  expect(code, err).toBe(0);
  const codes = await Promise.all(start(readFileSync(join(out, file), 'utf8')));
  expect(codes.every((one) => one === 0)).toBe(true);
  return [0, 1, 2, 3].map((rank) => readFileSync(join(out, `rank-${rank}`), 'utf8'));
}
const WANTED = ['0 0 4', '0 1 4', '1 0 4', '1 1 4'];

it('slurm: srun on both hosts starts four ranks, those of a host one after the other', async () => {
  const ranks = await ranksOf('slurm', 'run.slurm', (text) => [
    bash(text, { SLURM_JOB_NODELIST: 'two', SLURM_JOB_ID: '7' }),
  ]);
  expect(ranks).toEqual(WANTED);
}, 180_000);

it.runIf(FULL)(
  'skypilot: the run of both nodes starts four ranks',
  async () => {
    const ranks = await ranksOf('skypilot', 'sky.yaml', (text) => {
      const { run } = parse(text) as { run: string };
      return ['0', '1'].map((node) =>
        bash(run, { SKYPILOT_NODE_RANK: node, SKYPILOT_NODE_IPS: '127.0.0.1\n127.0.0.1' }),
      );
    });
    expect(ranks).toEqual(WANTED);
  },
  180_000,
);

it.runIf(FULL)(
  'kubernetes: the command of both pods starts four ranks',
  async () => {
    const ranks = await ranksOf('kubernetes', 'jobset.yaml', (text) => {
      const [, command = ''] = /command: \["bash", "-c", (".*")\]/.exec(text) ?? [];
      // The name of the first pod is that of this machine here.
      const here = (JSON.parse(command) as string).replace(
        /--master-addr \S+/,
        '--master-addr 127.0.0.1',
      );
      return ['0', '1'].map((pod) => bash(here, { JOB_COMPLETION_INDEX: pod }));
    });
    expect(ranks).toEqual(WANTED);
  },
  180_000,
);
