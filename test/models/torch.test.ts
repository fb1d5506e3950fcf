import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';

import { describe, expect, it } from 'vitest';

import type { DType, Graph } from '../../src/graph/types.ts';
import { importModel } from '../../src/import/import.ts';
import { buildModel } from '../../src/models/build.ts';
import { readModelConfig } from '../../src/models/families.ts';
import type { JsonRecord } from '../../src/models/read-config.ts';
import { modelEntries } from '../../src/models/registry.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { programFlops } from '../../src/ops/program-flops.ts';

/**
 * Graphs built from a config against what PyTorch exported for the same config: names, shapes,
 * FLOPs of both passes.
 */

interface Key {
  readonly flops?: {
    readonly matmul: number;
    readonly attention: number;
    readonly total: number;
    readonly by_op: Readonly<Record<string, number>>;
  };
}

const path = (model: string, file: string): string =>
  fileURLToPath(new URL(`../fixtures/torch/${model}/${file}`, import.meta.url));
const key = (model: string): Key =>
  JSON.parse(gunzipSync(readFileSync(path(model, 'joint.key.json.gz'))).toString('utf8')) as Key;

const LLAMA_8B = {
  model_type: 'llama',
  vocab_size: 128256,
  hidden_size: 4096,
  intermediate_size: 14336,
  num_attention_heads: 32,
  num_key_value_heads: 8,
  max_position_embeddings: 8192,
  tie_word_embeddings: false,
};
const GPT2 = { model_type: 'gpt2', vocab_size: 50257, n_positions: 1024, n_embd: 768, n_head: 12 };
const TINY = {
  vocab_size: 512,
  hidden_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 256,
  tie_word_embeddings: false,
};

interface Case {
  readonly config: JsonRecord;
  readonly batch: number;
  readonly seq: number;
  readonly dtype: DType;
}

const CASES: Readonly<Record<string, Case>> = {
  'llama-tiny': {
    config: { model_type: 'llama', ...TINY, intermediate_size: 128 },
    batch: 2,
    seq: 32,
    dtype: 'f32',
  },
  'llama3-8b-2l': {
    config: { ...LLAMA_8B, num_hidden_layers: 2 },
    batch: 4,
    seq: 4096,
    dtype: 'bf16',
  },
  'llama3-8b-2l-b16': {
    config: { ...LLAMA_8B, num_hidden_layers: 2 },
    batch: 16,
    seq: 8192,
    dtype: 'bf16',
  },
  'llama3-8b-32l': {
    config: { ...LLAMA_8B, num_hidden_layers: 32 },
    batch: 4,
    seq: 4096,
    dtype: 'bf16',
  },
  'gpt2-2l': { config: { ...GPT2, n_layer: 2 }, batch: 8, seq: 1024, dtype: 'f32' },
  'gpt2-12l': { config: { ...GPT2, n_layer: 12 }, batch: 8, seq: 1024, dtype: 'f32' },
  'bert-base': {
    config: {
      ...(modelEntries().find((e) => e.name === 'bert-base-uncased')?.config ?? {}),
      architectures: ['BertForMaskedLM'],
    },
    batch: 16,
    seq: 128,
    dtype: 'f32',
  },
};

/** FLOPs that PyTorch's counter gives for the joint graphs of the fixtures with routed experts. */
const ROUTED = {
  config: {
    model_type: 'mixtral',
    ...TINY,
    intermediate_size: 96,
    num_local_experts: 4,
    num_experts_per_tok: 2,
  },
  batch: 2,
  seq: 32,
};

const built = ({ config, ...sizes }: Case, training: boolean): Graph =>
  buildModel(readModelConfig(config), { ...sizes, training });
const flops = (graph: Graph): ReturnType<typeof programFlops> =>
  programFlops(graph, builtinOperators());

/** Checkpoint name and shape of every parameter. */
function parameters(graph: Graph, name: (roleName: string) => string = (n) => n): string[] {
  return graph.nodes
    .flatMap((node) =>
      node.meta.role === 'parameter' && node.type.kind === 'tensor'
        ? [
            `${name(node.meta.roleName ?? node.name)} ${node.type.dtype}[${node.type.shape.map(Number).join(', ')}]`,
          ]
        : [],
    )
    .sort();
}

describe('FLOPs of both passes', () => {
  it.each(Object.keys(CASES))('%s: as PyTorch counted on its joint graph', (name) => {
    const of = key(name).flops;
    expect(of).toBeDefined();
    expect(flops(built(CASES[name], true)).total).toBe(of?.total);
  });

  it('Llama-3.1-8B forward: 245,912,647,499,776 in weights, 35,184,372,088,832 in attention, and the rotary product', () => {
    const rotary = 2 * 64 * 4096;
    const one = flops(built(CASES['llama3-8b-32l'], false));
    expect(one.total - rotary).toBe(245912647499776 + 35184372088832);
    expect(245912647499776 / (4 * 4096)).toBe(15009316864);
    const both = flops(built(CASES['llama3-8b-32l'], true));
    expect(both.forward - rotary).toBe(281097019588608);
    expect(both.backward).toBe(579786225221632);
    // Weights twice, attention with its recomputed scores 2.5 times.
    expect(both.backward).toBe(2 * 245912647499776 + 87960930222080);
    expect(87960930222080).toBe(2.5 * 35184372088832);
  });

  it('GPT-2, batch 8 of 1024: 2,023,948,812,288 in weights and 309,237,645,312 in attention', () => {
    expect(flops(built(CASES['gpt2-12l'], false)).total).toBe(2023948812288 + 309237645312);
  });

  it('mixtral-tiny: grouped experts do the work that PyTorch counts, forward and backward', () => {
    expect(flops(built({ ...ROUTED, dtype: 'bf16' }, false)).total).toBe(17891328 + 512);
    expect(flops(built({ ...ROUTED, dtype: 'bf16' }, true)).total).toBe(54198784);
  });
});

describe('names of parameters', () => {
  it.each([
    ['llama3-8b-2l', CASES['llama3-8b-2l']],
    ['mixtral-tiny', { ...ROUTED, dtype: 'f32' as const }],
    ['gpt2-2l', CASES['gpt2-2l']],
    ['bert-base', CASES['bert-base']],
  ])('%s: those of the checkpoint, with their shapes', (name, config) => {
    const { graph } = importModel(readFileSync(path(name, 'export.model.json.gz')));
    // The exported program wraps the model; tied tensors go by the name of the head there.
    const tied = new Map([
      ['lm_head.weight', 'transformer.wte.weight'],
      ['cls.predictions.decoder.weight', 'bert.embeddings.word_embeddings.weight'],
      ['cls.predictions.decoder.bias', 'cls.predictions.bias'],
    ]);
    const names = new Set(parameters(built(config, false)).map((text) => text.split(' ')[0]));
    const theirs = parameters(graph, (full) => {
      const plain = full.replace(/^model\./, '');
      return names.has(plain) ? plain : (tied.get(plain) ?? plain);
    });
    expect(parameters(built(config, true))).toEqual([...new Set(theirs)]);
  });
});
