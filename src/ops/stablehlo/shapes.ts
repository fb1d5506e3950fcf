/**
 * Operations of StableHLO that make and rename elements. Shapes are always written out, so a cut
 * dim mostly means a rewritten call (`local-shape`). Pending reductions pass wherever every element
 * of the result is one of the operand.
 */

import { DTYPE_BYTES } from '../../graph/types.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
} from '../record/record.ts';
import { R, rule, S } from '../record/rule.ts';
import { anyS, cuttable, kindsPass, movedKinds, need, perDim } from '../rules/dims.ts';
import { viewRules } from '../rules/viewgroups.ts';

const self = (ctx: OpContext): TensorMeta => need(ctx, 'operand');
const LOCAL = { rewrite: 'local-shape' } as const;

/** Shape given by the call; sizes must be positive or zero. */
function written(ctx: OpContext): readonly number[] {
  const shape = ctx.ints('shape');
  return shape.some((n) => n < 0)
    ? ctx.fail(`shape [${shape.join(', ')}] has a negative size`)
    : shape;
}

// ---- factories
// -----------------------------------------------------------------------------

/**
 * `value`: one literal (a splat), the list of all elements, or the payload as text where it is
 * long.
 */
const constant = defineOp('stablehlo.constant', {
  schema: 'Any value, *, ScalarType dtype, int[] shape=[]',
  cls: 'factory',
  infer: (ctx) => [{ dtype: ctx.dtype('dtype') ?? 'f32', shape: written(ctx) }],
  shard: (ctx) =>
    cuttable(written(ctx)).map((d) => rule([], [anyS(d)], { origin: 'ext', ...LOCAL })),
});

/** Counts along one dim; a rank that holds part of it starts at its offset. */
const iota = defineOp('stablehlo.iota', {
  schema: 'int iota_dimension, *, ScalarType dtype, int[] shape',
  cls: 'factory',
  infer: (ctx) => {
    const shape = written(ctx);
    const dim = ctx.int('iota_dimension');
    if (dim < 0 || dim >= shape.length)
      ctx.fail(`dim ${dim} does not exist in a tensor of ${shape.length} dims`);
    return [{ dtype: ctx.dtype('dtype') ?? 'i32', shape }];
  },
  shard: (ctx) =>
    cuttable(written(ctx)).map((d) =>
      d === ctx.int('iota_dimension')
        ? rule([], [S(d, { slicing: 'contiguous' })], { origin: 'ext', rewrite: 'offset' })
        : rule([], [anyS(d)], { origin: 'ext', ...LOCAL }),
    ),
});

// ---- views
// -----------------------------------------------------------------------------

/**
 * Operand dim i becomes result dim `broadcast_dimensions[i]`, stretched where its size is 1; other
 * result dims are new.
 */
const broadcastInDim = defineOp('stablehlo.broadcast_in_dim', {
  schema: 'Tensor operand, *, int[] broadcast_dimensions=[], int[] shape',
  cls: 'view',
  infer: (ctx) => {
    const { dtype, shape } = self(ctx);
    const to = written(ctx);
    const dims = perDim(ctx, 'broadcast_dimensions', shape.length);
    if (new Set(dims).size !== dims.length)
      ctx.fail(`broadcast_dimensions [${dims.join(', ')}] repeat a dim`);
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
        ? rule([R], [anyS(out)], { origin: 'ext', ...LOCAL })
        : rule([anyS(from)], [anyS(out)], LOCAL);
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
        `[${self(ctx).shape.join(', ')}] has ${elements(self(ctx).shape)} elements, ` +
          `[${shape.join(', ')}] has not`,
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
    return [
      ...cuttable(shape).map((d) => rule([anyS(d)], [anyS(order.indexOf(d))])),
      ...kindsPass(dtype),
    ];
  },
});

/**
 * The bits as another type: of equal width elementwise, else the last dim goes or comes. No
 * arithmetic passes.
 */
const bitcastConvert = defineOp('stablehlo.bitcast_convert', {
  schema: 'Tensor operand, *, ScalarType dtype, int[] shape',
  cls: 'view',
  infer: (ctx) => {
    const { dtype, shape } = self(ctx);
    const to = ctx.dtype('dtype') ?? dtype;
    const [before, after] = [DTYPE_BYTES[dtype], DTYPE_BYTES[to]];
    const expected =
      before === after ? shape : before > after ? [...shape, before / after] : shape.slice(0, -1);
    if (before < after && shape.at(-1) !== after / before)
      ctx.fail(`the last dim must have ${after / before} elements`);
    // The stated result of the call follows from the operand, and so does that of a rank's piece.
    return [{ dtype: to, shape: expected }];
  },
  shard: (ctx) => {
    const kept = Math.min(self(ctx).shape.length, written(ctx).length);
    return cuttable(self(ctx).shape.slice(0, kept)).map((d) => rule([anyS(d)], [anyS(d)]));
  },
});

export const shapeOps: readonly OperatorRecord[] = [
  constant,
  iota,
  broadcastInDim,
  reshape,
  transpose,
  bitcastConvert,
];
