/**
 * Places in sorted rows, counts, and chosen values: what reads an order or a number of occurrences.
 */

import { build, flat, fromFlat, sizeOf } from '../../../ndarray/array.ts';
import { along, reduce } from '../../../ndarray/reduce.ts';
import { reshape } from '../../../ndarray/views.ts';
import {
  type Kernel,
  type KernelCall,
  one,
  operand,
  optional,
  resultShape,
  tensor,
  valueError,
} from '../../record/kernel.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
  type TypedContext,
} from '../../record/record.ts';
import { P, R, type Rule, rule, S } from '../../record/rule.ts';
import { anyS, cuttable, need, normalDim } from '../../rules/dims.ts';

const log2 = (n: number): number => Math.ceil(Math.log2(Math.max(2, n)));

/**
 * How many of `data[start .. end)` lie below `v` (or not above it): its place where they are
 * sorted. A binary search says something else of values that are not, and another thing of each
 * part of them, which the rules here must not depend on.
 */
function place(data: Float64Array, start: number, end: number, v: number, above: boolean): number {
  let below = 0;
  for (let i = start; i < end; i++)
    // A NaN sorts after everything.
    if (
      above
        ? !(data[i] > v) && !(Number.isNaN(data[i]) && !Number.isNaN(v))
        : data[i] < v || (Number.isNaN(v) && !Number.isNaN(data[i]))
    )
      below++;
  return below;
}

function rightSide(ctx: OpContext, hasSide: boolean): boolean {
  const side = hasSide && ctx.has('side') ? ctx.text('side') : undefined;
  if (side !== undefined && side !== 'left' && side !== 'right')
    ctx.fail(`side is 'left' or 'right', not '${side}'`);
  if (side === 'left' && ctx.bool('right'))
    ctx.fail("side 'left' and right=True contradict each other");
  return side === 'right' || ctx.bool('right');
}

const indexType = (ctx: OpContext): TensorMeta['dtype'] => (ctx.bool('out_int32') ? 'i32' : 'i64');

/**
 * How many of the sorted values lie below: the places of each rank's part of the sorted values add
 * up, and a larger value has no smaller place.
 */
const searchsorted = defineOp('aten.searchsorted.Tensor', {
  schema:
    'Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False, str? ' +
    'side=None, Tensor? sorter=None',
  cls: 'other',
  infer: (ctx) => {
    const [sorted, self] = [need(ctx, 'sorted_sequence').shape, need(ctx, 'self').shape];
    if (ctx.has('sorter')) ctx.fail('a sorter is not modelled: gather the sequence first');
    const fits =
      sorted.length === 1 ||
      (sorted.length === self.length &&
        sorted.every((n, d) => d === sorted.length - 1 || n === self[d]));
    if (!fits)
      ctx.fail(
        `rows [${sorted.join(', ')}] and values [${self.join(', ')}] must agree in all dims ` +
          'but the last',
      );
    return [{ dtype: indexType(ctx), shape: self }];
  },
  shard: (ctx) => {
    const [sorted, { shape }] = [need(ctx, 'sorted_sequence').shape, need(ctx, 'self')];
    const batched = sorted.length > 1;
    const last = shape.length - 1;
    const rules = cuttable(shape).map((d) =>
      rule([batched && d !== last ? S(d) : R, S(d)], [S(d)], { origin: 'ext' }),
    );
    if (sorted[sorted.length - 1] > 1)
      rules.push(rule([anyS(sorted.length - 1), R], [P('sum')], { origin: 'ext' }));
    return [...rules, ...monotone()];
  },
  flops: (ctx) => ({
    matrix: 0,
    vector: elements(ctx.inputs[1].shape) * log2(ctx.inputs[0].shape.at(-1) ?? 1),
  }),
  kernel: one((call) => {
    const [sorted, x] = [tensor(call, 'sorted_sequence'), tensor(call, 'self')];
    const [rows, values] = [flat(sorted), flat(x)];
    const width = sorted.shape[sorted.rank - 1];
    const per = x.rank === 0 ? 1 : x.shape[x.rank - 1];
    const above = rightSide(call.ctx, true);
    return build(x.shape, (i) => {
      const start = sorted.rank === 1 ? 0 : Math.floor(i / per) * width;
      return place(rows, start, start + width, values[i], above);
    });
  }),
});

