/**
 * `gather` and `scatter`: one element is read or written for each entry of the index. Holds what
 * all operators that index one dim share too: its number, the rows that a rank masks, and the bytes
 * and work of what is read and written.
 */

import {
  defineOp,
  elements,
  metaBytes,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
  type TypedContext,
} from '../../record/record.ts';
import { P, R, type Rule, rule, type RuleSlot, S } from '../../record/rule.ts';
import {
  additiveKind,
  anyS,
  cuttable,
  linearKinds,
  movedKinds,
  need,
  normalDim,
  pendingRules,
  self,
} from '../../rules/dims.ts';

export const rows = (dim: number): RuleSlot => S(dim, { slicing: 'contiguous' });
export const EXT = { origin: 'ext' } as const;
export const MASK = { origin: 'ext', rewrite: 'mask' } as const;

/**
 * Reading costs the rows read, the indices, and the result; the rest of the table is not touched.
 */
export function gatherBytes(ctx: TypedContext): number {
  let total = 0;
  for (const out of ctx.outputs) if (out !== null) total += 2 * metaBytes(out);
  const table = ctx.indexOf('self');
  ctx.inputs.forEach((meta, i) => {
    if (i !== table) total += metaBytes(meta);
  });
  return total;
}

/** One operation per element written. */
export function writeWork(ctx: TypedContext): { matrix: number; vector: number } {
  const name = ['values', 'src', 'source'].find((n) => ctx.indexOf(n) >= 0) ?? 'index';
  return { matrix: 0, vector: elements(ctx.tensor(name)?.shape ?? []) };
}

/** Dims other than `dim` on which all named tensors have the same size: cut together. */
function alignedDims(ctx: OpContext, dim: number, names: readonly string[]): number[] {
  const shapes = names.map((name) => need(ctx, name).shape);
  return cuttable(shapes[0]).filter(
    (d) => d !== dim && shapes.every((shape) => shape[d] === shapes[0][d]),
  );
}

export function indexedDim(ctx: OpContext): number {
  return normalDim(ctx, ctx.int('dim'), self(ctx).shape.length);
}

/** Index must have the rank of self and fit into it everywhere but on `dim`. */
function checkIndex(ctx: OpContext): TensorMeta {
  const { shape } = self(ctx);
  const meta = need(ctx, 'index');
  const dim = indexedDim(ctx);
  if (meta.dtype !== 'i64' && meta.dtype !== 'i32')
    ctx.fail(`index has dtype ${meta.dtype}, expected i64`);
  const fits =
    meta.shape.length === shape.length && meta.shape.every((n, d) => d === dim || n <= shape[d]);
  if (!fits && elements(meta.shape) > 0 && shape.length > 0 && meta.shape.length > 0)
    ctx.fail(
      `index of shape [${meta.shape.join(', ')}] does not fit self of shape [${shape.join(', ')}]`,
    );
  return meta;
}

const gather = defineOp('aten.gather.default', {
  schema: 'Tensor self, int dim, Tensor index, *, bool sparse_grad=False',
  cls: 'other',
  infer: (ctx) => [{ dtype: self(ctx).dtype, shape: checkIndex(ctx).shape }],
  shard: (ctx) => {
    const { dtype, shape } = self(ctx);
    const dim = indexedDim(ctx);
    const rules = alignedDims(ctx, dim, ['self', 'index']).map((d) => rule([S(d), S(d)], [S(d)]));
    if (need(ctx, 'index').shape[dim] > 1) rules.push(rule([R, anyS(dim)], [anyS(dim)]));
    rules.push(...pendingRules(2, [0], ['pending'], movedKinds(dtype), 'ext'));
    if (shape[dim] > 1) rules.push(rule([rows(dim), R], [P(additiveKind(dtype))], MASK));
    return rules;
  },
  flops: () => ({ matrix: 0, vector: 0 }),
  bytes: gatherBytes,
});

const scatterSrc = defineOp('aten.scatter.src', {
  schema: 'Tensor self, int dim, Tensor index, Tensor src',
  cls: 'other',
  aliases: ['aten.scatter_.src'],
  infer: scattered,
  shard: (ctx) => {
    const dim = indexedDim(ctx);
    return [
      ...alignedDims(ctx, dim, ['self', 'index', 'src']).map((d) =>
        rule([S(d), S(d), S(d)], [S(d)]),
      ),
      ...pendingRules(3, [0, 2], ['pending'], movedKinds(self(ctx).dtype), 'ext'),
      ...maskedRows(ctx, dim, [R, R]),
    ];
  },
  flops: writeWork,
});

const scatterValue = defineOp('aten.scatter.value', {
  schema: 'Tensor self, int dim, Tensor index, Scalar value',
  cls: 'other',
  aliases: ['aten.scatter_.value'],
  infer: scattered,
  shard: (ctx) => {
    const dim = indexedDim(ctx);
    // The value replaces on every rank: fine for everything but a sum, unless it is zero.
    const kinds = movedKinds(self(ctx).dtype).filter(
      (kind) => kind !== 'sum' || ctx.number('value') === 0,
    );
    return [
      ...alignedDims(ctx, dim, ['self', 'index']).map((d) => rule([S(d), S(d)], [S(d)])),
      ...pendingRules(2, [0], ['pending'], kinds, 'ext'),
      ...maskedRows(ctx, dim, [R]),
    ];
  },
  flops: writeWork,
});

const scatterAdd = defineOp('aten.scatter_add.default', {
  schema: 'Tensor self, int dim, Tensor index, Tensor src',
  cls: 'other',
  aliases: ['aten.scatter_add_.default'],
  infer: scattered,
  shard: (ctx) => {
    const dim = indexedDim(ctx);
    const { dtype } = self(ctx);
    const index = need(ctx, 'index').shape;
    const rules = alignedDims(ctx, dim, ['self', 'index', 'src']).map((d) =>
      rule([S(d), S(d), S(d)], [S(d)]),
    );
    rules.push(...pendingRules(3, [0, 2], ['pending'], linearKinds(dtype), 'ext'));
    if (
      index[dim] > 1 &&
      need(ctx, 'src').shape[dim] === index[dim] &&
      linearKinds(dtype).includes('sum')
    )
      rules.push(rule([P(), S(dim), S(dim)], [P()], EXT));
    return [...rules, ...maskedRows(ctx, dim, [R, R])];
  },
  flops: writeWork,
});

function scattered(ctx: OpContext): readonly TensorMeta[] {
  const index = checkIndex(ctx);
  const src = ctx.indexOf('src') < 0 ? undefined : need(ctx, 'src');
  if (
    src !== undefined &&
    !(src.shape.length === index.shape.length && index.shape.every((n, d) => n <= src.shape[d]))
  )
    ctx.fail(
      `index of shape [${index.shape.join(', ')}] does not fit src of shape ` +
        `[${src.shape.join(', ')}]`,
    );
  return [self(ctx)];
}

/** The written dim is cut: each rank drops the writes that fall outside its rows. */
export function maskedRows(ctx: OpContext, dim: number, others: readonly RuleSlot[]): Rule[] {
  return self(ctx).shape[dim] > 1 ? [rule([rows(dim), ...others], [rows(dim)], MASK)] : [];
}

export const gatherScatterOps: readonly OperatorRecord[] = [
  gather,
  scatterSrc,
  scatterValue,
  scatterAdd,
];
