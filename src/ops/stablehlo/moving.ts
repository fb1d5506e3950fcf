/**
 * Operations of StableHLO that move elements: slices, padding, concatenation. Dims that are taken
 * whole follow. Pending reductions pass wherever every element of the result is one of the
 * operands'.
 */

import {
  defineOp,
  metaBytes,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
} from '../record/record.ts';
import { P, R, type Rule, rule, type RuleSlot, S } from '../record/rule.ts';
import {
  anyS,
  cuttable,
  kindsPass,
  movedKinds,
  need,
  pendingRules,
  perDim,
} from '../rules/dims.ts';

const self = (ctx: OpContext): TensorMeta => need(ctx, 'operand');
const LOCAL = { rewrite: 'local-shape' } as const;
const noWork = () => ({ matrix: 0, vector: 0 });

interface Window {
  readonly start: readonly number[];
  readonly limit: readonly number[];
  readonly step: readonly number[];
  readonly shape: readonly number[];
}

function windowOf(ctx: OpContext): Window {
  const { shape } = self(ctx);
  const start = perDim(ctx, 'start_indices', shape.length);
  const limit = perDim(ctx, 'limit_indices', shape.length);
  const step = perDim(ctx, 'strides', shape.length, 1);
  shape.forEach((size, d) => {
    if (start[d] < 0 || start[d] > limit[d] || limit[d] > size || step[d] < 1)
      ctx.fail(`[${start[d]}:${limit[d]}:${step[d]}] does not fit dim ${d} of size ${size}`);
  });
  return {
    start,
    limit,
    step,
    shape: shape.map((_, d) => Math.ceil((limit[d] - start[d]) / step[d])),
  };
}

const slice = defineOp('stablehlo.slice', {
  schema: 'Tensor operand, *, int[] start_indices, int[] limit_indices, int[] strides=[]',
  cls: 'view',
  infer: (ctx) => [{ dtype: self(ctx).dtype, shape: windowOf(ctx).shape }],
  shard: (ctx) => {
    const { dtype, shape } = self(ctx);
    const { start, limit, step, shape: out } = windowOf(ctx);
    const rules: Rule[] = [];
    for (const d of cuttable(shape)) {
      if (start[d] !== 0 || limit[d] !== shape[d]) continue;
      if (step[d] === 1) rules.push(rule([anyS(d)], [anyS(d)], LOCAL));
      else if (shape[d] % step[d] === 0 && out[d] > 1) {
        // Every rank's block starts at a multiple of the step, so each takes its own rows of the
        // result.
        const cut = { slicing: 'contiguous', even: true, scaled: true } as const;
        rules.push(
          rule([S(d, { ...cut, unit: step[d] })], [S(d, cut)], { origin: 'ext', ...LOCAL }),
        );
      }
    }
    return [...rules, ...kindsPass(dtype)];
  },
});

/**
 * Rows before, after and between; the value fills them, so both are pending the same way or the
 * value is replicated.
 */
const pad = defineOp('stablehlo.pad', {
  schema:
    'Tensor operand, Tensor padding_value, *, int[] edge_padding_low, int[] ' +
    'edge_padding_high, int[] interior_padding',
  cls: 'other',
  infer: (ctx) => {
    const { dtype } = self(ctx);
    const value = need(ctx, 'padding_value');
    if (value.shape.length !== 0 || value.dtype !== dtype)
      ctx.fail(`the padding value must be a scalar of ${dtype}`);
    return [{ dtype, shape: padded(ctx) }];
  },
  shard: (ctx) => {
    const { dtype, shape } = self(ctx);
    const lists = ['edge_padding_low', 'edge_padding_high', 'interior_padding'].map((n) =>
      ctx.ints(n),
    );
    const cuts = cuttable(shape).filter((d) => lists.every((list) => list[d] === 0));
    // Copies of one number add up to more than it; they average to it, and it is their extreme.
    const beside = movedKinds(dtype).filter((kind) => kind !== 'sum');
    return [
      ...cuts.map((d) => rule([anyS(d), R], [anyS(d)])),
      ...pendingRules(2, [0], ['pending'], beside),
      ...pendingRules(2, [0, 1], ['pending'], movedKinds(dtype), 'ext'),
    ];
  },
  flops: noWork,
});

function padded(ctx: OpContext): number[] {
  const { shape } = self(ctx);
  const low = perDim(ctx, 'edge_padding_low', shape.length);
  const high = perDim(ctx, 'edge_padding_high', shape.length);
  const inside = perDim(ctx, 'interior_padding', shape.length);
  return shape.map((n, d) => {
    const size = low[d] + n + Math.max(0, n - 1) * inside[d] + high[d];
    return size >= 0 && inside[d] >= 0
      ? size
      : ctx.fail(`the padding of dim ${d} takes away more than there is`);
  });
}