/** The place of one number: a count of the values below it. */
const searchsortedScalar = defineOp('aten.searchsorted.Scalar', {
  schema:
    'Tensor sorted_sequence, Scalar self, *, bool out_int32=False, bool right=False, str? ' +
    'side=None, Tensor? sorter=None',
  cls: 'other',
  infer: (ctx) => {
    const { shape } = need(ctx, 'sorted_sequence');
    if (ctx.has('sorter')) ctx.fail('a sorter is not modelled: gather the sequence first');
    if (shape.length !== 1)
      ctx.fail(`the sequence has one dim where a number is looked for, not [${shape.join(', ')}]`);
    return [{ dtype: indexType(ctx), shape: [] }];
  },
  shard: (ctx) =>
    ctx.inputs[0].shape[0] > 1 ? [rule([anyS(0)], [P('sum')], { origin: 'ext' })] : [],
  flops: (ctx) => ({ matrix: 0, vector: log2(ctx.inputs[0].shape[0]) }),
  kernel: one((call) => {
    const rows = flat(tensor(call, 'sorted_sequence'));
    const value = operand(call, 'self').item();
    return build([], () => place(rows, 0, rows.length, value, rightSide(call.ctx, true)));
  }),
});

const monotone = (): Rule[] =>
  (['max', 'min'] as const).map((kind) => rule([R, P(kind)], [P(kind)], { origin: 'ext' }));

const bucketize = defineOp('aten.bucketize.Tensor', {
  schema: 'Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False',
  cls: 'other',
  infer: (ctx) => {
    if (need(ctx, 'boundaries').shape.length !== 1) ctx.fail('boundaries must have one dim');
    return [{ dtype: indexType(ctx), shape: need(ctx, 'self').shape }];
  },
  shard: (ctx) => [
    ...cuttable(ctx.inputs[0].shape).map((d) => rule([anyS(d), R], [anyS(d)])),
    ...(ctx.inputs[1].shape[0] > 1 ? [rule([R, anyS(0)], [P('sum')])] : []),
    ...(['max', 'min'] as const).map((kind) => rule([P(kind), R], [P(kind)])),
  ],
  flops: (ctx) => ({
    matrix: 0,
    vector: elements(ctx.inputs[0].shape) * log2(ctx.inputs[1].shape[0]),
  }),
  kernel: one((call) => {
    const [x, bounds] = [tensor(call, 'self'), flat(tensor(call, 'boundaries'))];
    const values = flat(x);
    const above = rightSide(call.ctx, false);
    return build(x.shape, (i) => place(bounds, 0, bounds.length, values[i], above));
  }),
});

/**
 * Occurrences of 0, 1, ..; the number of results is data unless `minlength` says enough, so it must
 * be stated.
 */
const bincount = defineOp('aten.bincount.default', {
  schema: 'Tensor self, Tensor? weights=None, int minlength=0',
  cls: 'reduction',
  infer: (ctx) => {
    if (ctx.int('minlength') === 0)
      ctx.fail('has as many results as the data says: state minlength');
    const weights = ctx.tensor('weights');
    const dtype = weights === undefined ? 'i64' : weights.dtype === 'f32' ? 'f32' : 'f64';
    return [{ dtype, shape: [ctx.int('minlength')] }];
  },
  shard: (ctx) => [
    ...(ctx.inputs[0].shape[0] > 1
      ? [
          rule(
            ctx.inputs.map(() => S(0)),
            [P('sum')],
          ),
        ]
      : []),
    ...(ctx.inputs.length > 1 && ctx.outputs[0]?.dtype !== 'i64'
      ? (['sum', 'avg'] as const).map((kind) => rule([R, P(kind)], [P(kind)], { origin: 'ext' }))
      : []),
  ],
  flops: (ctx) => ({ matrix: 0, vector: elements(ctx.inputs[0].shape) }),
  kernel: one((call) => {
    const counts = new Float64Array(call.ctx.int('minlength'));
    const weights = optional(call, 'weights');
    const by = weights === undefined ? undefined : flat(weights);
    flat(tensor(call, 'self')).forEach((v, i) => {
      if (v < 0 || v >= counts.length)
        valueError(call, `value ${v} is not below minlength ${counts.length}`);
      counts[v] += by === undefined ? 1 : by[i];
    });
    return fromFlat([counts.length], counts);
  }),
});

