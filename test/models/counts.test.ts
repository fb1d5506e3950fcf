import { describe, expect, it } from 'vitest';

import { buildModel, countParameters } from '../../src/models/build.ts';
import { MODEL_TYPES, readModelConfig } from '../../src/models/families.ts';
import type { JsonRecord } from '../../src/models/read-config.ts';
import { knownModelConfig, modelEntries } from '../../src/models/registry.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { programFlops } from '../../src/ops/program-flops.ts';
import { FULL } from '../support/full.ts';
import { TINY } from './tiny.ts';

/** Parameter counts against the published classes and the closed forms of the families. */

function counted(config: JsonRecord, layers?: number): ReturnType<typeof countParameters> {
  const model = readModelConfig(config);
  const graph = buildModel(model, {
    batch: 1,
    seq: 8,
    ...(layers === undefined ? {} : { layers }),
  });
  return countParameters(graph, model);
}

const known = (name: string): JsonRecord =>
  modelEntries().find((entry) => entry.name === name)?.config ?? {};

/** The kind of a model: its family, and in it what routes, ties and groups. */
function kindOf({ config }: ReturnType<typeof modelEntries>[number]): string {
  const { routed } = readModelConfig(config).architecture;
  return JSON.stringify([config.model_type, routed !== undefined, config.tie_word_embeddings]);
}

const layersOf = ({ config }: ReturnType<typeof modelEntries>[number]): number =>
  readModelConfig(config).architecture.shape.layers;

/** Of each kind a shallow one: deep ones take seconds, and their layers are those of siblings. */
const shallow = new Map(
  [...modelEntries()]
    .sort((a, b) => layersOf(b) - layersOf(a))
    .map((entry) => [kindOf(entry), entry] as const),
);
const entries = FULL ? modelEntries() : [...shallow.values()];

