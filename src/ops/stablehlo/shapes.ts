import { cuttable, linearKinds, movedKinds, need, pendingRules, sameShape } from '../dims.ts';
import { identityKinds } from '../partials.ts';
import { pointwiseRules } from '../pointwise.ts';
import { DTYPE_BYTES } from '../../graph/types.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
  type TypedContext,
} from '../record.ts';
import { P, R, S, rule, type Rule, type RuleSlot } from '../rule.ts';
import { viewRules } from '../viewgroups.ts';

/**
 * Operations of StableHLO that make, move and rename elements. Shapes are always written out, so a cut dim mostly means a
 * rewritten call (`local-shape`). Pending reductions pass wherever every element of the result is one of the operand.
 */

const self = (ctx: OpContext): TensorMeta => need(ctx, 'operand');
const any = (dim: number): RuleSlot => S(dim, { slicing: 'any' });
const LOCAL = { rewrite: 'local-shape' } as const;
const noWork = () => ({ matrix: 0, vector: 0 });

/** Shape given by the call; sizes must be positive or zero. */
function written(ctx: OpContext): readonly number[] {
  const shape = ctx.ints('shape');
  return shape.some((n) => n < 0) ? ctx.fail(`shape [${shape.join(', ')}] has a negative size`) : shape;
}

/** A list argument with one entry per dim of a tensor of this rank. */
function perDim(ctx: OpContext, name: string, rank: number): readonly number[] {
  const list = ctx.ints(name);
  return list.length === rank ? list : ctx.fail(`${name} has ${list.length} entries, expected ${rank}`);
}

const kindsPass = (dtype: TensorMeta['dtype']): Rule[] => movedKinds(dtype).map((kind) => rule([P(kind)], [P(kind)]));

// ---- factories ----------------------------------------------------------------------------------------------------------

/** `value`: one literal (a splat), the list of all elements, or the payload as text where it is long. */
const constant = defineOp('stablehlo.constant', {
  schema: 'Any value, *, ScalarType dtype, int[] shape=[]',
  cls: 'factory',
  infer: (ctx) => [{ dtype: ctx.dtype('dtype') ?? 'f32', shape: written(ctx) }],
  shard: (ctx) => cuttable(written(ctx)).map((d) => rule([], [any(d)], { origin: 'ext', ...LOCAL })),
});

/** Counts along one dim; a rank that holds part of it starts at its offset. */
const iota = defineOp('stablehlo.iota', {
  schema: 'int iota_dimension, *, ScalarType dtype, int[] shape',
  cls: 'factory',
  infer: (ctx) => {
    const shape = written(ctx);
    const dim = ctx.int('iota_dimension');
    if (dim < 0 || dim >= shape.length) ctx.fail(`dim ${dim} does not exist in a tensor of ${shape.length} dims`);
    return [{ dtype: ctx.dtype('dtype') ?? 'i32', shape }];
  },
  shard: (ctx) =>
    cuttable(written(ctx)).map((d) =>
      d === ctx.int('iota_dimension')
        ? rule([], [S(d, { slicing: 'contiguous' })], { origin: 'ext', rewrite: 'offset' })
        : rule([], [any(d)], { origin: 'ext', ...LOCAL }),
    ),
});

// ---- views --------------------------------------------------------------------------------------------------------------

/** Operand dim i becomes result dim `broadcast_dimensions[i]`, stretched where its size is 1; other result dims are new. */
const broadcastInDim = defineOp('stablehlo.broadcast_in_dim', {
  schema: 'Tensor operand, *, int[] broadcast_dimensions=[], int[] shape',
  cls: 'view',
  infer: (ctx) => {
    const { dtype, shape } = self(ctx);
    const to = written(ctx);
    const dims = perDim(ctx, 'broadcast_dimensions', shape.length);
    if (new Set(dims).size !== dims.length) ctx.fail(`broadcast_dimensions [${dims.join(', ')}] repeat a dim`);
    dims.forEach((d, i) => {
      if (!(d in to)) ctx.fail(`result dim ${d} does not exist in [${to.join(', ')}]`);
      if (shape[i] !== 1 && shape[i] !== to[d])
        ctx.fail(`dim ${i} of size ${shape[i]} cannot become dim ${d} of size ${to[d]}`);
    });
    return [{ dtype, shape: to }];
  },
  shard: (ctx) => {
    const { dtype, shape } = self(ctx);
    const to = written(ctx);
    const dims = ctx.ints('broadcast_dimensions');
    const cuts = cuttable(to).map((out) => {
      const from = dims.indexOf(out);
      return from < 0 || shape[from] !== to[out]
        ? rule([R], [any(out)], { origin: 'ext', ...LOCAL })
        : rule([any(from)], [any(out)], LOCAL);
    });
    return [...cuts, ...kindsPass(dtype)];
  },
});

