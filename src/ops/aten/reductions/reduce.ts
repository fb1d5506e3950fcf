/**
 * Reductions and scans. Over a dim that is not reduced the cut follows; over a reduced dim each
 * rank reduces its rows, which leaves a pending reduction of the same kind. An input that is
 * pending in that kind passes.
 */

import type { DType } from '../../../graph/types.ts';
import type { ReduceOp } from '../../../mesh/placements/placement.ts';
import { floatResult, sumResult } from '../../record/dtypes.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TypedContext,
} from '../../record/record.ts';
import { P, type Rule, rule, type RuleSlot, S } from '../../record/rule.ts';
import { anyS, cuttable, need, normalDim } from '../../rules/dims.ts';
import { linearIn, onePartial } from '../../rules/partials.ts';

type Leaves = (ctx: OpContext) => ReduceOp | undefined;

interface Reduction {
  readonly schema: string;
  readonly aliases?: readonly string[];
  /** Dtype of the result. */
  readonly dtype: (ctx: OpContext) => DType;
  /**
   * Kind that a cut of a reduced dim leaves; undefined where partial results do not combine (`var`,
   * `median`).
   */
  readonly leaves?: Leaves;
  /** There is no result over no values, so every rank needs a row of a cut dim. */
  readonly needsValues?: boolean;
  /** Further rules, such as pending inputs that pass. */
  readonly extra?: (ctx: TypedContext) => readonly Rule[];
  /** Number of results of the reduced shape, all placed the same way. Default 1. */
  readonly results?: readonly ((ctx: OpContext) => DType)[];
  /** Vector operations per INPUT element; default 1. */
  readonly cost?: number;
}

/** Dims that the call reduces, from the front. No `dim`, None and an empty list mean all. */
function reducedDims(ctx: OpContext, hasDim: boolean): readonly number[] {
  const rank = ctx.inputs[0].shape.length;
  const given = hasDim ? ctx.optionalInts('dim') : undefined;
  if (given === undefined || given.length === 0) return Array.from({ length: rank }, (_, d) => d);
  const dims = given.map((d) => normalDim(ctx, d, rank));
  return rank === 0 ? [] : dims;
}

function reduction(name: string, spec: Reduction): OperatorRecord {
  const hasDim = /\bdim\b/.test(spec.schema);
  const hasKeep = /\bkeepdim\b/.test(spec.schema);
  const keeps = (ctx: OpContext): boolean => hasKeep && ctx.bool('keepdim');
  const dtypes = spec.results ?? [spec.dtype];
  return defineOp(name, {
    schema: spec.schema,
    cls: 'reduction',
    aliases: spec.aliases ?? [],
    results: dtypes.length > 1 ? 'tuple' : 'single',
    infer(ctx) {
      const reduced = reducedDims(ctx, hasDim);
      const { shape } = ctx.inputs[0];
      const out = keeps(ctx)
        ? shape.map((size, d) => (reduced.includes(d) ? 1 : size))
        : shape.filter((_, d) => !reduced.includes(d));
      return dtypes.map((dtype) => ({ dtype: dtype(ctx), shape: out }));
    },
    shard(ctx) {
      const leaves = spec.leaves?.(ctx);
      const rules = reductionRules(
        ctx,
        reducedDims(ctx, hasDim),
        keeps(ctx),
        leaves,
        spec.needsValues === true,
      );
      return [...rules, ...(spec.extra?.(ctx) ?? [])];
    },
    flops: (ctx) => ({ matrix: 0, vector: (spec.cost ?? 1) * elements(ctx.inputs[0].shape) }),
  });
}

function reductionRules(
  ctx: TypedContext,
  reduced: readonly number[],
  keepdim: boolean,
  leaves: ReduceOp | undefined,
  filled: boolean,
): Rule[] {
  const rules: Rule[] = [];
  const all = (slot: RuleSlot): RuleSlot[] => ctx.outputs.map(() => slot);
  for (const d of cuttable(ctx.inputs[0].shape)) {
    if (!reduced.includes(d)) {
      const before = reduced.filter((r) => r < d).length;
      rules.push(rule([anyS(d)], all(anyS(keepdim ? d : d - before))));
    } else if (leaves !== undefined) {
      rules.push(rule([anyS(d, { filled })], all(P(leaves))));
    }
  }
  return rules;
}

