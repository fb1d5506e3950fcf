/** Rotary positions: cosines and sines of heads, and the rotation of part of a head. */

import type { DType } from '../../graph/types.ts';
import { rotateHeads, type Rotation } from '../../trace/nn/rope.ts';
import { type Size, sizes } from '../../trace/sizes/sizes.ts';
import { arange, cat } from '../../trace/tensor/functional.ts';
import { buffer } from '../../trace/tensor/state.ts';
import type { Tensor } from '../../trace/tensor/tensor.ts';

/**
 * Cosines and sines with a dim for the heads, [1, 1, length, width]. The inverse frequencies are a
 * buffer of this name, so that base and scaling (`rope_theta`, `rope_scaling`) are values and not
 * shapes.
 *
 * @param first position of the first token
 */
export function headRotation(
  name: string,
  length: Size,
  width: number,
  dtype: DType,
  first = 0,
): Rotation {
  const frequencies = buffer(name, { shape: [width / 2] });
  const places = first === 0 ? arange(length) : arange(length).add(first);
  const positions = places.unsqueeze(0);
  const angles = frequencies
    .unsqueeze(0)
    .unsqueeze(2)
    .matmul(positions.unsqueeze(1).to('f32'))
    .transpose(1, 2);
  const both = cat([angles, angles], -1);
  return { cos: both.cos().to(dtype).unsqueeze(1), sin: both.sin().to(dtype).unsqueeze(1) };
}

/** Turns the first `width` channels of every head and lets the others pass. */
export function rotatePart(x: Tensor, turn: Rotation, width: number): Tensor {
  if (x.size(3) === width) return rotateHeads(x, turn);
  return cat([rotateHeads(x.slice(3, 0, width), turn), x.slice(3, width)], -1);
}

/** Channels in pairs (0, 1), (2, 3) ... put as halves, which `rotateHeads` turns. */
export function pairsToHalves(x: Tensor): Tensor {
  const [batch, heads, length, width] = x.shape;
  return x
    .view(batch, heads, length, sizes.floordiv(width, 2), 2)
    .transpose(4, 3)
    .reshape(batch, heads, length, width);
}
