/**
 * Taking rows: split, slice, select, their gradients and functional writes. Dims that are not cut
 * up follow; pending reductions pass, because every element is moved or set to zero on all ranks.
 */

import {
  defineOp,
  type OpContext,
  type OperatorRecord,
  type TypedContext,
} from '../../record/record.ts';
import { P, type Rule, rule, S } from '../../record/rule.ts';
import {
  cuttable,
  movedKinds,
  need,
  normalDim,
  sameShape,
  self,
  untouched,
} from '../../rules/dims.ts';

// ---- split, chunk, unbind
// -----------------------------------------------------------------------------

/** A view of one tensor as several along `dim`, with the piece sizes of the call. */
function splitting(
  name: string,
  schema: string,
  sizes: (ctx: OpContext, rows: number) => readonly number[],
  aliases: readonly string[] = [],
): OperatorRecord {
  return defineOp(name, {
    schema,
    cls: 'view',
    results: 'tuple',
    aliases,
    infer: (ctx) => {
      const { dtype, shape } = self(ctx);
      if (shape.length === 0) ctx.fail('cannot split a tensor without dims');
      const dim = normalDim(ctx, ctx.int('dim'), shape.length);
      return sizes(ctx, shape[dim]).map((rows) => ({
        dtype,
        shape: shape.map((n, i) => (i === dim ? rows : n)),
      }));
    },
    shard: (ctx) => {
      const dim = normalDim(ctx, ctx.int('dim'), self(ctx).shape.length);
      return untouched(ctx, [dim], movedKinds(self(ctx).dtype));
    },
  });
}

/** Pieces of `size` rows, the last one shorter; no rows make one empty piece. */
function pieces(rows: number, size: number): number[] {
  if (rows === 0) return [0];
  const out: number[] = [];
  for (let at = 0; at < rows; at += size) out.push(Math.min(size, rows - at));
  return out;
}

const split = splitting(
  'aten.split.Tensor',
  'Tensor self, int split_size, int dim=0',
  (ctx, rows) => {
    const size = ctx.int('split_size');
    if (size < 0 || (size === 0 && rows > 0)) ctx.fail(`split_size must be positive, got ${size}`);
    return pieces(rows, Math.max(size, 1));
  },
  ['aten.split_copy.Tensor', 'aten.unsafe_split.Tensor'],
);

const splitWithSizes = splitting(
  'aten.split_with_sizes.default',
  'Tensor self, int[] split_sizes, int dim=0',
  (ctx, rows) => {
    const sizes = ctx.ints('split_sizes');
    const total = sizes.reduce((a, b) => a + b, 0);
    if (total !== rows) ctx.fail(`split_sizes add up to ${total}, expected ${rows}`);
    return sizes;
  },
  ['aten.split_with_sizes_copy.default', 'aten.unsafe_split_with_sizes.default'],
);

const splitSizes = splitting(
  'aten.split.sizes',
  'Tensor self, int[] split_size, int dim=0',
  (ctx, rows) => {
    const sizes = ctx.ints('split_size');
    const total = sizes.reduce((a, b) => a + b, 0);
    if (total !== rows) ctx.fail(`split_size adds up to ${total}, expected ${rows}`);
    return sizes;
  },
);

const chunk = splitting(
  'aten.chunk.default',
  'Tensor self, int chunks, int dim=0',
  (ctx, rows) => {
    const chunks = ctx.int('chunks');
    if (chunks <= 0) ctx.fail(`chunks must be positive, got ${chunks}`);
    if (rows === 0) return new Array<number>(chunks).fill(0);
    return pieces(rows, Math.ceil(rows / chunks));
  },
  ['aten.unsafe_chunk.default'],
);

const unbind = defineOp('aten.unbind.int', {
  schema: 'Tensor self, int dim=0',
  cls: 'view',
  aliases: ['aten.unbind_copy.int'],
  results: 'tuple',
  infer: (ctx) => {
    const { dtype, shape } = self(ctx);
    if (shape.length === 0) ctx.fail('cannot unbind a tensor without dims');
    const dim = normalDim(ctx, ctx.int('dim'), shape.length);
    return Array.from({ length: shape[dim] }, () => ({
      dtype,
      shape: shape.filter((_, i) => i !== dim),
    }));
  },
  shard: (ctx) => {
    const dim = normalDim(ctx, ctx.int('dim'), self(ctx).shape.length);
    return untouched(ctx, [dim], movedKinds(self(ctx).dtype), {
      shift: (d) => (d < dim ? d : d - 1),
    });
  },
});

