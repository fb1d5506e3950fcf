/** A Llama-like decoder as traced modules. */

import { checkKinds } from '../../arguments.ts';
import type { DType } from '../../graph/types.ts';
import { checkpoint } from '../control/checkpoint.ts';
import { crossEntropy } from '../tensor/functional.ts';
import { scope } from '../tensor/state.ts';
import type { Tensor } from '../tensor/tensor.ts';
import { MultiHeadAttention } from './attention.ts';
import { SwiGLU } from './feed-forward.ts';
import { Embedding, Linear } from './linear.ts';
import { RMSNorm } from './norm.ts';
import { type Rotation, rotation } from './rope.ts';

/** The config of a Llama-like decoder. */
export interface TransformerConfig {
  readonly vocabulary: number;
  readonly width: number;
  /** Width inside the feed-forward layer. */
  readonly hidden: number;
  readonly layers: number;
  readonly heads: number;
  /** Default: `heads`. */
  readonly keyHeads?: number;
  readonly eps?: number;
  readonly dtype?: DType;
  /** The output layer is the embedding table. Default false. */
  readonly tied?: boolean;
  /** Each block keeps its inputs only; the backward pass runs it again. Default false. */
  readonly checkpoint?: boolean;
}

/**
 * One decoder block: attention and a feed-forward layer, each behind a norm and added to its input.
 */
export class TransformerBlock {
  private readonly attention: MultiHeadAttention;
  private readonly mlp: SwiGLU;
  private readonly before: RMSNorm;
  private readonly between: RMSNorm;

  constructor(
    readonly name: string,
    options: TransformerConfig,
  ) {
    checkKinds('TransformerBlock', {
      name: [name, 'string'],
      options: [options, ['vocabulary', 'width', 'hidden']],
    });
    const { width, hidden, heads, keyHeads = heads, eps = 1e-5, dtype = 'f32' } = options;
    this.attention = new MultiHeadAttention('self_attn', width, heads, {
      keyHeads,
      causal: true,
      dtype,
    });
    this.mlp = new SwiGLU('mlp', width, hidden, { dtype });
    this.before = new RMSNorm('input_layernorm', width, { eps, dtype });
    this.between = new RMSNorm('post_attention_layernorm', width, { eps, dtype });
  }

  /** [batch, length, width] to the same. */
  forward(x: Tensor, turn: Rotation): Tensor {
    return scope(this.name, () => {
      const seen = x.add(this.attention.forward(this.before.forward(x), { rotation: turn }));
      return seen.add(this.mlp.forward(this.between.forward(seen)));
    });
  }
}

/** A decoder of such blocks, with the module names of Llama. */
export class Transformer {
  private readonly embedding: Embedding;
  private readonly blocks: readonly TransformerBlock[];
  private readonly norm: RMSNorm;
  private readonly head: Linear;

  constructor(private readonly config: TransformerConfig) {
    checkKinds('Transformer', { config: [config, ['vocabulary', 'width', 'hidden']] });
    const { vocabulary, width, layers, eps = 1e-5, dtype = 'f32' } = config;
    this.embedding = new Embedding('model.embed_tokens', vocabulary, width, { dtype });
    this.blocks = Array.from(
      { length: layers },
      (_, i) => new TransformerBlock(`model.layers.${i}`, config),
    );
    this.norm = new RMSNorm('model.norm', width, { eps, dtype });
    this.head = new Linear('lm_head', width, vocabulary, { bias: false, dtype });
  }

  /** Integer ids [batch, length] to logits [batch, length, vocabulary]. */
  forward(ids: Tensor): Tensor {
    const { width, heads, dtype = 'f32', tied = false } = this.config;
    const embedded = this.embedding.forward(ids);
    const turn = scope('model', () => rotation(ids.size(1), width / heads, dtype));
    const run = (x: Tensor, block: TransformerBlock): Tensor =>
      this.config.checkpoint === true
        ? checkpoint((input) => block.forward(input, turn), x)
        : block.forward(x, turn);
    const last = this.norm.forward(this.blocks.reduce(run, embedded));
    return tied ? this.embedding.attend(last) : this.head.forward(last);
  }

  /** Mean cross entropy of the logits against target ids of the same shape, in float32. */
  loss(ids: Tensor, targets: Tensor): Tensor {
    const logits = this.forward(ids).to('f32');
    return crossEntropy(logits.view(-1, this.config.vocabulary), targets.view(-1));
  }
}
