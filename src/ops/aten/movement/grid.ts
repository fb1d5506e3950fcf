/**
 * Reading an image [N, C, H, W] at the points of a grid [N, H', W', 2] of coordinates (column, row)
 * from -1 to 1, as ATen's `GridSampler.h` does: each point reads a few rows and columns, weighted.
 * The result is linear in the image; points are independent, so batch, channels and points may be
 * cut.
 */

import { flat, fromFlat, sizeOf } from '../../../ndarray/array.ts';
import { type Kernel, type KernelCall, resultShape, tensor } from '../../record/kernel.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TypedContext,
} from '../../record/record.ts';
import { P, R, type Rule, rule, type RuleSlot, S } from '../../record/rule.ts';
import { cuttable, linearKinds, movedKinds, need } from '../../rules/dims.ts';
import { onePartial } from '../../rules/partials.ts';

const MODES = ['bilinear', 'nearest', 'bicubic'] as const;
const PADDINGS = ['zeros', 'border', 'reflection'] as const;

interface Reading {
  readonly mode: (typeof MODES)[number];
  readonly padding: (typeof PADDINGS)[number];
  readonly corners: boolean;
}

function reading(ctx: OpContext): Reading {
  const mode = MODES[ctx.int('interpolation_mode')] ?? ctx.fail('interpolation_mode is 0, 1 or 2');
  const padding = PADDINGS[ctx.int('padding_mode')] ?? ctx.fail('padding_mode is 0, 1 or 2');
  return { mode, padding, corners: ctx.bool('align_corners') };
}

/**
 * A row (or column) that a point reads, its weight, and how the weight grows with the coordinate;
 * -1 for none.
 */
interface Tap {
  readonly at: number;
  readonly weight: number;
  readonly slope: number;
}

/** A number and its derivative by the coordinate that it comes from. */
type Dual = readonly [value: number, slope: number];

function clipped([x, slope]: Dual, size: number): Dual {
  return x <= 0 ? [0, 0] : x >= size - 1 ? [size - 1, 0] : [x, slope];
}

/** Mirrored into [low / 2, high / 2]. */
function mirrored([x, slope]: Dual, low: number, high: number): Dual {
  if (low === high) return [0, 0];
  const [least, span] = [low / 2, (high - low) / 2];
  const [from, sign] = x < least ? [least - x, -1] : [x - least, 1];
  const [extra, flips] = [from % span, Math.floor(from / span)];
  return flips % 2 === 0 ? [extra + least, slope * sign] : [span - extra + least, -slope * sign];
}

/** A place in the image for one that may lie outside. */
function inside(place: Dual, size: number, { padding, corners }: Reading): Dual {
  if (padding === 'zeros') return place;
  if (padding === 'border') return clipped(place, size);
  return clipped(
    corners ? mirrored(place, 0, 2 * (size - 1)) : mirrored(place, -1, 2 * size - 1),
    size,
  );
}

/** The nearest integer, halves to the even one. */
function nearest(x: number): number {
  const low = Math.floor(x);
  return x - low === 0.5 ? low + (low % 2 === 0 ? 0 : 1) : Math.round(x);
}

/** Keys' cubic convolution with a = -0.75 at distance `d`, and its derivative by d. */
function cubic(d: number): Dual {
  const a = -0.75;
  const t = Math.abs(d);
  const sign = d < 0 ? -1 : 1;
  if (t <= 1)
    return [((a + 2) * t - (a + 3)) * t * t + 1, sign * (3 * (a + 2) * t - 2 * (a + 3)) * t];
  return [((a * t - 5 * a) * t + 8 * a) * t - 4 * a, sign * ((3 * a * t - 10 * a) * t + 8 * a)];
}

/** The elements that a coordinate reads in a dim of `size` rows. */
function taps(coordinate: number, size: number, how: Reading): Tap[] {
  const place: Dual = how.corners
    ? [((coordinate + 1) / 2) * (size - 1), (size - 1) / 2]
    : [((coordinate + 1) * size - 1) / 2, size / 2];
  const bounded = (at: number): number => (at >= 0 && at < size ? at : -1);
  if (how.mode === 'bicubic') {
    const low = Math.floor(place[0]);
    return [-1, 0, 1, 2].map((k) => {
      const [weight, slope] = cubic(place[0] - low - k);
      return { at: bounded(inside([low + k, 0], size, how)[0]), weight, slope: slope * place[1] };
    });
  }
  const [x, slope] = inside(place, size, how);
  if (how.mode === 'nearest') return [{ at: bounded(nearest(x)), weight: 1, slope: 0 }];
  const low = Math.floor(x);
  return [
    { at: bounded(low), weight: low + 1 - x, slope: -slope },
    { at: bounded(low + 1), weight: x - low, slope },
  ];
}

