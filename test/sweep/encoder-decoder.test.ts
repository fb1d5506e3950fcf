import { describe, expect, test } from 'vitest';

import { cli } from '../cli/support.ts';
import { FULL } from '../support/full.ts';

/** Models of two stacks: a layout composed of a few layers beside the plan of the whole model. */

interface Step {
  readonly stepSeconds: number;
  readonly peakBytes: number;
}

async function answered(...words: readonly string[]): Promise<Record<string, unknown>> {
  const { code, out, err } = await cli(...words);
  expect(code, err).toBe(0);
  return JSON.parse(out) as Record<string, unknown>;
}

describe('an encoder and a decoder', () => {
  const models = [
    ['t5-small', 128],
    ['whisper-tiny', 64],
  ] as const;
  test.each(FULL ? models : models.slice(0, 1))(
    '%s: compare prices the step and the bytes of the plan of the same recipe',
    async (model, seq) => {
      const sizes = [model, '--seq', `${seq}`, '--for', 'megatron', '--json'];
      const step = ['--global-batch', '4', '--devices', '2xH100', '--plans', 'tp'];
      const compared = await answered('compare', ...sizes, ...step);
      const [row] = (compared['plans'] as (Step & { readonly mesh: string })[]).filter(
        ({ mesh }) => mesh === 'tp=2',
      );
      const words = ['--mesh', 'tp=2', '--cluster', 'dgx-h100', '--recipe', 'tp', '--batch', '4'];
      const plan = (await answered('plan', ...sizes, ...words)) as unknown as Step;
      expect(row.stepSeconds / plan.stepSeconds).toBeCloseTo(1, 2);
      expect(row.peakBytes / plan.peakBytes).toBeCloseTo(1, 2);
    },
  );

  test('stages and cut sequences have no price, and say why', async () => {
    const compare = ['compare', 't5-small', '--devices', '2xH100', '--seq', '128'];
    const stages = await cli(...compare, '--layout', 'pp=2');
    expect(stages.code).toBe(2);
    expect(stages.err).toMatch(/ZL09 2 stages of an encoder and a decoder have no price/);
    const parts = await cli(...compare, '--layout', 'cp=2');
    expect(parts.err).toMatch(/ZL06 a cut sequence has no price/);
  });
});
