/**
 * Resampling of images by one matrix per spatial dim: nearest, linear and cubic. Batch and channels
 * follow, pending sums pass; the nearest neighbour is a choice of elements, so every pending kind
 * passes. The gradient is the transpose.
 */

import { flat, fromFlat, type NDArray, sizeOf } from '../../../ndarray/array.ts';
import { type KernelCall, one, tensor } from '../../record/kernel.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TypedContext,
} from '../../record/record.ts';
import { type Rule, rule, S } from '../../record/rule.ts';
import { cuttable, linearKinds, movedKinds, need } from '../../rules/dims.ts';
import { onePartial } from '../../rules/partials.ts';

type Mode = 'nearest' | 'linear' | 'cubic';

interface Family {
  readonly name: string;
  readonly mode: Mode;
  readonly dims: number;
}

const FAMILIES: readonly Family[] = [
  ...[1, 2, 3].map((dims): Family => ({ name: `upsample_nearest${dims}d`, mode: 'nearest', dims })),
  { name: 'upsample_linear1d', mode: 'linear', dims: 1 },
  { name: 'upsample_bilinear2d', mode: 'linear', dims: 2 },
  { name: 'upsample_trilinear3d', mode: 'linear', dims: 3 },
  { name: 'upsample_bicubic2d', mode: 'cubic', dims: 2 },
];

const SUFFIX: Readonly<Record<number, readonly string[]>> = {
  1: [''],
  2: ['_h', '_w'],
  3: ['_d', '_h', '_w'],
};

const scales = (dims: number): string =>
  SUFFIX[dims].map((s) => `float? scales${s}=None`).join(', ');
const align = (mode: Mode): string => (mode === 'nearest' ? '' : ', bool align_corners');

/** The places that each result row reads, with their weights. */
type Row = readonly (readonly [at: number, weight: number])[];

/**
 * Rows of the matrix of one dim, as ATen's `UpSample.h` places them. @param scale results per input
 * row, where the call states it
 */
function rowsOf(
  mode: Mode,
  size: number,
  out: number,
  alignCorners: boolean,
  scale: number | undefined,
): Row[] {
  if (mode === 'nearest') {
    const ratio = scale !== undefined && scale > 0 ? 1 / scale : size / out;
    return Array.from({ length: out }, (_, i): Row => [
      [Math.min(size - 1, Math.floor(i * ratio)), 1],
    ]);
  }
  const ratio = alignCorners
    ? out > 1
      ? (size - 1) / (out - 1)
      : 0
    : scale !== undefined && scale > 0
      ? 1 / scale
      : size / out;
  return Array.from({ length: out }, (_, i): Row => {
    const centre = alignCorners ? ratio * i : ratio * (i + 0.5) - 0.5;
    if (mode === 'linear') {
      const at = Math.max(0, centre);
      const low = Math.min(size - 1, Math.floor(at));
      const t = Math.min(1, Math.max(0, at - low));
      return [
        [low, 1 - t],
        [Math.min(size - 1, low + 1), t],
      ];
    }
    const low = Math.floor(centre);
    return cubic(centre - low).map(
      (w, k) => [Math.min(size - 1, Math.max(0, low - 1 + k)), w] as const,
    );
  });
}

/** Weights of Keys' cubic convolution with a = -0.75. */
function cubic(t: number): number[] {
  const a = -0.75;
  const near = (x: number): number => ((a + 2) * x - (a + 3)) * x * x + 1;
  const far = (x: number): number => ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return [far(t + 1), near(t), near(1 - t), far(2 - t)];
}

/** Applies the matrix of a dim, or its transpose. */
function resample(
  x: NDArray,
  dim: number,
  rows: readonly Row[],
  back: number | undefined,
): NDArray {
  const shape = x.shape.map((n, d) => (d === dim ? (back ?? rows.length) : n));
  const inner = sizeOf(x.shape.slice(dim + 1));
  const outer = sizeOf(x.shape.slice(0, dim));
  const [data, out] = [flat(x), new Float64Array(sizeOf(shape))];
  const [from, to] = [x.shape[dim], shape[dim]];
  for (let o = 0; o < outer; o++)
    rows.forEach((row, i) => {
      for (const [at, w] of row) {
        const [source, target] = back === undefined ? [at, i] : [i, at];
        for (let k = 0; k < inner; k++)
          out[(o * to + target) * inner + k] += w * data[(o * from + source) * inner + k];
      }
    });
  return fromFlat(shape, out, x.dtype);
}

function matrices(call: KernelCall, { mode, dims }: Family, sizes: readonly number[]): Row[][] {
  const { ctx } = call;
  const out = ctx.ints('output_size');
  const corners = mode !== 'nearest' && ctx.bool('align_corners');
  return sizes.map((size, d) =>
    rowsOf(mode, size, out[d], corners, ctx.optionalNumber(`scales${SUFFIX[dims][d]}`)),
  );
}

function follow(ctx: TypedContext, rewrite?: string): Rule[] {
  return cuttable(ctx.inputs[0].shape)
    .filter((d) => d < 2)
    .map((d) => rule([S(d)], [S(d)], rewrite === undefined ? {} : { rewrite }));
}

