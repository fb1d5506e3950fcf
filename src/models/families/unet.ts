/**
 * The UNet of Stable Diffusion XL from its config (arXiv:2307.01952), with the module names of
 * `UNet2DConditionModel` of diffusers.
 */

import type { DType } from '../../graph/types.ts';
import { Linear } from '../../trace/nn/linear.ts';
import { LayerNorm } from '../../trace/nn/norm.ts';
import { spec } from '../../trace/record/spec.ts';
import { arange, cat, mseLoss } from '../../trace/tensor/functional.ts';
import { param, scope } from '../../trace/tensor/state.ts';
import type { Tensor } from '../../trace/tensor/tensor.ts';
import type { Architecture, Family, ProgramOptions } from '../architecture.ts';
import { fusedAttention, joinHeads, splitHeads } from '../layers/attention-core.ts';
import { layersBelow } from '../layers/encoder-layer.ts';
import type { ConfigReader } from '../read-config.ts';

/** A UNet of residual and transformer blocks that reads a text and the sizes of the image. */
export const UNET: Family = {
  types: ['unet2d_condition'],
  classes: ['UNet2DConditionModel'],
  read: (config) => architecture(readConfig(config)),
};

interface UnetConfig {
  /** Rows and columns of the latents. */
  readonly size: number;
  readonly channels: number;
  /** Channels of each level, the widest rows first. */
  readonly widths: readonly number[];
  /** Transformer layers of each level; 0 for a level without attention. */
  readonly transformers: readonly number[];
  /** Residual blocks of a level on the way down. */
  readonly blocks: number;
  /** Width of the vectors of the text, and of the text with sizes as a whole. */
  readonly text: number;
  readonly added: number;
  /** Width of the sines of one of the six sizes. */
  readonly sizeWidth: number;
  readonly headWidth: number;
  readonly groups: number;
}

/** Tokens of a text (CLIP). */
const TEXT_TOKENS = 77;
/** Sizes that an image is described by: original, crop and target, two each. */
const IMAGE_SIZES = 6;

function numbers(config: ConfigReader, name: string): number[] {
  return (config.list(name, 'number') ?? []).map(Number);
}

function readConfig(config: ConfigReader): UnetConfig {
  const widths = numbers(config, 'block_out_channels');
  const layers = numbers(config, 'transformer_layers_per_block');
  const types = config.list('down_block_types', 'string') ?? [];
  const heads = numbers(config, 'attention_head_dim');
  if (widths.length === 0 || layers.length !== widths.length || types.length !== widths.length)
    throw config.inconsistent(
      'block_out_channels',
      `has ${widths.length} levels, down_block_types and transformer_layers_per_block have ` +
        `${types.length} and ${layers.length}`,
    );
  // The key is of before diffusers told heads from their widths: it counts heads.
  const headWidth = (widths[0] ?? 0) / (heads[0] ?? 1);
  config.checkKnown('addition_embed_type', config.text('addition_embed_type') ?? 'text_time', [
    'text_time',
  ]);
  config.known('up_block_types', 'use_linear_projection', 'sample_size', 'out_channels');
  return {
    size: config.size('sample_size', 128),
    channels: config.size('in_channels', 4),
    widths,
    transformers: types.map((type, i) => (type === 'DownBlock2D' ? 0 : (layers[i] ?? 0))),
    blocks: config.size('layers_per_block', 2),
    text: config.size('cross_attention_dim'),
    added: config.size('projection_class_embeddings_input_dim'),
    sizeWidth: config.size('addition_time_embed_dim', 256),
    headWidth,
    groups: config.size('norm_num_groups', 32),
  };
}

function architecture(config: UnetConfig): Architecture {
  const { widths, transformers, blocks, size, channels, text, added, sizeWidth } = config;
  const width = widths.at(-1) ?? 0;
  const depth = (transformers.at(-1) ?? 0) * 2;
  const layers = transformers.reduce((sum, n) => sum + n * (2 * blocks + 1), depth / 2);
  const pooled = added - IMAGE_SIZES * sizeWidth;
  return {
    shape: {
      layers,
      width,
      heads: width / config.headWidth,
      keyHeads: width / config.headWidth,
      headWidth: config.headWidth,
      hidden: 4 * width,
      vocabulary: 0,
    },
    isNoStack: true,
    isUnmeasured: true,
    notes: [
      `latents of ${size} x ${size} and texts of ${TEXT_TOKENS} tokens: --seq has no say`,
      'the loss is the squared error of the noise',
    ],
    program: (options) => {
      const { batch, training, dtype } = options;
      const latents = spec([batch, channels, size, size], dtype);
      const inputs = {
        sample: latents,
        timestep: spec([batch], 'i64'),
        encoder_hidden_states: spec([batch, TEXT_TOKENS, text], dtype),
        text_embeds: spec([batch, pooled], dtype),
        time_ids: spec([batch, IMAGE_SIZES], 'i64'),
      };
      return {
        inputs: training ? { ...inputs, noise: latents } : inputs,
        run: (given) => {
          const made = new Network(config, options, given.encoder_hidden_states).denoised(given);
          if (!training) return { sample: made };
          return { loss: mseLoss(made.to('f32'), given.noise.to('f32')) };
        },
      };
    },
  };
}