const keep = (ctx: OpContext): DType => ctx.inputs[0].dtype;
const asked = (ctx: OpContext, fallback: DType): DType => ctx.dtype('dtype') ?? fallback;
const summed = (ctx: OpContext): DType => asked(ctx, sumResult(keep(ctx)));
const index = (): DType => 'i64';
const passes =
  (...kinds: readonly ReduceOp[]): ((ctx: TypedContext) => Rule[]) =>
  (ctx) =>
    kinds.map((kind) => onePartial(ctx, 0, kind, kind, kind === 'avg' ? 'ext' : 'base'));
/** Sums of bools count: a pending `or` of bools is not a number. */
const unlessBool =
  (extra: (ctx: TypedContext) => Rule[]): ((ctx: TypedContext) => Rule[]) =>
  (ctx) =>
    ctx.inputs[0].dtype === 'b8' ? [] : extra(ctx);

const leavesSum: Leaves = () => 'sum';
const leavesProduct: Leaves = () => 'product';
const leavesOr: Leaves = () => 'bor';
const leavesAnd: Leaves = () => 'band';
const leavesMax: Leaves = (ctx) => (keep(ctx) === 'b8' ? 'bor' : 'max');
const leavesMin: Leaves = (ctx) => (keep(ctx) === 'b8' ? 'band' : 'min');
const SUM = { dtype: summed, leaves: leavesSum, extra: unlessBool(passes('sum', 'avg')) } as const;
const PROD = { dtype: summed, leaves: leavesProduct } as const;
const AMAX = {
  dtype: keep,
  leaves: leavesMax,
  needsValues: true,
  extra: unlessBool(passes('max')),
} as const;
const AMIN = {
  dtype: keep,
  leaves: leavesMin,
  needsValues: true,
  extra: unlessBool(passes('min')),
} as const;
const bool = (ctx: OpContext): DType => (keep(ctx) === 'u8' ? 'u8' : 'b8');
const onBool =
  (kind: ReduceOp): ((ctx: TypedContext) => Rule[]) =>
  (ctx) =>
    ctx.inputs[0].dtype === 'b8' ? [onePartial(ctx, 0, kind)] : [];
const ANY = { dtype: bool, leaves: leavesOr, extra: onBool('bor') } as const;
const ALL = { dtype: bool, leaves: leavesAnd, extra: onBool('band') } as const;

/**
 * A mean over a cut dim is the average of the local means only if all shards are equally long; a
 * local sum divided by the GLOBAL count is right for any cut, so that form is offered as well (the
 * body is rewritten).
 */
const meanRules = (hasDim: boolean): ((ctx: TypedContext) => Rule[]) => {
  return (ctx) => {
    const reduced = reducedDims(ctx, hasDim).filter((d) => ctx.inputs[0].shape[d] > 1);
    return [
      ...reduced.map((d) => rule([anyS(d, { even: true })], [P('avg')])),
      onePartial(ctx, 0, 'avg'),
      ...reduced.map((d) =>
        rule([anyS(d)], [P('sum')], { origin: 'ext', rewrite: 'global-count' }),
      ),
      onePartial(ctx, 0, 'sum', 'sum', 'ext'),
    ];
  };
};
const meanType = (ctx: OpContext): DType => asked(ctx, floatResult(keep(ctx)));

/** Kind that a p-norm of disjoint parts leaves, where the plain reductions can express it. */
function normKind(ctx: OpContext): ReduceOp | undefined {
  const ord = ctx.scalar('ord')?.value ?? 2;
  if (ord === Infinity) return 'max';
  if (ord === -Infinity) return 'min';
  return ord === 0 || ord === 1 ? 'sum' : undefined;
}

const DIMS = 'int[]? dim=None, bool keepdim=False';
const DIM = 'int dim, bool keepdim=False';
const DTYPE = ', *, ScalarType? dtype=None';

