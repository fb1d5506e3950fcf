/** T5's architecture from its config: encoder, decoder, relative position biases. */

import type { DType } from '../../graph/types.ts';
import { activate, type Activation } from '../../trace/nn/feed-forward.ts';
import { Embedding, Linear } from '../../trace/nn/linear.ts';
import { RMSNorm } from '../../trace/nn/norm.ts';
import { spec } from '../../trace/record/spec.ts';
import { arange } from '../../trace/tensor/functional.ts';
import { scope } from '../../trace/tensor/state.ts';
import type { Tensor } from '../../trace/tensor/tensor.ts';
import type { Architecture, Family, ProgramOptions } from '../architecture.ts';
import { activationOf } from '../layers/activation.ts';
import {
  causalMask,
  joinHeads,
  splitHeads,
  writtenOutAttention,
} from '../layers/attention-core.ts';
import type { ConfigReader } from '../read-config.ts';
import { lossOrLogits } from './decoder.ts';

/**
 * T5: encoder and decoder, RMS norms, no biases, scores without a scale and with a bias for each
 * distance.
 */
export const T5: Family = {
  types: ['t5', 'mt5'],
  classes: ['T5For', 'MT5For'],
  read: (config, _type, className) => {
    config.checkHead(className, ['ForConditionalGeneration', 'WithLMHeadModel']);
    return architecture(readConfig(config));
  },
};

interface T5Config {
  readonly width: number;
  readonly heads: number;
  readonly headWidth: number;
  readonly hidden: number;
  readonly vocabulary: number;
  readonly layers: number;
  readonly decoders: number;
  readonly buckets: number;
  /** Distance from which all share the last bucket. */
  readonly farthest: number;
  readonly eps: number;
  readonly tied: boolean;
  readonly gated: boolean;
  readonly activation: Activation;
}

function readConfig(config: ConfigReader): T5Config {
  const width = config.size('d_model');
  const heads = config.size('num_heads');
  const headWidth = config.size('d_kv', 64);
  const hidden = config.size('d_ff');
  const vocabulary = config.size('vocab_size');
  const layers = config.count('num_layers');
  const decoders = config.count('num_decoder_layers', layers);
  const buckets = config.count('relative_attention_num_buckets', 32);
  const farthest = config.size('relative_attention_max_distance', 128);
  const eps = config.positive('layer_norm_epsilon') ?? 1e-6;
  const tied = config.flag('tie_word_embeddings', true);
  const form = config.text('feed_forward_proj') ?? 'relu';
  const gated = form.startsWith('gated-');
  const activation = activationOf(
    config,
    ['dense_act_fn'],
    form === 'gated-gelu' ? 'gelu_new' : form.replace('gated-', ''),
  );
  config.known('is_gated_act');
  return {
    width,
    heads,
    headWidth,
    hidden,
    vocabulary,
    layers,
    decoders,
    buckets,
    farthest,
    eps,
    tied,
    gated,
    activation,
  };
}

function architecture(config: T5Config): Architecture {
  const { layers, decoders, width, heads, headWidth, hidden, vocabulary, tied } = config;
  const stacks = { layers, decoderLayers: decoders };
  return {
    shape: { ...stacks, width, heads, keyHeads: heads, headWidth, hidden, vocabulary },
    rowParameters: tied ? width : 2 * width,
    notes: ['encoder and decoder read sequences of one length'],
    program: (options) => {
      const ids = spec([options.batch, options.seq], 'i64');
      const both = { input_ids: ids, decoder_input_ids: ids };
      const network = new Network(config, options);
      return {
        inputs: options.training ? { ...both, labels: ids } : both,
        run: ({ input_ids, decoder_input_ids, labels }) =>
          lossOrLogits(
            network.logits(input_ids, decoder_input_ids),
            labels,
            options.vocabulary ?? vocabulary,
          ),
      };
    },
  };
}

/** The values that an attention reads and adds to its scores. */
interface Reads {
  /** Keys and values come from it; absent: from the queries' own sequence. */
  readonly memory?: Tensor;
  readonly bias?: Tensor;
  readonly mask?: Tensor;
}

/** The tensors of a program, part by part. */
class Network {
  constructor(
    private readonly config: T5Config,
    private readonly options: ProgramOptions,
  ) {}

