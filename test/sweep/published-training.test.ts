import { describe, expect, it } from 'vitest';

import { modelEntry } from '../../src/models/registry.ts';
import { compareModel } from '../../src/sweep/compare-model.ts';
import { softwareInFp8, type SweepQuestion } from '../../src/sweep/model/question.ts';
import { TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';
import { publishedRank } from '../support/published-layouts.ts';

/**
 * What DeepSeek trained (arXiv:2412.19437, sections 3.1 and 4.2): 2,048 H800s, sequences of 4,096,
 * 15,360 of them a step, in fp8.
 */
const TRAINED = {
  model: 'deepseek-v3',
  devices: 2048,
  cluster: 'dgx-h100',
  sequence: 4096,
  globalBatch: 15_360,
} as const;

describe.skipIf(!FULL)('layouts published for DeepSeek-V3, asked as it was trained', () => {
  it('DeepSeek-AI and NVIDIA: in the first tenth of the plans that fit (SHARDWRIGHT_FULL=1)', async () => {
    const plain: SweepQuestion = {
      ...TRAINED,
      config: JSON.stringify(modelEntry(TRAINED.model).config),
      cost: 'nccl',
    };
    const question = { ...plain, software: softwareInFp8(plain, 'deepseek', '') };
    const found = await compareModel(question, { table: TABLE, whatIf: false });
    const share = (sizes: {
      readonly pp: number;
      readonly tp: number;
      readonly ep: number;
    }): number => {
      const { plan } = publishedRank(found, {
        ...TRAINED,
        ...sizes,
        cp: 1,
        sharded: false,
        text: '',
      });
      return plan === undefined ? 1 : plan.rank / plan.of;
    };
    // The report; Megatron-Core's and Megatron-Bridge's recipes.
    expect(share({ pp: 16, tp: 1, ep: 64 })).toBeLessThanOrEqual(0.1);
    expect(share({ pp: 16, tp: 2, ep: 64 })).toBeLessThanOrEqual(0.1);
    expect(share({ pp: 8, tp: 2, ep: 64 })).toBeLessThanOrEqual(0.1);
  }, 900_000);
});