// ---- chosen values
// -----------------------------------------------------------------------------

/** Positions of a run in rising order of value, NaN last, the earlier one first among equals. */
function rising(data: Float64Array, start: number, length: number): number[] {
  const nan = (i: number): number => (Number.isNaN(data[start + i]) ? 1 : 0);
  return Array.from({ length }, (_, i) => i).sort(
    (i, j) => nan(i) - nan(j) || data[start + i] - data[start + j] || i - j,
  );
}

type Choose = (data: Float64Array, start: number, length: number, call: KernelCall) => number;

const kth: Choose = (data, start, length, call) => {
  const k = call.ctx.int('k');
  if (k < 1 || k > length) valueError(call, `k = ${k} is not from 1 to ${length}`);
  return rising(data, start, length)[k - 1];
};

/** The lower of the middle values that are numbers. */
const nanMiddle: Choose = (data, start, length) => {
  const order = rising(data, start, length);
  const numbers = order.filter((i) => !Number.isNaN(data[start + i])).length;
  return order[Math.max(0, Math.ceil(numbers / 2) - 1)];
};

const pick =
  (choose: Choose): Kernel =>
  (call) => {
    const x = tensor(call, 'self');
    const chosen = along(
      x,
      call.ctx.int('dim'),
      [x.dtype, 'i64'],
      (input, start, length, [values, indices], out) => {
        const at = choose(input, start, length, call);
        values[out] = input[start + at];
        indices[out] = at;
      },
      1,
    );
    return chosen.map((part, k) => reshape(part, resultShape(call, k)));
  };

/** A value and its place along one dim, which stays whole. */
function chosen(name: string, schema: string, choose: Choose): OperatorRecord {
  const dimOf = (ctx: OpContext): number =>
    normalDim(ctx, ctx.int('dim'), need(ctx, 'self').shape.length);
  return defineOp(name, {
    schema,
    cls: 'reduction',
    results: 'tuple',
    infer: (ctx) => {
      const [{ dtype, shape: own }, dim] = [need(ctx, 'self'), dimOf(ctx)];
      const shape = ctx.bool('keepdim')
        ? own.map((n, d) => (d === dim ? 1 : n))
        : own.filter((_, d) => d !== dim);
      return [
        { dtype, shape },
        { dtype: 'i64', shape },
      ];
    },
    shard: (ctx) => {
      const dim = dimOf(ctx);
      return cuttable(ctx.inputs[0].shape)
        .filter((d) => d !== dim)
        .map((d) => {
          const to = anyS(ctx.bool('keepdim') || d < dim ? d : d - 1);
          return rule([anyS(d)], [to, to]);
        });
    },
    flops: (ctx) => ({ matrix: 0, vector: 8 * elements(ctx.inputs[0].shape) }),
    kernel: pick(choose),
  });
}

const nanmedian = defineOp('aten.nanmedian.default', {
  schema: 'Tensor self',
  cls: 'reduction',
  infer: (ctx) => [{ dtype: need(ctx, 'self').dtype, shape: [] }],
  flops: (ctx) => ({ matrix: 0, vector: 8 * elements(ctx.inputs[0].shape) }),
  kernel: one((call) => {
    const x = tensor(call, 'self');
    return reduce(reshape(x, [x.size]), [0], false, (data, start, end) =>
      start === end ? NaN : data[start + nanMiddle(data, start, end - start, call)],
    );
  }),
});

// ---- windows and diagonals
// -----------------------------------------------------------------------------