interface Sizes {
  readonly batch: number;
  readonly channels: number;
  readonly height: number;
  readonly width: number;
  /** Points of one image. */
  readonly points: number;
}

function sizes(input: readonly number[], grid: readonly number[]): Sizes {
  const [batch, channels, height, width] = input;
  return { batch, channels, height, width, points: grid[1] * grid[2] };
}

/** Calls back for every point with the rows and columns that it reads. */
function eachPoint(
  call: KernelCall,
  s: Sizes,
  visit: (image: number, point: number, rows: Tap[], columns: Tap[]) => void,
): void {
  const how = reading(call.ctx);
  const grid = flat(tensor(call, 'grid'));
  for (let n = 0; n < s.batch; n++)
    for (let p = 0; p < s.points; p++) {
      const at = 2 * (n * s.points + p);
      visit(n, p, taps(grid[at + 1], s.height, how), taps(grid[at], s.width, how));
    }
}

const sample: Kernel = (call) => {
  const x = tensor(call, 'input');
  const s = sizes(x.shape, tensor(call, 'grid').shape);
  const [data, out] = [flat(x), new Float64Array(sizeOf(resultShape(call)))];
  eachPoint(call, s, (n, p, rows, columns) => {
    for (let c = 0; c < s.channels; c++) {
      const plane = n * s.channels + c;
      for (const r of rows)
        for (const k of columns)
          if (r.at >= 0 && k.at >= 0)
            out[plane * s.points + p] +=
              r.weight * k.weight * data[(plane * s.height + r.at) * s.width + k.at];
    }
  });
  return [fromFlat(resultShape(call), out, x.dtype)];
};

const sampleBackward: Kernel = (call) => {
  const [grad, x, grid] = [
    tensor(call, 'grad_output'),
    tensor(call, 'input'),
    tensor(call, 'grid'),
  ];
  const s = sizes(x.shape, grid.shape);
  const [g, data] = [flat(grad), flat(x)];
  const [toInput, toGrid] = [new Float64Array(x.size), new Float64Array(grid.size)];
  eachPoint(call, s, (n, p, rows, columns) => {
    for (let c = 0; c < s.channels; c++) {
      const plane = n * s.channels + c;
      const own = g[plane * s.points + p];
      for (const r of rows)
        for (const k of columns) {
          if (r.at < 0 || k.at < 0) continue;
          const at = (plane * s.height + r.at) * s.width + k.at;
          toInput[at] += own * r.weight * k.weight;
          toGrid[2 * (n * s.points + p)] += own * r.weight * k.slope * data[at];
          toGrid[2 * (n * s.points + p) + 1] += own * r.slope * k.weight * data[at];
        }
    }
  });
  const [wanted, always] = call.ctx.bools('output_mask');
  return [wanted ? fromFlat(x.shape, toInput) : null, always ? fromFlat(grid.shape, toGrid) : null];
};

function checked(ctx: OpContext): {
  readonly input: readonly number[];
  readonly grid: readonly number[];
} {
  const [input, grid] = [need(ctx, 'input').shape, need(ctx, 'grid').shape];
  reading(ctx);
  if (input.length !== 4 || grid.length !== 4 || grid[3] !== 2 || input[0] !== grid[0])
    ctx.fail(
      `needs [N, C, H, W] and [N, H', W', 2], got [${input.join(', ')}] and [${grid.join(', ')}]`,
    );
  return { input, grid };
}

/**
 * Batch, channels and points: `slots` says which dim of the image, of the grid and of the result a
 * cut is on.
 */
