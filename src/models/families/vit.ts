/** ViT's architecture from its config: patches, encoder, classifier. */

import type { DType } from '../../graph/types.ts';
import { Linear } from '../../trace/nn/linear.ts';
import { spec } from '../../trace/record/spec.ts';
import { cat, crossEntropy } from '../../trace/tensor/functional.ts';
import { param, scope } from '../../trace/tensor/state.ts';
import type { Tensor } from '../../trace/tensor/tensor.ts';
import type { Family, ProgramOptions } from '../architecture.ts';
import { activationOf } from '../layers/activation.ts';
import { biasedAttention, layerNorm, layersBelow, twoLayers } from '../layers/encoder-layer.ts';
import { headsFit } from '../layers/heads.ts';
import { SELF_NAMES } from './bert.ts';

/**
 * ViT: patches of an image as tokens, with a class token in front; the bare encoder, or with a
 * classifier.
 */
export const VIT: Family = {
  types: ['vit'],
  classes: ['ViT'],
  read(config, _type, className = 'ViTModel') {
    if (className !== 'ViTModel' && className !== 'ViTForImageClassification')
      throw config.inconsistent(
        'architectures[0]',
        `is '${className}'`,
        'known: ViTModel, ViTForImageClassification',
        'E_UNSUPPORTED',
      );
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
    const patches = (image / patch) ** 2;
    const root = classifies ? 'vit.' : '';

    const layer = (x: Tensor, dtype: DType): Tensor => {
      const norm = (name: string, y: Tensor): Tensor => layerNorm(name, y, width, eps, dtype);
      const biases = { query: biased, key: biased, value: biased };
      const before = norm('layernorm_before', x);
      const names = SELF_NAMES('attention');
      const attended = scope('attention', () =>
        biasedAttention(before, { width, heads, names, biases, causal: false, dtype }),
      );
      const seen = x.add(attended);
      const inner = ['intermediate.dense', 'output.dense'] as const;
      return seen.add(
        twoLayers(norm('layernorm_after', seen), {
          width,
          hidden,
          names: inner,
          activation,
          dtype,
        }),
      );
    };
    const encoded = (pixels: Tensor, { batch, layers: count, dtype }: ProgramOptions): Tensor => {
      const x = scope(`${root}embeddings`, () => {
        const first = param('cls_token', { shape: [1, 1, width], dtype });
        const places = param('position_embeddings', { shape: [1, patches + 1, width], dtype });
        const cut = scope('patch_embeddings.projection', () =>
          pixels.conv2d(
            param('weight', { shape: [width, channels, patch, patch], dtype }),
            param('bias', { shape: [width], dtype }),
            { stride: patch },
          ),
        );
        const tokens = cut.flatten(2).transpose(1, 2);
        return cat([first.expand(batch, 1, width), tokens], 1).add(places);
      });
      const last = layersBelow(`${root}encoder.layer`, count, x, (y) => layer(y, dtype));
      return layerNorm(`${root}layernorm`, last, width, eps, dtype);
    };
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
        return {
          inputs:
            classifies && training
              ? { pixel_values: pixels, labels: spec([batch], 'i64') }
              : { pixel_values: pixels },
          run: ({ pixel_values, labels }) => {
            const last = encoded(pixel_values, options);
            if (!classifies) return { last };
            const logits = new Linear('classifier', width, classes, { dtype }).forward(
              last.select(1, 0),
            );
            return labels === undefined
              ? { logits }
              : { loss: crossEntropy(logits.to('f32'), labels) };
          },
        };
      },
    };
  },
};
