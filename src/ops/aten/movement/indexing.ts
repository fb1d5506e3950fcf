/**
 * Reading and writing by index. Three families of rules: dims that are not indexed follow; the
 * index itself is cut and the table is whole; the indexed dim is cut (`mask`): each rank keeps the
 * indices that fall into its rows, shifted to its own start, and reads zero (or writes nothing) for
 * the others. Read like that the results add up over the ranks.
 */

import { type DType, DTYPE_BYTES } from '../../../graph/types.ts';
import { isIntegral } from '../../record/dtypes.ts';
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
  broadcastAll,
  broadcastSlot,
  cuttable,
  linearKinds,
  movedKinds,
  need,
  pendingRules,
  sameShape,
  self,
} from '../../rules/dims.ts';
import {
  EXT,
  gatherBytes,
  gatherScatterOps,
  indexedDim,
  MASK,
  maskedRows,
  rows,
  writeWork,
} from './gather-scatter.ts';

// ---- index, index_put
// -----------------------------------------------------------------------------

interface IndexPlan {
  /** Dims of self that are indexed, in order. */
  readonly indexed: readonly number[];
  /** Inputs that hold indices, with their shapes. */
  readonly indices: readonly { readonly index: number; readonly shape: readonly number[] }[];
  /** The shape that the indices broadcast to, and its place in the result. */
  readonly block: readonly number[];
  readonly insert: number;
  /** Result dim of each dim of self that is not indexed. */
  readonly outputDim: ReadonlyMap<number, number>;
  readonly shape: readonly number[];
}

/**
 * How `self[indices]` is laid out: the index block replaces the indexed dims if they are adjacent,
 * and comes first otherwise.
 */
function indexPlan(ctx: OpContext): IndexPlan {
  const { shape } = self(ctx);
  const members = ctx.list('indices');
  if (members.length > shape.length)
    ctx.fail(`${members.length} indices for a tensor of ${shape.length} dims`);
  const indexed: number[] = [];
  const indices: { index: number; shape: readonly number[] }[] = [];
  members.forEach((member, dim) => {
    if (member === null) return;
    if (!isIntegral(member.meta.dtype))
      ctx.fail(`index ${dim} has dtype ${member.meta.dtype}, expected integers`);
    if (member.meta.dtype === 'b8')
      ctx.fail(
        `index ${dim} is a mask, whose result has no fixed shape; expected integers (write ` +
          'where(mask, x, 0))',
      );
    indexed.push(dim);
    indices.push({ index: member.index, shape: member.meta.shape });
  });
  const block = broadcastAll(
    ctx,
    indices.map((i) => i.shape),
  );
  const adjacent = indexed.every((dim, i) => i === 0 || dim === indexed[i - 1] + 1);
  const insert = indexed.length === 0 || !adjacent ? 0 : indexed[0];
  const out: number[] = [];
  const outputDim = new Map<number, number>();
  const rest = shape.flatMap((_, dim) => (indexed.includes(dim) ? [] : [dim]));
  rest.forEach((dim, k) => {
    if (k === insert) out.push(...block);
    outputDim.set(dim, out.length);
    out.push(shape[dim]);
  });
  if (insert >= rest.length) out.push(...block);
  return { indexed, indices, block, insert, outputDim, shape: out };
}

function indexRules(ctx: TypedContext): Rule[] {
  const meta = self(ctx);
  const plan = indexPlan(ctx);
  const slots = (own: RuleSlot, index: (shape: readonly number[]) => RuleSlot): RuleSlot[] =>
    ctx.inputs.map((_, i) =>
      i === 0 ? own : index(plan.indices.find((p) => p.index === i)?.shape ?? []),
    );
  const rules: Rule[] = [];
  for (const dim of cuttable(meta.shape)) {
    const out = plan.outputDim.get(dim);
    if (out !== undefined)
      rules.push(
        rule(
          slots(anyS(dim), () => R),
          [anyS(out)],
        ),
      );
  }
  const carriers = (dim: number): number =>
    plan.indices.filter((p) => broadcastSlot(p.shape, plan.block.length, dim) !== R).length;
  for (const dim of cuttable(plan.block)) {
    const slicing = carriers(dim) > 1 ? ('same' as const) : ('any' as const);
    const inputs = slots(R, (shape) => broadcastSlot(shape, plan.block.length, dim, { slicing }));
    rules.push(rule(inputs, [S(plan.insert + dim, { slicing })]));
  }
  rules.push(...pendingRules(ctx.inputs.length, [0], ['pending'], movedKinds(meta.dtype)));
  if (plan.indexed.length === 1 && meta.shape[plan.indexed[0]] > 1)
    rules.push(
      rule(
        slots(rows(plan.indexed[0]), () => R),
        [P(additiveKind(meta.dtype))],
        MASK,
      ),
    );
  return rules;
}

