/**
 * Views: operators that only rename dims. They cost nothing and move nothing. `reshape` is here
 * too: where it must copy, the copy is not priced. Copying forms that functionalisation writes
 * (`t_copy`, `view_copy`) are aliases of the views, because a compiler turns them back.
 */

import { build, copyFlat, flat, fromFlat } from '../../../ndarray/array.ts';
import { diagonal as diagonalOf } from '../../../ndarray/views.ts';
import { product } from '../../../product.ts';
import { one, tensor } from '../../record/kernel.ts';
import {
  defineOp,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
  type TypedContext,
} from '../../record/record.ts';
import { P, R, type Rule, rule, type RuleSlot, S } from '../../record/rule.ts';
import {
  broadcastAll,
  cuttable,
  movedKinds,
  need,
  normalDim,
  sameShape,
  self,
} from '../../rules/dims.ts';
import { resolveShape, viewRules } from '../../rules/viewgroups.ts';

/**
 * Shards follow a dim map (`to[i]` is the output dim of input dim i, undefined where it goes away);
 * pending kinds pass. Dims in `fragile` need a rewritten call when they are cut.
 */
function follow(
  meta: TensorMeta,
  to: readonly (number | undefined)[],
  fragile: readonly number[] = [],
): Rule[] {
  const cuts = cuttable(meta.shape).flatMap((dim) => {
    const out = to[dim];
    if (out === undefined) return [];
    const options = fragile.includes(dim) ? { rewrite: 'local-shape' } : {};
    return [rule([S(dim, { slicing: 'any' })], [S(out, { slicing: 'any' })], options)];
  });
  return [...cuts, ...movedKinds(meta.dtype).map((kind) => rule([P(kind)], [P(kind)]))];
}

/** A view that permutes dims: output dim i is input dim `order(ctx)[i]`. */
function permuting(
  name: string,
  schema: string,
  order: (ctx: OpContext, rank: number) => readonly number[],
  aliases: readonly string[] = [],
): OperatorRecord {
  return defineOp(name, {
    schema,
    cls: 'view',
    aliases,
    infer: (ctx) => {
      const { dtype, shape } = self(ctx);
      return [{ dtype, shape: order(ctx, shape.length).map((dim) => shape[dim]) }];
    },
    shard: (ctx) => {
      const meta = self(ctx);
      const dims = order(ctx, meta.shape.length);
      return follow(
        meta,
        meta.shape.map((_, dim) => dims.indexOf(dim)),
      );
    },
  });
}

/**
 * A view to a target shape. `sizes` is the shape argument as written; dims written as -1 adapt by
 * themselves.
 */
function reshaping(
  name: string,
  schema: string,
  sizes: (ctx: OpContext) => readonly number[],
  options: { aliases?: readonly string[]; explicit?: boolean } = {},
): OperatorRecord {
  return defineOp(name, {
    schema,
    cls: 'view',
    aliases: options.aliases ?? [],
    infer: (ctx) => [{ dtype: self(ctx).dtype, shape: resolveShape(self(ctx).shape, sizes(ctx)) }],
    shard: (ctx) => {
      const written = sizes(ctx);
      const { dtype, shape } = self(ctx);
      const explicit = options.explicit ?? true;
      return viewRules(shape, written, (dim) => explicit && written[dim] !== -1, movedKinds(dtype));
    },
  });
}

/**
 * A view that drops dims of size 1, by their global size. A named dim that stays because it is
 * larger must not be dropped when a rank holds a single row of it: cutting it means renaming the
 * dims.
 */
function squeezing(
  name: string,
  schema: string,
  dims: (ctx: OpContext, rank: number) => readonly number[],
  aliases: readonly string[],
): OperatorRecord {
  const named = (ctx: OpContext): number[] => {
    const rank = self(ctx).shape.length;
    return dims(ctx, rank).map((dim) => normalDim(ctx, dim, rank));
  };
  const kept = (ctx: OpContext): number[] => {
    const { shape } = self(ctx);
    const gone = named(ctx);
    return shape.flatMap((size, dim) => (size === 1 && gone.includes(dim) ? [] : [dim]));
  };
  return defineOp(name, {
    schema,
    cls: 'view',
    aliases,
    infer: (ctx) => [
      { dtype: self(ctx).dtype, shape: kept(ctx).map((dim) => self(ctx).shape[dim]) },
    ],
    shard: (ctx) => {
      const dims = kept(ctx);
      return follow(
        self(ctx),
        self(ctx).shape.map((_, dim) => (dims.includes(dim) ? dims.indexOf(dim) : undefined)),
        named(ctx),
      );
    },
  });
}

