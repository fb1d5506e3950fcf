/** Multi-head attention as a traced module, with grouped queries and rotary positions. */

import { checkKinds } from '../../arguments.ts';
import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import { sizes } from '../sizes/sizes.ts';
import { type AttentionOptions, scaledDotProductAttention } from '../tensor/functional.ts';
import { scope } from '../tensor/state.ts';
import type { Tensor } from '../tensor/tensor.ts';
import { Linear, type LinearOptions } from './linear.ts';
import { rotateHeads, type Rotation } from './rope.ts';

interface MultiHeadOptions extends LinearOptions {
  /** Width of a head, width / heads by default. */
  readonly headWidth?: number;
  /**
   * Heads of keys and values, each shared by heads / keyHeads query heads; all of them by default.
   */
  readonly keyHeads?: number;
  /** Each position sees those up to its own. Default false. */
  readonly causal?: boolean;
}

/**
 * Attention with several heads; grouped queries where there are fewer key heads; rotary positions
 * where they are given.
 */
export class MultiHeadAttention {
  private readonly query: Linear;
  private readonly key: Linear;
  private readonly value: Linear;
  private readonly output: Linear;
  private readonly headWidth: number;
  private readonly keyHeads: number;

  /** @throws E_TRACE_INPUT when the heads do not divide */
  constructor(
    readonly name: string,
    width: number,
    private readonly heads: number,
    private readonly options: MultiHeadOptions = {},
  ) {
    checkKinds('MultiHeadAttention', {
      name: [name, 'string'],
      width: [width, 'number'],
      heads: [heads, 'number'],
      options: [options, 'record'],
    });
    this.headWidth = options.headWidth ?? width / heads;
    this.keyHeads = options.keyHeads ?? heads;
    if (!Number.isInteger(this.headWidth) || heads % this.keyHeads !== 0)
      throw new ShardwrightError(
        'E_TRACE_INPUT',
        `attention '${name}': ${heads} heads (${this.keyHeads} of keys) do not divide a ` +
          `width of ${width}`,
        {
          hint: 'heads divide the width, and key heads divide the heads.',
        },
      );
    const plain = { ...options, bias: options.bias ?? false };
    this.query = new Linear('q_proj', width, heads * this.headWidth, plain);
    this.key = new Linear('k_proj', width, this.keyHeads * this.headWidth, plain);
    this.value = new Linear('v_proj', width, this.keyHeads * this.headWidth, plain);
    this.output = new Linear('o_proj', heads * this.headWidth, width, plain);
  }

  /** [batch, length, width] to the same; keys and values come from `memory` where it is given. */
  forward(
    x: Tensor,
    extra: { readonly rotation?: Rotation; readonly mask?: Tensor; readonly memory?: Tensor } = {},
  ): Tensor {
    const { rotation, mask, memory = x } = extra;
    return scope(this.name, () => {
      const [q, k, v] = [
        this.split(this.query.forward(x)),
        this.split(this.key.forward(memory)),
        this.split(this.value.forward(memory)),
      ];
      const options: AttentionOptions = {
        ...defined({ mask }),
        causal: this.options.causal ?? false,
        groupedQueries: this.keyHeads !== this.heads,
      };
      // One pair of cosines and sines serves queries and keys.
      const turn = rotation && { cos: rotation.cos.unsqueeze(1), sin: rotation.sin.unsqueeze(1) };
      const [turnedQ, turnedK] =
        turn === undefined ? [q, k] : [rotateHeads(q, turn), rotateHeads(k, turn)];
      const mixed = scaledDotProductAttention(turnedQ, turnedK, v, options);
      const joined = mixed
        .transpose(1, 2)
        .reshape(x.size(0), x.size(1), sizes.mul(this.heads, this.headWidth));
      return this.output.forward(joined);
    });
  }

  /** [batch, length, heads * width] to [batch, heads, length, width]. */
  private split(x: Tensor): Tensor {
    return x.view(x.size(0), x.size(1), -1, this.headWidth).transpose(1, 2);
  }
}
