/**
 * Rotary position embedding: pairs of features turn by an angle that grows with the position
 * (RoFormer, Su et al. 2021).
 */

import { checkKinds } from '../../arguments.ts';
import type { DType } from '../../graph/types.ts';
import { type Size, sizes } from '../sizes/sizes.ts';
import { needTensor } from '../tensor/core.ts';
import { arange, cat } from '../tensor/functional.ts';
import { buffer } from '../tensor/state.ts';
import type { Tensor } from '../tensor/tensor.ts';

/** Cosines and sines of rotary position embedding, each of shape [1, length, width]. */
export interface Rotation {
  /** [1, length, width]. */
  readonly cos: Tensor;
  readonly sin: Tensor;
}

/**
 * Cosines and sines for positions 0 to length - 1. The inverse frequencies, [width / 2], are the
 * buffer `rotary_emb.inv_freq`, so that their scaling stays the model's business.
 */
export function rotation(length: Size, width: number, dtype: DType = 'f32'): Rotation {
  checkKinds('rotation', { width: [width, 'number'] });
  const frequencies = buffer('rotary_emb.inv_freq', { shape: [width / 2] });
  const positions = arange(length).unsqueeze(0);
  // [1, width / 2, 1] x [1, 1, length] is the outer product; transposed, one row a position.
  const angles = frequencies
    .unsqueeze(0)
    .unsqueeze(2)
    .matmul(positions.unsqueeze(1).to('f32'))
    .transpose(1, 2);
  const both = cat([angles, angles], -1);
  return { cos: both.cos().to(dtype), sin: both.sin().to(dtype) };
}

/** `x` of [batch, heads, length, width] with each pair (i, i + width / 2) turned. */
export function rotate(x: Tensor, options: Rotation): Tensor {
  needTensor(x, 'the operand of rotate');
  checkKinds('rotate', { options: [options, ['cos', 'sin']] });
  const { cos, sin } = options;
  return rotateHeads(x, { cos: cos.unsqueeze(1), sin: sin.unsqueeze(1) });
}

/**
 * Rotates as `rotate` does, with cosines and sines that have a dim for the heads already: [1, 1,
 * length, width].
 */
export function rotateHeads(x: Tensor, { cos, sin }: Rotation): Tensor {
  const half = sizes.floordiv(x.size(3), 2);
  const straight = x.mul(cos);
  const [low, high] = [x.slice(3, 0, half), x.slice(3, half)];
  return straight.add(cat([high.neg(), low], -1).mul(sin));
}
