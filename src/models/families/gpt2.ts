/** GPT-2's architecture from its config, with the module names of Hugging Face. */

import type { DType } from '../../graph/types.ts';
import { activate } from '../../trace/nn/feed-forward.ts';
import { Embedding, Linear } from '../../trace/nn/linear.ts';
import { arange } from '../../trace/tensor/functional.ts';
import { param, scope } from '../../trace/tensor/state.ts';
import { apply, type Tensor } from '../../trace/tensor/tensor.ts';
import type { Family, ModelShape, ProgramOptions } from '../architecture.ts';
import { activationOf } from '../layers/activation.ts';
import { fusedAttention, joinHeads, splitHeads } from '../layers/attention-core.ts';
import { layerNorm, layersBelow } from '../layers/encoder-layer.ts';
import { headsFit } from '../layers/heads.ts';
import { languageInputs, lossOrLogits } from './decoder.ts';

/**
 * GPT-2: learned positions, LayerNorm before each part, fused q, k, v, weights stored as [in, out].
 */
export const GPT2: Family = {
  types: ['gpt2'],
  classes: ['GPT2'],
  read(config) {
    const width = config.size(['n_embd', 'hidden_size']);
    const heads = config.size(['n_head', 'num_attention_heads']);
    const headWidth = headsFit(config, 'n_embd', width, 'n_head', heads);
    const positions = config.size(['n_positions', 'max_position_embeddings'], 1024);
    config.known('n_ctx');
    const vocabulary = config.size('vocab_size');
    const hidden = config.optionalSize('n_inner') ?? 4 * width;
    const eps = config.positive('layer_norm_epsilon') ?? 1e-5;
    const activation = activationOf(config, ['activation_function'], 'gelu_new');
    const tied = config.flag('tie_word_embeddings', true);
    const layers = config.count(['n_layer', 'num_hidden_layers']);
    const shape: ModelShape = {
      layers,
      width,
      heads,
      keyHeads: heads,
      headWidth,
      hidden,
      vocabulary,
      positions,
    };

    const block = (x: Tensor, dtype: DType): Tensor => {
      const normed = (name: string, y: Tensor): Tensor => layerNorm(name, y, width, eps, dtype);
      const before = normed('ln_1', x);
      const attended = scope('attn', () => {
        const parts = columns('c_attn', before, width, 3 * width, dtype).split(
          [width, width, width],
          -1,
        );
        const [q, k, v] = parts.map((part) => splitHeads(part, headWidth));
        return columns(
          'c_proj',
          joinHeads(fusedAttention(q, k, v, { causal: true })),
          width,
          width,
          dtype,
        );
      });
      const seen = x.add(attended);
      const between = normed('ln_2', seen);
      const made = scope('mlp', () =>
        columns(
          'c_proj',
          activate(columns('c_fc', between, width, hidden, dtype), activation),
          hidden,
          width,
          dtype,
        ),
      );
      return seen.add(made);
    };

    const logits = (ids: Tensor, options: ProgramOptions): Tensor => {
      const { seq, layers: count, dtype, vocabulary: rows = vocabulary } = options;
      const table = new Embedding('transformer.wte', rows, width, { dtype });
      const places = new Embedding('transformer.wpe', positions, width, { dtype });
      const x = table.forward(ids).add(places.forward(arange(seq).unsqueeze(0)));
      const last = layersBelow('transformer.h', count, x, (y) => block(y, dtype));
      const out = layerNorm('transformer.ln_f', last, width, eps, dtype);
      return tied
        ? table.attend(out)
        : new Linear('lm_head', width, rows, { bias: false, dtype }).forward(out);
    };
    return {
      shape,
      rowParameters: tied ? width : 2 * width,
      learnedPositions: true,
      program: (options) => ({
        inputs: languageInputs(options),
        run: ({ input_ids: ids, labels }) =>
          lossOrLogits(logits(ids, options), labels, options.vocabulary ?? vocabulary),
      }),
    };
  },
};

/**
 * `x @ weight + bias` with the weight as [in, out]; [batch, length, in] to [batch, length, out].
 */
function columns(name: string, x: Tensor, inner: number, outer: number, dtype: DType): Tensor {
  return scope(name, () => {
    const weight = param('weight', { shape: [inner, outer], dtype });
    const bias = param('bias', { shape: [outer], dtype });
    return apply('aten.addmm.default', [bias, x.view(-1, inner), weight]).view(
      x.size(0),
      x.size(1),
      outer,
    );
  });
}
