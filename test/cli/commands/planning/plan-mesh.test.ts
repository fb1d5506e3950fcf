import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { describe, expect, it } from 'vitest';

import { bestOfEachMesh } from '../../../../src/cli/commands/planning/plan-mesh.ts';
import { FULL } from '../../../support/full.ts';
import { cli, type CliRun } from '../../support.ts';

const MIXTURE = {
  model_type: 'mixtral',
  hidden_size: 64,
  intermediate_size: 128,
  num_attention_heads: 4,
  num_key_value_heads: 4,
  num_hidden_layers: 2,
  vocab_size: 256,
  num_local_experts: 4,
  num_experts_per_tok: 2,
  torch_dtype: 'bfloat16',
};

type Compared = Parameters<typeof bestOfEachMesh>[0];

/** A comparison of rows that fit, with one second more each. */
function compared(...meshes: readonly string[]): Compared {
  const plans = meshes.map((mesh, i) => ({ name: `row ${i}`, mesh, seconds: i + 1, fits: true }));
  return { plans, best: 'row 0' };
}

/** `plan` of a config on two devices. */
async function plannedFrom(config: object, ...flags: readonly string[]): Promise<CliRun> {
  const folder = mkdtempSync(join(tmpdir(), 'shardwright-'));
  try {
    const file = join(folder, 'config.json');
    writeFileSync(file, JSON.stringify(config));
    return await cli('plan', file, '--cluster', 'dgx-h100', '--quiet', ...flags);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** `plan` of the mixture on two devices. */
async function planned(...flags: readonly string[]): Promise<CliRun> {
  return plannedFrom(MIXTURE, '--seq', '64', ...flags);
}

describe('a mixture by name', () => {
  it('has the step of its trainer, whose experts are over ep', async () => {
    const { out, err } = await planned('--mesh', 'ep=2');
    expect(out, err).toMatch(/^step time {2}[^\n]* a training step, run by megatron$/m);
    expect(out).toMatch(/^beats {6}it is (FSDP|data parallel) \(ep\), experts \(ep\)/m);
    expect(out).not.toContain('asked      activations');
  });

  it('has the step of its trainer in stages, by a recipe', async () => {
    const asked = ['--mesh', 'ep=2', '--pp', '2', '--batch', '8', '--microbatches', '2'];
    const own = await planned(...asked, '--recipe', 'FSDP (ep), experts (ep)');
    expect(own.out, own.err).toMatch(/^step time {2}[^\n]* a training step, run by megatron$/m);
    expect(own.out).toMatch(/^pipeline {3}[^\n]* a step call by call: 1f1b, 2 microbatches/m);
  });

  it('says whose program is priced where that is the exported one', async () => {
    const asked = ['--mesh', 'ep=2', '--for', 'shardwright', '--no-recipes'];
    const { out, err } = await planned(...asked);
    expect(out, err).toMatch(/^for {8}the exported PyTorch program, which sorts the tokens/m);
  });

  it('is refused on a mesh that does not cut the tokens of its experts', async () => {
    const { err } = await planned('--mesh', 'tp=2');
    expect(err).toMatch(
      /^E_PLAN megatron runs no plan that was found: tp does not cut the tokens/m,
    );
    expect(err).toContain('--for shardwright');
  });

  it('is refused with recomputation of rows that no trainer has', async () => {
    const { err } = await planned('--mesh', 'ep=2', '--for', 'megatron', '--checkpoint', 'auto');
    expect(err).toMatch(/^E_USAGE --for megatron: --checkpoint auto recomputes the rows/m);
  });
});

describe('the passes of a step without a mesh', () => {
  const dense = {
    model_type: 'llama',
    hidden_size: 256,
    intermediate_size: 512,
    num_attention_heads: 4,
    num_key_value_heads: 4,
    num_hidden_layers: 2,
    vocab_size: 256,
    torch_dtype: 'bfloat16',
  };

  const budgets = [['400MiB', 2, 'mlp'] as const, ['250MiB', 4, undefined] as const];
  it.each(FULL ? budgets : budgets.slice(0, 1))(
    'are those of the layout that is fastest within %s: %i of them, as long as it says',
    async (memory, passes, recomputes) => {
      const asked = ['--devices', '2', '--seq', '2048', '--batch', '32', '--memory', memory];
      const run = await plannedFrom(dense, ...asked, '--json');
      expect(run.code, run.err).toBe(0);
      const plan = JSON.parse(run.out) as {
        stepSeconds: number;
        request: { accumulate?: number };
        step: { recomputes?: string };
        meshes: { mesh: string; seconds: number; microbatches?: number }[];
      };
      const [taken] = plan.meshes;
      expect([taken?.mesh, taken?.microbatches, plan.request.accumulate]).toEqual([
        'dp=2',
        passes,
        passes,
      ]);
      expect(plan.step.recomputes).toBe(recomputes);
      expect(Math.abs(plan.stepSeconds / (taken?.seconds ?? NaN) - 1)).toBeLessThan(0.02);
      if (!FULL) return;
      const text = await plannedFrom(dense, ...asked);
      expect(text.out.replace(/\s+/g, ' ')).toContain(
        `a training step of 32 sequences of 2048 tokens, in ${passes} passes of ${32 / passes} (`,
      );
    },
  );
});

describe('the meshes of a comparison that a plan can have', () => {
  it('have the passes of their fastest rows', () => {
    const row = (mesh: string, seconds: number, microbatches: number) => ({
      ...{ name: `${mesh} ${seconds}`, mesh, seconds, fits: true },
      layout: { microbatches },
    });
    const plans = [row('dp=8,tp=2 ep=8,etp=2', 3, 2), row('dp=16', 4, 1)];
    expect(bestOfEachMesh({ plans, best: plans[0]?.name ?? '' })).toEqual([
      { mesh: 'ep=8,tp=2', seconds: 3, microbatches: 2 },
      { mesh: 'dp=16', seconds: 4 },
    ]);
  });

  it('are those of the rows, the best first, without stages and each once', () => {
    expect(bestOfEachMesh(compared('dp=4,tp=2', 'pp=2,dp=4', 'dp=8', 'dp=4,tp=2'))).toEqual([
      { mesh: 'dp=4,tp=2', seconds: 1 },
      { mesh: 'dp=8', seconds: 3 },
    ]);
  });

  it.each([
    ['dp=16 ep=16', 'ep=16'],
    ['dp=16 ep=8', 'dp=2,ep=8'],
    ['dp=4,tp=4 ep=4,etp=4', 'ep=4,tp=4'],
    ['dp=8,tp=2 ep=4,etp=2', 'dp=2,ep=4,tp=2'],
  ])('have the groups of experts of %s as dims: %s', (mesh, own) => {
    expect(bestOfEachMesh(compared(mesh))).toEqual([{ mesh: own, seconds: 1 }]);
  });

  it.each(['dp=8,tp=2 ep=16', 'dp=4,cp=2 ep=8', 'pp=2,dp=4 ep=4', 'dp=4,tp=2 ep=8,etp=2'])(
    'are not those whose experts take other dims than data ranks: %s',
    (mesh) => {
      expect(bestOfEachMesh(compared(mesh, 'dp=8'))).toEqual([{ mesh: 'dp=8', seconds: 2 }]);
    },
  );
});
