import { describe, expect, test } from 'vitest';

import { buildModel, countParameters } from '../../src/models/build.ts';
import { readModelConfig } from '../../src/models/families.ts';
import type { JsonRecord } from '../../src/models/read-config.ts';

const SMALL = {
  vocab_size: 512,
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  max_position_embeddings: 128,
};
const DECODER = { ...SMALL, num_key_value_heads: 2 };
const SIZES: Readonly<Record<string, JsonRecord>> = {
  llama: DECODER,
  mistral: DECODER,
  qwen2: DECODER,
  qwen3: { ...DECODER, head_dim: 16 },
  gemma2: { ...DECODER, head_dim: 16 },
  phi3: DECODER,
  mixtral: { ...DECODER, num_local_experts: 4, num_experts_per_tok: 2 },
  gpt2: { vocab_size: 512, n_embd: 64, n_head: 4, n_layer: 2, n_positions: 128 },
  bert: SMALL,
};

function configOf(model: string, className: string, labels: number): JsonRecord {
  const names = Array.from({ length: labels }, (_, i): [string, string] => [`${i}`, `label ${i}`]);
  return {
    model_type: model,
    architectures: [className],
    ...SIZES[model],
    id2label: Object.fromEntries(names),
  };
}

describe('classifiers of sequences and of tokens', () => {
  // Sums of `named_parameters()` of the classes of transformers 5.23 on the meta device.
  test.each([
    ['llama', 'Llama', 94720, 94723, 94592, 94593],
    ['mistral', 'Mistral', 94720, 94723, 94592, 94593],
    ['qwen2', 'Qwen2', 94976, 94979, 94848, 94849],
    ['qwen3', 'Qwen3', 94784, 94787, 94656, 94657],
    ['gemma2', 'Gemma2', 94976, 94979, 94848, 94849],
    ['phi3', 'Phi3', 94720, 94723, 94592, 94593],
    ['mixtral', 'Mixtral', 205824, 205827, 205696, 205697],
    ['gpt2', 'GPT2', 141248, 141251, 141120, 141121],
    ['bert', 'Bert', 104259, 100099, 104129, 99969],
  ] as const)('%s has the parameters of its classes', (model, start, ...counts) => {
    const found = [3, 1].flatMap((labels) =>
      ['ForSequenceClassification', 'ForTokenClassification'].map((end) => {
        const config = readModelConfig(configOf(model, `${start}${end}`, labels));
        return countParameters(buildModel(config, { batch: 2, seq: 8, training: true }), config)
          .total;
      }),
    );
    expect(found).toEqual(counts);
  });

  test('a sequence has one row of logits, a token one each; one label is a regression', () => {
    const built = (className: string, labels: number): readonly string[] => {
      const config = readModelConfig(configOf('llama', className, labels));
      const graph = buildModel(config, { batch: 2, seq: 8, dtype: 'f32' });
      const trained = buildModel(config, { batch: 2, seq: 8, dtype: 'f32', training: true });
      const text = (name: string, nodes = graph.nodes): string => {
        const type = nodes.find((node) => node.name === name)?.type;
        return type?.kind === 'tensor' ? `${type.dtype}[${type.shape.map(Number).join()}]` : 'none';
      };
      return [text(graph.outputs[0].value ?? ''), text('labels', trained.nodes)];
    };
    expect(built('LlamaForSequenceClassification', 3)).toEqual(['f32[2,3]', 'i64[2]']);
    expect(built('LlamaForTokenClassification', 3)).toEqual(['f32[2,8,3]', 'i64[2,8]']);
    expect(built('LlamaForSequenceClassification', 1)).toEqual(['f32[2,1]', 'f32[2]']);
  });

  test('the notes say what is pooled, and a loss that is not built is refused by name', () => {
    const config = configOf('llama', 'LlamaForSequenceClassification', 3);
    expect(buildModel(readModelConfig(config), { batch: 1, seq: 8 }).notes?.join()).toContain(
      'the last token of each sequence is pooled',
    );
    expect(() =>
      readModelConfig({ ...config, problem_type: 'multi_label_classification' }),
    ).toThrow(/problem_type is 'multi_label_classification'/);
    expect(() => readModelConfig({ ...config, problem_type: 'regression' })).toThrow(
      /problem_type is 'regression' with 3 labels/,
    );
  });
});
