import { describe, expect, it } from 'vitest';

import { DEFAULT_SOFTWARE } from '../../../src/cost/kernels/software.ts';
import type { StateMode } from '../../../src/step/zero-mode.ts';
import { compareModel } from '../../../src/sweep/compare-model.ts';
import { compareLayout } from '../../../src/sweep/layout/compare-layout.ts';
import { parseLayout } from '../../../src/sweep/layout/parse-layout.ts';
import { LayoutPricer } from '../../../src/sweep/layout/price-layout.ts';
import type { SweepQuestion } from '../../../src/sweep/model/question.ts';
import { TABLE } from '../../plan/support.ts';
import { FULL } from '../../support/full.ts';

const SMALL: SweepQuestion = {
  model: 'small',
  config: JSON.stringify({
    model_type: 'llama',
    hidden_size: 512,
    intermediate_size: 1536,
    num_attention_heads: 8,
    num_key_value_heads: 8,
    num_hidden_layers: 8,
    vocab_size: 4096,
    torch_dtype: 'bfloat16',
  }),
  devices: 4,
  cluster: 'dgx-h100',
  sequence: 256,
  globalBatch: 8,
  cost: 'nccl',
};

describe('the price of a stated layout', () => {
  // tune.test.ts and compare-layout.test.ts say so of single layouts in every run.
  it.runIf(FULL)('is what compare says of the same layout', async () => {
    const comparison = await compareModel(SMALL, {
      table: TABLE,
      threads: 1,
      whatIf: false,
      exhaustive: true,
    });
    const pricer = new LayoutPricer(TABLE);
    const plans = comparison.plans.flatMap(({ layout, name, seconds }) =>
      layout === undefined || layout.unitsAgain !== undefined || name.includes('optimum')
        ? []
        : [{ layout, name, seconds }],
    );
    const modes = plans.map(({ name }) => /zero1|zero2|hsdp|fsdp/.exec(name)?.[0] ?? 'dp');
    expect(new Set(modes)).toEqual(new Set(['dp', 'zero1', 'zero2', 'fsdp', 'hsdp']));
    for (const [i, { layout, name, seconds }] of plans.entries()) {
      if (i % 5 !== 0 || name.includes('ulysses')) continue;
      const parts = name.split('+');
      const { microbatch, schedule, chunks, checkpoint, gathersOnce = false } = layout;
      const figures = await pricer.price(SMALL, {
        sizes: layout.sizes,
        kind: {
          mode: modes[i] as StateMode,
          context: parts.includes('ring') ? 'ring' : 'cp',
          sequenceParallel: parts.includes('sp'),
        },
        tuning: { microbatch, schedule, chunks, checkpoint, once: gathersOnce },
      });
      expect(figures.seconds, name).toBeCloseTo(seconds, 9);
    }
  });
});

describe('a stated dtype', () => {
  const wide = {
    ...SMALL,
    config: SMALL.config
      .replace('512', '8192')
      .replace('1536', '28672')
      .replace(':8,', ':64,')
      .replace('"num_hidden_layers":8', '"num_hidden_layers":2'),
    sequence: 4096,
  };
  const priced = async (dtype: string, cluster = 'dgx-h100'): Promise<number> =>
    (
      await compareLayout(
        { ...wide, cluster },
        { text: '', layout: parseLayout(`dp=4,dtype=${dtype}`, 4) },
        TABLE,
      )
    ).computeSeconds;

  it('fp8 runs products on its unit: faster where they are large, by less than that unit is', async () => {
    const [half, narrow] = [await priced('bf16'), await priced('fp8')];
    expect(narrow).toBeLessThan(0.8 * half);
    expect(narrow).toBeGreaterThan(0.5 * half);
    await expect(priced('fp8', 'dgx-a100-80gb')).rejects.toThrow('dtype=fp8 on dgx-a100-80gb');
  });
});

describe('stated gradients', () => {
  it('in float32 take twice the bytes of 16 bits, and their sums take longer; other prices have none', async () => {
    const priced = (
      more: string,
      cost: SweepQuestion['cost'] = 'nccl',
    ): ReturnType<typeof compareLayout> =>
      compareLayout(
        { ...SMALL, cost },
        { text: '', layout: parseLayout(`dp=4,zero=1${more}`, 4) },
        TABLE,
      );
    const [own, narrow, wide] = [
      await priced(''),
      await priced(',gradients=bf16'),
      await priced(',gradients=fp32'),
    ];
    expect(narrow.seconds).toBe(own.seconds);
    expect(wide.communicationSeconds).toBeGreaterThan(narrow.communicationSeconds);
    const parameters = 2 * 4096 * 512 + 8 * (4 * 512 * 512 + 3 * 512 * 1536 + 2 * 512) + 512;
    expect(wide.peakBytes - narrow.peakBytes).toBe(2 * parameters);
    await expect(priced(',gradients=fp32', 'alpha-beta')).rejects.toThrow(
      'gradients=fp32 under --cost alpha-beta',
    );
  });
});

describe('what is kept for the backward pass', () => {
  it('operands of products count as they were cast, where the software keeps the cast', async () => {
    const layout = parseLayout('dp=4', 4);
    const bytes = async (savedOperandBytes?: number): Promise<number> => {
      const software = {
        ...DEFAULT_SOFTWARE,
        narrowUnit: 'fp8' as const,
        ...(savedOperandBytes === undefined ? {} : { savedOperandBytes }),
      };
      const { memory } = await new LayoutPricer(TABLE).price({ ...SMALL, software }, layout);
      return memory.activationBytes;
    };
    const [whole, eight, four] = [await bytes(), await bytes(1), await bytes(9 / 16)];
    expect(eight).toBeLessThan(whole);
    expect(four).toBeLessThan(eight);
    // A layer keeps less than twelve values of hidden size as operands of products: what they save
    // is no more than half of them.
    expect(whole - eight).toBeLessThan(8 * 12 * 512 * 256 + 8 * 2 * 1536 * 256);
  });
});