function allDims(rank: number): number[] {
  return Array.from({ length: rank }, (_, i) => i);
}

function transposed(ctx: OpContext, rank: number): number[] {
  const dims = allDims(rank);
  const a = normalDim(ctx, ctx.int('dim0'), rank);
  const b = normalDim(ctx, ctx.int('dim1'), rank);
  if (rank > 0) [dims[a], dims[b]] = [dims[b], dims[a]];
  return dims;
}

function permuted(ctx: OpContext, rank: number): number[] {
  const dims = ctx.ints('dims').map((dim) => normalDim(ctx, dim, rank));
  if (dims.length !== rank || new Set(dims).size !== rank)
    ctx.fail(`dims [${ctx.ints('dims').join(', ')}] must name each of the ${rank} dims once`);
  return dims;
}

/** `movedim`: the named dims go to their destinations, the others keep their order. */
function moved(ctx: OpContext, rank: number): number[] {
  const source = ctx.ints('source').map((dim) => normalDim(ctx, dim, rank));
  const destination = ctx.ints('destination').map((dim) => normalDim(ctx, dim, rank));
  if (source.length !== destination.length)
    ctx.fail('source and destination must have equally many dims');
  const rest = allDims(rank).filter((dim) => !source.includes(dim));
  return allDims(rank).map((at) => {
    const k = destination.indexOf(at);
    return k >= 0
      ? source[k]
      : (rest.shift() ?? ctx.fail('source and destination must not repeat a dim'));
  });
}

/** Shape written for `flatten(start_dim, end_dim)`. */
function flattened(ctx: OpContext): number[] {
  const { shape } = self(ctx);
  if (shape.length === 0) return [1];
  const start = normalDim(ctx, ctx.int('start_dim'), shape.length);
  const end = normalDim(ctx, ctx.int('end_dim'), shape.length);
  if (start > end) ctx.fail(`start_dim ${start} is after end_dim ${end}`);
  const merged = product(shape.slice(start, end + 1));
  return [...shape.slice(0, start), merged, ...shape.slice(end + 1)];
}

/** Shape written for `unflatten(dim, sizes)`. */
function unflattened(ctx: OpContext): number[] {
  const { shape } = self(ctx);
  const dim = normalDim(ctx, ctx.int('dim'), shape.length);
  return [
    ...shape.slice(0, dim),
    ...resolveShape([shape[dim]], ctx.ints('sizes')),
    ...shape.slice(dim + 1),
  ];
}

/** Result of `expand`: -1 keeps a size, a size of 1 stretches. */
function expandedShape(ctx: OpContext): number[] {
  const { shape } = self(ctx);
  const written = ctx.ints('size');
  const added = written.length - shape.length;
  if (added < 0) return ctx.fail(`cannot expand ${shape.length} dims to ${written.length}`);
  return written.map((size, i) => {
    const own = i < added ? undefined : shape[i - added];
    if (size === -1)
      return own ?? ctx.fail(`size -1 at dim ${i} is not allowed in a new leading dim`);
    if (own !== undefined && own !== 1 && own !== size)
      return ctx.fail(
        `cannot expand dim ${i} of size ${own} to ${size}; only a dim of size 1 expands`,
      );
    return size;
  });
}

/**
 * Cuts of a tensor broadcast to a shape: dims that exist follow; a broadcast dim may be cut from a
 * replicated input for free, each rank expanding to its own number of rows. `written` holds the
 * sizes as the call gives them (-1 adapts).
 */
function broadcastRules(
  from: readonly number[],
  to: readonly number[],
  written: readonly number[],
): Rule[] {
  return cuttable(to).map((out) => {
    const dim = out - (to.length - from.length);
    const stretched = dim < 0 || from[dim] === 1;
    const cut = S(out, { slicing: 'any' });
    if (stretched) return rule([R], [cut], { origin: 'ext', rewrite: 'local-shape' });
    return written[out] === -1
      ? rule([S(dim, { slicing: 'any' })], [cut])
      : rule([S(dim, { slicing: 'any' })], [cut], { rewrite: 'local-shape' });
  });
}

