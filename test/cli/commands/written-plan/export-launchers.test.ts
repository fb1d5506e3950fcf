import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';

import { cli, fixture } from '../../support.ts';

/** The files that start the ranks of a plan; `test/engines/launchers.test.ts` starts them. */

const root = mkdtempSync(join(tmpdir(), 'shardwright-launchers-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
const plan = join(root, 'plan');
const planned = async (mesh: string, cluster: string, out = plan): Promise<void> => {
  const words = ['--mesh', mesh, '--cluster', cluster, '--no-recipes', '-o', out];
  const { code, err } = await cli('plan', fixture('mlp'), ...words);
  expect(code, err).toBe(0);
};
beforeAll(() => planned('dp=16', 'dgx-h100'));

const written = async (launcher: string, name: string): Promise<string> => {
  const out = join(root, launcher);
  const words = ['--target', 'torch', '-o', out, '--launcher', launcher];
  const { code, err } = await cli('export', plan, ...words, '--script', 'fit.py --steps 3');
  expect(code, err).toBe(0);
  expect(err).toContain(join(out, name));
  return readFileSync(join(out, name), 'utf8');
};

describe('a plan of 16 devices on hosts of 8', () => {
  it('is two nodes with eight GPUs of a Slurm script', async () => {
    const text = await written('slurm', 'run.slurm');
    expect(text.startsWith('#!/bin/bash\n')).toBe(true);
    const directives = [...text.matchAll(/^#SBATCH --([\w-]+)=(\S+)$/gm)].map(([, k, v]) => [k, v]);
    expect(Object.fromEntries(directives)).toMatchObject({
      nodes: '2',
      'ntasks-per-node': '1',
      'gpus-per-node': '8',
    });
    expect(text).toContain('fit.py --steps 3\n');
  });

  it('is two pods of a JobSet, each with eight GPUs and its own number', async () => {
    interface Pods {
      readonly parallelism: number;
      readonly completions: number;
      readonly completionMode: string;
      readonly template: {
        readonly spec: {
          readonly containers: readonly {
            readonly command: readonly string[];
            readonly resources: { readonly limits: Readonly<Record<string, number>> };
          }[];
        };
      };
    }
    const set = parse(await written('kubernetes', 'jobset.yaml')) as {
      readonly apiVersion: string;
      readonly kind: string;
      readonly metadata: { readonly name: string };
      readonly spec: {
        readonly replicatedJobs: readonly {
          readonly name: string;
          readonly template: { readonly spec: Pods };
        }[];
      };
    };
    expect([set.apiVersion, set.kind]).toEqual(['jobset.x-k8s.io/v1alpha2', 'JobSet']);
    const [{ name, template }] = set.spec.replicatedJobs;
    const { parallelism, completions, completionMode, template: pod } = template.spec;
    expect([parallelism, completions, completionMode]).toEqual([2, 2, 'Indexed']);
    const [{ command, resources }] = pod.spec.containers;
    expect(resources.limits).toEqual({ 'nvidia.com/gpu': 8 });
    expect(command[2]).toContain('--node-rank $JOB_COMPLETION_INDEX');
    // The name of its first pod under the service of the JobSet.
    expect(command[2]).toContain(
      `--master-addr ${set.metadata.name}-${name}-0-0.${set.metadata.name} `,
    );
  });

  it('is two nodes of a SkyPilot task, with the GPU as clouds name it', async () => {
    const task = parse(await written('skypilot', 'sky.yaml')) as Record<string, unknown>;
    expect(task).toMatchObject({ num_nodes: 2, resources: { accelerators: 'H100:8' } });
    expect(task['run']).toContain('--nnodes 2 --nproc-per-node 8');
  });
});

it.each([
  ['dgx-a100-80gb', 'A100-80GB:8'],
  ['aws-p4d-24xlarge', 'A100:8'],
  ['mi300x-platform', 'MI300X:8'],
  ['aws-g6e-48xlarge', 'L40S:8'],
])('the GPU of %s is %s', async (cluster, name) => {
  const out = join(root, cluster);
  await planned('dp=8', cluster, out);
  const words = ['--target', 'torch', '-o', join(out, 'run'), '--launcher', 'skypilot'];
  expect((await cli('export', out, ...words)).code).toBe(0);
  expect(readFileSync(join(out, 'run', 'sky.yaml'), 'utf8')).toContain(`accelerators: ${name}\n`);
});

describe('a launcher is refused', () => {
  it.each([
    ['tpu-v5e-pod', 'dp=8', 'TPU-v5e is not started by torchrun'],
    ['gb200-nvl72', 'dp=8', 'a host of gb200-nvl72 is a rack of 72 devices'],
    ['dgx-h100', 'dp=12', '12 devices do not fill hosts of 8'],
  ])('for %s with %s', async (cluster, mesh, why) => {
    const out = join(root, 'refused');
    await planned(mesh, cluster, out);
    const words = ['--target', 'torch', '-o', join(out, 'run'), '--launcher', 'slurm'];
    const { code, err } = await cli('export', out, ...words);
    expect(code).toBe(2);
    expect(err).toContain(`E_LAUNCHER ${why}`);
    expect(err).toContain('hint: ');
  });

  it('without its own flag, and by a wrong name', async () => {
    const words = ['export', plan, '--target', 'torch', '-o', join(root, 'x')];
    const alone = await cli(...words, '--script', 'fit.py');
    expect([alone.code, alone.err]).toEqual([2, expect.stringContaining('--launcher slurm|')]);
    const other = await cli(...words, '--launcher', 'slrum');
    expect([other.code, other.err]).toEqual([2, expect.stringContaining("did you mean 'slurm'?")]);
  });
});

it('writes the same bytes for the same plan', async () => {
  const first = await written('slurm', 'run.slurm');
  writeFileSync(join(root, 'slurm', 'run.slurm'), 'older');
  expect(await written('slurm', 'run.slurm')).toBe(first);
});