// ---- slice, select
// -----------------------------------------------------------------------------

interface Range {
  readonly dim: number;
  readonly start: number;
  readonly end: number;
  readonly step: number;
  readonly rows: number;
  /** Takes every row. */
  readonly full: boolean;
}

/**
 * The rows that `dim, start, end, step` take of a tensor of this shape: negative bounds count from
 * the end, then clamp.
 */
function rangeOf(ctx: OpContext, shape: readonly number[]): Range {
  if (shape.length === 0) return ctx.fail('cannot slice a tensor without dims');
  const dim = normalDim(ctx, ctx.int('dim'), shape.length);
  const size = shape[dim];
  const step = ctx.int('step');
  if (step <= 0) ctx.fail(`step must be positive, got ${step}`);
  const clamp = (at: number): number => Math.min(Math.max(at < 0 ? at + size : at, 0), size);
  const start = clamp(ctx.optionalInt('start') ?? 0);
  const end = Math.max(start, clamp(ctx.optionalInt('end') ?? size));
  return {
    dim,
    start,
    end,
    step,
    rows: Math.ceil((end - start) / step),
    full: start === 0 && end === size && step === 1,
  };
}

const slice = defineOp('aten.slice.Tensor', {
  schema: 'Tensor self, int dim=0, int? start=None, int? end=None, int step=1',
  cls: 'view',
  aliases: ['aten.slice_copy.Tensor'],
  infer: (ctx) => {
    const { dtype, shape } = self(ctx);
    const range = rangeOf(ctx, shape);
    return [{ dtype, shape: shape.map((n, i) => (i === range.dim ? range.rows : n)) }];
  },
  shard: (ctx) => {
    const { dtype, shape } = self(ctx);
    const range = rangeOf(ctx, shape);
    const rules = untouched(ctx, range.full ? [] : [range.dim], movedKinds(dtype));
    // Every rank's block starts at a multiple of the step, so each takes its own rows of the
    // result.
    const strided = range.step > 1 && range.start === 0 && range.end === shape[range.dim];
    if (strided && shape[range.dim] % range.step === 0 && range.rows > 1) {
      const cut = { slicing: 'contiguous', even: true, scaled: true } as const;
      rules.push(
        rule([S(range.dim, { ...cut, unit: range.step })], [S(range.dim, cut)], { origin: 'ext' }),
      );
    }
    return rules;
  },
});

/** `narrow(dim, start, length)`. */
const narrow = defineOp('aten.narrow.default', {
  schema: 'Tensor self, int dim, int start, int length',
  cls: 'view',
  aliases: ['aten.narrow_copy.default'],
  infer: (ctx) => {
    const { dtype, shape } = self(ctx);
    const { dim, length } = narrowed(ctx);
    return [{ dtype, shape: shape.map((n, i) => (i === dim ? length : n)) }];
  },
  shard: (ctx) => untouched(ctx, [narrowed(ctx).dim], movedKinds(self(ctx).dtype)),
});

function narrowed(ctx: OpContext): { readonly dim: number; readonly length: number } {
  const { shape } = self(ctx);
  if (shape.length === 0) return ctx.fail('cannot narrow a tensor without dims');
  const dim = normalDim(ctx, ctx.int('dim'), shape.length);
  const length = ctx.int('length');
  const start = ctx.int('start') < 0 ? ctx.int('start') + shape[dim] : ctx.int('start');
  if (start < 0 || length < 0 || start + length > shape[dim])
    ctx.fail(`rows ${start} to ${start + length} are not in dim ${dim} of size ${shape[dim]}`);
  return { dim, length };
}

const sliceBackward = defineOp('aten.slice_backward.default', {
  schema: 'Tensor grad_output, int[] input_sizes, int dim, int start, int end, int step',
  cls: 'other',
  infer: (ctx) => {
    const { dtype, shape } = need(ctx, 'grad_output');
    const sizes = ctx.ints('input_sizes');
    const range = rangeOf(ctx, sizes);
    const expected = sizes.map((n, i) => (i === range.dim ? range.rows : n));
    if (!sameShape(shape, expected))
      ctx.fail(`grad_output has shape [${shape.join(', ')}], expected [${expected.join(', ')}]`);
    return [{ dtype, shape: sizes }];
  },
  shard: (ctx) => {
    const range = rangeOf(ctx, ctx.ints('input_sizes'));
    const kinds = movedKinds(need(ctx, 'grad_output').dtype);
    return untouched(ctx, range.full ? [] : [range.dim], kinds, { rewrite: 'local-shape' });
  },
  flops: () => ({ matrix: 0, vector: 0 }),
});