  logits(ids: Tensor, targets: Tensor): Tensor {
    const { width, layers, decoders, tied, vocabulary } = this.config;
    const { dtype, layers: count, vocabulary: rows = vocabulary } = this.options;
    const table = new Embedding('shared', rows, width, { dtype });
    const memory = this.stack('encoder', table.forward(ids), count);
    const decoderCount = count === layers ? decoders : Math.min(count, decoders);
    const last = this.stack('decoder', table.forward(targets), decoderCount, memory);
    return tied ? table.attend(last.mul(width ** -0.5)) : this.linear('lm_head', last, width, rows);
  }

  /** A stack of blocks; `memory` makes it a decoder. */
  private stack(path: string, x: Tensor, count: number, memory?: Tensor): Tensor {
    const { seq, dtype } = this.options;
    const bias = scope(`${path}.block.0.layer.0.SelfAttention`, () =>
      distanceBias(seq, { ...this.config, bidirectional: memory === undefined }, dtype),
    );
    const own = memory === undefined ? { bias } : { bias, mask: causalMask(seq) };
    let out = x;
    for (let i = 0; i < count; i++)
      out = scope(`${path}.block.${i}`, () => {
        const seen = scope('layer.0', () => this.attention(out, 'SelfAttention', own));
        if (memory === undefined) return scope('layer.1', () => this.feedForward(seen));
        const read = scope('layer.1', () => this.attention(seen, 'EncDecAttention', { memory }));
        return scope('layer.2', () => this.feedForward(read));
      });
    return this.norm(`${path}.final_layer_norm`, out);
  }

  /** One sub-layer: norm, attention named `name`, sum. */
  private attention(x: Tensor, name: string, reads: Reads): Tensor {
    const { width, heads, headWidth } = this.config;
    const inner = heads * headWidth;
    const y = this.norm('layer_norm', x);
    const { memory = y, ...scores } = reads;
    const mixed = scope(name, () => {
      const q = this.linear('q', y, width, inner);
      const k = this.linear('k', memory, width, inner);
      const v = this.linear('v', memory, width, inner);
      const [q4, k4, v4] = [q, k, v].map((part) => splitHeads(part, headWidth));
      const shape = { heads, keyHeads: heads, scale: 1 };
      const out = writtenOutAttention(q4, k4, v4, { ...shape, ...scores });
      return this.linear('o', joinHeads(out), inner, width);
    });
    return x.add(mixed);
  }

  /** One sub-layer: norm, feed-forward layer, sum. */
  private feedForward(x: Tensor): Tensor {
    const { width, hidden, gated, activation } = this.config;
    const y = this.norm('layer_norm', x);
    const made = scope('DenseReluDense', () => {
      const h = gated
        ? activate(this.linear('wi_0', y, width, hidden), activation).mul(
            this.linear('wi_1', y, width, hidden),
          )
        : activate(this.linear('wi', y, width, hidden), activation);
      return this.linear('wo', h, hidden, width);
    });
    return x.add(made);
  }

  private norm(name: string, x: Tensor): Tensor {
    const { width, eps } = this.config;
    return new RMSNorm(name, width, { eps, dtype: this.options.dtype }).forward(x);
  }

  private linear(name: string, x: Tensor, from: number, to: number): Tensor {
    return new Linear(name, from, to, { bias: false, dtype: this.options.dtype }).forward(x);
  }
}

interface Distances extends Pick<T5Config, 'heads' | 'buckets' | 'farthest'> {
  readonly bidirectional: boolean;
}

/**
 * One number for each head and distance, [1, heads, length, length]: near distances have a bucket
 * each, far ones share buckets that grow as the logarithm; with `bidirectional`, half of them are
 * for keys behind the query.
 */
function distanceBias(
  length: number,
  { heads, buckets, farthest, bidirectional }: Distances,
  dtype: DType,
): Tensor {
  const ahead = arange(length).unsqueeze(0).sub(arange(length).unsqueeze(1));
  const count = bidirectional ? buckets / 2 : buckets;
  const distance = bidirectional ? ahead.abs() : ahead.neg().clamp(0);
  const exact = count / 2;
  const growth = (count - exact) / Math.log(farthest / exact);
  const far = distance
    .to('f32')
    .clamp(1)
    .div(exact)
    .log()
    .mul(growth)
    .to('i64')
    .add(exact)
    .clamp(null, count - 1);
  const bucket = distance.lt(exact).where(distance, far);
  const placed = bidirectional ? bucket.add(ahead.gt(0).to('i64').mul(count)) : bucket;
  const table = new Embedding('relative_attention_bias', buckets, heads, { dtype });
  return table.forward(placed).permute(2, 0, 1).unsqueeze(0);
}
