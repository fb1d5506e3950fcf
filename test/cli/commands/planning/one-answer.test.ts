import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { describe, expect, it } from 'vitest';

import { FULL } from '../../../support/full.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';
import { cli } from '../../support.ts';

interface OneAnswer {
  readonly stepSeconds: number;
  readonly stepBand: readonly [number, number] | null;
  readonly peakBytes: number;
  readonly fitProbability: number;
  readonly trainer: string;
}

const ON = ['--cluster', 'dgx-h100', '--seq', '512', '--quiet', '--json'];
/** No threads of their own, which would load everything again. */
const HERE = ['--threads', '1'];
const json = async (...args: readonly string[]): Promise<unknown> => {
  const { out, err } = await cli(...args, ...ON);
  expect(out, err).not.toBe('');
  return JSON.parse(out);
};

/** Two layers as wide as those of GPT-2. */
const SMALL_GPT2 = { model_type: 'gpt2', n_embd: 768, n_head: 12, n_layer: 2, vocab_size: 50257 };

describe('a question without --for is of one trainer', () => {
  const each = [
    ['dp=8', 'dp', 'dp=8,mbs=1'],
    ['dp=4,tp=2', 'fsdp+tp+sp', 'dp=4,tp=2,mbs=2,zero=3,sp=1'],
  ] as const;
  it.each(FULL ? each : each.slice(0, 1))(
    'plan --mesh %s --recipe %s and compare --layout %s say one step',
    async (...asked) => {
      const [mesh, recipe, layout] = asked;
      const model = join(temporaryFolder(), 'config.json');
      writeFileSync(model, JSON.stringify(SMALL_GPT2));
      const planned = (await json('plan', model, '--mesh', mesh, '--recipe', recipe)) as OneAnswer;
      const compared = (await json(
        ...['compare', model, '--devices', '8', '--plans', recipe, '--layout', layout],
        ...HERE,
      )) as { readonly layout: OneAnswer; readonly plans: readonly OneAnswer[] };
      const { layout: stated, plans } = compared;
      for (const { trainer } of [planned, stated, ...plans]) expect(trainer).toBe('megatron');
      expect(Math.abs(planned.stepSeconds / stated.stepSeconds - 1)).toBeLessThan(0.02);
      expect(Math.abs(planned.peakBytes / stated.peakBytes - 1)).toBeLessThan(0.02);
      expect(planned.fitProbability).toBeCloseTo(stated.fitProbability, 2);
      // The range is that of runs whatever their trainer: nobody named one.
      const share = ({ stepBand, stepSeconds }: OneAnswer): number => {
        if (stepBand === null) throw new Error('no range');
        return stepBand[0] / stepSeconds;
      };
      expect(share(planned)).toBeCloseTo(share(stated), 9);
      const forIt = ['plan', model, '--mesh', mesh, '--recipe', recipe, '--for', 'megatron'];
      const named = (await json(...forIt)) as OneAnswer;
      expect(named.stepSeconds).toBe(planned.stepSeconds);
      expect(share(named)).not.toBeCloseTo(share(planned), 2);
    },
  );
});

it('weights that stay gathered in a step of one pass weigh the same in a plan and in a layout', async () => {
  const model = join(temporaryFolder(), 'config.json');
  const sizes = { hidden_size: 256, intermediate_size: 512, vocab_size: 256 };
  const depth = { num_hidden_layers: 2, num_attention_heads: 4 };
  writeFileSync(model, JSON.stringify({ model_type: 'llama', ...sizes, ...depth }));
  const by = ['--for', 'torchtitan', '--cluster', 'dgx-h100', '--seq', '256', '--quiet', '--json'];
  const answered = async (...args: readonly string[]): Promise<unknown> =>
    JSON.parse((await cli(...args, ...by)).out);
  const kept = ['--mesh', 'dp=4', '--batch', '8', '--recipe', 'fsdp', '--copies', 'step'];
  const planned = (await answered('plan', model, ...kept)) as OneAnswer;
  const devices = ['--devices', '4', '--global-batch', '8', '--plans', 'fsdp', ...HERE];
  const layout = ['--layout', 'dp=4,zero=3,mbs=2,reshard=0'];
  const stated = (await answered('compare', model, ...devices, ...layout)) as {
    readonly layout: OneAnswer;
  };
  expect(Math.abs(planned.stepSeconds / stated.layout.stepSeconds - 1)).toBeLessThan(0.02);
  expect(Math.abs(planned.peakBytes / stated.layout.peakBytes - 1)).toBeLessThan(0.02);
});
