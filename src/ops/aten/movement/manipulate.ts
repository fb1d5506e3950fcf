/**
 * Moving rows about: joining, reversing, padding, repeating, sorting (`slicing.ts` has the taking
 * of rows). Dims that an operator does not touch follow; pending reductions pass wherever every
 * element is moved or set to a value that the reduction leaves alone.
 */

import { promoteTypes } from '../../record/dtypes.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
  type TypedContext,
} from '../../record/record.ts';
import { P, R, type Rule, rule, type RuleSlot, S } from '../../record/rule.ts';
import {
  anyS,
  cuttable,
  movedKinds,
  normalDim,
  pendingRules,
  sameShape,
  self,
  untouched,
} from '../../rules/dims.ts';
import { slicingOps } from './slicing.ts';

// ---- cat, stack
// -----------------------------------------------------------------------------

/** PyTorch's old rule: a one-dim tensor without elements joins anything and adds nothing. */
function isLegacyEmpty(meta: TensorMeta): boolean {
  return meta.shape.length === 1 && meta.shape[0] === 0;
}

/** The members that count, with the dim of the join. */
function catPlan(ctx: OpContext): { readonly model: TensorMeta; readonly dim: number } {
  if (ctx.inputs.length === 0) return ctx.fail('needs at least one tensor');
  const model = ctx.inputs.find((m) => !isLegacyEmpty(m)) ?? ctx.inputs[0];
  return { model, dim: normalDim(ctx, ctx.int('dim'), model.shape.length) };
}

function joinedType(ctx: OpContext): TensorMeta['dtype'] {
  return ctx.inputs.map((m) => m.dtype).reduce(promoteTypes);
}

const cat = defineOp('aten.cat.default', {
  schema: 'Tensor[] tensors, int dim=0',
  cls: 'other',
  aliases: ['aten.concat.default', 'aten.concatenate.default'],
  infer: (ctx) => {
    const { model, dim } = catPlan(ctx);
    let rows = 0;
    for (const m of ctx.inputs) {
      if (isLegacyEmpty(m)) continue;
      const fits =
        m.shape.length === model.shape.length &&
        m.shape.every((n, i) => i === dim || n === model.shape[i]);
      if (!fits)
        ctx.fail(
          `shapes [${model.shape.join(', ')}] and [${m.shape.join(', ')}] must agree in all ` +
            `dims but ${dim}`,
        );
      rows += m.shape[dim];
    }
    const shape = model.shape.map((n, i) => (i === dim ? rows : n));
    return [{ dtype: joinedType(ctx), shape: isLegacyEmpty(model) ? model.shape : shape }];
  },
  shard: (ctx) => {
    const { model, dim } = catPlan(ctx);
    const slots = (slot: RuleSlot): RuleSlot[] =>
      ctx.inputs.map((m) => (isLegacyEmpty(m) ? R : slot));
    const cuts = cuttable(model.shape).filter((d) => d !== dim);
    return [...cuts.map((d) => rule(slots(S(d)), [S(d)])), ...jointKinds(ctx, slots)];
  },
  flops: () => ({ matrix: 0, vector: 0 }),
});

/** All members pending the same way. 2.13 lets only sums join. */
function jointKinds(ctx: TypedContext, slots: (slot: RuleSlot) => RuleSlot[]): Rule[] {
  const dtypes = ctx.inputs.map((m) => m.dtype);
  const kinds = movedKinds(dtypes[0]).filter((kind) =>
    dtypes.every((dtype) => movedKinds(dtype).includes(kind)),
  );
  return kinds.map((kind) =>
    rule(slots(P(kind)), [P(kind)], { origin: kind === 'sum' ? 'base' : 'ext' }),
  );
}

const stack = defineOp('aten.stack.default', {
  schema: 'Tensor[] tensors, int dim=0',
  cls: 'other',
  infer: (ctx) => {
    const first = ctx.inputs[0] ?? ctx.fail('needs at least one tensor');
    for (const m of ctx.inputs)
      if (!sameShape(m.shape, first.shape))
        ctx.fail(
          `all tensors must have one shape, got [${first.shape.join(', ')}] and ` +
            `[${m.shape.join(', ')}]`,
        );
    const dim = normalDim(ctx, ctx.int('dim'), first.shape.length + 1);
    return [
      {
        dtype: joinedType(ctx),
        shape: [...first.shape.slice(0, dim), ctx.inputs.length, ...first.shape.slice(dim)],
      },
    ];
  },
  shard: (ctx) => {
    const { shape } = ctx.inputs[0];
    const dim = normalDim(ctx, ctx.int('dim'), shape.length + 1);
    const cuts = cuttable(shape).map((d) =>
      rule(
        ctx.inputs.map(() => S(d)),
        [S(d < dim ? d : d + 1)],
      ),
    );
    return [...cuts, ...jointKinds(ctx, (slot) => ctx.inputs.map(() => slot))];
  },
  flops: () => ({ matrix: 0, vector: 0 }),
});

