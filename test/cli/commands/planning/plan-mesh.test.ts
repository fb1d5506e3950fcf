import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { describe, expect, it } from 'vitest';

import { bestOfEachMesh } from '../../../../src/cli/commands/planning/plan-mesh.ts';
import { cli } from '../../support.ts';

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

/** `plan` of the mixture on two devices. */
async function planned(...flags: readonly string[]): Promise<{ out: string; err: string }> {
  const folder = mkdtempSync(join(tmpdir(), 'shardwright-'));
  try {
    const config = join(folder, 'config.json');
    writeFileSync(config, JSON.stringify(MIXTURE));
    return await cli(
      ...['plan', config, '--cluster', 'dgx-h100', '--seq', '64', '--quiet'],
      ...flags,
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
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

describe('the meshes of a comparison that a plan can have', () => {
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