/** Windows of `size` rows, `step` apart, as a new last dim. */
const unfold = defineOp('aten.unfold.default', {
  schema: 'Tensor self, int dimension, int size, int step',
  cls: 'view',
  aliases: ['aten.unfold_copy.default'],
  infer: (ctx) => {
    const { dtype, shape } = need(ctx, 'self');
    const dim = normalDim(ctx, ctx.int('dimension'), shape.length);
    const [size, step] = [ctx.int('size'), ctx.int('step')];
    if (size > shape[dim] || step < 1)
      ctx.fail(`windows of ${size} rows, ${step} apart, do not fit ${shape[dim]} rows`);
    const count = Math.floor((shape[dim] - size) / step) + 1;
    return [{ dtype, shape: [...shape.map((n, d) => (d === dim ? count : n)), size] }];
  },
  shard: (ctx) => {
    const { dtype, shape } = ctx.inputs[0];
    const dim = normalDim(ctx, ctx.int('dimension'), shape.length);
    const kinds =
      dtype === 'b8' ? (['bor', 'band'] as const) : (['sum', 'avg', 'max', 'min'] as const);
    return [
      ...cuttable(shape)
        .filter((d) => d !== dim)
        .map((d) => rule([anyS(d)], [anyS(d)], { origin: 'ext' })),
      ...kinds.map((kind) => rule([P(kind)], [P(kind)], { origin: 'ext' })),
    ];
  },
  kernel: one((call) => {
    const x = tensor(call, 'self');
    const shape = resultShape(call);
    const dim = normalDim(call.ctx, call.ctx.int('dimension'), x.rank);
    const [size, step] = [call.ctx.int('size'), call.ctx.int('step')];
    const data = flat(x);
    const inner = sizeOf(x.shape.slice(dim + 1));
    const count = shape[dim];
    return build(
      shape,
      (i) => {
        const [k, rest] = [i % size, Math.floor(i / size)];
        const [at, row, outer] = [
          rest % inner,
          Math.floor(rest / inner) % count,
          Math.floor(rest / (inner * count)),
        ];
        return data[(outer * x.shape[dim] + row * step + k) * inner + at];
      },
      x.dtype,
    );
  }),
});

// ---- norms
// -----------------------------------------------------------------------------

/**
 * Sum of p-th powers of absolute values; of an even power, or of any, the parts of a cut add up.
 */
const powsum = defineOp('aten.linalg__powsum.default', {
  schema:
    'Tensor self, Scalar ord=2, int[]? dim=None, bool keepdim=False, *, ScalarType? dtype=None',
  cls: 'reduction',
  infer: (ctx) => {
    const { dtype, shape } = need(ctx, 'self');
    const dims = summed(ctx);
    const keep = ctx.bool('keepdim');
    const out = keep
      ? shape.map((n, d) => (dims.includes(d) ? 1 : n))
      : shape.filter((_, d) => !dims.includes(d));
    return [{ dtype: ctx.dtype('dtype') ?? dtype, shape: out }];
  },
  shard: (ctx: TypedContext) => {
    const dims = summed(ctx);
    const shift = (d: number): number =>
      ctx.bool('keepdim') ? d : d - dims.filter((r) => r < d).length;
    return cuttable(ctx.inputs[0].shape).map((d) =>
      rule([anyS(d)], [dims.includes(d) ? P('sum') : anyS(shift(d))]),
    );
  },
  flops: (ctx) => ({ matrix: 0, vector: 2 * elements(ctx.inputs[0].shape) }),
  kernel: one((call) => {
    const x = tensor(call, 'self');
    const p = call.ctx.number('ord');
    return reduce(x, summed(call.ctx), call.ctx.bool('keepdim'), (data, start, end) => {
      let total = 0;
      for (let i = start; i < end; i++) total += Math.abs(data[i]) ** p;
      return total;
    });
  }),
});

function summed(ctx: OpContext): readonly number[] {
  const rank = need(ctx, 'self').shape.length;
  const given = ctx.optionalInts('dim');
  return given === undefined || given.length === 0
    ? Array.from({ length: rank }, (_, d) => d)
    : given.map((d) => normalDim(ctx, d, rank));
}