/**
 * `P, P -> P` of all kinds on the two tensor inputs of a functional write: every element comes from
 * one of them.
 */
function writtenKinds(ctx: TypedContext): Rule[] {
  return movedKinds(ctx.inputs[0].dtype).map((kind) =>
    rule([P(kind), P(kind)], [P(kind)], { origin: 'ext' }),
  );
}

const sliceScatter = defineOp('aten.slice_scatter.default', {
  schema: 'Tensor self, Tensor src, int dim=0, int? start=None, int? end=None, int step=1',
  cls: 'other',
  infer: (ctx) => {
    const { dtype, shape } = self(ctx);
    const range = rangeOf(ctx, shape);
    const expected = shape.map((n, i) => (i === range.dim ? range.rows : n));
    const src = need(ctx, 'src');
    if (!sameShape(src.shape, expected))
      ctx.fail(`src has shape [${src.shape.join(', ')}], expected [${expected.join(', ')}]`);
    return [{ dtype, shape }];
  },
  shard: (ctx) => {
    const { shape } = self(ctx);
    const range = rangeOf(ctx, shape);
    const cuts = cuttable(shape).filter((d) => d !== range.dim || range.full);
    return [...cuts.map((d) => rule([S(d), S(d)], [S(d)])), ...writtenKinds(ctx)];
  },
  flops: () => ({ matrix: 0, vector: 0 }),
});

/** The dim and index of a select; the index must exist. */
function selected(ctx: OpContext, shape: readonly number[]): number {
  if (shape.length === 0) return ctx.fail('cannot select from a tensor without dims');
  const dim = normalDim(ctx, ctx.int('dim'), shape.length);
  const index = ctx.int('index');
  if (index < -shape[dim] || index >= shape[dim])
    ctx.fail(`index ${index} is out of range for dim ${dim} of size ${shape[dim]}`);
  return dim;
}

const select = defineOp('aten.select.int', {
  schema: 'Tensor self, int dim, int index',
  cls: 'view',
  aliases: ['aten.select_copy.int'],
  infer: (ctx) => {
    const { dtype, shape } = self(ctx);
    const dim = selected(ctx, shape);
    return [{ dtype, shape: shape.filter((_, i) => i !== dim) }];
  },
  shard: (ctx) => {
    const dim = selected(ctx, self(ctx).shape);
    return untouched(ctx, [dim], movedKinds(self(ctx).dtype), {
      shift: (d) => (d < dim ? d : d - 1),
    });
  },
});

const selectBackward = defineOp('aten.select_backward.default', {
  schema: 'Tensor grad_output, int[] input_sizes, int dim, int index',
  cls: 'other',
  infer: (ctx) => {
    const { dtype, shape } = need(ctx, 'grad_output');
    const sizes = ctx.ints('input_sizes');
    const dim = selected(ctx, sizes);
    const expected = sizes.filter((_, i) => i !== dim);
    if (!sameShape(shape, expected))
      ctx.fail(`grad_output has shape [${shape.join(', ')}], expected [${expected.join(', ')}]`);
    return [{ dtype, shape: sizes }];
  },
  shard: (ctx) => {
    const dim = selected(ctx, ctx.ints('input_sizes'));
    const kinds = movedKinds(need(ctx, 'grad_output').dtype);
    return untouched(ctx, [], kinds, {
      shift: (d) => (d < dim ? d : d + 1),
      rewrite: 'local-shape',
    });
  },
  flops: () => ({ matrix: 0, vector: 0 }),
});

const selectScatter = defineOp('aten.select_scatter.default', {
  schema: 'Tensor self, Tensor src, int dim, int index',
  cls: 'other',
  infer: (ctx) => {
    selected(ctx, self(ctx).shape);
    return [self(ctx)];
  },
  shard: (ctx) => {
    const { shape } = self(ctx);
    const dim = selected(ctx, shape);
    const cuts = cuttable(shape).filter((d) => d !== dim);
    return [...cuts.map((d) => rule([S(d), S(d < dim ? d : d - 1)], [S(d)])), ...writtenKinds(ctx)];
  },
  flops: () => ({ matrix: 0, vector: 0 }),
});

export const slicingOps: readonly OperatorRecord[] = [
  split,
  splitWithSizes,
  splitSizes,
  chunk,
  unbind,
  slice,
  narrow,
  sliceBackward,
  sliceScatter,
  select,
  selectBackward,
  selectScatter,
];
