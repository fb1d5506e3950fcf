/** T5's architecture from its config: encoder, decoder, relative position biases. */

import type { DType } from '../../graph/types.ts';
import { activate } from '../../trace/nn/feed-forward.ts';
import { Embedding, Linear } from '../../trace/nn/linear.ts';
import { RMSNorm } from '../../trace/nn/norm.ts';
import { spec } from '../../trace/record/spec.ts';
import { arange } from '../../trace/tensor/functional.ts';
import { scope } from '../../trace/tensor/state.ts';
import type { Tensor } from '../../trace/tensor/tensor.ts';
import type { Family, ProgramOptions } from '../architecture.ts';
import { activationOf } from '../layers/activation.ts';
import {
  causalMask,
  joinHeads,
  splitHeads,
  writtenOutAttention,
} from '../layers/attention-core.ts';
import { lossOrLogits } from './decoder.ts';

/**
 * T5: encoder and decoder, RMS norms, no biases, scores without a scale and with a bias for each
 * distance.
 */
export const T5: Family = {
  types: ['t5', 'mt5'],
  classes: ['T5For', 'MT5For'],
  read(config) {
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
    const named = activationOf(
      config,
      ['dense_act_fn'],
      form === 'gated-gelu' ? 'gelu_new' : form.replace('gated-', ''),
    );
    config.known('is_gated_act');
    const inner = heads * headWidth;

    const norm = (name: string, x: Tensor, dtype: DType): Tensor =>
      new RMSNorm(name, width, { eps, dtype }).forward(x);
    const linear = (name: string, x: Tensor, from: number, to: number, dtype: DType): Tensor =>
      new Linear(name, from, to, { bias: false, dtype }).forward(x);

    /** One sub-layer: norm, attention named `name`, sum. */
    const attention = (
      x: Tensor,
      name: string,
      given: { memory?: Tensor; bias?: Tensor; mask?: Tensor },
      dtype: DType,
    ): Tensor => {
      const y = norm('layer_norm', x, dtype);
      const { memory = y, bias, mask } = given;
      const mixed = scope(name, () => {
        const [q, k, v] = [
          linear('q', y, width, inner, dtype),
          linear('k', memory, width, inner, dtype),
          linear('v', memory, width, inner, dtype),
        ];
        const [q4, k4, v4] = [
          splitHeads(q, headWidth),
          splitHeads(k, headWidth),
          splitHeads(v, headWidth),
        ];
        const out = writtenOutAttention(q4, k4, v4, {
          heads,
          keyHeads: heads,
          scale: 1,
          ...(bias === undefined ? {} : { bias }),
          ...(mask === undefined ? {} : { mask }),
        });
        return linear('o', joinHeads(out), inner, width, dtype);
      });
      return x.add(mixed);
    };
    const feedForward = (x: Tensor, dtype: DType): Tensor => {
      const y = norm('layer_norm', x, dtype);
      const made = scope('DenseReluDense', () => {
        const h = gated
          ? activate(linear('wi_0', y, width, hidden, dtype), named).mul(
              linear('wi_1', y, width, hidden, dtype),
            )
          : activate(linear('wi', y, width, hidden, dtype), named);
        return linear('wo', h, hidden, width, dtype);
      });
      return x.add(made);
    };
    /** A stack of blocks; `memory` makes it a decoder. */
    const stack = (
      path: string,
      x: Tensor,
      count: number,
      { seq, dtype }: ProgramOptions,
      memory?: Tensor,
    ): Tensor => {
      const bias = scope(`${path}.block.0.layer.0.SelfAttention`, () =>
        distanceBias(seq, { heads, buckets, farthest, bidirectional: memory === undefined }, dtype),
      );
      const mask = memory === undefined ? undefined : causalMask(seq);
      let out = x;
      for (let i = 0; i < count; i++)
        out = scope(`${path}.block.${i}`, () => {
          const seen = scope('layer.0', () =>
            attention(out, 'SelfAttention', mask === undefined ? { bias } : { bias, mask }, dtype),
          );
          if (memory === undefined) return scope('layer.1', () => feedForward(seen, dtype));
          const read = scope('layer.1', () =>
            attention(seen, 'EncDecAttention', { memory }, dtype),
          );
          return scope('layer.2', () => feedForward(read, dtype));
        });
      return norm(`${path}.final_layer_norm`, out, dtype);
    };
    const logits = (ids: Tensor, targets: Tensor, options: ProgramOptions): Tensor => {
      const { dtype, layers: count, vocabulary: rows = vocabulary } = options;
      const table = new Embedding('shared', rows, width, { dtype });
      const memory = stack('encoder', table.forward(ids), count, options);
      const decoderCount = count === layers ? decoders : Math.min(count, decoders);
      const last = stack('decoder', table.forward(targets), decoderCount, options, memory);
      return tied
        ? table.attend(last.mul(width ** -0.5))
        : linear('lm_head', last, width, rows, dtype);
    };
    return {
      shape: { layers, width, heads, keyHeads: heads, headWidth, hidden, vocabulary },
      rowParameters: tied ? width : 2 * width,
      notes: ['encoder and decoder read sequences of one length'],
      program: (options) => {
        const ids = spec([options.batch, options.seq], 'i64');
        const both = { input_ids: ids, decoder_input_ids: ids };
        return {
          inputs: options.training ? { ...both, labels: ids } : both,
          run: ({ input_ids, decoder_input_ids, labels }) =>
            lossOrLogits(
              logits(input_ids, decoder_input_ids, options),
              labels,
              options.vocabulary ?? vocabulary,
            ),
        };
      },
    };
  },
};

interface Distances {
  readonly heads: number;
  readonly buckets: number;
  /** Distance from which all share the last bucket. */
  readonly farthest: number;
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