const reshape = defineOp('stablehlo.reshape', {
  schema: 'Tensor operand, *, int[] shape',
  cls: 'view',
  infer: (ctx) => {
    const shape = written(ctx);
    if (elements(shape) !== elements(self(ctx).shape))
      ctx.fail(
        `[${self(ctx).shape.join(', ')}] has ${elements(self(ctx).shape)} elements, [${shape.join(', ')}] has not`,
      );
    return [{ dtype: self(ctx).dtype, shape }];
  },
  shard: (ctx) => viewRules(self(ctx).shape, written(ctx), () => true, movedKinds(self(ctx).dtype)),
});

const transpose = defineOp('stablehlo.transpose', {
  schema: 'Tensor operand, *, int[] permutation',
  cls: 'view',
  infer: (ctx) => {
    const { dtype, shape } = self(ctx);
    const order = perDim(ctx, 'permutation', shape.length);
    if (new Set(order).size !== order.length || order.some((d) => !(d in shape)))
      ctx.fail(`permutation [${order.join(', ')}] must name each of the ${shape.length} dims once`);
    return [{ dtype, shape: order.map((d) => shape[d]) }];
  },
  shard: (ctx) => {
    const { dtype, shape } = self(ctx);
    const order = ctx.ints('permutation');
    return [...cuttable(shape).map((d) => rule([any(d)], [any(order.indexOf(d))])), ...kindsPass(dtype)];
  },
});

/** The bits as another type: of equal width elementwise, else the last dim goes or comes. No arithmetic passes. */
const bitcastConvert = defineOp('stablehlo.bitcast_convert', {
  schema: 'Tensor operand, *, ScalarType dtype, int[] shape',
  cls: 'view',
  infer: (ctx) => {
    const { dtype, shape } = self(ctx);
    const to = ctx.dtype('dtype') ?? dtype;
    const [before, after] = [DTYPE_BYTES[dtype], DTYPE_BYTES[to]];
    const expected = before === after ? shape : before > after ? [...shape, before / after] : shape.slice(0, -1);
    if (before < after && shape.at(-1) !== after / before)
      ctx.fail(`the last dim must have ${after / before} elements`);
    if (!sameShape(expected, written(ctx)))
      ctx.fail(`gives [${expected.join(', ')}], not [${written(ctx).join(', ')}]`);
    return [{ dtype: to, shape: expected }];
  },
  shard: (ctx) => {
    const kept = Math.min(self(ctx).shape.length, written(ctx).length);
    return cuttable(self(ctx).shape.slice(0, kept)).map((d) => rule([any(d)], [any(d)]));
  },
});

// ---- moving elements ----------------------------------------------------------------------------------------------------

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
  const given = ctx.ints('strides');
  const step = given.length === 0 ? shape.map(() => 1) : perDim(ctx, 'strides', shape.length);
  shape.forEach((size, d) => {
    if (start[d] < 0 || start[d] > limit[d] || limit[d] > size || step[d] < 1)
      ctx.fail(`[${start[d]}:${limit[d]}:${step[d]}] does not fit dim ${d} of size ${size}`);
  });
  return { start, limit, step, shape: shape.map((_, d) => Math.ceil((limit[d] - start[d]) / step[d])) };
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
      if (step[d] === 1) rules.push(rule([any(d)], [any(d)], LOCAL));
      else if (shape[d] % step[d] === 0 && out[d] > 1) {
        // Every rank's block starts at a multiple of the step, so each takes its own rows of the result.
        const cut = { slicing: 'contiguous', even: true, scaled: true } as const;
        rules.push(rule([S(d, { ...cut, unit: step[d] })], [S(d, cut)], { origin: 'ext', ...LOCAL }));
      }
    }
    return [...rules, ...kindsPass(dtype)];
  },
});

