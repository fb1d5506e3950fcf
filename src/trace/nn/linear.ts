/**
 * Layers with one weight. A layer declares its parameters where it is called: below the scopes
 * around the call.
 */

import type { DType } from '../../graph/types.ts';
import { embedding } from '../tensor/functional.ts';
import { param, scope } from '../tensor/state.ts';
import type { Tensor } from '../tensor/tensor.ts';
import { adapted } from './low-rank.ts';

export interface LinearOptions {
  /** Default true. */
  readonly bias?: boolean;
  /** f32 by default. */
  readonly dtype?: DType;
}

/** `x @ weight^T + bias` over the last dim; `weight` is [out, in]. */
export class Linear {
  constructor(
    readonly name: string,
    readonly inputs: number,
    readonly outputs: number,
    readonly options: LinearOptions = {},
  ) {}

  /** [..., inputs] to [..., outputs]. */
  forward(x: Tensor): Tensor {
    const { inputs, outputs } = this;
    const { bias = true, dtype = 'f32' } = this.options;
    return scope(this.name, () => {
      const weight = param('weight', { shape: [outputs, inputs], dtype });
      const made = x.linear(weight, bias ? param('bias', { shape: [outputs], dtype }) : undefined);
      return adapted(x, made, { inputs, outputs, dtype });
    });
  }
}

/** A table of rows looked up by integer ids. */
export class Embedding {
  constructor(
    readonly name: string,
    readonly rows: number,
    readonly width: number,
    readonly options: { readonly dtype?: DType } = {},
  ) {}

  /** Integer ids of any shape to [..., width]. */
  forward(ids: Tensor): Tensor {
    return scope(this.name, () => embedding(this.table(), ids));
  }

  /**
   * Scores against every row, [..., width] to [..., rows]: the output layer of a model with tied
   * embeddings.
   */
  attend(x: Tensor): Tensor {
    return scope(this.name, () => x.linear(this.table()));
  }

  private table(): Tensor {
    return param('weight', { shape: [this.rows, this.width], dtype: this.options.dtype ?? 'f32' });
  }
}
