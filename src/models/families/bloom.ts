/** BLOOM's architecture from its config: ALiBi, fused q, k, v. */

import type { DType } from '../../graph/types.ts';
import { Embedding, Linear } from '../../trace/nn/linear.ts';
import { arange, cat } from '../../trace/tensor/functional.ts';
import { scope } from '../../trace/tensor/state.ts';
import type { Tensor } from '../../trace/tensor/tensor.ts';
import type { Family, ProgramOptions } from '../architecture.ts';
import { causalMask, joinHeads, writtenOutAttention } from '../layers/attention-core.ts';
import { layerNorm, layersBelow, twoLayers } from '../layers/encoder-layer.ts';
import { headsFit } from '../layers/heads.ts';
import { languageInputs, lossOrLogits } from './decoder.ts';

/**
 * BLOOM: positions as slopes on the scores (ALiBi), q, k, v of each head side by side in one
 * weight.
 */
export const BLOOM: Family = {
  types: ['bloom'],
  classes: ['Bloom'],
  read(config, _type, className) {
    config.checkHead(className, ['ForCausalLM']);
    const width = config.size(['hidden_size', 'n_embed']);
    const heads = config.size(['n_head', 'num_attention_heads']);
    const headWidth = headsFit(config, 'hidden_size', width, 'n_head', heads);
    const vocabulary = config.size('vocab_size');
    const eps = config.positive('layer_norm_epsilon') ?? 1e-5;
    const tied = config.flag('tie_word_embeddings', true);
    const afterNorm = config.flag('apply_residual_connection_post_layernorm', false);
    const layers = config.count(['n_layer', 'num_hidden_layers']);
    const hidden = 4 * width;

    const layer = (x: Tensor, bias: Tensor, mask: Tensor, dtype: DType): Tensor => {
      const normed = layerNorm('input_layernorm', x, width, eps, dtype);
      const attended = scope('self_attention', () => {
        const all = new Linear('query_key_value', width, 3 * width, { dtype }).forward(normed);
        const parts = all.view(x.size(0), x.size(1), heads, 3, headWidth).unbind(3);
        const [q, k, v] = parts.map((part) => part.transpose(1, 2));
        const scale = 1 / Math.sqrt(headWidth);
        const mixed = writtenOutAttention(q, k, v, { heads, keyHeads: heads, scale, bias, mask });
        return new Linear('dense', width, width, { dtype }).forward(joinHeads(mixed));
      });
      const seen = (afterNorm ? normed : x).add(attended);
      const between = layerNorm('post_attention_layernorm', seen, width, eps, dtype);
      const names = ['dense_h_to_4h', 'dense_4h_to_h'] as const;
      const made = scope('mlp', () =>
        twoLayers(between, { width, hidden, names, activation: 'gelu_tanh', dtype }),
      );
      return (afterNorm ? between : seen).add(made);
    };
    const logits = (ids: Tensor, options: ProgramOptions): Tensor => {
      const { seq, layers: count, dtype, vocabulary: rows = vocabulary } = options;
      const table = new Embedding('transformer.word_embeddings', rows, width, { dtype });
      const x = layerNorm(
        'transformer.word_embeddings_layernorm',
        table.forward(ids),
        width,
        eps,
        dtype,
      );
      // [1, heads, 1, length]: a slope times the position of the key.
      const bias = slopes(heads).view(1, heads, 1, 1).mul(arange(seq).to('f32')).to(dtype);
      const mask = causalMask(seq);
      const last = layersBelow('transformer.h', count, x, (y) => layer(y, bias, mask, dtype));
      const out = layerNorm('transformer.ln_f', last, width, eps, dtype);
      return tied
        ? table.attend(out)
        : new Linear('lm_head', width, rows, { bias: false, dtype }).forward(out);
    };
    return {
      shape: { layers, width, heads, keyHeads: heads, headWidth, hidden, vocabulary },
      rowParameters: tied ? width : 2 * width,
      program: (options) => ({
        inputs: languageInputs(options),
        run: ({ input_ids: ids, labels }) =>
          lossOrLogits(logits(ids, options), labels, options.vocabulary ?? vocabulary),
      }),
    };
  },
};

/**
 * One slope a head (Press et al. 2021): 2^(-8 i / p) for the p heads up to a power of 2, then every
 * other one of the sequence for 2 p heads. [heads], float32.
 */
function slopes(heads: number): Tensor {
  const power = 2 ** Math.floor(Math.log2(heads));
  const from = (steps: Tensor, of: number): Tensor =>
    steps
      .to('f32')
      .mul((-8 * Math.LN2) / of)
      .exp();
  const first = from(arange(power + 1, { start: 1 }), power);
  if (power === heads) return first;
  return cat([
    first,
    from(
      arange(heads - power)
        .mul(2)
        .add(1),
      2 * power,
    ),
  ]);
}