function checked(ctx: OpContext, name: string, dims: number): readonly number[] {
  const { shape } = need(ctx, name);
  if (shape.length !== dims + 2)
    ctx.fail(`needs [batch, channels, ${dims} spatial dims], got [${shape.join(', ')}]`);
  const sizes = ctx.ints('output_size');
  if (sizes.length !== dims) ctx.fail(`output_size has ${sizes.length} entries, expected ${dims}`);
  return shape;
}

function forward(family: Family): OperatorRecord {
  const { name, mode, dims } = family;
  return defineOp(`aten.${name}.default`, {
    schema: `Tensor self, int[] output_size${align(mode)}, ${scales(dims)}`,
    cls: 'other',
    infer: (ctx) => {
      const shape = checked(ctx, 'self', dims);
      return [
        {
          dtype: need(ctx, 'self').dtype,
          shape: [...shape.slice(0, 2), ...ctx.ints('output_size')],
        },
      ];
    },
    shard: (ctx) => {
      const kinds =
        mode === 'nearest' ? movedKinds(ctx.inputs[0].dtype) : linearKinds(ctx.inputs[0].dtype);
      const base = new Set(['sum', 'avg']);
      return [
        ...follow(ctx),
        ...kinds.map((k) => onePartial(ctx, 0, k, k, base.has(k) ? 'base' : 'ext')),
      ];
    },
    flops: (ctx) => ({
      matrix: 0,
      vector: TAPS[mode] ** dims * elements(ctx.outputs[0]?.shape ?? []),
    }),
    kernel: one((call) => {
      const x = tensor(call, 'self');
      const rows = matrices(call, family, x.shape.slice(2));
      return rows.reduce((image, list, d) => resample(image, d + 2, list, undefined), x);
    }),
  });
}

/** Elements that a result reads along one dim. */
const TAPS: Readonly<Record<Mode, number>> = { nearest: 1, linear: 2, cubic: 4 };

function backward(family: Family): OperatorRecord {
  const { name, mode, dims } = family;
  return defineOp(`aten.${name}_backward.default`, {
    schema:
      `Tensor grad_output, int[] output_size, int[] input_size${align(mode)}, ` + scales(dims),
    cls: 'other',
    infer: (ctx) => {
      checked(ctx, 'grad_output', dims);
      return [{ dtype: need(ctx, 'grad_output').dtype, shape: ctx.ints('input_size') }];
    },
    shard: (ctx) => [
      ...follow(ctx, 'local-shape'),
      ...linearKinds(ctx.inputs[0].dtype).map((kind) => onePartial(ctx, 0, kind)),
    ],
    flops: (ctx) => ({ matrix: 0, vector: TAPS[mode] ** dims * elements(ctx.inputs[0].shape) }),
    kernel: one((call) => {
      const sizes = call.ctx.ints('input_size').slice(2);
      const rows = matrices(call, family, sizes);
      return rows.reduce(
        (image, list, d) => resample(image, d + 2, list, sizes[d]),
        tensor(call, 'grad_output'),
      );
    }),
  });
}

export const upsampleOps: readonly OperatorRecord[] = FAMILIES.flatMap((family) => [
  forward(family),
  backward(family),
]);

/** Gradients whose `input_size` each device states for itself. */
export const UPSAMPLE_GRADIENTS: readonly string[] = FAMILIES.map(
  ({ name }) => `aten.${name}_backward.default`,
);

export const upsampleSamples: readonly string[] = [
  'upsample_nearest1d(x[5,6,7], [12])',
  'upsample_nearest2d(x[6,5,4,3], [8,6])',
  'upsample_nearest2d(x[5,6,7,2], [5,4], 0.75, 2.0)',
  'upsample_nearest3d(x[5,6,2,3,2], [4,3,4])',
  'upsample_linear1d(x[5,6,4], [7], False)',
  'upsample_bilinear2d(x[6,5,3,4], [7,6], False)',
  'upsample_bilinear2d(x[5,6,3,4], [6,7], True)',
  'upsample_trilinear3d(x[5,6,2,3,2], [3,4,3], False)',
  'upsample_bicubic2d(x[5,6,3,4], [6,7], False)',
  'upsample_nearest1d_backward(x[5,6,12], [12], [5,6,7])',
  'upsample_nearest2d_backward(x[6,5,8,6], [8,6], [6,5,4,3])',
  'upsample_nearest3d_backward(x[5,6,4,3,4], [4,3,4], [5,6,2,3,2])',
  'upsample_linear1d_backward(x[5,6,7], [7], [5,6,4], False)',
  'upsample_bilinear2d_backward(x[5,6,7,6], [7,6], [5,6,3,4], True)',
  'upsample_trilinear3d_backward(x[5,6,3,4,3], [3,4,3], [5,6,2,3,2], False)',
  'upsample_bicubic2d_backward(x[5,6,6,7], [6,7], [5,6,3,4], False)',
];