// ---- flip, roll, triangles, padding
// -----------------------------------------------------------------------------

/** Same shape out as in; the dims that `touched` names are R, pending kinds pass. */
function rearranging(
  name: string,
  schema: string,
  touched: (ctx: OpContext, rank: number) => readonly number[],
): OperatorRecord {
  return defineOp(name, {
    schema,
    cls: 'other',
    infer: (ctx) => {
      // A dim that does not exist is refused where the call is made.
      touched(ctx, self(ctx).shape.length);
      return [self(ctx)];
    },
    shard: (ctx) =>
      untouched(ctx, touched(ctx, self(ctx).shape.length), movedKinds(self(ctx).dtype)),
    flops: () => ({ matrix: 0, vector: 0 }),
  });
}

const flip = rearranging('aten.flip.default', 'Tensor self, int[] dims', (ctx, rank) =>
  ctx.ints('dims').map((dim) => normalDim(ctx, dim, rank)),
);

/** Without dims the tensor is rolled as one flat row, which touches every dim. */
const roll = rearranging(
  'aten.roll.default',
  'Tensor self, int[] shifts, int[] dims=[]',
  (ctx, rank) => {
    const dims = ctx.ints('dims').map((dim) => normalDim(ctx, dim, rank));
    return dims.length === 0 ? Array.from({ length: rank }, (_, i) => i) : dims;
  },
);

/**
 * Keeps a triangle of the last two dims: zero elsewhere on every rank, so that every pending kind
 * passes.
 */
function triangle(name: string): OperatorRecord {
  return defineOp(name, {
    schema: 'Tensor self, int diagonal=0',
    cls: 'other',
    infer: (ctx) => {
      if (self(ctx).shape.length < 2) ctx.fail('expects at least 2 dims');
      return [self(ctx)];
    },
    shard: (ctx) => {
      const { dtype, shape } = self(ctx);
      const rank = shape.length;
      return cuttable(shape)
        .map((d) => {
          if (d < rank - 2) return rule([anyS(d)], [anyS(d)], { origin: 'ext' });
          const cut = S(d, { slicing: 'contiguous' });
          return rule([cut], [cut], { origin: 'ext', rewrite: 'offset' });
        })
        .concat(pendingRules(1, [0], ['pending'], movedKinds(dtype), 'ext'));
    },
  });
}

/** Rows added before and after each dim; the argument counts from the last dim. */
function padding(ctx: OpContext, rank: number): (readonly [number, number])[] {
  const pad = ctx.ints('pad');
  if (pad.length % 2 !== 0 || pad.length > 2 * rank)
    ctx.fail(`pad has ${pad.length} entries, expected an even number of at most ${2 * rank}`);
  return Array.from({ length: rank }, (_, dim) => {
    const k = 2 * (rank - 1 - dim);
    return [pad[k] ?? 0, pad[k + 1] ?? 0] as const;
  });
}

const constantPad = defineOp('aten.constant_pad_nd.default', {
  schema: 'Tensor self, int[] pad, Scalar value=0',
  cls: 'other',
  infer: (ctx) => {
    const { dtype, shape } = self(ctx);
    const pads = padding(ctx, shape.length);
    const out = shape.map((n, i) => n + pads[i][0] + pads[i][1]);
    out.forEach((n, i) => {
      if (n < 0) ctx.fail(`padding makes dim ${i} of size ${shape[i]} negative`);
    });
    return [{ dtype, shape: out }];
  },
  shard: (ctx) => {
    const { dtype, shape } = self(ctx);
    const pads = padding(ctx, shape.length);
    const touched = pads.flatMap(([a, b], dim) => (a === 0 && b === 0 ? [] : [dim]));
    const plain = ctx.number('value') === 0 || pads.every(([a, b]) => a <= 0 && b <= 0);
    return untouched(
      ctx,
      touched,
      movedKinds(dtype).filter((kind) => plain || kind !== 'sum'),
    );
  },
  flops: () => ({ matrix: 0, vector: 0 }),
});

// ---- repeat
// -----------------------------------------------------------------------------

/**
 * `repeat`: copies side by side. Dims taken once follow; what is made of a single row may be cut
 * for free.
 */
const repeat = defineOp('aten.repeat.default', {
  schema: 'Tensor self, int[] repeats',
  cls: 'other',
  infer: (ctx) => {
    const { dtype, shape } = self(ctx);
    const times = ctx.ints('repeats');
    const added = times.length - shape.length;
    if (added < 0) ctx.fail(`needs at least ${shape.length} repeats, got ${times.length}`);
    return [{ dtype, shape: times.map((n, i) => n * (i < added ? 1 : shape[i - added])) }];
  },
  shard: (ctx) => {
    const { dtype, shape } = self(ctx);
    const times = ctx.ints('repeats');
    const added = times.length - shape.length;
    const rules = times.flatMap((n, out) => {
      const rows = out < added ? 1 : shape[out - added];
      if (rows === 1 && n > 1)
        return [rule([R], [anyS(out)], { origin: 'ext', rewrite: 'local-shape' })];
      return rows > 1 && n === 1 ? [rule([anyS(out - added)], [anyS(out)])] : [];
    });
    return [...rules, ...pendingRules(1, [0], ['pending'], movedKinds(dtype))];
  },
  flops: () => ({ matrix: 0, vector: 0 }),
});