const expand = defineOp('aten.expand.default', {
  schema: 'Tensor self, int[] size, *, bool implicit=False',
  cls: 'view',
  aliases: ['aten.expand_copy.default'],
  infer: (ctx) => [{ dtype: self(ctx).dtype, shape: expandedShape(ctx) }],
  shard: (ctx) => [
    ...broadcastRules(self(ctx).shape, expandedShape(ctx), ctx.ints('size')),
    ...movedKinds(self(ctx).dtype).map((kind) => rule([P(kind)], [P(kind)])),
  ],
});

const expandAs = defineOp('aten.expand_as.default', {
  schema: 'Tensor self, Tensor other',
  cls: 'view',
  infer: (ctx) => {
    const { shape } = need(ctx, 'other');
    broadcastAll(ctx, [self(ctx).shape, shape]);
    return [{ dtype: self(ctx).dtype, shape }];
  },
  shard: (ctx) => {
    const { shape } = need(ctx, 'other');
    const cuts = cuttable(shape).map((out) => {
      const dim = out - (shape.length - self(ctx).shape.length);
      const own: RuleSlot = dim < 0 || self(ctx).shape[dim] === 1 ? R : S(dim);
      return rule([own, S(out)], [S(out)]);
    });
    return [...cuts, ...movedKinds(self(ctx).dtype).map((kind) => rule([P(kind), R], [P(kind)]))];
  },
});

/**
 * Every member is expanded to the common shape; cut together, or each kind of pending reduction on
 * all.
 */
const broadcastTensors = defineOp('aten.broadcast_tensors.default', {
  schema: 'Tensor[] tensors',
  cls: 'view',
  results: 'tuple',
  infer: (ctx) => {
    const shape = broadcastAll(
      ctx,
      ctx.inputs.map((m) => m.shape),
    );
    return ctx.inputs.map(({ dtype }) => ({ dtype, shape }));
  },
  shard: (ctx: TypedContext) => {
    const shape = ctx.outputs[0]?.shape ?? [];
    const cuts = cuttable(shape).map((out) => {
      const inputs = ctx.inputs.map((m): RuleSlot => {
        const dim = out - (shape.length - m.shape.length);
        return dim < 0 || m.shape[dim] === 1 ? R : S(dim);
      });
      return rule(
        inputs,
        ctx.inputs.map(() => S(out)),
      );
    });
    const kinds = movedKinds(ctx.inputs[0]?.dtype ?? 'f32').filter((kind) =>
      ctx.inputs.every((m) => movedKinds(m.dtype).includes(kind)),
    );
    const all = kinds.map((kind) => ctx.inputs.map(() => P(kind)));
    return [...cuts, ...all.map((slots) => rule(slots, slots))];
  },
});

const unsqueeze = defineOp('aten.unsqueeze.default', {
  schema: 'Tensor self, int dim',
  cls: 'view',
  aliases: ['aten.unsqueeze_copy.default'],
  infer: (ctx) => {
    const { dtype, shape } = self(ctx);
    const at = normalDim(ctx, ctx.int('dim'), shape.length + 1);
    return [{ dtype, shape: [...shape.slice(0, at), 1, ...shape.slice(at)] }];
  },
  shard: (ctx) => {
    const meta = self(ctx);
    const at = normalDim(ctx, ctx.int('dim'), meta.shape.length + 1);
    return follow(
      meta,
      meta.shape.map((_, dim) => (dim < at ? dim : dim + 1)),
    );
  },
});

/**
 * `diagonal(offset, dim1, dim2)`: the two dims go, their diagonal comes last; its length by the
 * offset.
 */
const diagonal = defineOp('aten.diagonal.default', {
  schema: 'Tensor self, int offset=0, int dim1=0, int dim2=1',
  cls: 'view',
  aliases: ['aten.diagonal_copy.default'],
  infer: (ctx) => {
    const { dtype, shape } = self(ctx);
    const [a, b] = diagonalDims(ctx);
    const offset = ctx.int('offset');
    const length = Math.max(
      0,
      Math.min(shape[a] + Math.min(offset, 0), shape[b] - Math.max(offset, 0)),
    );
    return [{ dtype, shape: [...shape.filter((_, dim) => dim !== a && dim !== b), length] }];
  },
  shard: (ctx) => {
    const meta = self(ctx);
    const gone = diagonalDims(ctx);
    const rest = meta.shape.flatMap((_, dim) => (gone.includes(dim) ? [] : [dim]));
    return follow(
      meta,
      meta.shape.map((_, dim) => (gone.includes(dim) ? undefined : rest.indexOf(dim))),
    );
  },
});

