/**
 * Distances between rows of matrices: every pair of rows is independent, batch dims too. Source:
 * ATen's `Distance.cpp` and `DistanceOpsKernel.cpp`.
 */

import { flat, fromFlat, type NDArray, sizeOf } from '../../../ndarray/array.ts';
import { expand } from '../../../ndarray/views.ts';
import { one, resultShape, tensor } from '../../record/kernel.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TypedContext,
} from '../../record/record.ts';
import { P, R, type Rule, rule, S } from '../../record/rule.ts';
import { broadcastAll, broadcastSlot, cuttable, need } from '../../rules/dims.ts';
import { linearIn } from '../../rules/partials.ts';

/** The distance of two rows as a norm of their difference. */
function normOf(differences: readonly number[], p: number): number {
  const sizes = differences.map(Math.abs);
  if (p === 0) return sizes.filter((v) => v !== 0).length;
  if (p === Infinity) return Math.max(0, ...sizes);
  return sizes.reduce((sum, v) => sum + v ** p, 0) ** (1 / p);
}

/** The derivative of a distance by one difference. */
function slope(difference: number, distance: number, p: number): number {
  const sign = Math.sign(difference);
  if (p === 0 || (distance === 0 && p !== 1)) return 0;
  if (p === 1) return sign;
  if (p === Infinity) return Math.abs(difference) === distance ? sign : 0;
  if (p < 2 && difference === 0) return 0;
  return sign * (Math.abs(difference) / distance) ** (p - 1);
}

interface Pairs {
  readonly batch: readonly number[];
  readonly x1: readonly number[];
  readonly x2: readonly number[];
}

function pairs(ctx: OpContext): Pairs {
  const [x1, x2] = [need(ctx, 'x1').shape, need(ctx, 'x2').shape];
  if (x1.length < 2 || x2.length < 2 || x1[x1.length - 1] !== x2[x2.length - 1])
    ctx.fail(`rows of [${x1.join(', ')}] and [${x2.join(', ')}] are not of one length`);
  return { batch: broadcastAll(ctx, [x1.slice(0, -2), x2.slice(0, -2)]), x1, x2 };
}

/** Calls back with the places of both rows and of their distance. */
function eachPair(
  { batch, x1, x2 }: Pairs,
  visit: (first: number, second: number, pair: number) => void,
): void {
  const [rows, columns, width] = [x1[x1.length - 2], x2[x2.length - 2], x1[x1.length - 1]];
  for (let n = 0; n < sizeOf(batch); n++)
    for (let i = 0; i < rows; i++)
      for (let j = 0; j < columns; j++)
        visit((n * rows + i) * width, (n * columns + j) * width, (n * rows + i) * columns + j);
}

const wide = (x: NDArray, batch: readonly number[]): Float64Array =>
  flat(expand(x, [...batch, ...x.shape.slice(-2)]));

/** Places of the rules of a pair of rows: batch dims, rows of either side. */
function cuts(
  ctx: OpContext,
): readonly { x1: Rule['inputs'][0]; x2: Rule['inputs'][0]; dim: number }[] {
  const { batch, x1, x2 } = pairs(ctx);
  const [rows, columns] = [x1.length - 2, x2.length - 2];
  return [
    ...cuttable(batch).map((d) => ({
      x1: broadcastSlot(x1.slice(0, -2), batch.length, d),
      x2: broadcastSlot(x2.slice(0, -2), batch.length, d),
      dim: d,
    })),
    ...(x1[rows] > 1 ? [{ x1: S(rows), x2: R, dim: batch.length }] : []),
    ...(x2[columns] > 1 ? [{ x1: R, x2: S(columns), dim: batch.length + 1 }] : []),
  ];
}

const forward = defineOp('aten._cdist_forward.default', {
  schema: 'Tensor x1, Tensor x2, float p, int? compute_mode',
  cls: 'matmul',
  infer: (ctx) => {
    const { batch, x1, x2 } = pairs(ctx);
    const shape = [...batch, x1[x1.length - 2], x2[x2.length - 2]];
    return [{ dtype: need(ctx, 'x1').dtype, shape }];
  },
  shard: (ctx) => cuts(ctx).map((c) => rule([c.x1, c.x2], [S(c.dim)])),
  flops: (ctx) => ({
    matrix: 0,
    vector: 3 * elements(ctx.outputs[0]?.shape ?? []) * (ctx.inputs[0].shape.at(-1) ?? 1),
  }),
  kernel: one((call) => {
    const found = pairs(call.ctx);
    const [a, b] = ['x1', 'x2'].map((name) => wide(tensor(call, name), found.batch));
    const out = new Float64Array(sizeOf(resultShape(call)));
    const width = found.x1[found.x1.length - 1];
    eachPair(found, (i, j, pair) => {
      const row = Array.from(a.subarray(i, i + width), (v, k) => v - b[j + k]);
      out[pair] = normOf(row, call.ctx.number('p'));
    });
    return fromFlat(resultShape(call), out);
  }),
  samples: ['x[6,4], x[5,4], 2.0, None', 'x[6,3,2], x[6,5,2], 1.0, None'],
});