describe('parameters of known models', () => {
  it('leaves out no family', () => {
    const families = (list: ReturnType<typeof modelEntries>): unknown[] =>
      list.map((e) => e.config.model_type);
    expect(new Set(families(entries))).toEqual(new Set(families(modelEntries())));
  });

  it.each(entries.map(({ name, parameters }) => [name, parameters] as const))(
    '%s has as many as its published class',
    (name, { total, trainable, active }) => {
      const config = knownModelConfig(name);
      const counts = countParameters(buildModel(config, { batch: 1, seq: 8 }), config);
      expect({ total: counts.total, trainable: counts.trainable, active: counts.active }).toEqual({
        total,
        trainable,
        active,
      });
    },
  );

  it('the data file has the figures of the specification', () => {
    const total = (name: string): number | undefined =>
      modelEntries().find((e) => e.name === name)?.parameters.total;
    expect(modelEntries()).toHaveLength(47);
    expect(total('gpt2')).toBe(124439808);
    expect(total('llama-3.1-405b')).toBe(405853388800);
    expect(total('mixtral-8x7b')).toBe(46702792704);
    expect(total('gemma-2-9b')).toBe(9241705984);
    expect(total('deepseek-v3')).toBe(671026404352);
    expect(total('gpt-oss-20b')).toBe(20914757184);
    // The text towers of the 109B and 400B that Meta states.
    expect(total('llama-4-scout')).toBe(107769861120);
    expect(total('llama-4-maverick')).toBe(400711848960);
    expect(total('whisper-tiny')).toBe(37760640);
    expect(total('vit-base-patch16-224')).toBe(85798656);
    expect(total('t5-small')).toBe(60506624);
  });

  it('gpt-oss-20b: a token meets 3,608,307,264 parameters without the input embedding', () => {
    const { active = 0 } = counted(known('gpt-oss-20b'), 24);
    expect(active - 201088 * 2880).toBe(3608307264);
  });

  it('one layer of Llama-3.1-8B, GPT-2 and the parts of DeepSeek-V3', () => {
    const step = (name: string, from: number): number =>
      counted(known(name), from + 1).total - counted(known(name), from).total;
    expect(step('llama-3.1-8b', 1)).toBe(218112000);
    // Without the two norms: what multiplies.
    expect(step('llama-3.1-8b', 1) - 2 * 4096).toBe(218103808);
    expect(step('gpt2', 1)).toBe(7087872);
    // Attention 187,107,328 and two norms with a dense layer of 396,361,728, or with the routed
    // part.
    const norms = 2 * 7168;
    expect(step('deepseek-v3', 1)).toBe(187107328 + 396361728 + norms);
    expect(step('deepseek-v3', 3)).toBe(187107328 + 11320164352 + norms);
    const config = readModelConfig(known('deepseek-v3'));
    const one = buildModel(config, { batch: 1, seq: 8, layers: 4 });
    expect((countParameters(one, config).routed ?? 0) / 256).toBe(44040192);
  });

  it('DiT-XL/2 has the published multiply-adds: 118.64 billion for an image of 256 x 256', () => {
    const graph = buildModel(readModelConfig(known('dit-xl-2-256')), { batch: 1 });
    expect(programFlops(graph, builtinOperators()).forward / 2e9).toBeCloseTo(118.64, 1);
  });

  it('a changed config changes the count as the formula says', () => {
    const config = {
      ...known('llama-3.1-8b'),
      num_hidden_layers: 3,
      num_attention_heads: 24,
      head_dim: 128,
      tie_word_embeddings: true,
    };
    const [V, h, L, a, k, d, f] = [128256, 4096, 3, 24, 8, 128, 14336];
    expect(counted(config).total).toBe(
      V * h + L * (2 * h * a * d + 2 * h * k * d + 3 * h * f + 2 * h) + h,
    );
  });

  it('families without a row in the data: OPT-125M, OPT-350M, BLOOM-560M, Gemma 2B, Qwen1.5-MoE-A2.7B', () => {
    const opt = { model_type: 'opt', vocab_size: 50272, max_position_embeddings: 2048 };
    const small = {
      ...opt,
      hidden_size: 768,
      ffn_dim: 3072,
      num_hidden_layers: 12,
      num_attention_heads: 12,
      word_embed_proj_dim: 768,
    };
    expect(counted(small).total).toBe(125239296);
    const narrow = {
      ...opt,
      hidden_size: 1024,
      ffn_dim: 4096,
      num_hidden_layers: 24,
      num_attention_heads: 16,
      word_embed_proj_dim: 512,
      do_layer_norm_before: false,
    };
    expect(counted(narrow).total).toBe(331196416);
    const bloom = {
      model_type: 'bloom',
      vocab_size: 250880,
      hidden_size: 1024,
      n_layer: 24,
      n_head: 16,
    };
    expect(counted(bloom).total).toBe(559214592);
    const gemma = {
      model_type: 'gemma',
      vocab_size: 256000,
      hidden_size: 2048,
      intermediate_size: 16384,
      num_hidden_layers: 18,
      num_attention_heads: 8,
      num_key_value_heads: 1,
      head_dim: 256,
    };
    expect(counted(gemma).total).toBe(2506172416);
    const qwen = {
      model_type: 'qwen2_moe',
      vocab_size: 151936,
      hidden_size: 2048,
      intermediate_size: 5632,
      num_hidden_layers: 24,
      num_attention_heads: 16,
      num_key_value_heads: 16,
      num_experts: 60,
      num_experts_per_tok: 4,
      moe_intermediate_size: 1408,
      shared_expert_intermediate_size: 5632,
    };
    expect(counted(qwen).total).toBe(14315784192);
  });

  it('the masked-LM head of BERT in place of its pooler', () => {
    const config = { ...known('bert-base-uncased'), architectures: ['BertForMaskedLM'] };
    expect(counted(config).total).toBe(109482240 - 590592 + 592128 + 30522);
  });

  it('every family has a tiny config and builds both forms of it', () => {
    expect(MODEL_TYPES.filter((type) => !Object.hasOwn(TINY, type))).toEqual(['kimi_k2', 'mt5']);
    for (const config of Object.values(TINY)) {
      const model = readModelConfig(config as JsonRecord);
      const forward = buildModel(model, { batch: 2, seq: 16 });
      const joint = buildModel(model, { batch: 2, seq: 16, training: true });
      expect(model.ignored, model.type).toEqual([]);
      expect(countParameters(joint, model), model.type).toEqual(countParameters(forward, model));
      const shapes = (graph: typeof joint) =>
        graph.nodes.flatMap((n) => (n.meta.role === 'parameter' ? [n.meta.roleName] : [])).sort();
      expect(shapes(joint), model.type).toEqual(shapes(forward));
      // Every trainable parameter has a gradient.
      const frozen = new Set(model.architecture.frozen ?? []);
      const without = joint.outputs.flatMap((o) =>
        o.role === 'grad' && o.value === null ? [o.of ?? ''] : [],
      );
      const roles = new Map(joint.nodes.map((n) => [n.name, n.meta]));
      const missing = without.filter(
        (of) => roles.get(of)?.role === 'parameter' && !frozen.has(roles.get(of)?.roleName ?? ''),
      );
      expect(missing, model.type).toEqual([]);
    }
  });
});
