/** DiT's architecture from its config: transformers on patches of latents (arXiv:2212.09748). */

import type { DType } from '../../graph/types.ts';
import { Embedding, Linear } from '../../trace/nn/linear.ts';
import { spec } from '../../trace/record/spec.ts';
import { arange, cat, mseLoss } from '../../trace/tensor/functional.ts';
import { param, scope } from '../../trace/tensor/state.ts';
import type { Tensor } from '../../trace/tensor/tensor.ts';
import type { Architecture, Family, ProgramOptions } from '../architecture.ts';
import { fusedAttention, joinHeads, splitHeads } from '../layers/attention-core.ts';
import { layersBelow, twoLayers } from '../layers/encoder-layer.ts';
import { headsFit } from '../layers/heads.ts';
import type { ConfigReader } from '../read-config.ts';

/** DiT with adaLN-Zero blocks, with the module names of facebookresearch/DiT. */
export const DIT: Family = {
  types: ['dit'],
  classes: ['DiT'],
  read: (config) => architecture(readConfig(config)),
};

interface DitConfig {
  readonly width: number;
  readonly heads: number;
  readonly headWidth: number;
  readonly hidden: number;
  readonly layers: number;
  /** Rows and columns of the latents. */
  readonly size: number;
  readonly patch: number;
  readonly channels: number;
  readonly classes: number;
  /** The network gives a variance for every channel, too. */
  readonly learnsVariance: boolean;
}

function readConfig(config: ConfigReader): DitConfig {
  const width = config.size('hidden_size');
  const heads = config.size('num_attention_heads');
  const size = config.size('input_size', 32);
  const patch = config.size('patch_size', 2);
  if (size % patch !== 0)
    throw config.inconsistent('input_size', `is ${size}, no multiple of patch_size ${patch}`);
  return {
    width,
    heads,
    headWidth: headsFit(config, 'hidden_size', width, 'num_attention_heads', heads),
    hidden: config.size('mlp_ratio', 4) * width,
    layers: config.count('num_hidden_layers'),
    size,
    patch,
    channels: config.size('in_channels', 4),
    classes: config.size('num_classes', 1000),
    learnsVariance: config.flag('learn_sigma', true),
  };
}

/** The table of positions is stored and not trained. */
const POSITIONS = 'pos_embed';
/** Width of the sines and cosines of a time step. */
const FREQUENCIES = 256;

function architecture(config: DitConfig): Architecture {
  const { layers, width, heads, headWidth, hidden, size, patch, channels } = config;
  const tokens = (size / patch) ** 2;
  return {
    shape: {
      layers,
      width,
      heads,
      keyHeads: heads,
      headWidth,
      hidden,
      vocabulary: 0,
      positions: tokens,
    },
    frozen: [POSITIONS],
    isUnmeasured: true,
    notes: [
      `a sequence is the ${tokens} patches of the latents of an image: --seq has no say`,
      'the loss is the squared error of the noise; the bound on the variance is left out',
    ],
    program: (options) => {
      const { batch, training, dtype } = options;
      const latents = spec([batch, channels, size, size], dtype);
      const inputs = {
        x: latents,
        t: spec([batch], 'i64'),
        y: spec([batch], 'i64'),
      };
      const network = new Network(config, options);
      return {
        inputs: training ? { ...inputs, noise: latents } : inputs,
        run: ({ x, t, y, noise }) => {
          const made = network.denoised(x, t, y);
          if (!training) return { out: made };
          return { loss: mseLoss(made.slice(1, 0, channels).to('f32'), noise.to('f32')) };
        },
      };
    },
  };
}

/** The tensors of a program, part by part. */
class Network {
  private readonly dtype: DType;

  constructor(
    private readonly config: DitConfig,
    private readonly options: ProgramOptions,
  ) {
    this.dtype = options.dtype;
  }