const concatenate = defineOp('stablehlo.concatenate', {
  schema: 'Tensor[] inputs, *, int dimension',
  cls: 'other',
  infer: (ctx) => {
    const [first, ...rest] = ctx.inputs;
    if (first === undefined) return ctx.fail('needs at least one operand');
    const dim = ctx.int('dimension');
    if (!(dim in first.shape))
      ctx.fail(`dim ${dim} does not exist in a tensor of ${first.shape.length} dims`);
    for (const t of rest) {
      const fits = t.dtype === first.dtype && t.shape.length === first.shape.length;
      if (!fits || t.shape.some((n, d) => d !== dim && n !== first.shape[d]))
        ctx.fail(
          `[${t.shape.join(', ')}] does not join [${first.shape.join(', ')}] along dim ${dim}`,
        );
    }
    const rows = ctx.inputs.reduce((n, t) => n + t.shape[dim], 0);
    return [{ dtype: first.dtype, shape: first.shape.map((n, d) => (d === dim ? rows : n)) }];
  },
  shard: (ctx) => {
    const { dtype, shape } = ctx.inputs[0];
    const all = (slot: RuleSlot): RuleSlot[] => ctx.inputs.map(() => slot);
    return [
      ...cuttable(shape).flatMap((d) =>
        d === ctx.int('dimension') ? [] : [rule(all(S(d)), [S(d)])],
      ),
      ...movedKinds(dtype).map((kind) => rule(all(P(kind)), [P(kind)])),
    ];
  },
  flops: noWork,
});

const reverse = defineOp('stablehlo.reverse', {
  schema: 'Tensor operand, *, int[] dimensions',
  cls: 'other',
  infer: (ctx) => {
    if (ctx.ints('dimensions').some((d) => !(d in self(ctx).shape)))
      ctx.fail('a dim to reverse does not exist');
    return [self(ctx)];
  },
  shard: (ctx) => {
    const { dtype, shape } = self(ctx);
    const cuts = cuttable(shape).filter((d) => !ctx.ints('dimensions').includes(d));
    return [...cuts.map((d) => rule([anyS(d)], [anyS(d)])), ...kindsPass(dtype)];
  },
  flops: noWork,
});

/**
 * One slice at a runtime position: StableHLO clamps the start, so a dim that is taken whole starts
 * at 0.
 */
const dynamicSlice = defineOp('stablehlo.dynamic_slice', {
  schema: 'Tensor operand, Tensor[] start_indices, *, int[] slice_sizes',
  cls: 'other',
  infer: (ctx) => {
    const { dtype, shape } = self(ctx);
    const sizes = perDim(ctx, 'slice_sizes', shape.length);
    checkStarts(ctx, shape.length);
    sizes.forEach((n, d) => {
      if (n < 0 || n > shape[d])
        ctx.fail(`a slice of ${n} rows of dim ${d}, which has ${shape[d]}`);
    });
    return [{ dtype, shape: sizes }];
  },
  shard: (ctx) => {
    const { dtype, shape } = self(ctx);
    const sizes = ctx.ints('slice_sizes');
    const starts = ctx.inputs.slice(1).map(() => R);
    const rules: Rule[] = [];
    for (const d of cuttable(shape)) {
      if (sizes[d] === shape[d]) rules.push(rule([anyS(d), ...starts], [anyS(d)], LOCAL));
      else if (sizes[d] === 1)
        // The one row lies on one rank; the others contribute zero.
        rules.push(
          rule([S(d, { slicing: 'contiguous' }), ...starts], [P(dtype === 'b8' ? 'bor' : 'sum')], {
            origin: 'ext',
            rewrite: 'mask',
          }),
        );
    }
    return [...rules, ...movedKinds(dtype).map((kind) => rule([P(kind), ...starts], [P(kind)]))];
  },
  flops: noWork,
  bytes: ({ outputs: [slice] }) => (slice === null ? 0 : 2 * metaBytes(slice)),
});

const dynamicUpdateSlice = defineOp('stablehlo.dynamic_update_slice', {
  schema: 'Tensor operand, Tensor update, Tensor[] start_indices',
  cls: 'other',
  infer: (ctx) => {
    const { dtype, shape } = self(ctx);
    const update = need(ctx, 'update');
    if (
      update.dtype !== dtype ||
      update.shape.length !== shape.length ||
      update.shape.some((n, d) => n > shape[d])
    )
      ctx.fail(`an update of [${update.shape.join(', ')}] does not fit [${shape.join(', ')}]`);
    checkStarts(ctx, shape.length);
    return [self(ctx)];
  },
  shard: (ctx) => {
    const { dtype, shape } = self(ctx);
    const update = need(ctx, 'update');
    const starts = ctx.inputs.slice(2).map(() => R);
    const rules: Rule[] = [];
    for (const d of cuttable(shape)) {
      if (update.shape[d] === shape[d]) rules.push(rule([S(d), S(d), ...starts], [S(d)]));
      else if (update.shape[d] === 1) {
        const rows = S(d, { slicing: 'contiguous' });
        rules.push(rule([rows, R, ...starts], [rows], { origin: 'ext', rewrite: 'mask' }));
      }
    }
    for (const kind of movedKinds(dtype))
      rules.push(rule([P(kind), P(kind), ...starts], [P(kind)], { origin: 'ext' }));
    return rules;
  },
  flops: noWork,
});

/** One scalar integer per dim. */
function checkStarts(ctx: OpContext, rank: number): void {
  const starts = ctx.list('start_indices');
  if (starts.length !== rank)
    ctx.fail(`${starts.length} start indices for a tensor of ${rank} dims`);
  if (starts.some((s) => s === null || s.meta.shape.length !== 0))
    ctx.fail('start indices must be scalars');
}

export const movingOps: readonly OperatorRecord[] = [
  slice,
  pad,
  concatenate,
  reverse,
  dynamicSlice,
  dynamicUpdateSlice,
];