/** A tensor without dims in the place of the value. */
const indexFill = defineOp('aten.index_fill.int_Tensor', {
  schema: 'Tensor self, int dim, Tensor index, Tensor value',
  cls: 'other',
  infer: (ctx) => {
    const filled = need(ctx, 'self');
    normalDim(ctx, ctx.int('dim'), filled.shape.length);
    if (need(ctx, 'value').shape.length > 0) ctx.fail('the value must have no dims');
    return [filled];
  },
  shard: (ctx) => {
    const { dtype, shape } = need(ctx, 'self');
    const dim = normalDim(ctx, ctx.int('dim'), shape.length);
    const kinds =
      dtype === 'b8' ? (['bor', 'band'] as const) : (['sum', 'avg', 'max', 'min'] as const);
    const beside = dtype === 'b8' ? (['bor', 'band'] as const) : (['avg', 'max', 'min'] as const);
    return [
      ...cuttable(shape)
        .filter((d) => d !== dim)
        .map((d) => rule([S(d), R, R], [S(d)])),
      ...kinds.map((kind) => rule([P(kind), R, P(kind)], [P(kind)])),
      ...beside.flatMap((kind) => [
        rule([P(kind), R, R], [P(kind)], { origin: 'ext' }),
        rule([R, R, P(kind)], [P(kind)], { origin: 'ext' }),
      ]),
    ];
  },
  kernel: one((call) => {
    const [x, index] = [tensor(call, 'self'), flat(tensor(call, 'index'))];
    const dim = normalDim(call.ctx, call.ctx.int('dim'), x.rank);
    const n = x.rank === 0 ? 1 : x.shape[dim];
    const marked = new Set<number>();
    for (const v of index) {
      if (v < -n || v >= n) valueError(call, `index ${v} is outside of ${n} rows`);
      marked.add(v < 0 ? v + n : v);
    }
    const inner = sizeOf(x.shape.slice(dim + 1));
    const [data, value] = [flat(x), operand(call, 'value').item()];
    return build(
      x.shape,
      (i) => (marked.has(Math.floor(i / inner) % n) ? value : data[i]),
      x.dtype,
    );
  }),
});

export const searchOps: readonly OperatorRecord[] = [
  searchsorted,
  searchsortedScalar,
  bucketize,
  bincount,
  chosen('aten.kthvalue.default', 'Tensor self, int k, int dim=-1, bool keepdim=False', kth),
  chosen('aten.nanmedian.dim', 'Tensor self, int dim, bool keepdim=False', nanMiddle),
  nanmedian,
  unfold,
  powsum,
  indexFill,
];

/** Sample calls that PyTorch runs too. Values of `ends` rise. */
export const searchSamples: readonly string[] = [
  'searchsorted.Tensor(ends9[7], index9[6,5])',
  'searchsorted.Tensor(ends9[6], index9[5], right=True)',
  "searchsorted.Tensor(ends9[9], index9[5,6], out_int32=True, side='right')",
  'searchsorted.Scalar(ends9[7], 4)',
  'searchsorted.Scalar(ends9[6], 2.5, right=True)',
  'bucketize.Tensor(few[6,5], ends4[7])',
  'bucketize.Tensor(few[5], ends4[6], right=True)',
  'bincount(index7[6], None, 7)',
  'bincount(index7[5], x[5], 9)',
  'kthvalue(shuffled[6,5], 2)',
  'kthvalue(shuffled[5,6,4], 3, 1, True)',
  'nanmedian(x[6,5])',
  'nanmedian.dim(x[6,5], 1)',
  'nanmedian.dim(x[5,6], 0, True)',
  'linalg__powsum(x[6,5], 2)',
  'linalg__powsum(x[5,6], 3, [1], True)',
  'unfold(x[6,9], 1, 3, 2)',
  'unfold(x[7,5,6], 0, 2, 1)',
  'index_fill.int_Tensor(x[5,9], 1, distinct9[3], x[])',
];