const reductions: OperatorRecord[] = [
  reduction('aten.sum.default', { schema: `Tensor self${DTYPE}`, ...SUM }),
  reduction('aten.sum.dim_IntList', { schema: `Tensor self, ${DIMS}${DTYPE}`, ...SUM }),
  // A NaN in one part of a pending sum is not a NaN of the sum: nansum takes no pending input.
  reduction('aten.nansum.default', {
    schema: `Tensor self, ${DIMS}${DTYPE}`,
    dtype: summed,
    leaves: leavesSum,
  }),
  reduction('aten.mean.default', {
    schema: `Tensor self${DTYPE}`,
    dtype: meanType,
    extra: meanRules(false),
  }),
  reduction('aten.mean.dim', {
    schema: `Tensor self, ${DIMS}${DTYPE}`,
    dtype: meanType,
    extra: meanRules(true),
  }),
  reduction('aten.prod.default', { schema: `Tensor self${DTYPE}`, ...PROD }),
  reduction('aten.prod.dim_int', { schema: `Tensor self, ${DIM}${DTYPE}`, ...PROD }),
  reduction('aten.max.default', { schema: 'Tensor self', ...AMAX }),
  reduction('aten.min.default', { schema: 'Tensor self', ...AMIN }),
  reduction('aten.amax.default', {
    schema: 'Tensor self, int[] dim=[], bool keepdim=False',
    ...AMAX,
  }),
  reduction('aten.amin.default', {
    schema: 'Tensor self, int[] dim=[], bool keepdim=False',
    ...AMIN,
  }),
  reduction('aten.any.default', { schema: 'Tensor self', ...ANY }),
  reduction('aten.any.dim', { schema: `Tensor self, ${DIM}`, ...ANY }),
  reduction('aten.any.dims', { schema: `Tensor self, ${DIMS}`, ...ANY }),
  reduction('aten.all.default', { schema: 'Tensor self', ...ALL }),
  reduction('aten.all.dim', { schema: `Tensor self, ${DIM}`, ...ALL }),
  reduction('aten.all.dims', { schema: `Tensor self, ${DIMS}`, ...ALL }),
  reduction('aten.count_nonzero.default', {
    schema: 'Tensor self, int? dim=None',
    dtype: index,
    leaves: leavesSum,
  }),
  reduction('aten.count_nonzero.dim_IntList', {
    schema: 'Tensor self, int[] dim',
    dtype: index,
    leaves: leavesSum,
  }),
  reduction('aten.linalg_vector_norm.default', {
    schema:
      'Tensor self, Scalar ord=2, int[]? dim=None, bool keepdim=False, *, ScalarType? dtype=None',
    dtype: meanType,
    leaves: normKind,
    cost: 2,
  }),
  reduction('aten.var.correction', {
    schema: 'Tensor self, int[]? dim=None, *, Scalar? correction=None, bool keepdim=False',
    dtype: keep,
    cost: 4,
  }),
  reduction('aten.std.correction', {
    schema: 'Tensor self, int[]? dim=None, *, Scalar? correction=None, bool keepdim=False',
    dtype: keep,
    cost: 4,
  }),
  reduction('aten.var_mean.correction', {
    schema: 'Tensor self, int[]? dim=None, *, Scalar? correction=None, bool keepdim=False',
    dtype: keep,
    results: [keep, keep],
    cost: 4,
  }),
  reduction('aten.logsumexp.default', {
    schema: 'Tensor self, int[] dim, bool keepdim=False',
    dtype: (ctx) => floatResult(keep(ctx)),
    cost: 9,
  }),
  reduction('aten.argmax.default', {
    schema: 'Tensor self, int? dim=None, bool keepdim=False',
    dtype: index,
  }),
  reduction('aten.argmin.default', {
    schema: 'Tensor self, int? dim=None, bool keepdim=False',
    dtype: index,
  }),
  reduction('aten.median.default', { schema: 'Tensor self', dtype: keep, cost: 8 }),
  ...['max.dim', 'min.dim', 'median.dim', 'mode.default'].map((n) =>
    reduction(`aten.${n}`, {
      schema: `Tensor self, int dim${n === 'mode.default' ? '=-1' : ''}, bool keepdim=False`,
      dtype: keep,
      results: [keep, index],
      cost: 2,
    }),
  ),
];

// ---- scans: the scanned dim stays whole
// -----------------------------------------------------------------------------

interface Along {
  readonly schema: string;
  readonly results?: readonly ((ctx: OpContext) => DType)[];
  readonly extra?: (ctx: TypedContext) => readonly Rule[];
  readonly costPerElement: number;
}

