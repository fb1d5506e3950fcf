import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { describe, expect, it } from 'vitest';

import type { Comparison } from '../../../../src/recipes/compare/comparison.ts';
import { FULL } from '../../../support/full.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';
import { cli, fixture } from '../../support.ts';

interface Written {
  readonly stepSeconds?: number;
  readonly step?: { readonly stepSeconds: number; readonly peakBytes: number };
}
const TINY_GPT2 = { model_type: 'gpt2', n_embd: 128, n_head: 4, n_layer: 2, vocab_size: 512 };
/** Few layers of a mixture. */
const MIXTURE = {
  ...{ model_type: 'mixtral', hidden_size: 512, intermediate_size: 1024, num_hidden_layers: 2 },
  ...{ num_attention_heads: 8, num_key_value_heads: 8, vocab_size: 1024, torch_dtype: 'bfloat16' },
  ...{ num_local_experts: 8, num_experts_per_tok: 2 },
};
const read = (folder: string, name: string): unknown =>
  JSON.parse(readFileSync(join(folder, name), 'utf8'));

describe('compare -o', () => {
  it('keeps the row of a graph that --keep names as a plan folder, which verify runs', async () => {
    const folder = join(temporaryFolder(), 'kept');
    const asked = ['compare', fixture('mlp-loss'), '--devices', '4', '--cluster', 'dgx-h100'];
    const { code, out, err } = await cli(
      ...[...asked, '--plans', 'dp,fsdp', '--max-dims', '1', '--quiet', '--json'],
      ...['-o', folder, '--keep', 'fsdp'],
    );
    expect(code, err).toBe(0);
    const { plans } = JSON.parse(out) as Comparison;
    const row = plans.find(({ plan }) => plan === 'fsdp');
    expect(err).toContain(`kept fsdp on ${row?.mesh} in ${folder}: plan.json`);
    const { step } = read(folder, 'plan.json') as Written;
    expect(step?.stepSeconds).toBeCloseTo(row?.stepSeconds ?? 0, 9);
    expect(read(folder, 'request.json')).toMatchObject({ recipe: 'fsdp' });
    const verified = await cli('verify', folder, '--json');
    expect(verified.code, verified.err).toBe(0);
  });

  it('keeps pipeline stages of a graph as the folder that plan writes, which check-plan takes', async () => {
    const folder = join(temporaryFolder(), 'kept');
    const asked = ['compare', fixture('mlp-loss'), '--devices', '4', '--cluster', 'dgx-h100'];
    const staged = [...asked, '--accumulate', '8', '--plans', 'pp+optimum', '--quiet', '--json'];
    const { code, out, err } = await cli(...staged, '-o', folder);
    expect(code, err).toBe(0);
    const [row] = (JSON.parse(out) as Comparison).plans;
    expect(err).toContain(`kept pp+optimum on ${row?.mesh} in ${folder}: stages.json`);
    expect(read(folder, 'stages.json')).toMatchObject({
      pipeline: { microbatches: 8, seconds: row?.stepSeconds },
    });
    const checked = await cli('check-plan', folder);
    expect(checked.code, checked.err).toBe(0);
  });

  it('keeps the fastest plan that a folder states where the best is none, and says so', async () => {
    const folder = join(temporaryFolder(), 'kept');
    const asked = ['compare', fixture('mlp-loss'), '--devices', '4', '--cluster', 'dgx-h100'];
    const plans = ['--plans', 'zero2,fsdp', '--max-dims', '1', '--quiet'];
    const { code, out, err } = await cli(...asked, ...plans, '-o', folder);
    expect(code, err).toBe(0);
    expect(out).toContain('add -o plan to keep the fastest plan that a plan folder states');
    expect(err).toContain(
      `kept fsdp on dp_shard=4 in ${folder}: plan.json; the best is zero2 on dp=4, and no plan ` +
        'folder has states cut apart from their parameters (zero2)',
    );
    expect(read(folder, 'request.json')).toMatchObject({ recipe: 'fsdp' });
    const named = await cli(...asked, ...plans, '-o', join(folder, 'more'), '--keep', 'zero2');
    expect([named.code, named.err]).toEqual([2, expect.stringContaining('name one that a folder')]);
  });

  it('refuses microbatches of a model by name, whose layouts have their own', async () => {
    const { code, err } = await cli('compare', 'gpt2', '--devices', '8xH100', '--accumulate', '8');
    expect([code, err]).toEqual([2, expect.stringMatching(/--accumulate is for graphs/)]);
  });

  it('keeps a layout of a model by name with the configuration of its trainer', async () => {
    const folder = join(temporaryFolder(), 'kept');
    const model = join(temporaryFolder(), 'config.json');
    writeFileSync(model, JSON.stringify(TINY_GPT2));
    const asked = ['compare', model, '--devices', '2', '--cluster', 'dgx-h100', '--seq', '256'];
    const compared = [
      ...asked,
      '--global-batch',
      '2',
      '--plans',
      'fsdp,zero1',
      '--quiet',
      '--json',
      '--threads',
      '1',
    ];
    const { code, out, err } = await cli(...compared, '-o', folder, '--keep', 'fsdp on dp=2');
    expect(code, err).toBe(0);
    const row = (JSON.parse(out) as Comparison).plans.find(({ plan }) => plan === 'fsdp');
    const { step } = read(folder, 'plan.json') as Written;
    expect(Math.abs((step?.stepSeconds ?? 0) / (row?.seconds ?? 1) - 1)).toBeLessThan(0.01);
    expect(Math.abs((step?.peakBytes ?? 0) / (row?.peakBytes ?? 1) - 1)).toBeLessThan(0.01);
    expect(readdirSync(folder)).toEqual(expect.arrayContaining(['megatron.args', 'layout.json']));
    expect(read(folder, 'layout.json')).toMatchObject({ layout: { stated: row?.layout?.stated } });
    // The file is a layout that can be asked again.
    const again = await cli(...compared, '--layout', join(folder, 'layout.json'));
    expect(again.code, again.err).toBe(0);
    const { layout } = JSON.parse(again.out) as { layout: { text: string; seconds: number } };
    expect(layout).toMatchObject({ text: row?.layout?.stated, seconds: row?.seconds });
    // States apart from their parameters have a configuration, and no plan of the graph.
    const other = join(temporaryFolder(), 'kept');
    const zero = await cli(...compared, '-o', other, '--keep', 'zero1');
    expect(zero.code, zero.err).toBe(0);
    expect(readdirSync(other).sort()).toEqual(['layout.json', 'megatron.args']);
    expect(zero.err).toContain('a plan of a graph has no states cut apart');
  }, 60_000);

  const all = [
    ['fsdp+ep', 'FSDP (ep), experts (ep)'],
    ['dp+ep', 'data parallel (ep), experts (ep)'],
  ] as const;
  it.each(FULL ? all : all.slice(0, 1))(
    'keeps %s of a mixture as the plan of a mesh with the dim ep, of the same step',
    async (keep, recipe) => {
      const folder = join(temporaryFolder(), 'kept');
      const config = join(temporaryFolder(), 'config.json');
      writeFileSync(config, JSON.stringify(MIXTURE));
      const asked = ['compare', config, '--devices', '2', '--cluster', 'dgx-h100', '--seq', '256'];
      const { code, out, err } = await cli(
        ...[...asked, '--global-batch', '2', '--plans', keep, '--quiet', '--json'],
        ...['--threads', '1', '-o', folder, '--keep', `${keep} on dp=2 ep=2`],
      );
      expect(code, err).toBe(0);
      const row = (JSON.parse(out) as Comparison).plans.find(({ mesh }) => mesh === 'dp=2 ep=2');
      expect(read(folder, 'request.json')).toMatchObject({ mesh: 'ep=2', recipe });
      const { step } = read(folder, 'plan.json') as Written;
      expect(Math.abs((step?.stepSeconds ?? 0) / (row?.stepSeconds ?? 1) - 1)).toBeLessThan(0.02);
      expect(Math.abs((step?.peakBytes ?? 0) / (row?.peakBytes ?? 1) - 1)).toBeLessThan(0.02);
    },
    60_000,
  );

  it.each([
    [['--keep', 'fsdp'], /--keep fsdp needs a folder/],
    [['-o', 'x', '--devices', '4,8'], /-o keeps a plan of one comparison/],
  ])('%j is refused', async (flags, says) => {
    const asked = ['compare', 'gpt2', '--devices', '4', '--cluster', 'dgx-h100', '--quiet'];
    const { code, err } = await cli(...asked, ...flags);
    expect([code, err]).toEqual([2, expect.stringMatching(says)]);
  });

  it('keeps nothing where the row does not fit, so that plan finds none', async () => {
    const folder = join(temporaryFolder(), 'kept');
    const asked = ['compare', fixture('mlp-loss'), '--devices', '4', '--cluster', 'dgx-h100'];
    const flags = ['--plans', 'dp,fsdp', '--max-dims', '1', '--quiet'];
    const { plans } = JSON.parse((await cli(...asked, ...flags, '--json')).out) as Comparison;
    const peak = (name: string): number => plans.find(({ plan }) => plan === name)!.peakBytes;
    expect(peak('fsdp')).toBeLessThan(peak('dp'));
    const memory = `${Math.round((peak('fsdp') + peak('dp')) / 2)}B`;
    const run = await cli(...asked, ...flags, '--memory', memory, '-o', folder, '--keep', 'dp');
    expect([run.code, run.err]).toEqual([
      2,
      expect.stringMatching(
        /the recipe dp does not fit[^]*E_PLAN --keep dp.*: plan found none \(exit 3\)/,
      ),
    ]);
    expect(existsSync(folder)).toBe(false);
  });

  it('names the plans where none has the name', async () => {
    const folder = join(temporaryFolder(), 'kept');
    const asked = ['compare', fixture('mlp-loss'), '--devices', '4', '--cluster', 'dgx-h100'];
    const { code, err } = await cli(
      ...[...asked, '--plans', 'dp,fsdp', '--max-dims', '1', '--quiet'],
      ...['-o', folder, '--keep', 'fspd'],
    );
    expect([code, err]).toEqual([2, expect.stringContaining("did you mean 'fsdp'")]);
  });
});
