import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { TINY } from '../../../models/tiny.ts';
import { cli } from '../../support.ts';

/** Models by name and by config on the command line. */

let folder = '';
const config = (): string => join(folder, 'small', 'config.json');
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'shardwright-models-'));
  mkdirSync(join(folder, 'small'));
  writeFileSync(config(), JSON.stringify(TINY.llama));
  writeFileSync(join(folder, 'packed.json.gz'), gzipSync(JSON.stringify(TINY.qwen3)));
  writeFileSync(join(folder, 'lama.json'), JSON.stringify({ ...TINY.llama, model_type: 'lama' }));
  writeFileSync(join(folder, 'plain.swg.json'), '{"a": 1}');
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Inspected {
  readonly name: string;
  readonly format: string;
  readonly parameters: number;
  readonly flops: { readonly forward: number; readonly backward: number };
  readonly unknownOps: readonly string[];
  readonly notes: readonly string[];
}
const json = <T>(out: string): T => JSON.parse(out) as T;

describe('models', () => {
  it('models list: one JSON value with the counts, and a table', async () => {
    const { code, out } = await cli('models', 'list', '--json');
    expect(code).toBe(0);
    const { models } = json<{
      models: { name: string; parameters: number; active?: number; family: string }[];
    }>(out);
    expect(models).toHaveLength(47);
    expect(models.find((m) => m.name === 'mixtral-8x7b')).toMatchObject({
      family: 'mixtral',
      parameters: 46702792704,
      active: 12879925248,
    });
    expect((await cli('models', 'list')).out).toContain('405,853,388,800');
  });

  it('models show: counted on the graph, equal to the published class', async () => {
    const { code, out } = await cli('models', 'show', 'whisper-tiny', '--json');
    expect(code).toBe(0);
    expect(json(out)).toMatchObject({
      parameters: 37760640,
      trainable: 37184640,
      published: 37760640,
      family: 'whisper',
    });
    expect((await cli('models', 'show', 'gpt2')).out).toContain(
      '124,439,808, as the published class',
    );
  });

  it('models show of a name that is not there: exit 2 and near names', async () => {
    const { code, err } = await cli('models', 'show', 'llama-3.1-8c');
    expect(code).toBe(2);
    expect(err).toContain("'llama-3.1-8b'");
  });
});

describe('a model name or config in place of a file', () => {
  it('inspect of a name: parameters, FLOPs, and the sizes that were chosen', async () => {
    const { code, out } = await cli(
      'inspect',
      'llama-3.1-8b',
      '--batch',
      '4',
      '--seq',
      '4096',
      '--training',
      '--json',
    );
    expect(code).toBe(0);
    const found = json<Inspected>(out);
    expect(found).toMatchObject({
      name: 'llama-3.1-8b',
      format: 'hf-config',
      parameters: 8030261248,
      unknownOps: [],
    });
    expect(found.flops.forward + found.flops.backward).toBe(860883245334528);
    expect(found.notes.join()).toContain('batch 4, sequence 4096, bf16, 32 layers, training');
  });

  it('inspect of a name prints the default batch, sequence and dtype', async () => {
    const { out } = await cli('inspect', 'gpt2', '--layers', '1');
    expect(out).toContain('batch 8, sequence 1024, bf16, 1 layers, training (forward');
    const forward = await cli('inspect', 'gpt2', '--layers', '1', '--forward');
    expect(forward.out).toContain('batch 8, sequence 1024, bf16, 1 layers, inference (forward');
    const both = await cli('inspect', 'gpt2', '--training', '--forward');
    expect(both.code).toBe(2);
    expect(both.err).toContain('--training and --forward exclude each other');
  });

  it('plan of a name plans the training step that compare of it prices, and says so', async () => {
    const asked = [
      'plan',
      '-v',
      'qwen3-0.6b',
      '--layers',
      '1',
      '--mesh',
      'dp=4',
      '--cluster',
      'h100',
    ];
    const { out, code } = await cli(...asked, '--no-recipes');
    expect(code).toBe(0);
    expect(out).toMatch(/^question {3}a training step of 4 sequences of 4096 tokens \(/);
    expect(out).toContain('batch 4, sequence 4096, bf16, 1 layers, training (forward');
  });

  it('inspect gives the same for a packed config file', async () => {
    const plain = json<Inspected>((await cli('inspect', config(), '--json')).out);
    expect(plain).toMatchObject({ name: 'small', format: 'hf-config' });
    // 2 tables, 2 layers of q, k, v, o, three weights and two norms, one norm.
    expect(plain.parameters).toBe(
      2 * 512 * 64 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96 + 2 * 64) + 64,
    );
    const packed = await cli('inspect', join(folder, 'packed.json.gz'), '--json');
    expect(packed.code).toBe(0);
    expect(json<Inspected>(packed.out).name).toBe('packed');
  });

  it('an unknown family: exit 2, did you mean llama', async () => {
    const { code, err } = await cli('inspect', join(folder, 'lama.json'));
    expect(code).toBe(2);
    expect(err).toContain("did you mean 'llama'");
    expect(err).toContain('lama.json');
  });

  it('a multimodal config: its text tower is planned, and the plan says so', async () => {
    const path = join(folder, 'gemma3.json');
    const { model_type: _, ...text } = TINY.gemma3_text;
    writeFileSync(
      path,
      JSON.stringify({ model_type: 'gemma3', text_config: text, vision_config: {} }),
    );
    const run = await cli(
      'plan',
      '-v',
      path,
      '--mesh',
      'tp=2',
      '--cluster',
      'dgx-h100',
      '--batch',
      '2',
      '--seq',
      '16',
      '--no-recipes',
    );
    expect(run.code, run.err).toBe(0);
    expect(run.out).toContain('text tower');
  });

  it('a misspelt name is neither file nor model: near names', async () => {
    const { code, err } = await cli('inspect', 'lama-3.1-8b');
    expect(code).toBe(2);
    expect(err).toContain("no file and no model 'lama-3.1-8b'");
    expect(err).toContain("'llama-3.1-8b'");
  });

  it('flags that do not belong together are refused', async () => {
    const roles = await cli('inspect', 'gpt2', '--role', 'x=buffer');
    expect([roles.code, roles.err]).toEqual([2, expect.stringContaining('built from a config')]);
    const sizes = await cli('inspect', join(folder, 'plain.swg.json'), '--batch', '4');
    expect([sizes.code, sizes.err]).toEqual([2, expect.stringContaining('--batch')]);
    const count = await cli('inspect', 'gpt2', '--seq', 'long');
    expect([count.code, count.err]).toEqual([2, expect.stringContaining("--seq 'long'")]);
  });

  it('a traced training graph plans, with proof, and its parameters go by their checkpoint names', async () => {
    const sizes = [
      '--batch',
      '8',
      '--seq',
      '16',
      '--training',
      '--no-recipes',
      '--quiet',
      '--json',
    ];
    const { code, out } = await cli(
      'plan',
      '-v',
      config(),
      '--mesh',
      'dp=2,tp=2',
      '--cluster',
      'dgx-h100',
      ...sizes,
    );
    expect(code).toBe(0);
    const plan = json<{ proof: { status: string; gap: number }; parameters: { name: string }[] }>(
      out,
    );
    expect(plan.proof).toMatchObject({ status: 'optimal', gap: 0 });
    expect(plan.parameters.map((p) => p.name)).toContain('model.layers.1.self_attn.q_proj.weight');
    expect(plan.parameters).toHaveLength(21);
  });
});