/**
 * Functions along one dim, independent across the others: every other dim may be cut, inputs and
 * results.
 */
function along(name: string, spec: Along): OperatorRecord {
  const results = spec.results ?? [keep];
  const dimOf = (ctx: OpContext): number =>
    normalDim(ctx, ctx.int('dim'), ctx.inputs[0].shape.length);
  return defineOp(name, {
    schema: spec.schema,
    cls: 'reduction',
    results: results.length > 1 ? 'tuple' : 'single',
    infer(ctx) {
      dimOf(ctx); // refuses a dim that does not exist
      const { shape } = ctx.inputs[0];
      return results.map((dtype) => ({ dtype: dtype(ctx), shape }));
    },
    shard(ctx) {
      const dim = dimOf(ctx);
      const rules = cuttable(ctx.inputs[0].shape)
        .filter((d) => d !== dim)
        .map((d) =>
          rule(
            ctx.inputs.map(() => S(d)),
            ctx.outputs.map(() => S(d)),
          ),
        );
      return [...rules, ...(spec.extra?.(ctx) ?? [])];
    },
    flops: (ctx) => ({ matrix: 0, vector: spec.costPerElement * elements(ctx.inputs[0].shape) }),
  });
}

const scans: OperatorRecord[] = [
  along('aten.cumsum.default', {
    schema: `Tensor self, int dim${DTYPE}`,
    results: [summed],
    extra: (ctx) => (ctx.inputs[0].dtype === 'b8' ? [] : linearIn()(ctx)),
    costPerElement: 1,
  }),
  along('aten.cumprod.default', {
    schema: `Tensor self, int dim${DTYPE}`,
    results: [summed],
    costPerElement: 1,
  }),
  along('aten.logcumsumexp.default', { schema: 'Tensor self, int dim', costPerElement: 9 }),
  along('aten.cummax.default', {
    schema: 'Tensor self, int dim',
    results: [keep, index],
    costPerElement: 2,
  }),
  along('aten.cummin.default', {
    schema: 'Tensor self, int dim',
    results: [keep, index],
    costPerElement: 2,
  }),
  diff(),
  histogram(),
];

/** `torch.diff` with values put before and after along the dim: each order shortens it by one. */
function diff(): OperatorRecord {
  const dimOf = (ctx: OpContext): number =>
    normalDim(ctx, ctx.int('dim'), ctx.inputs[0].shape.length);
  return defineOp('aten.diff.default', {
    schema: 'Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None',
    cls: 'reduction',
    infer(ctx) {
      const dim = dimOf(ctx);
      const added = ctx.inputs.slice(1).reduce((sum, t) => sum + t.shape[dim], 0);
      const shape = ctx.inputs[0].shape.map((size, d) =>
        d === dim ? Math.max(0, size + added - ctx.int('n')) : size,
      );
      return [{ dtype: keep(ctx), shape }];
    },
    shard(ctx) {
      const dim = dimOf(ctx);
      const others = cuttable(ctx.inputs[0].shape).filter((d) => d !== dim);
      const rules = others.map((d) =>
        rule(
          ctx.inputs.map(() => S(d)),
          [S(d)],
        ),
      );
      if (keep(ctx) === 'b8') return rules;
      for (const kind of ['sum', 'avg'] as const) {
        rules.push(
          rule(
            ctx.inputs.map(() => P(kind)),
            [P(kind)],
            { origin: 'ext' },
          ),
        );
      }
      return rules;
    },
  });
}

/**
 * Counts per bin between fixed bounds add up over any cut of the data. With min = max the data
 * itself sets the bounds.
 */
function histogram(): OperatorRecord {
  return defineOp('aten.histc.default', {
    schema: 'Tensor self, int bins=100, Scalar min=0, Scalar max=0',
    cls: 'reduction',
    infer: (ctx) => [{ dtype: keep(ctx), shape: [ctx.int('bins')] }],
    shard: (ctx) =>
      ctx.number('min') === ctx.number('max')
        ? []
        : cuttable(need(ctx, 'self').shape).map((d) => rule([anyS(d)], [P('sum')])),
    flops: (ctx) => ({ matrix: 0, vector: 2 * elements(ctx.inputs[0].shape) }),
  });
}

export const reduceOps: readonly OperatorRecord[] = [...reductions, ...scans];
