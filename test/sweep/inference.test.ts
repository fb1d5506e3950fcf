import { describe, expect, it } from 'vitest';

import { modelEntry } from '../../src/models/registry.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { inferenceText } from '../../src/report/text/inference.ts';
import { inference, type InferenceAnswer } from '../../src/sweep/inference/inference.ts';
import { servingLayouts } from '../../src/sweep/inference/layouts.ts';
import { TINY } from '../models/tiny.ts';
import { FULL } from '../support/full.ts';

const table = builtinOperators();

type Asked = Partial<Parameters<typeof inference>[0]> & { readonly model: string };

function asked(given: Asked): Promise<InferenceAnswer> {
  const { model } = given;
  return inference(
    {
      config: given.config ?? JSON.stringify(modelEntry(model).config),
      devices: 1,
      cluster: 'dgx-h100',
      prompt: 1000,
      generated: 1000,
      weights: 'bf16',
      cache: 'bf16',
      ...given,
    },
    table,
  );
}

describe('layouts that serve', () => {
  it('are all products of dp, pp and tp, with experts on tensor ranks of whole data ranks', () => {
    const dense = servingLayouts({ shape: { ...SHAPE, heads: 6, layers: 2 } }, 4);
    expect(dense).toEqual([
      { dp: 4, pp: 1, tp: 1, ep: 1 },
      { dp: 2, pp: 2, tp: 1, ep: 1 },
      { dp: 2, pp: 1, tp: 2, ep: 1 },
      { dp: 1, pp: 2, tp: 2, ep: 1 },
    ]);
    const routed = { experts: 4, active: 2, hidden: 8 };
    const shared = servingLayouts({ shape: SHAPE, routed }, 8, { tp: 2, pp: 1 });
    expect(shared.map(({ ep }) => ep)).toEqual([2, 4]);
  });
});

describe('a model that is served', () => {
  // Bytes of a token in 16 bits, arXiv:2505.09343, table 1: DeepSeek-V3 70.272 kB, Qwen-2.5 72B
  // 327.680 kB, LLaMA-3.1 405B 516.096 kB; 2 x 32 x 8 x 128 x 2 of its small sibling.
  it.each([
    ...(FULL
      ? ([
          ['deepseek-v3', 70_272, { dp: 1, tp: 8, ep: 8 }, 1],
          ['qwen2.5-72b', 327_680, { tp: 8 }, 8],
          ['llama-3.1-405b', 516_096, { tp: 8 }, 8],
        ] as const)
      : []),
    ['llama-3.1-8b', 131_072, { tp: 8 }, 8],
  ] as const)(
    '%s holds the published bytes of keys and values for each token',
    async (model, bytes, layout, ways) => {
      const { plans } = await asked({ model, devices: 8, layout: { pp: 1, ...layout } });
      expect(plans[0]?.requestCacheBytes).toBe((2000 * bytes) / ways);
    },
  );

  it('has the published tokens a second of TensorRT-LLM within a tenth, and says that no range is known', async () => {
    const answer = await asked({ model: 'llama-3.1-8b', weights: 'fp8', cache: 'fp8' });
    const [plan] = answer.plans;
    if (plan === undefined) throw new Error('no plan');
    // TensorRT-LLM 1.0, perf-overview.md: 15,220 with 1000 tokens of prompt and 1000 of answer.
    expect(plan.tokensPerSecond / 15_220).toBeGreaterThan(0.9);
    expect(plan.tokensPerSecond / 15_220).toBeLessThan(1.1);
    expect(plan.peakBytes).toBeLessThanOrEqual(answer.budgetBytes);
    expect(plan.weightBytes + plan.cacheBytes + plan.workspaceBytes).toBe(plan.peakBytes);
    expect(answer.stepBand).toBeNull();
    expect(inferenceText(answer)).toContain('no range');
  });

  it('keeps a limit on the time of a token with fewer requests, and refuses more than fit', async () => {
    const small = {
      model: 'small',
      config: JSON.stringify(TINY.llama),
      prompt: 40,
      generated: 20,
      memoryBytes: 1e9,
    };
    const slow = await asked(small);
    const limit = 0.7 * (slow.plans[0]?.outputTokenSeconds ?? 0);
    const quick = await asked({ ...small, outputTokenSeconds: limit });
    expect(quick.plans[0]?.outputTokenSeconds).toBeLessThanOrEqual(limit);
    expect(quick.plans[0]?.requests).toBeLessThan(slow.plans[0]?.requests ?? 0);
    const most = slow.plans[0]?.mostRequests ?? 0;
    expect((await asked({ ...small, requests: most })).best).toBe('tp=1');
    expect((await asked({ ...small, requests: most + 1 })).best).toBeNull();
  });

  it('has as many requests at once as were asked for: replicas that have none give no tokens', async () => {
    const small = { model: 'small', config: JSON.stringify(TINY.llama), prompt: 40, generated: 20 };
    const layout = { dp: 4, pp: 1, tp: 1 };
    const of = async (requests: number): Promise<InferenceAnswer['plans'][number] | undefined> =>
      (await asked({ ...small, devices: 4, layout, requests })).plans[0];
    const [one, four, six] = [await of(1), await of(4), await of(6)];
    expect([one, four, six].map((plan) => plan?.requests)).toEqual([1, 4, 6]);
    expect(four?.tokensPerSecond).toBeCloseTo(4 * (one?.tokensPerSecond ?? NaN), 6);
    expect(six?.requestsPerReplica).toBe(2);
    expect(six?.tokensPerSecond).toBeGreaterThan(four?.tokensPerSecond ?? NaN);
    for (const plan of [one, four, six])
      expect((plan?.tokensPerSecond ?? NaN) * (plan?.outputTokenSeconds ?? NaN)).toBeCloseTo(
        plan?.requests ?? NaN,
        6,
      );
  });

  it('is refused where it has no cache, and where prompt and answer are too long', async () => {
    await expect(asked({ model: 'bert-base-uncased', prompt: 8, generated: 8 })).rejects.toThrow(
      'no program with a cache',
    );
    await expect(asked({ model: 'llama-2-7b', prompt: 4000 })).rejects.toThrow('4096 positions');
  });
});

const SHAPE = {
  layers: 4,
  width: 64,
  heads: 8,
  keyHeads: 8,
  headWidth: 8,
  hidden: 128,
  vocabulary: 100,
};
