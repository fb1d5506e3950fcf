/**
 * Writes that combine what falls on one element: a sum, a product, a mean, a largest or a least
 * value, with the old value (`include_self`) or without it. Dims along which nothing is indexed
 * follow.
 */

import type { ReduceOp } from '../../../mesh/placements/placement.ts';
import { copyFlat, flat, fromFlat, NDArray, sizeOf } from '../../../ndarray/array.ts';
import { isFloating } from '../../record/dtypes.ts';
import {
  type Kernel,
  type KernelCall,
  one,
  optional,
  tensor,
  valueError,
} from '../../record/kernel.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TypedContext,
} from '../../record/record.ts';
import { P, R, type Rule, rule, S } from '../../record/rule.ts';
import { cuttable, linearKinds, need, normalDim } from '../../rules/dims.ts';

type Combine = 'sum' | 'prod' | 'mean' | 'amax' | 'amin';

const WORDS: Readonly<Record<string, Combine>> = { add: 'sum', multiply: 'prod' };
const COMBINES: readonly string[] = ['sum', 'prod', 'mean', 'amax', 'amin'];

function combineOf(ctx: OpContext): Combine {
  const word = ctx.text('reduce');
  const known = Object.hasOwn(WORDS, word) ? WORDS[word] : COMBINES.find((c) => c === word);
  return (
    (known as Combine | undefined) ??
    ctx.fail(`reduce '${word}' is not one of ${COMBINES.join(', ')}`)
  );
}

/** The old value takes part. */
const keepsOld = (ctx: OpContext): boolean =>
  ctx.target.startsWith('aten.scatter.') || ctx.bool('include_self');

function dimOf(ctx: OpContext): number {
  return normalDim(ctx, ctx.int('dim'), need(ctx, 'self').shape.length);
}

// ---- rules
// -----------------------------------------------------------------------------

/** Pending kinds of `self` next to a replicated source, and the same kinds of both. */
function pendingKinds(
  ctx: TypedContext,
  sourced: boolean,
): { readonly alone: readonly ReduceOp[]; readonly joint: readonly ReduceOp[] } {
  const { dtype } = need(ctx, 'self');
  if (dtype === 'b8') return { alone: [], joint: [] };
  const combine = combineOf(ctx);
  const old = keepsOld(ctx);
  const linear = linearKinds(dtype);
  const extremes = ['max', 'min'] as const;
  // Elements that something falls on have the same value on every rank, whatever self was there.
  const replaced = old ? [] : (['avg', ...extremes] as const);
  switch (combine) {
    case 'amax':
    case 'amin':
      return { alone: old ? extremes : replaced, joint: [combine === 'amax' ? 'max' : 'min'] };
    case 'sum':
      // Beside a number, an average as well: it adds as much on every rank.
      return { alone: old ? (sourced ? extremes : ['avg', ...extremes]) : replaced, joint: linear };
    case 'mean':
      // A mean of integers is rounded.
      return { alone: old ? extremes : replaced, joint: isFloating(dtype) ? linear : [] };
    case 'prod':
      return {
        alone: old ? [...linear, ...(keepsOrder(ctx) ? extremes : [])] : replaced,
        joint: [],
      };
  }
}

/**
 * Tells whether everything is multiplied by a number that is not negative, which keeps a largest
 * value the largest.
 */
const keepsOrder = (ctx: OpContext): boolean =>
  ctx.target === 'aten.scatter.value_reduce' && ctx.number('value') >= 0;

function reductionRules(ctx: TypedContext, sourced: boolean): Rule[] {
  const { alone, joint } = pendingKinds(ctx, sourced);
  const pending = (self: ReduceOp, source: ReduceOp | undefined): Rule =>
    rule([P(self), R, ...(sourced ? [source === undefined ? R : P(source)] : [])], [P(self)], {
      origin: 'ext',
    });
  return [
    ...(sourced ? joint.map((kind) => pending(kind, kind)) : []),
    ...alone
      .filter((kind) => !sourced || !joint.includes(kind) || kind === 'sum')
      .map((kind) => pending(kind, undefined)),
  ];
}

/**
 * Written values are cut with their index: parts of a largest value, or of a sum, are put together
 * in the pending result.
 */