/** Columns of both sides, where the distances are given. */
function columns(ctx: TypedContext): Rule[] {
  const { batch, x1, x2 } = pairs(ctx);
  if (x1[x1.length - 1] < 2) return [];
  return [rule([R, S(x1.length - 1), S(x2.length - 1), R], [S(batch.length + 1)])];
}

/** The gradient of the first side. */
const backward = defineOp('aten._cdist_backward.default', {
  schema: 'Tensor grad, Tensor x1, Tensor x2, float p, Tensor cdist',
  cls: 'matmul',
  infer: (ctx) => {
    const { batch, x1 } = pairs(ctx);
    return [{ dtype: need(ctx, 'x1').dtype, shape: [...batch, ...x1.slice(-2)] }];
  },
  shard: (ctx) => [
    ...cuts(ctx).map((c) => {
      const own = c.dim <= pairs(ctx).batch.length ? S(c.dim) : P('sum');
      return rule([S(c.dim), c.x1, c.x2, S(c.dim)], [own]);
    }),
    ...columns(ctx),
    ...linearIn('grad')(ctx),
  ],
  flops: (ctx) => ({
    matrix: 0,
    vector: 5 * elements(need(ctx, 'grad').shape) * (need(ctx, 'x1').shape.at(-1) ?? 1),
  }),
  kernel: one((call) => {
    const found = pairs(call.ctx);
    const [a, b] = ['x1', 'x2'].map((name) => wide(tensor(call, name), found.batch));
    const [grad, distances] = ['grad', 'cdist'].map((name) => flat(tensor(call, name)));
    const out = new Float64Array(sizeOf(resultShape(call)));
    const width = found.x1[found.x1.length - 1];
    eachPair(found, (i, j, pair) => {
      for (let k = 0; k < width; k++)
        out[i + k] +=
          grad[pair] * slope(a[i + k] - b[j + k], distances[pair], call.ctx.number('p'));
    });
    return fromFlat(resultShape(call), out);
  }),
  samples: ['x[6,5], x[6,2], x[5,2], 3.0, pos[6,5]'],
});

/** Distances of all pairs of rows of one matrix, the upper triangle as one row. */
function triangle(rows: number, visit: (i: number, j: number, k: number) => void): void {
  let k = 0;
  for (let i = 0; i < rows; i++) for (let j = i + 1; j < rows; j++) visit(i, j, k++);
}

const pdist = defineOp('aten._pdist_forward.default', {
  schema: 'Tensor self, float p=2.0',
  cls: 'matmul',
  infer: (ctx) => {
    const { dtype, shape } = need(ctx, 'self');
    return [{ dtype, shape: [(shape[0] * (shape[0] - 1)) / 2] }];
  },
  kernel: one((call) => {
    const x = tensor(call, 'self');
    const [rows, width] = x.shape;
    const data = flat(x);
    const out = new Float64Array(sizeOf(resultShape(call)));
    triangle(rows, (i, j, k) => {
      const row = Array.from(
        { length: width },
        (_, c) => data[i * width + c] - data[j * width + c],
      );
      out[k] = normOf(row, call.ctx.number('p'));
    });
    return fromFlat(resultShape(call), out);
  }),
  samples: ['x[6,5]'],
});

const pdistBackward = defineOp('aten._pdist_backward.default', {
  schema: 'Tensor grad, Tensor self, float p, Tensor pdist',
  cls: 'matmul',
  infer: (ctx) => [need(ctx, 'self')],
  shard: (ctx) => [
    ...(ctx.inputs[1].shape[1] > 1 ? [rule([R, S(1), R], [S(1)])] : []),
    ...linearIn('grad')(ctx),
  ],
  kernel: one((call) => {
    const x = tensor(call, 'self');
    const [rows, width] = x.shape;
    const [data, grad, distances] = [
      flat(x),
      flat(tensor(call, 'grad')),
      flat(tensor(call, 'pdist')),
    ];
    const out = new Float64Array(x.size);
    triangle(rows, (i, j, k) => {
      for (let c = 0; c < width; c++) {
        const difference = data[i * width + c] - data[j * width + c];
        const g = grad[k] * slope(difference, distances[k], call.ctx.number('p'));
        out[i * width + c] += g;
        out[j * width + c] -= g;
      }
    });
    return fromFlat(x.shape, out);
  }),
  samples: ['x[6], x[4,3], 3.0, pos[6]'],
});

export const distanceOps: readonly OperatorRecord[] = [forward, backward, pdist, pdistBackward];