const index = defineOp('aten.index.Tensor', {
  schema: 'Tensor self, Tensor?[] indices',
  cls: 'other',
  aliases: ['aten._unsafe_index.Tensor'],
  infer: (ctx) => [{ dtype: self(ctx).dtype, shape: indexPlan(ctx).shape }],
  shard: indexRules,
  flops: () => ({ matrix: 0, vector: 0 }),
  bytes: gatherBytes,
});

/**
 * Rules of a write `self[indices] = values` (or `+=`). Values, and a mask if there is one,
 * broadcast to the result shape of the read `self[indices]`, so one dim of that shape says how
 * every input is cut.
 */
function indexPutRules(ctx: TypedContext, accumulate: boolean): Rule[] {
  const meta = self(ctx);
  const plan = indexPlan(ctx);
  const values = ctx.indexOf('values');
  const mask = ctx.indexOf('mask');
  const rank = plan.shape.length;
  const slots = (own: RuleSlot, written: RuleSlot, cut?: number): RuleSlot[] =>
    ctx.inputs.map((m, i) => {
      if (i === 0) return own;
      if (i === values) return cut === undefined ? written : broadcastSlot(m.shape, rank, cut);
      if (cut === undefined) return R;
      if (i === mask) return broadcastSlot(m.shape, rank, cut);
      const inBlock = cut >= plan.insert && cut < plan.insert + plan.block.length;
      return inBlock ? broadcastSlot(m.shape, plan.block.length, cut - plan.insert) : R;
    });
  const rules: Rule[] = [];
  for (const dim of cuttable(meta.shape)) {
    const out = plan.outputDim.get(dim);
    if (out !== undefined) rules.push(rule(slots(S(dim), R, out), [S(dim)]));
  }
  // An addition is linear in both; a replacement comes whole from one of them.
  const kinds = accumulate ? linearKinds(meta.dtype) : movedKinds(meta.dtype);
  for (const kind of kinds)
    rules.push(
      rule(slots(P(kind), P(kind)), [P(kind)], { origin: kind === 'sum' ? 'base' : 'ext' }),
    );
  const single = plan.indexed.length === 1 ? plan.indexed[0] : undefined;
  if (single !== undefined && meta.shape[single] > 1)
    rules.push(rule(slots(rows(single), R), [rows(single)], MASK));
  if (accumulate && linearKinds(meta.dtype).includes('sum'))
    for (const dim of cuttable(plan.block))
      rules.push(rule(slots(P(), R, plan.insert + dim), [P()], EXT));
  return rules;
}

function checkWrite(ctx: OpContext): readonly TensorMeta[] {
  const { shape } = indexPlan(ctx);
  const values = need(ctx, 'values');
  const joined = broadcastAll(ctx, [shape, values.shape]);
  if (!sameShape(joined, shape))
    ctx.fail(
      `values of shape [${values.shape.join(', ')}] do not broadcast to the indexed shape ` +
        `[${shape.join(', ')}]`,
    );
  return [self(ctx)];
}

const indexPut = defineOp('aten.index_put.default', {
  schema: 'Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False',
  cls: 'other',
  aliases: ['aten.index_put_.default', 'aten._unsafe_index_put.default'],
  infer: checkWrite,
  shard: (ctx) => indexPutRules(ctx, ctx.bool('accumulate')),
  flops: writeWork,
});

/** Adds the rows whose mask is set; indices are taken modulo the dim where it is not. */
const maskedIndexPut = defineOp('aten._unsafe_masked_index_put_accumulate.default', {
  schema: 'Tensor self, Tensor mask, Tensor?[] indices, Tensor values',
  cls: 'other',
  infer: checkWrite,
  shard: (ctx) => indexPutRules(ctx, true),
  flops: writeWork,
});

// ---- index_select, index_add, index_copy, index_fill
// -----------------------------------------------------------------------------

