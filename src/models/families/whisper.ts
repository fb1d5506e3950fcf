/** Whisper's architecture from its config: convolutions, encoder, decoder. */

import type { DType } from '../../graph/types.ts';
import { Embedding, Linear } from '../../trace/nn/linear.ts';
import { spec } from '../../trace/record/spec.ts';
import { arange } from '../../trace/tensor/functional.ts';
import { param, scope } from '../../trace/tensor/state.ts';
import type { Tensor } from '../../trace/tensor/tensor.ts';
import type { Family, ProgramOptions } from '../architecture.ts';
import { activationOf } from '../layers/activation.ts';
import { biasedAttention, layerNorm, layersBelow, twoLayers } from '../layers/encoder-layer.ts';
import { headsFit } from '../layers/heads.ts';
import { lossOrLogits } from './decoder.ts';

const NAMES = { query: 'q_proj', key: 'k_proj', value: 'v_proj', output: 'out_proj' };
const NO_KEY_BIAS = { key: false };
const EPS = 1e-5;
const POSITIONS = 'model.encoder.embed_positions.weight';

/**
 * Whisper: two convolutions and an encoder over a spectrogram, a decoder over text; keys have no
 * bias.
 */
export const WHISPER: Family = {
  types: ['whisper'],
  classes: ['Whisper'],
  read(config) {
    const width = config.size('d_model');
    const heads = config.size('encoder_attention_heads');
    const headWidth = headsFit(config, 'd_model', width, 'encoder_attention_heads', heads);
    const decoderHeads = config.size('decoder_attention_heads', heads);
    headsFit(config, 'd_model', width, 'decoder_attention_heads', decoderHeads);
    const hidden = config.size('encoder_ffn_dim');
    const decoderHidden = config.size('decoder_ffn_dim', hidden);
    const layers = config.count('encoder_layers');
    const decoders = config.count('decoder_layers', layers);
    config.known('num_hidden_layers');
    const mels = config.size('num_mel_bins', 80);
    const frames = config.size('max_source_positions', 1500);
    const positions = config.size('max_target_positions', 448);
    const vocabulary = config.size('vocab_size');
    const activation = activationOf(config, ['activation_function'], 'gelu');
    const tied = config.flag('tie_word_embeddings', true);

    const norm = (name: string, x: Tensor, dtype: DType): Tensor =>
      layerNorm(name, x, width, EPS, dtype);
    const attention = (
      name: string,
      x: Tensor,
      count: number,
      causal: boolean,
      dtype: DType,
      memory?: Tensor,
    ): Tensor => {
      const y = norm(`${name}_layer_norm`, x, dtype);
      const options = { width, heads: count, names: NAMES, biases: NO_KEY_BIAS, causal, dtype };
      return x.add(scope(name, () => biasedAttention(y, options, memory ?? y)));
    };
    const forwardPart = (x: Tensor, wide: number, dtype: DType): Tensor => {
      const names = ['fc1', 'fc2'] as const;
      return x.add(
        twoLayers(norm('final_layer_norm', x, dtype), {
          width,
          hidden: wide,
          names,
          activation,
          dtype,
        }),
      );
    };
    const convolved = (
      name: string,
      x: Tensor,
      from: number,
      stride: number,
      dtype: DType,
    ): Tensor =>
      scope(name, () => {
        const weight = param('weight', { shape: [width, from, 3], dtype });
        return x
          .conv1d(weight, param('bias', { shape: [width], dtype }), { stride, padding: 1 })
          .gelu();
      });
    const encode = (features: Tensor, { dtype, layers: count }: ProgramOptions): Tensor => {
      const sound = scope('model.encoder', () =>
        convolved('conv2', convolved('conv1', features, mels, 1, dtype), width, 2, dtype),
      ).permute(0, 2, 1);
      // A table of sines: stored with the parameters, never trained.
      const places = param(POSITIONS, { shape: [frames, width], dtype }).detach();
      const last = layersBelow('model.encoder.layers', count, sound.add(places), (x) =>
        forwardPart(attention('self_attn', x, heads, false, dtype), hidden, dtype),
      );
      return norm('model.encoder.layer_norm', last, dtype);
    };
    const logits = (features: Tensor, ids: Tensor, options: ProgramOptions): Tensor => {
      const { seq, dtype, layers: count, vocabulary: rows = vocabulary } = options;
      const memory = encode(features, options);
      const table = new Embedding('model.decoder.embed_tokens', rows, width, { dtype });
      const places = new Embedding('model.decoder.embed_positions', positions, width, { dtype });
      const x = table.forward(ids).add(places.forward(arange(seq).unsqueeze(0)));
      const decoderCount = count === layers ? decoders : Math.min(count, decoders);
      const last = layersBelow('model.decoder.layers', decoderCount, x, (y) => {
        const seen = attention('self_attn', y, decoderHeads, true, dtype);
        const heard = attention('encoder_attn', seen, decoderHeads, false, dtype, memory);
        return forwardPart(heard, decoderHidden, dtype);
      });
      const out = norm('model.decoder.layer_norm', last, dtype);
      return tied
        ? table.attend(out)
        : new Linear('proj_out', width, rows, { bias: false, dtype }).forward(out);
    };
    return {
      shape: { layers, width, heads, keyHeads: heads, headWidth, hidden, vocabulary, positions },
      learnedPositions: true,
      frozen: [POSITIONS],
      rowParameters: tied ? width : 2 * width,
      notes: [
        `the encoder reads ${2 * frames} frames of ${mels} mel bins; --seq is the length of ` +
          'the text',
      ],
      program: (options) => {
        const { batch, seq, dtype, training } = options;
        const ids = spec([batch, seq], 'i64');
        const both = {
          input_features: spec([batch, mels, 2 * frames], dtype),
          decoder_input_ids: ids,
        };
        return {
          inputs: training ? { ...both, labels: ids } : both,
          run: ({ input_features, decoder_input_ids, labels }) =>
            lossOrLogits(
              logits(input_features, decoder_input_ids, options),
              labels,
              options.vocabulary ?? vocabulary,
            ),
        };
      },
    };
  },
};
