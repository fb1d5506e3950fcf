import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, describe, expect, test } from 'vitest';

import { cli } from '../cli/support.ts';
import { FULL } from '../support/full.ts';

/** Models of two stacks: a layout composed of a few layers beside the plan of the whole model. */

const folder = mkdtempSync(join(tmpdir(), 'shardwright-stacks-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
/** A T5 of five and four layers, of which three each are built. */
const small = join(folder, 'config.json');
writeFileSync(
  small,
  JSON.stringify({
    model_type: 't5',
    d_model: 64,
    d_kv: 16,
    d_ff: 128,
    num_heads: 4,
    num_layers: 5,
    num_decoder_layers: 4,
    vocab_size: 256,
  }),
);

interface Step {
  readonly stepSeconds: number;
  readonly peakBytes: number;
}

type Row = Step & { readonly mesh: string };

/** No threads of their own, which would load everything again. */
const HERE = ['--threads', '1'];

async function answered<T>(...words: readonly string[]): Promise<T> {
  const { code, out, err } = await cli(...words);
  expect(code, err).toBe(0);
  return JSON.parse(out) as T;
}

const compared = new Map<string, Promise<{ readonly plans: readonly Row[] }>>();
/** Both recipes on two devices, with a sequence for each data rank. */
async function rowOf(model: string, mesh: string): Promise<Row | undefined> {
  const sizes = [model, '--seq', '64', '--for', 'megatron', '--json'];
  const step = ['--global-batch', '2', '--devices', '2xH100', '--plans', 'tp,dp'];
  const found = compared.get(model) ?? answered('compare', ...sizes, ...step, ...HERE);
  compared.set(model, found);
  return (await found).plans.find((row) => row.mesh === mesh);
}

describe('an encoder and a decoder', () => {
  test.each(FULL ? [small, 't5-small', 'whisper-tiny'] : [small])(
    'compare prices the step and the bytes of the plan of the same recipe',
    async (model) => {
      const sizes = [model, '--seq', '64', '--for', 'megatron', '--json'];
      const row = await rowOf(model, 'tp=2');
      const mesh = ['--mesh', 'tp=2', '--cluster', 'dgx-h100', '--recipe', 'tp', '--batch', '2'];
      const plan = await answered<Step>('plan', ...sizes, ...mesh, '--no-recipes');
      expect(Number(row?.stepSeconds) / plan.stepSeconds).toBeCloseTo(1, 2);
      expect(Number(row?.peakBytes) / plan.peakBytes).toBeCloseTo(1, 2);
    },
  );

  // The copies were 8 % of T5's step, the sum for the table of positions .16 % of Whisper's.
  test.each(FULL ? [small, 't5-small', 'whisper-tiny'] : [small])(
    'a data rank of one sequence merges it with no heads, and adds up no sequences',
    async (model) => {
      const sizes = [model, '--seq', '64', '--for', 'megatron', '--json'];
      const row = await rowOf(model, 'dp=2');
      const mesh = ['--mesh', 'dp=2', '--cluster', 'dgx-h100', '--recipe', 'dp', '--batch', '2'];
      const plan = await answered<Step>('plan', ...sizes, ...mesh, '--no-recipes');
      expect(Number(row?.stepSeconds) / plan.stepSeconds).toBeCloseTo(1, 3);
      expect(Number(row?.peakBytes) / plan.peakBytes).toBeCloseTo(1, 2);
    },
  );

  test('stages and cut sequences have no price, and say why', async () => {
    const compare = ['compare', small, '--devices', '2xH100', '--seq', '128'];
    const stages = await cli(...compare, '--layout', 'pp=2');
    expect(stages.code).toBe(2);
    expect(stages.err).toMatch(/ZL09 2 stages of an encoder and a decoder have no price/);
    const parts = await cli(...compare, '--layout', 'cp=2');
    expect(parts.err).toMatch(/ZL06 a cut sequence has no price/);
  });
});