/** The tensors of a program, part by part. */
class Network {
  private readonly dtype: DType;
  /** Width of what time steps and sizes are made into. */
  private readonly timed: number;

  constructor(
    private readonly config: UnetConfig,
    { dtype }: ProgramOptions,
    private readonly text: Tensor,
  ) {
    this.dtype = dtype;
    this.timed = 4 * (config.widths[0] ?? 0);
  }

  /** Latents [batch, channels, rows, columns] to noise of the same shape. */
  denoised(given: Readonly<Record<string, Tensor>>): Tensor {
    const { widths, channels, groups } = this.config;
    const [first = 0] = widths;
    const time = this.condition(given);
    const x = this.conv('conv_in', channels, first, given.sample);
    const kept = [x];
    const middle = this.middle(this.down(x, time, kept), time);
    const last = this.up(middle, time, kept);
    const normed = this.groupNorm('conv_norm_out', first, last, groups, 1e-5).silu();
    return this.conv('conv_out', first, channels, normed);
  }

  /** Time steps, the text as a whole and the sizes of the image. [batch, 4 * width]. */
  private condition({ timestep, text_embeds, time_ids }: Readonly<Record<string, Tensor>>): Tensor {
    const { widths, added, sizeWidth } = this.config;
    const [first = 0] = widths;
    const batch = text_embeds.size(0);
    const sizes = this.waves(time_ids.reshape(-1), sizeWidth).reshape(batch, -1);
    const time = this.twoLinears('time_embedding', first, this.waves(timestep, first));
    return time.add(this.twoLinears('add_embedding', added, cat([text_embeds, sizes], -1)));
  }

  private waves(values: Tensor, width: number): Tensor {
    const half = width / 2;
    const rates = arange(half)
      .to('f32')
      .mul(-Math.log(10_000) / half)
      .exp();
    const angles = values.to('f32').unsqueeze(1).mul(rates.unsqueeze(0));
    return cat([angles.cos(), angles.sin()], -1).to(this.dtype);
  }

  private twoLinears(name: string, inner: number, x: Tensor): Tensor {
    const { timed } = this;
    return scope(name, () =>
      this.linear('linear_2', timed, timed, this.linear('linear_1', inner, timed, x).silu()),
    );
  }

  private linear(name: string, inner: number, outer: number, x: Tensor, bias = true): Tensor {
    return new Linear(name, inner, outer, { bias, dtype: this.dtype }).forward(x);
  }

  private conv(
    name: string,
    inner: number,
    outer: number,
    x: Tensor,
    { kernel = 3, stride = 1 } = {},
  ): Tensor {
    const { dtype } = this;
    return scope(name, () =>
      x.conv2d(
        param('weight', { shape: [outer, inner, kernel, kernel], dtype }),
        param('bias', { shape: [outer], dtype }),
        { stride, padding: (kernel - 1) / 2 },
      ),
    );
  }

  private groupNorm(name: string, width: number, x: Tensor, groups: number, eps: number): Tensor {
    const shape = [width];
    const { dtype } = this;
    return scope(name, () =>
      x.groupNorm(groups, param('weight', { shape, dtype }), param('bias', { shape, dtype }), eps),
    );
  }

  /** The way down; what the way up reads is kept. */
  private down(x: Tensor, time: Tensor, kept: Tensor[]): Tensor {
    const { widths, transformers, blocks } = this.config;
    let y = x;
    widths.forEach((width, level) => {
      const before = widths[level - 1] ?? widths[0] ?? 0;
      scope(`down_blocks.${level}`, () => {
        for (let b = 0; b < blocks; b++) {
          y = this.residual(`resnets.${b}`, b === 0 ? before : width, width, y, time);
          y = this.transformer(`attentions.${b}`, transformers[level] ?? 0, width, y);
          kept.push(y);
        }
        if (level === widths.length - 1) return;
        y = this.conv('downsamplers.0.conv', width, width, y, { stride: 2 });
        kept.push(y);
      });
    });
    return y;
  }

