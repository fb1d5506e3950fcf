import { describe, expect, test } from 'vitest';

import { tailFactor } from '../../src/cost/kernels/tiles.ts';
import {
  activeMatmulParameters,
  attentionProducts,
  type TransformerShape,
} from '../../src/cost/training/shape.ts';

describe('last wave of tiles', () => {
  // 256 x 128 tiles on 108 multiprocessors: 8 x 56 = 448 tiles take 5 waves of 108 places.
  test('the last wave of tiles costs what is counted by hand', () => {
    expect(tailFactor(2048, 7168, 1, 'A100-SXM4-80GB')).toBeCloseTo(540 / 448, 12);
    // 108 tiles fill the device exactly.
    expect(tailFactor(9 * 256, 12 * 128, 1, 'A100-SXM4-80GB')).toBe(1);
    expect(tailFactor(2048, 7168, 1, 'TPU v5p')).toBe(1);
  });

  test('never below 1, and gone in the limit of many tiles', () => {
    for (const m of [1, 64, 100, 129, 2048, 5000])
      for (const n of [64, 1000, 4096, 7168])
        expect(tailFactor(m, n, 1, 'H100')).toBeGreaterThanOrEqual(1);
    expect(tailFactor(256 * 999, 128 * 999, 1, 'H100')).toBeLessThan(1.001);
  });
});

/**
 * DeepSeek-V3 by its public config: 61 layers of which 3 are dense, 256 experts of width 2048, 8
 * for a token and one shared.
 */
const DEEPSEEK_V3: TransformerShape = {
  layers: 61,
  hidden: 7168,
  heads: 128,
  kvHeads: 128,
  headDim: 128,
  ffn: 18432,
  gated: true,
  vocab: 129_280,
  sequence: 4096,
  experts: { count: 256, topK: 8, ffn: 2048, shared: 1, denseLayers: 3 },
  latent: { query: 1536, keyValue: 512, rotary: 64 },
};
describe('latent attention and experts', () => {
  test('active parameters are those of the public count', () => {
    // facts/model_configs.json, deepseek-v3: active_excl_input_embedding 36,625,603,584, norms and
    // routers included.
    expect(activeMatmulParameters(DEEPSEEK_V3) / 36_625_603_584).toBeCloseTo(1, 2);
    const sum = attentionProducts(DEEPSEEK_V3).reduce((n, [k, m]) => n + k * m, 0);
    expect(sum).toBe(
      7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168,
    );
    // Tensor parallelism splits the products of the heads, not those to the latents, which all
    // heads share.
    const half = attentionProducts(DEEPSEEK_V3, 2).reduce((n, [k, m]) => n + k * m, 0);
    expect(half).toBe(7168 * (1536 + 576) + (sum - 7168 * (1536 + 576)) / 2);
  });
});