function cutIndex(
  ctx: TypedContext,
  index: number,
  source: number | undefined,
  count: number,
): Rule[] {
  const combine = combineOf(ctx);
  if (!keepsOld(ctx) || count < 2) return [];
  const { dtype } = need(ctx, 'self');
  const kind: ReduceOp | undefined =
    combine === 'amax' ? 'max' : combine === 'amin' ? 'min' : combine === 'sum' ? 'sum' : undefined;
  if (kind === undefined || dtype === 'b8') return [];
  return [
    rule([P(kind), S(index), ...(source === undefined ? [] : [S(source)])], [P(kind)], {
      origin: 'ext',
    }),
  ];
}

// ---- values
// -----------------------------------------------------------------------------

/** Combines `values[i]` into place `positions[i]`. */
function combined(call: KernelCall, positions: Float64Array, values: Float64Array): NDArray {
  const self = tensor(call, 'self');
  const out = copyFlat(self);
  const combine = combineOf(call.ctx);
  const old = keepsOld(call.ctx);
  const counts = new Float64Array(out.length).fill(old ? 1 : 0);
  positions.forEach((at, i) => {
    const v = values[i];
    if (counts[at] === 0) out[at] = v;
    else if (combine === 'sum' || combine === 'mean') out[at] += v;
    else if (combine === 'prod') out[at] *= v;
    else if (Number.isNaN(v) || (combine === 'amax' ? v > out[at] : v < out[at])) out[at] = v;
    counts[at]++;
  });
  if (combine === 'mean')
    out.forEach((v, i) => {
      const mean = v / Math.max(1, counts[i]);
      out[i] = self.kind === 'float' ? mean : Math.floor(mean);
    });
  return fromFlat(self.shape, out, self.dtype);
}

function bounded(call: KernelCall, index: number, size: number): number {
  return index >= 0 && index < size
    ? index
    : valueError(call, `index ${index} is outside of a dim of ${size}`);
}

/** Rows of the source go to the rows that a one-dim index names. */
const indexReduceKernel: Kernel = one((call) => {
  const [self, index, source] = [
    tensor(call, 'self'),
    flat(tensor(call, 'index')),
    tensor(call, 'source'),
  ];
  const dim = dimOf(call.ctx);
  const [rows, inner] = [self.shape[dim], sizeOf(self.shape.slice(dim + 1))];
  const positions = new Float64Array(source.size).map((_, i) => {
    const [k, row, outer] = [
      i % inner,
      Math.floor(i / inner) % index.length,
      Math.floor(i / (inner * index.length)),
    ];
    return (outer * rows + bounded(call, index[row], rows)) * inner + k;
  });
  return combined(call, positions, flat(source));
});

/** Elements of the source go where the index says along `dim`. */
const scatterKernel: Kernel = one((call) => {
  const [self, index] = [tensor(call, 'self'), tensor(call, 'index')];
  const dim = dimOf(call.ctx);
  const src = optional(call, 'src');
  const part =
    src === undefined
      ? undefined
      : flat(new NDArray(src.dtype, index.shape, src.strides, src.offset, src.storage));
  const to = flat(index);
  const positions = new Float64Array(index.size).map((_, i) => {
    let [rest, at, step] = [i, 0, 1];
    for (let d = index.rank - 1; d >= 0; d--) {
      const place = d === dim ? bounded(call, to[i], self.shape[d]) : rest % index.shape[d];
      at += place * step;
      step *= self.shape[d];
      rest = Math.floor(rest / index.shape[d]);
    }
    return at;
  });
  return combined(
    call,
    positions,
    part ?? new Float64Array(index.size).fill(call.ctx.number('value')),
  );
});

// ---- records
// -----------------------------------------------------------------------------

