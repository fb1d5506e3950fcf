/** ViT's architecture from its config: patches, encoder, classifier. */

import type { Activation } from '../../trace/nn/feed-forward.ts';
import { Linear } from '../../trace/nn/linear.ts';
import { spec } from '../../trace/record/spec.ts';
import { cat, crossEntropy } from '../../trace/tensor/functional.ts';
import { param, scope } from '../../trace/tensor/state.ts';
import type { Tensor } from '../../trace/tensor/tensor.ts';
import type { Architecture, Family, ProgramOptions } from '../architecture.ts';
import { activationOf } from '../layers/activation.ts';
import { biasedAttention, layerNorm, layersBelow, twoLayers } from '../layers/encoder-layer.ts';
import { headsFit } from '../layers/heads.ts';
import type { ConfigReader } from '../read-config.ts';
import { SELF_NAMES } from './bert.ts';

/**
 * ViT: patches of an image as tokens, with a class token in front; the bare encoder, or with a
 * classifier.
 */
export const VIT: Family = {
  types: ['vit'],
  classes: ['ViT'],
  read: (config, _type, className) => architecture(readConfig(config, className)),
};

interface VitConfig {
  readonly classifies: boolean;
  readonly width: number;
  readonly heads: number;
  readonly headWidth: number;
  readonly hidden: number;
  readonly layers: number;
  readonly image: number;
  readonly patch: number;
  readonly channels: number;
  readonly eps: number;
  /** Queries, keys and values have biases. */
  readonly biased: boolean;
  readonly activation: Activation;
  readonly classes: number;
}

function readConfig(config: ConfigReader, className = 'ViTModel'): VitConfig {
  config.checkKnown('architectures[0]', className, ['ViTModel', 'ViTForImageClassification']);
  const classifies = className === 'ViTForImageClassification';
  const width = config.size('hidden_size');
  const heads = config.size('num_attention_heads');
  const headWidth = headsFit(config, 'hidden_size', width, 'num_attention_heads', heads);
  const hidden = config.size('intermediate_size');
  const image = config.size('image_size', 224);
  const patch = config.size('patch_size', 16);
  if (image % patch !== 0)
    throw config.inconsistent('image_size', `is ${image}, no multiple of patch_size ${patch}`);
  const channels = config.size('num_channels', 3);
  const eps = config.positive('layer_norm_eps') ?? 1e-12;
  const biased = config.flag('qkv_bias', true);
  const activation = activationOf(config, ['hidden_act'], 'gelu');
  const classes = classifies ? (config.entries('id2label') ?? config.size('num_labels', 2)) : 0;
  config.known('label2id', 'id2label', 'num_labels');
  const layers = config.count('num_hidden_layers');
  return {
    classifies,
    width,
    heads,
    headWidth,
    hidden,
    layers,
    image,
    patch,
    channels,
    eps,
    biased,
    activation,
    classes,
  };
}

const patchesOf = ({ image, patch }: VitConfig): number => (image / patch) ** 2;

function architecture(config: VitConfig): Architecture {
  const { classifies, layers, width, heads, headWidth, hidden, image, channels } = config;
  const patches = patchesOf(config);
  return {
    shape: {
      layers,
      width,
      heads,
      keyHeads: heads,
      headWidth,
      hidden,
      vocabulary: 0,
      positions: patches + 1,
    },
    notes: [
      `a sequence is the ${patches} patches of an image and one class token: --seq has no say`,
      ...(classifies ? [] : ['ViTModel has no loss: gradients start at its last hidden state']),
    ],
    program: (options) => {
      const { batch, training, dtype } = options;
      const pixels = spec([batch, channels, image, image], dtype);
      const network = new Network(config, options);
      return {
        inputs:
          classifies && training
            ? { pixel_values: pixels, labels: spec([batch], 'i64') }
            : { pixel_values: pixels },
        run: ({ pixel_values, labels }) =>
          classifies
            ? network.classified(pixel_values, labels)
            : { last: network.encoded(pixel_values) },
      };
    },
  };
}

/** The tensors of a program, part by part. */
class Network {
  private readonly root: string;

  constructor(
    private readonly config: VitConfig,
    private readonly options: ProgramOptions,
  ) {
    this.root = config.classifies ? 'vit.' : '';
  }

  /** The loss of an image's class; its logits without labels. */
  classified(pixels: Tensor, labels: Tensor | undefined): Readonly<Record<string, Tensor>> {
    const { width, classes } = this.config;
    const { dtype } = this.options;
    const last = this.encoded(pixels);
    const head = new Linear('classifier', width, classes, { dtype });
    const logits = head.forward(last.select(1, 0));
    return labels === undefined ? { logits } : { loss: crossEntropy(logits.to('f32'), labels) };
  }

  encoded(pixels: Tensor): Tensor {
    const { layers } = this.options;
    const x = scope(`${this.root}embeddings`, () => this.tokens(pixels));
    const last = layersBelow(`${this.root}encoder.layer`, layers, x, (y) => this.layer(y));
    return this.norm(`${this.root}layernorm`, last);
  }

  /** A class token and the patches of the image, with their places. */
  private tokens(pixels: Tensor): Tensor {
    const { width, channels, patch } = this.config;
    const { batch, dtype } = this.options;
    const first = param('cls_token', { shape: [1, 1, width], dtype });
    const length = patchesOf(this.config) + 1;
    const places = param('position_embeddings', { shape: [1, length, width], dtype });
    const cut = scope('patch_embeddings.projection', () =>
      pixels.conv2d(
        param('weight', { shape: [width, channels, patch, patch], dtype }),
        param('bias', { shape: [width], dtype }),
        { stride: patch },
      ),
    );
    const tokens = cut.flatten(2).transpose(1, 2);
    return cat([first.expand(batch, 1, width), tokens], 1).add(places);
  }

  private layer(x: Tensor): Tensor {
    const { width, heads, hidden, biased, activation } = this.config;
    const { dtype } = this.options;
    const biases = { query: biased, key: biased, value: biased };
    const before = this.norm('layernorm_before', x);
    const names = SELF_NAMES('attention');
    const attended = scope('attention', () =>
      biasedAttention(before, { width, heads, names, biases, causal: false, dtype }),
    );
    const seen = x.add(attended);
    const after = this.norm('layernorm_after', seen);
    const inner = ['intermediate.dense', 'output.dense'] as const;
    return seen.add(twoLayers(after, { width, hidden, names: inner, activation, dtype }));
  }

  private norm(name: string, x: Tensor): Tensor {
    const { width, eps } = this.config;
    return layerNorm(name, x, width, eps, this.options.dtype);
  }
}
