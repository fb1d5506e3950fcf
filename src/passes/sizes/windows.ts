/** Windows that slide over spatial dims: how the sizes of convolutions and pools hang together. */

import type { OperatorRecord, TypedContext } from '../../ops/record/record.ts';

export interface Slide {
  readonly stride: number;
  readonly padding: number;
  readonly dilation: number;
}

/** One spatial dim of a call. */
interface SlidDim extends Slide {
  readonly size: number;
  readonly kernel: number;
  /** True if the kernel is a size of a weight, and no literal. */
  readonly weighted: boolean;
  /** Windows: size of the result. */
  readonly count: number;
}

const CONVOLUTION =
  /^(aten|prims)\.(convolution|convolution_backward|conv1d|conv2d|conv3d)\.default$/;
const POOL = /^aten\.(max_pool2d|max_pool2d_with_indices|avg_pool2d)(_backward)?\.default$/;

/** Number of windows over `size` rows; below 1 where none fits. */
export function windowCount(
  size: number,
  kernel: number,
  { stride, padding, dilation }: Slide,
): number {
  return Math.floor((size + 2 * padding - dilation * (kernel - 1) - 1) / stride) + 1;
}

/** The fewest rows that have `count` windows; up to `stride - 1` more have as many. */
export function fewestRows(
  count: number,
  kernel: number,
  { stride, padding, dilation }: Slide,
): number {
  return (count - 1) * stride + dilation * (kernel - 1) + 1 - 2 * padding;
}

/**
 * The spatial dims of a convolution or pool; undefined for calls whose windows are of another kind
 * (transposed, adaptive, rounded up), so that their sizes must stay.
 */
export function slidDims(
  ctx: TypedContext,
  { name, schema }: OperatorRecord,
): readonly SlidDim[] | undefined {
  const has = (argument: string): boolean => schema.some((s) => s.name === argument);
  const pool = POOL.test(name);
  if (!pool && !CONVOLUTION.test(name)) return undefined;
  if (has('transposed') && ctx.bool('transposed')) return undefined;
  if (pool && ctx.bool('ceil_mode')) return undefined;
  const x = ctx.tensor(pool ? 'self' : 'input')?.shape;
  const kernels = pool ? undefined : ctx.tensor('weight')?.shape.slice(2);
  const out = (ctx.tensor('grad_output') ?? ctx.outputs[0])?.shape;
  if (x === undefined || out === undefined || (!pool && kernels === undefined)) return undefined;
  const spatial = pool ? 2 : x.length - 2;
  const each = (argument: string, none: number): readonly number[] => {
    const values = has(argument) ? ctx.ints(argument) : [];
    return Array.from({ length: spatial }, (_, i) => values[i] ?? values[0] ?? none);
  };
  const widths = kernels ?? each('kernel_size', 1);
  const strides = each('stride', 0).map((s, i) => (s === 0 ? widths[i] : s));
  const [paddings, dilations] = [each('padding', 0), each('dilation', 1)];
  const dims = x.slice(-spatial).map((size, i): SlidDim => {
    const slide = { stride: strides[i], padding: paddings[i], dilation: dilations[i] };
    return {
      ...slide,
      size,
      kernel: widths[i],
      weighted: !pool,
      count: out[out.length - spatial + i],
    };
  });
  return dims.every((d) => windowCount(d.size, d.kernel, d) === d.count) ? dims : undefined;
}