function selectedShape(ctx: OpContext, dtype: DType): TensorMeta {
  const { shape } = self(ctx);
  const dim = indexedDim(ctx);
  const { shape: picked } = need(ctx, 'index');
  if (picked.length > 1) ctx.fail(`index has ${picked.length} dims, expected at most 1`);
  return { dtype, shape: shape.map((n, d) => (d === dim ? (picked[0] ?? 1) : n)) };
}

const indexSelect = defineOp('aten.index_select.default', {
  schema: 'Tensor self, int dim, Tensor index',
  cls: 'other',
  infer: (ctx) => [selectedShape(ctx, self(ctx).dtype)],
  shard: (ctx) => {
    const { dtype, shape } = self(ctx);
    const dim = indexedDim(ctx);
    const rules = cuttable(shape).flatMap((d) =>
      d === dim ? [] : [rule([anyS(d), R], [anyS(d)])],
    );
    if ((need(ctx, 'index').shape[0] ?? 1) > 1) rules.push(rule([R, anyS(0)], [anyS(dim)]));
    rules.push(...pendingRules(2, [0], ['pending'], movedKinds(dtype)));
    if (shape[dim] > 1) rules.push(rule([rows(dim), R], [P(additiveKind(dtype))], MASK));
    return rules;
  },
  flops: () => ({ matrix: 0, vector: 0 }),
  bytes: gatherBytes,
});

/** Writes whole rows of `source` to the rows that `index` names. */
function rowWrite(
  name: string,
  schema: string,
  adds: boolean,
  aliases: readonly string[],
): OperatorRecord {
  return defineOp(name, {
    schema,
    cls: 'other',
    aliases,
    infer: (ctx) => {
      const expected = selectedShape(ctx, self(ctx).dtype).shape;
      const { shape } = need(ctx, 'source');
      if (!sameShape(shape, expected) && elements(shape) !== elements(expected))
        ctx.fail(`source has shape [${shape.join(', ')}], expected [${expected.join(', ')}]`);
      return [self(ctx)];
    },
    shard: (ctx) => {
      const { dtype, shape } = self(ctx);
      const dim = indexedDim(ctx);
      const source = need(ctx, 'source').shape;
      const regular = source.length === shape.length;
      const rules = cuttable(shape).flatMap((d) =>
        d === dim || !regular || source[d] !== shape[d] ? [] : [rule([S(d), R, S(d)], [S(d)])],
      );
      const kinds = adds ? linearKinds(dtype) : movedKinds(dtype);
      rules.push(
        ...kinds.map((kind) =>
          rule([P(kind), R, P(kind)], [P(kind)], { origin: kind === 'sum' ? 'base' : 'ext' }),
        ),
      );
      if (adds && regular && source[dim] > 1 && linearKinds(dtype).includes('sum'))
        rules.push(rule([P(), S(0), S(dim)], [P()], EXT));
      return [...rules, ...maskedRows(ctx, dim, [R, R])];
    },
    flops: writeWork,
  });
}

const indexFill = defineOp('aten.index_fill.int_Scalar', {
  schema: 'Tensor self, int dim, Tensor index, Scalar value',
  cls: 'other',
  infer: (ctx) => {
    indexedDim(ctx);
    return [self(ctx)];
  },
  shard: (ctx) => {
    const { dtype, shape } = self(ctx);
    const dim = indexedDim(ctx);
    const kinds = movedKinds(dtype).filter((kind) => kind !== 'sum' || ctx.number('value') === 0);
    return [
      ...cuttable(shape).flatMap((d) => (d === dim ? [] : [rule([anyS(d), R], [anyS(d)])])),
      ...pendingRules(2, [0], ['pending'], kinds),
      ...maskedRows(ctx, dim, [R]),
    ];
  },
  bytes: (ctx) =>
    2 * metaBytes(self(ctx)) +
    elements(need(ctx, 'index').shape) * DTYPE_BYTES[need(ctx, 'index').dtype],
});

export const indexingOps: readonly OperatorRecord[] = [
  index,
  indexPut,
  maskedIndexPut,
  ...gatherScatterOps,
  indexSelect,
  rowWrite(
    'aten.index_add.default',
    'Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1',
    true,
    ['aten.index_add_.default'],
  ),
  rowWrite('aten.index_copy.default', 'Tensor self, int dim, Tensor index, Tensor source', false, [
    'aten.index_copy_.default',
  ]),
  indexFill,
];