  /** Latents [batch, channels, rows, columns], time steps and classes [batch] to noise. */
  denoised(latents: Tensor, steps: Tensor, classes: Tensor): Tensor {
    const { width } = this.config;
    const x = this.patches(latents);
    const table = new Embedding('y_embedder.embedding_table', this.config.classes + 1, width, {
      dtype: this.dtype,
    });
    const condition = this.time(steps).add(table.forward(classes)).silu();
    const last = layersBelow('blocks', this.options.layers, x, (y) => this.block(y, condition));
    return this.image(last, condition);
  }

  private linear(name: string, inner: number, outer: number, x: Tensor): Tensor {
    return new Linear(name, inner, outer, { dtype: this.dtype }).forward(x);
  }

  private patches(latents: Tensor): Tensor {
    const { width, channels, patch, size } = this.config;
    const { dtype } = this;
    const cut = scope('x_embedder.proj', () =>
      latents.conv2d(
        param('weight', { shape: [width, channels, patch, patch], dtype }),
        param('bias', { shape: [width], dtype }),
        { stride: patch },
      ),
    );
    const places = param(POSITIONS, { shape: [1, (size / patch) ** 2, width], dtype });
    return cut.flatten(2).transpose(1, 2).add(places);
  }

  /** Sines and cosines of time steps through two layers. [batch] to [batch, width]. */
  private time(steps: Tensor): Tensor {
    const { width } = this.config;
    const half = FREQUENCIES / 2;
    return scope('t_embedder', () => {
      const rates = arange(half)
        .to('f32')
        .mul(-Math.log(10_000) / half)
        .exp();
      const angles = steps.to('f32').unsqueeze(1).mul(rates.unsqueeze(0));
      const waves = cat([angles.cos(), angles.sin()], -1).to(this.dtype);
      const inner = this.linear('mlp.0', FREQUENCIES, width, waves).silu();
      return this.linear('mlp.2', width, width, inner);
    });
  }

  private block(x: Tensor, condition: Tensor): Tensor {
    const { width, hidden } = this.config;
    const { dtype } = this;
    const made = this.linear('adaLN_modulation.1', width, 6 * width, condition);
    const [shift, scale, gate, shiftMlp, scaleMlp, gateMlp] = made
      .chunk(6, 1)
      .map((part) => part.unsqueeze(1));
    const attended = scope('attn', () => this.attention(this.modulated(x, shift, scale)));
    const seen = x.add(gate.mul(attended));
    const inner = this.modulated(seen, shiftMlp, scaleMlp);
    const names = ['fc1', 'fc2'] as const;
    const mixed = scope('mlp', () =>
      twoLayers(inner, { width, hidden, names, activation: 'gelu_tanh', dtype }),
    );
    return seen.add(gateMlp.mul(mixed));
  }

  private attention(x: Tensor): Tensor {
    const { width, headWidth } = this.config;
    const parts = this.linear('qkv', width, 3 * width, x).chunk(3, -1);
    const [q, k, v] = parts.map((part) => splitHeads(part, headWidth));
    return this.linear('proj', width, width, joinHeads(fusedAttention(q, k, v, { causal: false })));
  }

  /** A norm without weights, scaled and shifted by the condition. */
  private modulated(x: Tensor, shift: Tensor, scale: Tensor): Tensor {
    const normed = x.layerNorm([this.config.width], undefined, undefined, 1e-6);
    return normed.mul(scale.add(1)).add(shift);
  }

  /** Tokens to channels [batch, channels, rows, columns]. */
  private image(x: Tensor, condition: Tensor): Tensor {
    const { width, patch, size, channels, learnsVariance } = this.config;
    const outer = learnsVariance ? 2 * channels : channels;
    const rows = size / patch;
    return scope('final_layer', () => {
      const made = this.linear('adaLN_modulation.1', width, 2 * width, condition);
      const [shift, scale] = made.chunk(2, 1).map((part) => part.unsqueeze(1));
      const pixels = this.linear(
        'linear',
        width,
        patch * patch * outer,
        this.modulated(x, shift, scale),
      );
      return pixels
        .view(this.options.batch, rows, rows, patch, patch, outer)
        .permute(0, 5, 1, 3, 2, 4)
        .reshape(this.options.batch, outer, size, size);
    });
  }
}
