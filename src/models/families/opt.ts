/** OPT's architecture from its config, with the module names of Hugging Face. */

import type { DType } from '../../graph/types.ts';
import { Embedding, Linear } from '../../trace/nn/linear.ts';
import { arange } from '../../trace/tensor/functional.ts';
import { scope } from '../../trace/tensor/state.ts';
import type { Tensor } from '../../trace/tensor/tensor.ts';
import type { Family, ProgramOptions } from '../architecture.ts';
import { activationOf } from '../layers/activation.ts';
import { biasedAttention, layerNorm, layersBelow, twoLayers } from '../layers/encoder-layer.ts';
import { headsFit } from '../layers/heads.ts';
import { languageInputs, lossOrLogits } from './decoder.ts';

/** The position table of OPT starts with rows that no token uses. */
const OFFSET = 2;
const NAMES = { query: 'q_proj', key: 'k_proj', value: 'v_proj', output: 'out_proj' };
const EPS = 1e-5;

/** OPT: learned positions, ReLU, biases; embeddings may be narrower than the layers. */
export const OPT: Family = {
  types: ['opt'],
  classes: ['OPT'],
  read(config, _type, className) {
    config.checkHead(className, ['ForCausalLM']);
    const width = config.size('hidden_size');
    const heads = config.size('num_attention_heads');
    const headWidth = headsFit(config, 'hidden_size', width, 'num_attention_heads', heads);
    const hidden = config.size('ffn_dim');
    const vocabulary = config.size('vocab_size');
    const positions = config.size('max_position_embeddings', 2048);
    const narrow = config.size('word_embed_proj_dim', width);
    const first = config.flag('do_layer_norm_before', true);
    const ends = first && !config.flag('_remove_final_layer_norm', false);
    const tied = config.flag('tie_word_embeddings', true);
    const activation = activationOf(config, ['activation_function'], 'relu');
    const layers = config.count('num_hidden_layers');
    const form = { width, heads, hidden, activation, normFirst: first };
    const logits = (ids: Tensor, options: ProgramOptions): Tensor => {
      const { seq, layers: count, dtype, vocabulary: rows = vocabulary } = options;
      const table = new Embedding('model.decoder.embed_tokens', rows, narrow, { dtype });
      const places = new Embedding('model.decoder.embed_positions', positions + OFFSET, width, {
        dtype,
      });
      const embedded = resize('project_in', table.forward(ids), narrow, width, dtype);
      const x = embedded.add(places.forward(arange(seq + OFFSET, { start: OFFSET }).unsqueeze(0)));
      const last = layersBelow('model.decoder.layers', count, x, (y) => layer(y, form, dtype));
      const normed = ends
        ? layerNorm('model.decoder.final_layer_norm', last, width, EPS, dtype)
        : last;
      const out = resize('project_out', normed, width, narrow, dtype);
      return tied
        ? table.attend(out)
        : new Linear('lm_head', narrow, rows, { bias: false, dtype }).forward(out);
    };
    return {
      shape: { layers, width, heads, keyHeads: heads, headWidth, hidden, vocabulary, positions },
      learnedPositions: true,
      rowParameters: tied ? narrow : 2 * narrow,
      program: (options) => ({
        inputs: languageInputs(options),
        run: ({ input_ids: ids, labels }) =>
          lossOrLogits(logits(ids, options), labels, options.vocabulary ?? vocabulary),
      }),
    };
  },
};

interface LayerForm {
  readonly width: number;
  readonly heads: number;
  readonly hidden: number;
  readonly activation: ReturnType<typeof activationOf>;
  /** A norm comes before each part, or after each sum. */
  readonly normFirst: boolean;
}

function layer(x: Tensor, form: LayerForm, dtype: DType): Tensor {
  const { width, heads, hidden, activation, normFirst } = form;
  const norm = (name: string, y: Tensor): Tensor => layerNorm(name, y, width, EPS, dtype);
  const part = (name: string, y: Tensor, body: (z: Tensor) => Tensor): Tensor =>
    normFirst ? y.add(body(norm(name, y))) : norm(name, y.add(body(y)));
  const seen = part('self_attn_layer_norm', x, (y) =>
    scope('self_attn', () =>
      biasedAttention(y, { width, heads, names: NAMES, causal: true, dtype }),
    ),
  );
  return part('final_layer_norm', seen, (y) =>
    twoLayers(y, { width, hidden, names: ['fc1', 'fc2'], activation, dtype }),
  );
}

/** A projection between the width of the embeddings and that of the layers, where they differ. */
function resize(name: string, x: Tensor, from: number, to: number, dtype: DType): Tensor {
  if (from === to) return x;
  return new Linear(`model.decoder.${name}`, from, to, { bias: false, dtype }).forward(x);
}
