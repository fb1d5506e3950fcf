/** 2-D convolution as a traced module. */

import type { DType } from '../../graph/types.ts';
import { param, scope } from '../tensor/state.ts';
import type { ConvOptions, Tensor } from '../tensor/tensor.ts';

/** 2-D convolution with a square kernel. */
export class Conv2d {
  constructor(
    readonly name: string,
    readonly inputs: number,
    readonly outputs: number,
    readonly kernel: number,
    readonly options: ConvOptions & { readonly bias?: boolean; readonly dtype?: DType } = {},
  ) {}

  /** [batch, inputs, height, width] to [batch, outputs, ...]. */
  forward(x: Tensor): Tensor {
    const { bias = true, dtype = 'f32', groups = 1 } = this.options;
    return scope(this.name, () => {
      const shape = [this.outputs, this.inputs / groups, this.kernel, this.kernel];
      const weight = param('weight', { shape, dtype });
      return x.conv2d(
        weight,
        bias ? param('bias', { shape: [this.outputs], dtype }) : undefined,
        this.options,
      );
    });
  }
}
