/** LayerNorm and RMSNorm as traced modules. */

import type { DType } from '../../graph/types.ts';
import { param, scope } from '../tensor/state.ts';
import type { Tensor } from '../tensor/tensor.ts';

interface NormOptions {
  readonly eps?: number;
  readonly dtype?: DType;
  /** `LayerNorm` only. Default true. */
  readonly bias?: boolean;
}

/** Mean 0 and variance 1 over the last dim, then scaled and shifted. */
export class LayerNorm {
  constructor(
    readonly name: string,
    readonly width: number,
    readonly options: NormOptions = {},
  ) {}

  forward(x: Tensor): Tensor {
    const { eps = 1e-5, dtype = 'f32', bias = true } = this.options;
    return scope(this.name, () => {
      const shape = [this.width];
      return x.layerNorm(
        shape,
        param('weight', { shape, dtype }),
        bias ? param('bias', { shape, dtype }) : undefined,
        eps,
      );
    });
  }
}

/**
 * Root mean square 1 over the last dim, then scaled; computed in float32 as Llama does: the weight
 * is applied after the result is back in the dtype of the input.
 */
export class RMSNorm {
  constructor(
    readonly name: string,
    readonly width: number,
    readonly options: Omit<NormOptions, 'bias'> = {},
  ) {}

  forward(x: Tensor): Tensor {
    const { eps = 1e-5, dtype = 'f32' } = this.options;
    return scope(this.name, () => {
      const weight = param('weight', { shape: [this.width], dtype });
      const wide = x.to('f32');
      const scale = wide.pow(2).mean([-1], true).add(eps).rsqrt();
      return weight.mul(wide.mul(scale).to(x.dtype));
    });
  }
}
