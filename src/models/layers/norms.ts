/** Norms that differ from the usual ones, such as Gemma's offset RMS norm. */

import type { DType } from '../../graph/types.ts';
import { param, scope } from '../../trace/tensor/state.ts';
import type { Tensor } from '../../trace/tensor/tensor.ts';

/** The RMS norm of Gemma: the weight is stored as its difference from 1 and applied in float32. */
export class OffsetRMSNorm {
  constructor(
    readonly name: string,
    readonly width: number,
    readonly options: { readonly eps: number; readonly dtype: DType },
  ) {}

  forward(x: Tensor): Tensor {
    const { eps, dtype } = this.options;
    return scope(this.name, () => {
      const weight = param('weight', { shape: [this.width], dtype });
      const wide = x.to('f32');
      const scaled = wide.mul(wide.pow(2).mean([-1], true).add(eps).rsqrt());
      return scaled.mul(weight.to('f32').add(1)).to(x.dtype);
    });
  }
}
