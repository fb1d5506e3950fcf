import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';

import { describe, expect, it } from 'vitest';

import { readPlan } from '../../../../src/plan/record/schema.ts';
import type { Plan } from '../../../../src/plan/record/types.ts';
import { cli, fixture } from '../../support.ts';

/**
 * Test models of PyTorch's AutoParallel on one mesh dim, planned by the command line; two dims:
 * test/plan/peers.test.ts.
 */
const model = (name: string): string =>
  fileURLToPath(new URL(`../../../fixtures/peers/${name}.txt.gz`, import.meta.url));

const ASK = [
  '--cluster',
  'dgx-h100',
  '--no-recipes',
  '--activations',
  'report',
  '--inputs',
  'S(0)',
  '--outputs',
  'S(0)',
] as const;

async function planned(name: string, ...flags: readonly string[]): Promise<Plan> {
  const run = await cli('plan', model(name), ...ASK, '--json', ...flags);
  expect(run.code, run.err).toBe(0);
  const plan = readPlan(run.out);
  expect(plan.proof.status).toBe('optimal');
  return plan;
}

const products = (plan: Plan): string[] =>
  plan.nodes
    .filter((n) => n.target === 'aten.mm.default')
    .map((n) => `${n.inputs.join()} -> ${n.outputs.join()}`);

/** 16 bytes of state for each element: weight, gradient and Adam's two moments. */
const BLOCK_STATE_BYTES = (4 * 6144 * 6144 + 2 * 6144 * 24576) * 16;
const FORWARD = 'S(0),R -> S(0)';
const WEIGHT = 'S(1),S(0) -> P(sum)';

describe('a transformer block on 256 devices', () => {
  it('with memory for one share every parameter is S(0): fully sharded data parallel', async () => {
    const plan = await planned(
      'block-2048',
      '--mesh',
      'x=256',
      '--memory',
      `${BLOCK_STATE_BYTES / 256}B`,
    );
    expect(plan.parameters.map((p) => p.placement)).toEqual(Array(6).fill('S(0)'));
    expect(plan.memory.peakBytes).toBe(BLOCK_STATE_BYTES / 256);
    const found = products(plan);
    expect(found.slice(0, 6)).toEqual(Array(6).fill(FORWARD));
    expect(found.filter((p) => p === WEIGHT)).toHaveLength(6);
    expect(found.filter((p) => p === FORWARD)).toHaveLength(12);
  });

  it('without a limit every parameter is R: data parallel', async () => {
    const plan = await planned('block-2048', '--mesh', 'x=256');
    expect(plan.parameters.map((p) => p.placement)).toEqual(Array(6).fill('R'));
    const found = products(plan);
    expect(found.filter((p) => p === FORWARD)).toHaveLength(12);
    expect(found.filter((p) => p === WEIGHT)).toHaveLength(6);
  });
});

it('a parameter smaller than the mesh dim stays R, and the plan is feasible', async () => {
  // 1024 -> 280 (+ bias) -> 1024 on 1024 devices: neither the bias nor the 280 of a weight can be
  // cut 1024 ways.
  const mesh = ['--mesh', 'x=1024'] as const;
  const least = (280 + 280 + 280) * 16;
  const plan = await planned('uneven-65536', ...mesh, '--memory', `${least}B`);
  expect(plan.parameters.map((p) => `${p.name} ${p.placement}`)).toEqual([
    'linear1.weight S(1)',
    'linear1.bias R',
    'linear2.weight S(0)',
  ]);
  const below = await cli(
    'plan',
    '-v',
    model('uneven-65536'),
    ...ASK,
    ...mesh,
    '--memory',
    `${least - 1}B`,
  );
  expect(below.code).toBe(3);
  expect(below.err).toContain(`the smallest budget that works is 13.1 KiB (${least} bytes)`);
});

it('a constant tensor is R', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'shardwright-'));
  try {
    const path = join(folder, 'constant.txt');
    const relu = '        relu: "f32[8, 256][256, 1]cpu" = torch.ops.aten.relu.default(addmm)';
    const text = gunzipSync(readFileSync(fixture('mlp'))).toString('utf8');
    expect(text).toContain(relu);
    const added = `        c: "f32[8, 256]" = self._tensor_constant0
        sum_c: "f32[8, 256]" = torch.ops.aten.add.Tensor(addmm, c)
${relu.replace('(addmm)', '(sum_c)')}`;
    writeFileSync(path, text.replace(relu, added));
    const run = await cli('plan', path, ...ASK, '--mesh', 'x=8', '--json', '--pin', 'addmm=S(0)');
    expect(run.code, run.err).toBe(0);
    expect(readPlan(run.out).nodes.find((n) => n.name === 'c')?.outputs).toEqual(['R']);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