function cuts(
  ctx: TypedContext,
): { image: RuleSlot; points: RuleSlot; result: RuleSlot; base: boolean }[] {
  const { input, grid } = checked(ctx);
  const has = (shape: readonly number[], d: number): boolean => cuttable(shape).includes(d);
  return [
    ...(has(input, 0) ? [{ image: S(0), points: S(0), result: S(0), base: true }] : []),
    ...(has(input, 1) ? [{ image: S(1), points: R, result: S(1), base: false }] : []),
    ...[1, 2]
      .filter((d) => has(grid, d))
      .map((d) => ({ image: R, points: S(d), result: S(d + 1), base: false })),
  ];
}

const WORK = { bilinear: 4, nearest: 1, bicubic: 16 } as const;

const forward = defineOp('aten.grid_sampler_2d.default', {
  schema: 'Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners',
  cls: 'other',
  aliases: ['aten.grid_sampler.default'],
  infer: (ctx) => {
    const { input, grid } = checked(ctx);
    return [{ dtype: need(ctx, 'input').dtype, shape: [input[0], input[1], grid[1], grid[2]] }];
  },
  shard: (ctx) => {
    const { dtype } = ctx.inputs[0];
    // The nearest element is a choice of one; outside of the image it is zero for every rank.
    const kinds = reading(ctx).mode === 'nearest' ? movedKinds(dtype) : linearKinds(dtype);
    return [
      ...cuts(ctx).map((c) =>
        rule([c.image, c.points], [c.result], c.base ? {} : { origin: 'ext' }),
      ),
      ...kinds.map((k) => onePartial(ctx, 0, k, k, k === 'sum' || k === 'avg' ? 'base' : 'ext')),
    ];
  },
  flops: (ctx) => ({
    matrix: 0,
    vector: 2 * WORK[reading(ctx).mode] * elements(ctx.outputs[0]?.shape ?? []),
  }),
  kernel: sample,
});

const backward = defineOp('aten.grid_sampler_2d_backward.default', {
  schema:
    'Tensor grad_output, Tensor input, Tensor grid, int interpolation_mode, int ' +
    'padding_mode, bool align_corners, bool[] output_mask',
  cls: 'other',
  results: 'tuple',
  infer: (ctx) => {
    checked(ctx);
    const [input, grid] = ctx.bools('output_mask');
    return [input ? need(ctx, 'input') : null, grid ? need(ctx, 'grid') : null];
  },
  shard: (ctx) => {
    const present = (slots: readonly RuleSlot[]): RuleSlot[] =>
      slots.map((s, i) => (ctx.outputs[i] === null ? null : s));
    const follow = cuts(ctx).map((c) => {
      // Channels or points that a rank does not hold are missing from its sums over them.
      const toImage = c.image?.kind === 'shard' ? c.image : P('sum');
      const toGrid = c.points?.kind === 'shard' ? c.points : P('sum');
      return rule(
        [c.result, c.image, c.points],
        present([toImage, toGrid]),
        c.base ? {} : { origin: 'ext' },
      );
    });
    const linear = linearKinds(ctx.inputs[0].dtype).flatMap((kind): Rule[] => [
      onePartial(ctx, 0, kind, kind, 'ext'),
      // Only the gradient of the grid reads the image.
      rule([R, P(kind), R], present([R, P(kind)]), { origin: 'ext' }),
    ]);
    return [...follow, ...linear];
  },
  flops: (ctx) => ({
    matrix: 0,
    vector: 6 * WORK[reading(ctx).mode] * elements(ctx.inputs[0].shape),
  }),
  kernel: sampleBackward,
});

export const gridOps: readonly OperatorRecord[] = [forward, backward];

export const gridSamples: readonly string[] = [
  'grid_sampler_2d(x[5,6,4,7], x[5,3,6,2], 0, 0, False)',
  'grid_sampler_2d(x[6,5,4,3], x[6,5,2,2], 0, 1, True)',
  'grid_sampler_2d(x[5,3,4,6], x[5,6,2,2], 1, 0, False)',
  'grid_sampler_2d(x[5,3,6,4], x[5,2,6,2], 2, 2, False)',
  'grid_sampler_2d_backward(x[5,6,3,6], x[5,6,4,7], x[5,3,6,2], 0, 0, False, [True,True])',
  'grid_sampler_2d_backward(x[6,5,5,2], x[6,5,4,3], x[6,5,2,2], 0, 2, True, [True,True])',
  'grid_sampler_2d_backward(x[5,3,6,2], x[5,3,4,6], x[5,6,2,2], 2, 1, False, [True,True])',
];
