/** Whisper's architecture from its config: convolutions, encoder, decoder. */

import type { Activation } from '../../trace/nn/feed-forward.ts';
import { Embedding, Linear } from '../../trace/nn/linear.ts';
import { spec } from '../../trace/record/spec.ts';
import { arange } from '../../trace/tensor/functional.ts';
import { param, scope } from '../../trace/tensor/state.ts';
import type { Tensor } from '../../trace/tensor/tensor.ts';
import type { Architecture, Family, ProgramOptions } from '../architecture.ts';
import { activationOf } from '../layers/activation.ts';
import { biasedAttention, layerNorm, layersBelow, twoLayers } from '../layers/encoder-layer.ts';
import { headsFit } from '../layers/heads.ts';
import type { ConfigReader } from '../read-config.ts';
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
  read: (config, _type, className) => {
    config.checkHead(className, ['ForConditionalGeneration']);
    return architecture(readConfig(config));
  },
};

interface WhisperConfig {
  readonly width: number;
  readonly heads: number;
  readonly headWidth: number;
  readonly decoderHeads: number;
  readonly hidden: number;
  readonly decoderHidden: number;
  readonly layers: number;
  readonly decoders: number;
  readonly mels: number;
  readonly frames: number;
  readonly positions: number;
  readonly vocabulary: number;
  readonly activation: Activation;
  readonly tied: boolean;
}

function readConfig(config: ConfigReader): WhisperConfig {
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
  return {
    width,
    heads,
    headWidth,
    decoderHeads,
    hidden,
    decoderHidden,
    layers,
    decoders,
    mels: config.size('num_mel_bins', 80),
    frames: config.size('max_source_positions', 1500),
    positions: config.size('max_target_positions', 448),
    vocabulary: config.size('vocab_size'),
    activation: activationOf(config, ['activation_function'], 'gelu'),
    tied: config.flag('tie_word_embeddings', true),
  };
}

function architecture(config: WhisperConfig): Architecture {
  const { layers, decoders, width, heads, headWidth, hidden, vocabulary, positions } = config;
  const { mels, frames, tied } = config;
  const stacks = { layers, decoderLayers: decoders };
  return {
    shape: { ...stacks, width, heads, keyHeads: heads, headWidth, hidden, vocabulary, positions },
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
      const network = new Network(config, options);
      return {
        inputs: training ? { ...both, labels: ids } : both,
        run: ({ input_features, decoder_input_ids, labels }) =>
          lossOrLogits(
            network.logits(input_features, decoder_input_ids),
            labels,
            options.vocabulary ?? vocabulary,
          ),
      };
    },
  };
}

/** How an attention reads. */
interface Reads {
  readonly heads: number;
  readonly causal: boolean;
  /** Keys and values come from it; absent: from the queries' own sequence. */
  readonly memory?: Tensor;
}

/** The tensors of a program, part by part. */
class Network {
  constructor(
    private readonly config: WhisperConfig,
    private readonly options: ProgramOptions,
  ) {}

  logits(features: Tensor, ids: Tensor): Tensor {
    const { width, layers, decoders, vocabulary, positions, tied } = this.config;
    const { decoderHeads: heads, decoderHidden } = this.config;
    const { seq, dtype, layers: count, vocabulary: rows = vocabulary } = this.options;
    const memory = this.encode(features);
    const table = new Embedding('model.decoder.embed_tokens', rows, width, { dtype });
    const places = new Embedding('model.decoder.embed_positions', positions, width, { dtype });
    const x = table.forward(ids).add(places.forward(arange(seq).unsqueeze(0)));
    const decoderCount = count === layers ? decoders : Math.min(count, decoders);
    const last = layersBelow('model.decoder.layers', decoderCount, x, (y) => {
      const seen = this.attention('self_attn', y, { heads, causal: true });
      const heard = this.attention('encoder_attn', seen, { heads, causal: false, memory });
      return this.feedForward(heard, decoderHidden);
    });
    const out = this.norm('model.decoder.layer_norm', last);
    return tied
      ? table.attend(out)
      : new Linear('proj_out', width, rows, { bias: false, dtype }).forward(out);
  }

  private encode(features: Tensor): Tensor {
    const { width, heads, hidden, mels, frames } = this.config;
    const { dtype, layers } = this.options;
    const sound = scope('model.encoder', () => {
      const first = this.convolved('conv1', features, mels, 1);
      return this.convolved('conv2', first, width, 2);
    }).permute(0, 2, 1);
    // A table of sines: stored with the parameters, never trained.
    const places = param(POSITIONS, { shape: [frames, width], dtype }).detach();
    const last = layersBelow('model.encoder.layers', layers, sound.add(places), (x) =>
      this.feedForward(this.attention('self_attn', x, { heads, causal: false }), hidden),
    );
    return this.norm('model.encoder.layer_norm', last);
  }

  private convolved(name: string, x: Tensor, from: number, stride: number): Tensor {
    const { width } = this.config;
    const { dtype } = this.options;
    return scope(name, () => {
      const weight = param('weight', { shape: [width, from, 3], dtype });
      return x
        .conv1d(weight, param('bias', { shape: [width], dtype }), { stride, padding: 1 })
        .gelu();
    });
  }

  /** One sub-layer: norm, attention named `name`, sum. */
  private attention(name: string, x: Tensor, { heads, causal, memory }: Reads): Tensor {
    const { width } = this.config;
    const { dtype } = this.options;
    const y = this.norm(`${name}_layer_norm`, x);
    const options = { width, heads, names: NAMES, biases: NO_KEY_BIAS, causal, dtype };
    return x.add(scope(name, () => biasedAttention(y, options, memory ?? y)));
  }

  /** One sub-layer: norm, feed-forward layer, sum. */
  private feedForward(x: Tensor, hidden: number): Tensor {
    const { width, activation } = this.config;
    const { dtype } = this.options;
    const names = ['fc1', 'fc2'] as const;
    const y = this.norm('final_layer_norm', x);
    return x.add(twoLayers(y, { width, hidden, names, activation, dtype }));
  }

  private norm(name: string, x: Tensor): Tensor {
    return layerNorm(name, x, this.config.width, EPS, this.options.dtype);
  }
}