/** The diagonal replaced: `src` is of its shape. */
const diagonalScatter = defineOp('aten.diagonal_scatter.default', {
  schema: 'Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1',
  cls: 'other',
  infer: (ctx) => {
    const [{ shape }] = diagonal.infer(ctx) as readonly TensorMeta[];
    const src = need(ctx, 'src').shape;
    if (!sameShape(src, shape))
      ctx.fail(`src has shape [${src.join(', ')}], expected [${shape.join(', ')}]`);
    return [self(ctx)];
  },
  shard: (ctx) => {
    const { dtype, shape } = self(ctx);
    const gone = diagonalDims(ctx);
    const rest = shape.flatMap((_, dim) => (gone.includes(dim) ? [] : [dim]));
    return [
      ...cuttable(shape)
        .filter((d) => rest.includes(d))
        .map((d) => rule([S(d), S(rest.indexOf(d))], [S(d)])),
      ...movedKinds(dtype).map((kind) => rule([P(kind), P(kind)], [P(kind)], { origin: 'ext' })),
    ];
  },
  flops: () => ({ matrix: 0, vector: 0 }),
  kernel: one((call) => {
    const { ctx } = call;
    const [x, src] = [tensor(call, 'self'), flat(tensor(call, 'src'))];
    const places = flat(
      diagonalOf(
        build(x.shape, (i) => i),
        ctx.int('offset'),
        ctx.int('dim1'),
        ctx.int('dim2'),
      ),
    );
    const out = copyFlat(x);
    places.forEach((at, i) => (out[at] = src[i]));
    return fromFlat(x.shape, out, x.dtype);
  }),
});

function diagonalDims(ctx: OpContext): readonly [number, number] {
  const rank = self(ctx).shape.length;
  const a = normalDim(ctx, ctx.int('dim1'), rank);
  const b = normalDim(ctx, ctx.int('dim2'), rank);
  if (rank < 2 || a === b) ctx.fail(`dim1 and dim2 must be two of ${rank} dims`);
  return [a, b];
}

/** `t`: the two dims change places; fewer dims stay as they are. */
function matrixTransposed(ctx: OpContext, rank: number): number[] {
  if (rank > 2) ctx.fail(`expects at most 2 dims, got ${rank}`);
  return rank === 2 ? [1, 0] : allDims(rank);
}

export const viewOps: readonly OperatorRecord[] = [
  permuting('aten.t.default', 'Tensor self', matrixTransposed, ['aten.t_copy.default']),
  permuting('aten.transpose.int', 'Tensor self, int dim0, int dim1', transposed, [
    'aten.transpose_copy.int',
  ]),
  permuting('aten.permute.default', 'Tensor self, int[] dims', permuted, [
    'aten.permute_copy.default',
  ]),
  permuting('aten.movedim.int', 'Tensor self, int source, int destination', moved),
  permuting('aten.movedim.intlist', 'Tensor self, int[] source, int[] destination', moved),
  permuting('aten.numpy_T.default', 'Tensor self', (_, rank) => allDims(rank).reverse()),
  permuting('aten.mT.default', 'Tensor self', (ctx, rank) => {
    if (rank < 2) ctx.fail(`expects at least 2 dims, got ${rank}`);
    return [...allDims(rank - 2), rank - 1, rank - 2];
  }),
  reshaping('aten.view.default', 'Tensor self, int[] size', (ctx) => ctx.ints('size'), {
    aliases: ['aten.view_copy.default'],
  }),
  reshaping('aten._unsafe_view.default', 'Tensor self, int[] size', (ctx) => ctx.ints('size')),
  reshaping('aten.reshape.default', 'Tensor self, int[] shape', (ctx) => ctx.ints('shape')),
  reshaping('aten.flatten.using_ints', 'Tensor self, int start_dim=0, int end_dim=-1', flattened, {
    explicit: false,
  }),
  reshaping('aten.unflatten.int', 'Tensor self, int dim, int[] sizes', unflattened),
  expand,
  expandAs,
  broadcastTensors,
  unsqueeze,
  diagonal,
  diagonalScatter,
  squeezing('aten.squeeze.default', 'Tensor self', (_, rank) => allDims(rank), [
    'aten.squeeze_copy.default',
  ]),
  squeezing('aten.squeeze.dim', 'Tensor self, int dim', (ctx) => [ctx.int('dim')], [
    'aten.squeeze_copy.dim',
  ]),
  squeezing('aten.squeeze.dims', 'Tensor self, int[] dim', (ctx) => ctx.ints('dim'), [
    'aten.squeeze_copy.dims',
  ]),
];