  private middle(x: Tensor, time: Tensor): Tensor {
    const width = this.config.widths.at(-1) ?? 0;
    return scope('mid_block', () => {
      const y = this.residual('resnets.0', width, width, x, time);
      const seen = this.transformer('attentions.0', this.config.transformers.at(-1) ?? 0, width, y);
      return this.residual('resnets.1', width, width, seen, time);
    });
  }

  private up(x: Tensor, time: Tensor, kept: Tensor[]): Tensor {
    const { widths, transformers, blocks } = this.config;
    let y = x;
    let before = widths.at(-1) ?? 0;
    [...widths.keys()].reverse().forEach((level, block) => {
      const width = widths[level] ?? 0;
      scope(`up_blocks.${block}`, () => {
        for (let b = 0; b <= blocks; b++) {
          const skip = kept.pop();
          if (skip === undefined) throw new RangeError('the way up is longer than the way down');
          const inner = before + Number(skip.size(1));
          y = this.residual(`resnets.${b}`, inner, width, cat([y, skip], 1), time);
          y = this.transformer(`attentions.${b}`, transformers[level] ?? 0, width, y);
          before = width;
        }
        if (level > 0) y = this.conv('upsamplers.0.conv', width, width, twice(y));
      });
    });
    return y;
  }

  private residual(name: string, inner: number, outer: number, x: Tensor, time: Tensor): Tensor {
    const { groups } = this.config;
    return scope(name, () => {
      const first = this.groupNorm('norm1', inner, x, groups, 1e-5).silu();
      const timed = this.linear('time_emb_proj', this.timed, outer, time.silu());
      const made = this.conv('conv1', inner, outer, first).add(timed.unsqueeze(-1).unsqueeze(-1));
      const second = this.groupNorm('norm2', outer, made, groups, 1e-5).silu();
      const short =
        inner === outer ? x : this.conv('conv_shortcut', inner, outer, x, { kernel: 1 });
      return short.add(this.conv('conv2', outer, outer, second));
    });
  }

  /** Transformer layers on the positions of an image. */
  private transformer(name: string, layers: number, width: number, x: Tensor): Tensor {
    if (layers === 0) return x;
    const [batch, , rows, columns] = x.shape;
    return scope(name, () => {
      const normed = this.groupNorm('norm', width, x, this.config.groups, 1e-6);
      const tokens = normed.flatten(2).transpose(1, 2);
      const first = this.linear('proj_in', width, width, tokens);
      const last = layersBelow('transformer_blocks', layers, first, (y) => this.layer(y, width));
      const made = this.linear('proj_out', width, width, last);
      return made.transpose(1, 2).reshape(batch, width, rows, columns).add(x);
    });
  }

  private layer(x: Tensor, width: number): Tensor {
    const norm = (name: string, y: Tensor): Tensor =>
      new LayerNorm(name, width, { dtype: this.dtype }).forward(y);
    const own = norm('norm1', x);
    const seen = x.add(scope('attn1', () => this.attention(own, own, width, width)));
    const query = norm('norm2', seen);
    const read = seen.add(
      scope('attn2', () => this.attention(query, this.text, width, this.config.text)),
    );
    const inner = norm('norm3', read);
    const mixed = scope('ff', () => {
      const [value, gate] = this.linear('net.0.proj', width, 8 * width, inner).chunk(2, -1);
      return this.linear('net.2', 4 * width, width, value.mul(gate.gelu()));
    });
    return read.add(mixed);
  }

  private attention(x: Tensor, memory: Tensor, width: number, inner: number): Tensor {
    const { headWidth } = this.config;
    const one = (name: string, y: Tensor, from: number): Tensor =>
      splitHeads(this.linear(name, from, width, y, false), headWidth);
    const [q, k, v] = [
      one('to_q', x, width),
      one('to_k', memory, inner),
      one('to_v', memory, inner),
    ];
    return this.linear(
      'to_out.0',
      width,
      width,
      joinHeads(fusedAttention(q, k, v, { causal: false })),
    );
  }
}

/** Twice the rows and columns, each value four times. */
function twice(x: Tensor): Tensor {
  const [batch, channels, rows, columns] = x.shape.map(Number);
  return x
    .view(batch, channels, rows, 1, columns, 1)
    .expand(batch, channels, rows, 2, columns, 2)
    .reshape(batch, channels, 2 * rows, 2 * columns);
}