/**
 * Each row several times in place; a cut into whole rows stays a cut into whole blocks. Without a
 * dim the tensor is flat.
 */
const repeatInterleave = defineOp('aten.repeat_interleave.self_int', {
  schema: 'Tensor self, int repeats, int? dim=None, *, int? output_size=None',
  cls: 'other',
  infer: (ctx) => {
    const { dtype, shape } = self(ctx);
    const times = ctx.int('repeats');
    if (times < 0) ctx.fail(`repeats must not be negative, got ${times}`);
    const dim = ctx.optionalInt('dim');
    if (dim === undefined) return [{ dtype, shape: [elements(shape) * times] }];
    const at = normalDim(ctx, dim, shape.length);
    return [{ dtype, shape: shape.map((n, i) => (i === at ? n * times : n)) }];
  },
  shard: (ctx) => {
    const { dtype, shape } = self(ctx);
    const dim = ctx.optionalInt('dim');
    const at = dim === undefined ? 0 : normalDim(ctx, dim, shape.length);
    const rules = untouched(
      ctx,
      dim === undefined ? shape.map((_, i) => i) : [at],
      movedKinds(dtype),
    );
    if (cuttable(shape).includes(at) && ctx.int('repeats') > 0) {
      const cut = { slicing: 'contiguous', even: true, scaled: true } as const;
      const rewrite = ctx.has('output_size') ? { rewrite: 'local-shape' } : {};
      rules.push(rule([S(at, cut)], [S(at, cut)], { origin: 'ext', ...rewrite }));
    }
    return rules;
  },
  flops: () => ({ matrix: 0, vector: 0 }),
});

// ---- sort, topk
// -----------------------------------------------------------------------------

/**
 * Values and their indices along one dim, which must be whole. Sorting n values costs n log2 n
 * comparisons.
 */
function ranking(
  name: string,
  schema: string,
  rows: (ctx: OpContext, size: number) => number,
  aliases: readonly string[] = [],
): OperatorRecord {
  return defineOp(name, {
    schema,
    cls: 'other',
    results: 'tuple',
    aliases,
    infer: (ctx) => {
      const { dtype, shape } = self(ctx);
      const dim = normalDim(ctx, ctx.int('dim'), shape.length);
      const out = shape.map((n, i) => (i === dim ? rows(ctx, n) : n));
      return [
        { dtype, shape: out },
        { dtype: 'i64', shape: out },
      ];
    },
    shard: (ctx) => untouched(ctx, [normalDim(ctx, ctx.int('dim'), self(ctx).shape.length)], []),
    flops: (ctx) => {
      const { shape } = self(ctx);
      const size = shape.length === 0 ? 1 : shape[normalDim(ctx, ctx.int('dim'), shape.length)];
      return {
        matrix: 0,
        vector: elements(shape) * Math.max(1, Math.ceil(Math.log2(Math.max(size, 1)))),
      };
    },
  });
}

const sort = ranking(
  'aten.sort.default',
  'Tensor self, int dim=-1, bool descending=False',
  (_, n) => n,
);
const sortStable = ranking(
  'aten.sort.stable',
  'Tensor self, *, Any stable, int dim=-1, bool descending=False',
  (_, n) => n,
);
const topk = ranking(
  'aten.topk.default',
  'Tensor self, int k, int dim=-1, bool largest=True, bool sorted=True',
  (ctx, n) => {
    const k = ctx.int('k');
    if (k < 0 || k > n) ctx.fail(`k is ${k}, expected 0 to ${n}`);
    return k;
  },
);

/** Indices that would sort; one result. */
const argsort = defineOp('aten.argsort.default', {
  schema: 'Tensor self, int dim=-1, bool descending=False',
  cls: 'other',
  infer: (ctx) => {
    normalDim(ctx, ctx.int('dim'), self(ctx).shape.length);
    return [{ dtype: 'i64', shape: self(ctx).shape }];
  },
  shard: (ctx) => untouched(ctx, [normalDim(ctx, ctx.int('dim'), self(ctx).shape.length)], []),
});

export const manipulateOps: readonly OperatorRecord[] = [
  cat,
  stack,
  ...slicingOps,
  flip,
  roll,
  triangle('aten.tril.default'),
  triangle('aten.triu.default'),
  constantPad,
  repeat,
  repeatInterleave,
  sort,
  sortStable,
  topk,
  argsort,
];
