import { describe, expect, it } from 'vitest';

import { mostTensorRanks } from '../../../src/recipes/compare/compared-padding.ts';
import type { ComparedPlan, Comparison } from '../../../src/recipes/compare/comparison.ts';
import { mergeComparisons } from '../../../src/recipes/compare/conclude-comparison.ts';
import { asComparison } from '../../../src/report/model/comparison-schema.ts';
import { comparisonText } from '../../../src/report/text/comparison.ts';
import { compareModel } from '../../../src/sweep/compare-model.ts';
import { TABLE } from '../../plan/support.ts';

/**
 * Comparisons by model name with a padded vocabulary: each mesh has the rows of its own tensor
 * ranks.
 */

const WIDTH = 128;
const CONFIG = JSON.stringify({
  model_type: 'llama',
  hidden_size: WIDTH,
  intermediate_size: 256,
  num_attention_heads: 8,
  num_key_value_heads: 8,
  num_hidden_layers: 4,
  vocab_size: 500,
  tie_word_embeddings: false,
  torch_dtype: 'bfloat16',
});

const compared = (padVocabulary?: number): Promise<Comparison> =>
  compareModel(
    {
      model: 'small',
      config: CONFIG,
      devices: 4,
      cluster: 'dgx-h100',
      sequence: 64,
      globalBatch: 4,
      cost: 'alpha-beta',
      ...(padVocabulary === undefined ? {} : { padVocabulary }),
    },
    { table: TABLE, threads: 1, plans: ['dp', 'tp', 'dp+tp'], whatIf: false },
  );

describe('compare with a padded vocabulary', () => {
  it('each mesh is padded for its own tp; the parameters of a device are those of its padded tables', async () => {
    const [plain, padded] = await Promise.all([compared(), compared(24)]);
    expect(plain.padding).toBeUndefined();
    expect(padded.padding).toEqual({
      multiple: 24,
      vocabulary: 500,
      byTensor: [
        { tensor: 1, rows: 504, parameters: 2 * WIDTH * 4 },
        { tensor: 2, rows: 528, parameters: 2 * WIDTH * 28 },
        { tensor: 4, rows: 576, parameters: 2 * WIDTH * 76 },
      ],
    });
    const on = (c: Comparison, mesh: string): ComparedPlan => {
      const found = c.plans.find((p) => p.mesh === mesh);
      if (found === undefined) throw new Error(`no plan on ${mesh}`);
      return found;
    };
    const tables = { 'dp=4': [500, 504], 'dp=2,tp=2': [250, 264], 'tp=4': [125, 144] } as const;
    for (const [mesh, [real, rows]] of Object.entries(tables)) {
      const bytes = (c: Comparison): number => on(c, mesh).layout?.memory.parameterBytes ?? 0;
      // Table and output layer in two bytes an element.
      expect(bytes(padded) - bytes(plain), mesh).toBe(2 * 2 * WIDTH * (rows - real));
      expect(on(padded, mesh).seconds).toBeGreaterThan(0);
    }
    expect(padded.findings.filter((f) => f.code === 'ZL07')).toEqual([]);
    expect(comparisonText(padded)).toContain(
      'padded to a multiple of 24 x tp of each mesh: 504 at tp 1 (of the parameters padding: 1,024), 528 at tp 2',
    );
    // Read back, and put together of pieces that priced different meshes.
    const again = asComparison(JSON.parse(JSON.stringify(padded)), 'padded.json');
    expect(again.padding).toEqual(padded.padding);
    const [one, two, four] = padded.padding?.byTensor ?? [];
    const piece = (...byTensor: (typeof one)[]): Comparison => ({
      ...padded,
      padding: { multiple: 24, vocabulary: 500, byTensor },
    });
    expect(mergeComparisons([piece(four, one), piece(two, one)]).padding).toEqual(padded.padding);
    expect(() => mergeComparisons([padded, plain])).toThrow(/one comparison is of/);
  });

  it('the most tensor ranks of any plan on one graph', () => {
    expect(mostTensorRanks(16, { devicesPerHost: 8 }, 3)).toBe(16);
    expect(mostTensorRanks(16, { devicesPerHost: 8 }, 3, ['dp', 'fsdp'])).toBe(1);
    expect(mostTensorRanks(16, { devicesPerHost: 8 }, 3, ['dp+tp'])).toBe(8);
    expect(mostTensorRanks(16, { devicesPerHost: 8 }, 2, ['optimum'])).toBe(16);
    // 12 devices are 6 of each of two hosts of 8; of 20 on 3 hosts no part fits.
    expect(mostTensorRanks(12, { devicesPerHost: 8 }, 1)).toBe(12);
    expect(mostTensorRanks(20, { devicesPerHost: 8 }, 1)).toBe(1);
  });
});
