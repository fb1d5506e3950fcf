/** BERT's architecture from its config, with the module names of Hugging Face. */

import type { DType } from '../../graph/types.ts';
import { activate } from '../../trace/nn/feed-forward.ts';
import { Embedding, Linear } from '../../trace/nn/linear.ts';
import { spec } from '../../trace/record/spec.ts';
import { arange, crossEntropy, zeros } from '../../trace/tensor/functional.ts';
import { param, scope } from '../../trace/tensor/state.ts';
import type { Tensor } from '../../trace/tensor/tensor.ts';
import type { Family, ProgramOptions } from '../architecture.ts';
import { activationOf } from '../layers/activation.ts';
import { biasedAttention, layerNorm, layersBelow, twoLayers } from '../layers/encoder-layer.ts';
import { headsFit } from '../layers/heads.ts';

/** Query, key and value live below `self`, the output below `output`, in both BERT and ViT. */
export const SELF_NAMES = (inner: string) => ({
  query: `${inner}.query`,
  key: `${inner}.key`,
  value: `${inner}.value`,
  output: 'output.dense',
});

/** BERT: norms behind each sum; with a pooler, or with the head that predicts masked tokens. */
export const BERT: Family = {
  types: ['bert'],
  classes: ['Bert'],
  read(config, _type, className = 'BertModel') {
    if (className !== 'BertModel' && className !== 'BertForMaskedLM')
      throw config.inconsistent(
        'architectures[0]',
        `is '${className}'`,
        'known: BertModel, BertForMaskedLM',
        'E_UNSUPPORTED',
      );
    const masked = className === 'BertForMaskedLM';
    const width = config.size('hidden_size');
    const heads = config.size('num_attention_heads');
    const headWidth = headsFit(config, 'hidden_size', width, 'num_attention_heads', heads);
    const hidden = config.size('intermediate_size');
    const vocabulary = config.size('vocab_size');
    const positions = config.size('max_position_embeddings', 512);
    const kinds = config.size('type_vocab_size', 2);
    const eps = config.positive('layer_norm_eps') ?? 1e-12;
    const activation = activationOf(config, ['hidden_act'], 'gelu');
    const layers = config.count('num_hidden_layers');
    const root = masked ? 'bert.' : '';

    const layer = (x: Tensor, dtype: DType): Tensor => {
      const attended = scope('attention', () => {
        const out = biasedAttention(x, {
          width,
          heads,
          names: SELF_NAMES('self'),
          causal: false,
          dtype,
        });
        return layerNorm('output.LayerNorm', out.add(x), width, eps, dtype);
      });
      const names = ['intermediate.dense', 'output.dense'] as const;
      const made = twoLayers(attended, { width, hidden, names, activation, dtype });
      return layerNorm('output.LayerNorm', made.add(attended), width, eps, dtype);
    };
    const encoded = (ids: Tensor, options: ProgramOptions): Tensor => {
      const { seq, layers: count, dtype, vocabulary: rows = vocabulary } = options;
      const at = (name: string): string => `${root}embeddings.${name}`;
      const table = new Embedding(at('word_embeddings'), rows, width, { dtype });
      const kind = new Embedding(at('token_type_embeddings'), kinds, width, { dtype });
      const places = new Embedding(at('position_embeddings'), positions, width, { dtype });
      const sum = table
        .forward(ids)
        .add(kind.forward(zeros([1, seq], 'i64')))
        .add(places.forward(arange(seq).unsqueeze(0)));
      const x = layerNorm(at('LayerNorm'), sum, width, eps, dtype);
      return layersBelow(`${root}encoder.layer`, count, x, (y) => layer(y, dtype));
    };
    const predicted = (
      last: Tensor,
      { dtype, vocabulary: rows = vocabulary }: ProgramOptions,
    ): Tensor => {
      const dense = new Linear('cls.predictions.transform.dense', width, width, { dtype }).forward(
        last,
      );
      const turned = layerNorm(
        'cls.predictions.transform.LayerNorm',
        activate(dense, activation),
        width,
        eps,
        dtype,
      );
      // The table of the embedding, named again, with a bias of its own.
      const table = param(`${root}embeddings.word_embeddings.weight`, {
        shape: [rows, width],
        dtype,
      });
      return turned.linear(table, param('cls.predictions.bias', { shape: [rows], dtype }));
    };
    return {
      shape: { layers, width, heads, keyHeads: heads, headWidth, hidden, vocabulary, positions },
      // The bias of the predictions has an element a row.
      rowParameters: masked ? width + 1 : width,
      learnedPositions: true,
      notes: masked ? [] : ['BertModel has no loss: gradients start at its two results'],
      program: (options) => {
        const { batch, seq, training, dtype, vocabulary: rows = vocabulary } = options;
        const ids = spec([batch, seq], 'i64');
        return {
          inputs: masked && training ? { input_ids: ids, labels: ids } : { input_ids: ids },
          run: ({ input_ids, labels }) => {
            const last = encoded(input_ids, options);
            if (!masked) {
              const first = last.select(1, 0);
              return {
                last,
                pooled: new Linear('pooler.dense', width, width, { dtype }).forward(first).tanh(),
              };
            }
            const logits = predicted(last, options);
            if (labels === undefined) return { logits };
            return { loss: crossEntropy(logits.to('f32').view(-1, rows), labels.view(-1)) };
          },
        };
      },
    };
  },
};