const indexReduce = defineOp('aten.index_reduce.default', {
  schema:
    'Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True',
  cls: 'other',
  aliases: ['aten.index_reduce_.default'],
  infer: (ctx) => {
    const [{ shape }, index, source] = [
      need(ctx, 'self'),
      need(ctx, 'index').shape,
      need(ctx, 'source').shape,
    ];
    const dim = dimOf(ctx);
    const fits =
      index.length === 1 &&
      source.length === shape.length &&
      source.every((n, d) => n === (d === dim ? index[0] : shape[d]));
    if (!fits || combineOf(ctx) === 'sum')
      ctx.fail(
        fits
          ? "reduce 'sum' is index_add"
          : `source [${source.join(', ')}] does not fit self [${shape.join(', ')}] and index ` +
              `[${index.join(', ')}]`,
      );
    return [need(ctx, 'self')];
  },
  shard: (ctx) => {
    const dim = dimOf(ctx);
    return [
      ...cuttable(need(ctx, 'self').shape)
        .filter((d) => d !== dim)
        .map((d) => rule([S(d), R, S(d)], [S(d)])),
      ...reductionRules(ctx, true),
      ...cutIndex(ctx, 0, dim, need(ctx, 'index').shape[0]),
    ];
  },
  flops: (ctx) => ({ matrix: 0, vector: elements(need(ctx, 'source').shape) }),
  kernel: indexReduceKernel,
});

function scatter(
  name: string,
  schema: string,
  sourced: boolean,
  aliases: readonly string[],
): OperatorRecord {
  const names = sourced ? ['self', 'index', 'src'] : ['self', 'index'];
  return defineOp(name, {
    schema: `Tensor self, int dim, Tensor index, ${schema}`,
    cls: 'other',
    aliases,
    infer: (ctx) => {
      const [{ shape }, index] = [need(ctx, 'self'), need(ctx, 'index').shape];
      const dim = dimOf(ctx);
      const src = sourced ? need(ctx, 'src').shape : index;
      const fits =
        index.length === shape.length &&
        index.every((n, d) => n <= (src[d] ?? 0) && (d === dim || n <= shape[d]));
      if (!fits) ctx.fail(`index [${index.join(', ')}] does not fit self [${shape.join(', ')}]`);
      combineOf(ctx);
      return [need(ctx, 'self')];
    },
    shard: (ctx) => {
      const dim = dimOf(ctx);
      const shapes = names.map((n) => need(ctx, n).shape);
      const follow = cuttable(shapes[0]).filter(
        (d) => d !== dim && shapes.every((s) => s[d] === shapes[0][d]),
      );
      const [, index, src] = shapes;
      const aligned = !sourced || index.every((n, d) => n === src[d]);
      return [
        ...follow.map((d) =>
          rule(
            names.map(() => S(d)),
            [S(d)],
          ),
        ),
        ...reductionRules(ctx, sourced),
        ...(aligned ? cutIndex(ctx, dim, sourced ? dim : undefined, index[dim]) : []),
      ];
    },
    flops: (ctx) => ({ matrix: 0, vector: elements(need(ctx, 'index').shape) }),
    kernel: scatterKernel,
  });
}

export const scatterReduceOps: readonly OperatorRecord[] = [
  indexReduce,
  scatter('aten.scatter.reduce', 'Tensor src, *, str reduce', true, ['aten.scatter_.reduce']),
  scatter('aten.scatter.value_reduce', 'Scalar value, *, str reduce', false, [
    'aten.scatter_.value_reduce',
  ]),
  scatter('aten.scatter_reduce.two', 'Tensor src, str reduce, *, bool include_self=True', true, [
    'aten.scatter_reduce_.two',
  ]),
];

const REDUCES = ['prod', 'mean', 'amax', 'amin'] as const;

export const scatterReduceSamples: readonly string[] = [
  ...REDUCES.flatMap((r) => [
    `index_reduce(x[5,6], 1, index6[9], x[5,9], '${r}')`,
    `index_reduce(x[6,5,2], 0, index6[5], x[5,5,2], '${r}', include_self=False)`,
  ]),
  ...['add', 'multiply'].flatMap((r) => [
    `scatter.reduce(x[5,6], 1, index6[5,9], x[5,9], reduce='${r}')`,
    `scatter.value_reduce(x[5,6], 1, index6[5,9], 1.5, reduce='${r}')`,
    `scatter.value_reduce(x[6,5], 0, index6[4,5], -2, reduce='${r}')`,
  ]),
  ...['sum', ...REDUCES].flatMap((r) => [
    `scatter_reduce.two(x[5,6], 1, index6[5,9], x[5,9], '${r}')`,
    `scatter_reduce.two(x[6,5], 0, index6[7,5], x[7,5], '${r}', include_self=False)`,
  ]),
];
