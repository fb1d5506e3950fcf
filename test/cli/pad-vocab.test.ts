import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { readRequest } from '../../src/plan/record/folder.ts';
import { readPlan } from '../../src/plan/record/schema.ts';
import type { Comparison } from '../../src/recipes/compare/comparison.ts';
import { TINY } from '../models/tiny.ts';
import { cli, fixture } from './support.ts';

/** `--pad-vocab` of every command that builds a model. */

let folder = '';
let model = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'shardwright-padding-'));
  model = join(folder, 'small.json');
  writeFileSync(model, JSON.stringify({ ...TINY.gpt2, vocab_size: 50 }));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const SIZES = ['--layers', '1', '--batch', '4', '--seq', '8', '--training'] as const;
const json = async <T>(...argv: readonly string[]): Promise<T> => {
  const run = await cli(...argv, '--json');
  expect(run.code, run.err).toBe(0);
  return JSON.parse(run.out) as T;
};

describe('--pad-vocab', () => {
  it('models show and inspect count the padding apart', async () => {
    const shown = await json<object>('models', 'show', 'gpt2', '--pad-vocab', '128');
    expect(shown).toMatchObject({
      parameters: 124_439_808 + 36_096,
      paddedParameters: 36_096,
      published: 124_439_808,
      paddedVocabulary: 50304,
    });
    expect((await cli('models', 'show', 'gpt2', '--pad-vocab', '128')).out).toContain(
      '124,475,904, of them padding: 36,096; without it 124,439,808, as the published class',
    );
    const plain = await json<{ parameters: number }>('inspect', model);
    expect(plain).toMatchObject({ paddedParameters: 0 });
    const padded = await json<object>('inspect', model, '--pad-vocab', '8');
    expect(padded).toMatchObject({
      parameters: plain.parameters + 6 * 64,
      paddedParameters: 6 * 64,
    });
    expect((await cli('inspect', model, '--pad-vocab', '8')).out).toContain(
      ', of them padding: 384',
    );
    expect(await json('inspect', model, '--pad-vocab', '1')).toEqual(plain);
  });

  it('a plan folder says what was padded, for the tensor ranks of its mesh', async () => {
    const out = join(folder, 'plan');
    const flags = [
      '--mesh',
      'tp=2',
      '--cluster',
      'dgx-h100',
      '--quiet',
      '--pad-vocab',
      '8',
      ...SIZES,
    ] as const;
    const run = await cli('plan', '-v', model, ...flags, '--no-recipes', '-o', out);
    expect(run.code, run.err).toBe(0);
    expect(run.out).toContain(', of them padding: 896');
    const padding = { multiple: 8, tensor: 2, vocabulary: 50, rows: 64, parameters: 14 * 64 };
    expect(readRequest(readFileSync(join(out, 'request.json'), 'utf8')).padVocabulary).toEqual(
      padding,
    );
    const plan = readPlan(readFileSync(join(out, 'plan.json'), 'utf8'));
    expect(plan.paddedParameters).toBe(14 * 64);
    expect(plan.parameters[0]).toMatchObject({ name: 'transformer.wte.weight', shape: [64, 64] });

    const verified = await json<object>('verify', out, '--no-shrink');
    expect(verified).toMatchObject({ devices: 2, mismatches: [], sizes: [] });

    const report = await cli('report', out, '--format', 'html', '--no-recipes');
    expect(report.out).toContain(', of them padding: 896');

    const sizes = [...SIZES, '--quiet'];
    const other = await cli('audit', model, '--plan', out, ...sizes);
    expect([other.code, other.err]).toEqual([2, expect.stringContaining('give --pad-vocab 8')]);

    const same = await cli('audit', model, '--plan', out, ...sizes, '--pad-vocab', '8');

    expect(same.code, same.err).toBe(0);
    expect(same.out).toMatch(
      /regret +[\d.]+ % of the step; 0 % of the sum[^]*896 parameters are padding/,
    );
  });

  it('verify of a model pads it for its mesh', async () => {
    const flags = ['--mesh', 'tp=2', '--quiet', '--pad-vocab', '8', ...SIZES] as const;
    expect(await json('verify', model, ...flags, '--no-shrink')).toMatchObject({
      devices: 2,
      mismatches: [],
    });
    const reduced = await json<{ sizes: { from: number }[]; mismatches: unknown[] }>(
      'verify',
      model,
      ...flags,
    );
    expect(reduced.mismatches).toEqual([]);
    // 64 rows and 64 channels are one size here; 50 is none.
    expect(reduced.sizes.map((s) => s.from)).not.toContain(50);
  });

  it('compare of one graph pads it for the most tensor ranks, and says so', async () => {
    const argv = [
      'compare',
      model,
      '--devices',
      '4',
      '--cluster',
      'dgx-h100',
      '--quiet',
      '--pad-vocab',
      '8',
      ...SIZES,
    ];
    const compared = await json<Comparison>(...argv, '--plans', 'dp,tp,dp+tp');
    const padding = {
      multiple: 8,
      vocabulary: 50,
      byTensor: [{ tensor: 4, rows: 64, parameters: 14 * 64 }],
    };
    expect(compared.padding).toEqual(padding);
    const data = await json<Comparison>(...argv, '--plans', 'dp');
    expect(data.padding?.byTensor).toEqual([{ tensor: 1, rows: 56, parameters: 6 * 64 }]);
    const text = await cli(...argv, '--plans', 'dp,tp,dp+tp', '-v');
    expect(text.out).toContain(
      'so that one graph serves all of them: 64 at tp 4 (of the parameters padding: 896)',
    );
  });

  it('recipes lint has nothing to say of a vocabulary that is padded for its plan', async () => {
    const argv = ['recipes', 'lint', model, '--plan', 'tp', '--mesh', 'tp=4'] as const;
    expect((await cli(...argv)).out).toContain('ZL07');
    const padded = await cli(...argv, '--pad-vocab', '8');
    expect(padded.out).not.toContain('ZL07');
    expect(padded.out).toContain('padded to 64, a multiple of 8 x 4 tensor ranks');
  });

  it.each(['0', '-1', '1.5', 'many', '99999999'])('--pad-vocab %s: exit 2', async (value) => {
    for (const argv of [
      ['inspect', model],
      ['models', 'show', 'gpt2'],
      ['compare', model, '--devices', '2', '--cluster', 'dgx-h100', '--threads', '1'],
    ]) {
      const run = await cli(...argv, '--pad-vocab', value);
      expect([run.code, run.out]).toEqual([2, '']);
      expect(run.err).toMatch(/E_USAGE.*(--pad-vocab|padded to 99999999)/);
    }
  });

  it('graph files and models without a vocabulary refuse it', async () => {
    const file = await cli('inspect', fixture('mlp'), '--pad-vocab', '128');
    expect([file.code, file.err]).toEqual([
      2,
      expect.stringContaining('--pad-vocab is for model names and configs'),
    ]);
    const sights = await cli('inspect', 'vit-base-patch16-224', '--pad-vocab', '128');
    expect([sights.code, sights.err]).toEqual([2, expect.stringContaining('no vocabulary to pad')]);
  });

  it('the help of --pad-vocab has an example', async () => {
    expect((await cli('plan', '--help-all')).out).toContain('--pad-vocab 128');
  });
});
