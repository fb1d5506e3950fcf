import { describe, expect, it } from 'vitest';

import { peakOf } from '../../src/cost/memory/peak.ts';
import { buildModel } from '../../src/models/build.ts';
import { parseModelConfig } from '../../src/models/families.ts';
import { decode, type Decoded } from '../../src/plan/choice/decode.ts';
import { planMemoryTimeline } from '../../src/plan/choice/timeline.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import type { Prepared } from '../../src/plan/prepare/prepared.ts';
import { priceRestriction } from '../../src/recipes/compare/price.ts';
import { applyRecipe } from '../../src/recipes/recipes.ts';
import { namedRecipe, recipeOf } from '../../src/recipes/registry.ts';
import { ringBytes } from '../../src/step/traffic.ts';
import { request, TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';

const [HIDDEN, SEQUENCE, WAYS] = [2048, 4096, 4];
const decoder = {
  hidden_size: HIDDEN,
  intermediate_size: 4096,
  num_attention_heads: 16,
  num_key_value_heads: 8,
  num_hidden_layers: 2,
  vocab_size: 32768,
  torch_dtype: 'bfloat16',
};

/**
 * Families by what is around their norms: one before each block, four a block, norms of queries and
 * keys, with biases, fused weights.
 */
const FAMILIES: Readonly<Record<string, object>> = {
  llama: { ...decoder, model_type: 'llama' },
  mistral: { ...decoder, model_type: 'mistral' },
  qwen2: { ...decoder, model_type: 'qwen2' },
  qwen3: { ...decoder, model_type: 'qwen3', head_dim: 128 },
  gemma2: { ...decoder, model_type: 'gemma2', head_dim: 128, query_pre_attn_scalar: 128 },
  gpt2: {
    model_type: 'gpt2',
    n_embd: HIDDEN,
    n_head: 16,
    n_layer: 2,
    n_positions: SEQUENCE,
    vocab_size: 32768,
    torch_dtype: 'bfloat16',
  },
  opt: {
    model_type: 'opt',
    hidden_size: HIDDEN,
    ffn_dim: 8192,
    num_attention_heads: 16,
    num_hidden_layers: 2,
    max_position_embeddings: SEQUENCE,
    vocab_size: 32768,
    torch_dtype: 'bfloat16',
    word_embed_proj_dim: HIDDEN,
  },
};

interface Planned {
  readonly decoded: Decoded;
  readonly peakBytes: number;
}

async function planned(prepared: Prepared, name: string): Promise<Planned> {
  const applied = applyRecipe(prepared.model, recipeOf(namedRecipe(name))!);
  if ('refused' in applied) throw new Error(applied.refused);
  const priced = await priceRestriction(prepared, applied.restriction);
  if ('refused' in priced) throw new Error(priced.refused);
  const { intervals } = planMemoryTimeline(prepared.model, priced.choice);
  return { decoded: decode(prepared.model, priced.choice), peakBytes: peakOf(intervals).peakBytes };
}

describe('sequence parallelism against tensor parallelism alone, family by family', () => {
  // Of each kind of norms one in every run.
  const DAILY = ['llama', 'qwen3', 'gemma2', 'gpt2'];
  it.each(Object.keys(FAMILIES).filter((name) => FULL || DAILY.includes(name)))(
    '%s: the same bytes over tp, and a lower peak of activations',
    async (family) => {
      const graph = buildModel(parseModelConfig(JSON.stringify(FAMILIES[family])), {
        training: true,
        batch: 2,
        seq: SEQUENCE,
        table: TABLE,
      });
      const prepared = prepare(graph, request(`dp=2,tp=${WAYS}`), TABLE);
      const stream = SEQUENCE * HIDDEN * 2;
      const sent = ({ decoded }: Planned): Record<string, number> => {
        const bytes: Record<string, number> = {};
        for (const { redistributions } of decoded.nodes)
          for (const { collectives } of redistributions)
            for (const c of collectives)
              if (c.meshDims.join() === 'tp' && c.bytes === stream)
                bytes[c.kind] =
                  (bytes[c.kind] ?? 0) +
                  ringBytes(c.kind, c.bytes, WAYS) / ringBytes('all_gather', stream, WAYS);
        return bytes;
      };
      const [tp, sp] = [await planned(prepared, 'dp+tp'), await planned(prepared, 'dp+tp+sp')];
      // In units of (n - 1) / n b s h: a sum is two, a gather and a scatter one each; 2 L + 1 of
      // them each way.
      const sums = 2 * 2 * (2 * 2 + 1);
      expect(sent(tp).all_reduce).toBe(sums);
      // The tensor-parallel plan may besides cut what is whole and gather it again, where that is
      // cheaper than to compute it whole.
      expect(
        Object.keys(sent(tp)).filter((kind) => kind !== 'all_reduce' && kind !== 'all_gather'),
      ).toEqual([]);
      expect(Object.values(sent(sp)).reduce((a, b) => a + b, 0)).toBe(sums);
      expect(sent(sp).all_gather).toBe(sent(sp).reduce_scatter);
      expect(sp.peakBytes).toBeLessThan(tp.peakBytes);
      expect(sp.decoded.memory.peakBytes).toBe(tp.decoded.memory.peakBytes);
    },
    60_000,
  );
});