/** Rows before, after and between; the value fills them, so both are pending alike or the value is replicated. */
const pad = defineOp('stablehlo.pad', {
  schema:
    'Tensor operand, Tensor padding_value, *, int[] edge_padding_low, int[] edge_padding_high, int[] interior_padding',
  cls: 'other',
  infer: (ctx) => {
    const { dtype } = self(ctx);
    const value = need(ctx, 'padding_value');
    if (value.shape.length !== 0 || value.dtype !== dtype) ctx.fail(`the padding value must be a scalar of ${dtype}`);
    return [{ dtype, shape: padded(ctx) }];
  },
  shard: (ctx) => {
    const { dtype, shape } = self(ctx);
    const lists = ['edge_padding_low', 'edge_padding_high', 'interior_padding'].map((n) => ctx.ints(n));
    const cuts = cuttable(shape).filter((d) => lists.every((list) => list[d] === 0));
    // Copies of one number add up to more than it; they average to it, and it is their extreme.
    const beside = movedKinds(dtype).filter((kind) => kind !== 'sum');
    return [
      ...cuts.map((d) => rule([any(d), R], [any(d)])),
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
    return size >= 0 && inside[d] >= 0 ? size : ctx.fail(`the padding of dim ${d} takes away more than there is`);
  });
}

const concatenate = defineOp('stablehlo.concatenate', {
  schema: 'Tensor[] inputs, *, int dimension',
  cls: 'other',
  infer: (ctx) => {
    const [first, ...rest] = ctx.inputs;
    if (first === undefined) return ctx.fail('needs at least one operand');
    const dim = ctx.int('dimension');
    if (!(dim in first.shape)) ctx.fail(`dim ${dim} does not exist in a tensor of ${first.shape.length} dims`);
    for (const t of rest) {
      const fits = t.dtype === first.dtype && t.shape.length === first.shape.length;
      if (!fits || t.shape.some((n, d) => d !== dim && n !== first.shape[d]))
        ctx.fail(`[${t.shape.join(', ')}] does not join [${first.shape.join(', ')}] along dim ${dim}`);
    }
    const rows = ctx.inputs.reduce((n, t) => n + t.shape[dim], 0);
    return [{ dtype: first.dtype, shape: first.shape.map((n, d) => (d === dim ? rows : n)) }];
  },
  shard: (ctx) => {
    const { dtype, shape } = ctx.inputs[0];
    const all = (slot: RuleSlot): RuleSlot[] => ctx.inputs.map(() => slot);
    return [
      ...cuttable(shape).flatMap((d) => (d === ctx.int('dimension') ? [] : [rule(all(S(d)), [S(d)])])),
      ...movedKinds(dtype).map((kind) => rule(all(P(kind)), [P(kind)])),
    ];
  },
  flops: noWork,
});

const reverse = defineOp('stablehlo.reverse', {
  schema: 'Tensor operand, *, int[] dimensions',
  cls: 'other',
  infer: (ctx) => {
    if (ctx.ints('dimensions').some((d) => !(d in self(ctx).shape))) ctx.fail('a dim to reverse does not exist');
    return [self(ctx)];
  },
  shard: (ctx) => {
    const { dtype, shape } = self(ctx);
    const cuts = cuttable(shape).filter((d) => !ctx.ints('dimensions').includes(d));
    return [...cuts.map((d) => rule([any(d)], [any(d)])), ...kindsPass(dtype)];
  },
  flops: noWork,
});

/** One slice at a runtime position: StableHLO clamps the start, so a dim that is taken whole starts at 0. */
const dynamicSlice = defineOp('stablehlo.dynamic_slice', {
  schema: 'Tensor operand, Tensor[] start_indices, *, int[] slice_sizes',
  cls: 'other',
  infer: (ctx) => {
    const { dtype, shape } = self(ctx);
    const sizes = perDim(ctx, 'slice_sizes', shape.length);
    checkStarts(ctx, shape.length);
    sizes.forEach((n, d) => {
      if (n < 0 || n > shape[d]) ctx.fail(`a slice of ${n} rows of dim ${d}, which has ${shape[d]}`);
    });
    return [{ dtype, shape: sizes }];
  },
  shard: (ctx) => {
    const { dtype, shape } = self(ctx);
    const sizes = ctx.ints('slice_sizes');
    const starts = ctx.inputs.slice(1).map(() => R);
    const rules: Rule[] = [];
    for (const d of cuttable(shape)) {
      if (sizes[d] === shape[d]) rules.push(rule([any(d), ...starts], [any(d)], LOCAL));
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
  bytes: (ctx) => 2 * bytesOf(ctx.outputs[0]),
});

const dynamicUpdateSlice = defineOp('stablehlo.dynamic_update_slice', {
  schema: 'Tensor operand, Tensor update, Tensor[] start_indices',
  cls: 'other',
  infer: (ctx) => {
    const { dtype, shape } = self(ctx);
    const update = need(ctx, 'update');
    if (update.dtype !== dtype || update.shape.length !== shape.length || update.shape.some((n, d) => n > shape[d]))
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
    for (const kind of movedKinds(dtype)) rules.push(rule([P(kind), P(kind), ...starts], [P(kind)], { origin: 'ext' }));
    return rules;
  },
  flops: noWork,
});

/** One scalar integer per dim. */
function checkStarts(ctx: OpContext, rank: number): void {
  const starts = ctx.list('start_indices');
  if (starts.length !== rank) ctx.fail(`${starts.length} start indices for a tensor of ${rank} dims`);
  if (starts.some((s) => s === null || s.meta.shape.length !== 0)) ctx.fail('start indices must be scalars');
}

function bytesOf(meta: TensorMeta | null | undefined): number {
  return meta === null || meta === undefined ? 0 : elements(meta.shape) * DTYPE_BYTES[meta.dtype];
}

// ---- identities ---------------------------------------------------------------------------------------------------------

/** Keeps operations apart in time; every result is its operand. */
const barrier = defineOp('stablehlo.optimization_barrier', {
  schema: 'Tensor[] operand',
  cls: 'view',
  results: 'tuple',
  infer: (ctx) => ctx.inputs,
  shard: (ctx) => {
    const rules: Rule[] = [];
    const one = (i: number, slot: RuleSlot): void => {
      const slots = ctx.inputs.map((_, k): RuleSlot => (k === i ? slot : R));
      rules.push(rule(slots, slots));
    };
    ctx.inputs.forEach((meta, i) => {
      for (const d of cuttable(meta.shape)) one(i, any(d));
      for (const kind of movedKinds(meta.dtype)) one(i, P(kind));
    });
    if (ctx.inputs.length < 2) return rules;
    // All operands at once, each at the dim where it can be cut.
    const rank = Math.max(...ctx.inputs.map((meta) => meta.shape.length));
    for (let d = 0; d < rank; d++) {
      const slots = ctx.inputs.map((meta, i): RuleSlot =>
        meta.shape[d] > 1 ? S(d, { slicing: 'any', tie: `${i}` }) : R,
      );
      if (slots.filter((slot) => slot !== R).length > 1) rules.push(rule(slots, slots));
    }
    return rules;
  },
});

/** A value that is only named, constrained or marked: everything passes. */
function identity(name: string, schema: string): OperatorRecord {
  return defineOp(name, {
    schema,
    cls: 'view',
    infer: (ctx) => [ctx.inputs[0]],
    shard: (ctx: TypedContext) => [...pointwiseRules(ctx), ...identityKinds(ctx)],
  });
}

const getDimensionSize = defineOp('stablehlo.get_dimension_size', {
  schema: 'Tensor operand, *, int dimension',
  cls: 'other',
  infer: (ctx) => {
    if (!(ctx.int('dimension') in self(ctx).shape)) ctx.fail(`dim ${ctx.int('dimension')} does not exist`);
    return [{ dtype: 'i32', shape: [] }];
  },
  // The size is known; no element is read.
  shard: (ctx) => cuttable(self(ctx).shape).map((d) => rule([any(d)], [R], { origin: 'ext', ...LOCAL })),
  flops: noWork,
});

/** Over the last dims; linear, and independent over the others. */
const fft = defineOp('stablehlo.fft', {
  schema: 'Tensor operand, *, str fft_type, int[] fft_length',
  cls: 'other',
  infer: (ctx) => {
    const { dtype, shape } = self(ctx);
    const length = ctx.ints('fft_length');
    const lead = shape.slice(0, shape.length - length.length);
    const last = length.at(-1) ?? 1;
    switch (ctx.text('fft_type')) {
      case 'RFFT':
        return [
          {
            dtype: dtype === 'f64' ? 'c128' : 'c64',
            shape: [...lead, ...length.slice(0, -1), Math.floor(last / 2) + 1],
          },
        ];
      case 'IRFFT':
        return [{ dtype: dtype === 'c128' ? 'f64' : 'f32', shape: [...lead, ...length] }];
      default:
        return [{ dtype, shape }];
    }
  },
  shard: (ctx) => {
    const { dtype, shape } = self(ctx);
    const lead = shape.length - ctx.ints('fft_length').length;
    return [
      ...cuttable(shape.slice(0, Math.max(0, lead))).map((d) => rule([any(d)], [any(d)])),
      ...linearKinds(dtype).map((kind) => rule([P(kind)], [P(kind)])),
    ];
  },
  flops: (ctx) => {
    const n = ctx.ints('fft_length').reduce((a, b) => a * b, 1);
    return { matrix: 0, vector: 5 * elements(self(ctx).shape) * Math.max(1, Math.log2(Math.max(1, n))) };
  },
});

const cholesky = defineOp('stablehlo.cholesky', {
  schema: 'Tensor a, *, bool lower=False',
  cls: 'other',
  infer: (ctx) => [ctx.inputs[0]],
  shard: (ctx) => cuttable(ctx.inputs[0].shape.slice(0, -2)).map((d) => rule([any(d)], [any(d)])),
  flops: (ctx) => ({ matrix: 0, vector: (elements(ctx.inputs[0].shape) * (ctx.inputs[0].shape.at(-1) ?? 1)) / 3 }),
});

export const shapeOps: readonly OperatorRecord[] = [
  constant,
  iota,
  broadcastInDim,
  reshape,
  transpose,
  bitcastConvert,
  slice,
  pad,
  concatenate,
  reverse,
  dynamicSlice,
  dynamicUpdateSlice,
  barrier,
  identity('sdy.sharding_constraint', 'Tensor input'),
  identity('sdy.reshard', 'Tensor input'),
  getDimensionSize,
  fft,
  cholesky,
];
