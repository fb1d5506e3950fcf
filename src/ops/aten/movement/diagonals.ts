/**
 * Writes whose places follow from sizes or from a mask: diagonals, windows that overlap, masked
 * elements. Source: ATen's `TensorShape.cpp`, `UnfoldBackward.cpp` and `masked_scatter`.
 */

import { build, copyFlat, flat, fromFlat, full, sizeOf } from '../../../ndarray/array.ts';
import { diagonal, expand } from '../../../ndarray/views.ts';
import { one, resultShape, tensor, valueError } from '../../record/kernel.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TypedContext,
} from '../../record/record.ts';
import { P, R, type Rule, rule, S } from '../../record/rule.ts';
import {
  anyS,
  broadcastAll,
  cuttable,
  kindsPass,
  movedKinds,
  need,
  normalDim,
  sameShape,
} from '../../rules/dims.ts';
import { linearIn } from '../../rules/partials.ts';

const NO_WORK = { matrix: 0, vector: 0 };

/** The two dims that a diagonal takes the place of, as they lie in the wider tensor. */
function plane(ctx: OpContext, rank: number): readonly [number, number] {
  const dims = ['dim1', 'dim2'].map((name) => normalDim(ctx, ctx.int(name), rank));
  if (dims[0] === dims[1]) ctx.fail(`dim1 and dim2 are both ${dims[0]}`);
  return [dims[0], dims[1]];
}

/** Dims of the wider tensor that those of the diagonal before its last one are. */
const others = (rank: number, gone: readonly number[]): number[] =>
  Array.from({ length: rank }, (_, d) => d).filter((d) => !gone.includes(d));

/** Elements put on the diagonal of zeros of a shape. */
function placed(values: Float64Array, shape: readonly number[], ctx: OpContext): Float64Array {
  const [dim1, dim2] = plane(ctx, shape.length);
  const places = flat(
    diagonal(
      build(shape, (i) => i),
      ctx.int('offset'),
      dim1,
      dim2,
    ),
  );
  const out = new Float64Array(sizeOf(shape));
  values.forEach((v, k) => (out[places[k]] = v));
  return out;
}

/** The last dim becomes the diagonal of two. */
const diagEmbed = defineOp('aten.diag_embed.default', {
  schema: 'Tensor self, int offset=0, int dim1=-2, int dim2=-1',
  cls: 'other',
  infer: (ctx) => {
    const { dtype, shape } = need(ctx, 'self');
    const gone = plane(ctx, shape.length + 1);
    const side = shape[shape.length - 1] + Math.abs(ctx.int('offset'));
    const rest = others(shape.length + 1, gone);
    const out = Array.from({ length: shape.length + 1 }, (_, d) =>
      gone.includes(d) ? side : shape[rest.indexOf(d)],
    );
    return [{ dtype, shape: out }];
  },
  shard: (ctx) => {
    const { dtype, shape } = need(ctx, 'self');
    const rest = others(shape.length + 1, plane(ctx, shape.length + 1));
    return [
      ...cuttable(shape.slice(0, -1)).map((d) => rule([anyS(d)], [anyS(rest[d])])),
      ...kindsPass(dtype),
    ];
  },
  flops: () => NO_WORK,
  kernel: one((call) => {
    const x = tensor(call, 'self');
    const shape = resultShape(call);
    return fromFlat(shape, placed(flat(x), shape, call.ctx), x.dtype);
  }),
  samples: ['x[6,5]', 'x[5,6,3], 1, 0, 2', 'x[6,4], -2, 0, 1'],
});

/** Zeros of `input_sizes` with the gradient on the diagonal that was read. */
const diagonalBackward = defineOp('aten.diagonal_backward.default', {
  schema: 'Tensor grad_output, int[] input_sizes, int offset, int dim1, int dim2',
  cls: 'other',
  infer: (ctx) => {
    const shape = ctx.ints('input_sizes');
    plane(ctx, shape.length);
    return [{ dtype: need(ctx, 'grad_output').dtype, shape }];
  },
  shard: (ctx) => {
    const { dtype, shape } = need(ctx, 'grad_output');
    const rest = others(shape.length + 1, plane(ctx, shape.length + 1));
    return [
      ...cuttable(shape.slice(0, -1)).map((d) =>
        rule([anyS(d)], [anyS(rest[d])], { rewrite: 'local-shape' }),
      ),
      ...kindsPass(dtype),
    ];
  },
  flops: () => NO_WORK,
  kernel: one((call) => {
    const grad = tensor(call, 'grad_output');
    const shape = resultShape(call);
    return fromFlat(shape, placed(flat(grad), shape, call.ctx), grad.dtype);
  }),
  samples: ['x[6,5,4], [6,4,5,7], 1, 1, 3', 'x[5,6,3], [3,5,6,3], 0, 0, 3'],
});

/** Sums of all windows that a row was in. */
const unfoldBackward = defineOp('aten.unfold_backward.default', {
  schema: 'Tensor grad_in, int[] input_sizes, int dim, int size, int step',
  cls: 'other',
  infer: (ctx) => {
    const { dtype, shape } = need(ctx, 'grad_in');
    const sizes = ctx.ints('input_sizes');
    const dim = normalDim(ctx, ctx.int('dim'), sizes.length);
    const count = Math.floor((sizes[dim] - ctx.int('size')) / ctx.int('step')) + 1;
    const expected = [...sizes.map((n, d) => (d === dim ? count : n)), ctx.int('size')];
    if (!sameShape(shape, expected))
      ctx.fail(`grad_in has shape [${shape.join(', ')}], expected [${expected.join(', ')}]`);
    return [{ dtype, shape: sizes }];
  },
  shard: (ctx) => {
    const { shape } = need(ctx, 'grad_in');
    const dim = normalDim(ctx, ctx.int('dim'), shape.length - 1);
    return [
      ...cuttable(shape.slice(0, -1))
        .filter((d) => d !== dim)
        .map((d) => rule([anyS(d)], [anyS(d)], { rewrite: 'local-shape' })),
      ...linearIn()(ctx),
    ];
  },
  flops: (ctx) => ({ matrix: 0, vector: elements(ctx.inputs[0].shape) }),
  kernel: one((call) => {
    const { ctx } = call;
    const shape = resultShape(call);
    const dim = normalDim(ctx, ctx.int('dim'), shape.length);
    const [size, step, inner] = [ctx.int('size'), ctx.int('step'), sizeOf(shape.slice(dim + 1))];
    const grad = tensor(call, 'grad_in');
    const count = grad.shape[dim];
    const out = new Float64Array(sizeOf(shape));
    flat(grad).forEach((g, i) => {
      const [k, rest] = [i % size, Math.floor(i / size)];
      const [at, row] = [rest % inner, Math.floor(rest / inner) % count];
      const outer = Math.floor(rest / (inner * count));
      out[(outer * shape[dim] + row * step + k) * inner + at] += g;
    });
    return fromFlat(shape, out);
  }),
  samples: ['x[6,3,5,3], [6,7,5], 1, 3, 2', 'x[3,5,2], [4,5], 0, 2, 1'],
});

/** Last dims that the mask does not tell apart: rows of the source are taken whole. */
function wholeRows(ctx: TypedContext): Rule[] {
  const [self, mask, source] = ctx.inputs.map(({ shape }) => shape);
  const rules: Rule[] = [];
  for (let k = 1; k <= Math.min(self.length, source.length); k++) {
    const size = self[self.length - k];
    if ((mask[mask.length - k] ?? 1) !== 1 || source[source.length - k] !== size) break;
    const [own, taken] = [self.length - k, source.length - k];
    const result = (ctx.outputs[0]?.shape.length ?? 0) - k;
    if (size > 1) rules.push(rule([S(own), R, S(taken)], [S(result)]));
  }
  return rules;
}

/**
 * The places where the mask holds take the first elements of the source, in their order, so the
 * whole mask says which. Every element comes from one of both.
 */
const maskedScatter = defineOp('aten.masked_scatter.default', {
  schema: 'Tensor self, Tensor mask, Tensor source',
  cls: 'other',
  aliases: ['aten.masked_scatter_.default'],
  infer: (ctx) => {
    const [self, mask] = [need(ctx, 'self'), need(ctx, 'mask')];
    if (mask.dtype !== 'b8') ctx.fail(`mask has dtype ${mask.dtype}, expected bools`);
    return [{ dtype: self.dtype, shape: broadcastAll(ctx, [self.shape, mask.shape]) }];
  },
  shard: (ctx) => [
    ...wholeRows(ctx),
    ...movedKinds(ctx.inputs[0].dtype).map((k) => rule([P(k), R, P(k)], [P(k)])),
  ],
  kernel: one((call) => {
    const shape = resultShape(call);
    const out = copyFlat(expand(tensor(call, 'self'), shape));
    const source = flat(tensor(call, 'source'));
    let taken = 0;
    flat(expand(tensor(call, 'mask'), shape)).forEach((on, i) => {
      if (on !== 0) out[i] = source[taken++];
    });
    if (taken > source.length)
      valueError(
        call,
        `the mask holds at ${taken} places, the source has ${source.length} elements`,
      );
    return fromFlat(shape, out, tensor(call, 'self').dtype);
  }),
  samples: ['x[6,5], bits[6,5], x[6,5]', 'x[5,6], bits[5,1], x[9,6]'],
});

/** The gradients of the masked places, in their order, before zeros. */
const maskedScatterBackward = defineOp('aten.masked_scatter_backward.default', {
  schema: 'Tensor grad_output, Tensor mask, int[] sizes',
  cls: 'other',
  infer: (ctx) => [{ dtype: need(ctx, 'grad_output').dtype, shape: ctx.ints('sizes') }],
  shard: (ctx) => movedKinds(ctx.inputs[0].dtype).map((kind) => rule([P(kind), R], [P(kind)])),
  kernel: one((call) => {
    const grad = tensor(call, 'grad_output');
    const mask = flat(expand(tensor(call, 'mask'), grad.shape));
    const shape = resultShape(call);
    const out = flat(full(shape, 0)).slice();
    out.set(flat(grad).filter((_, i) => mask[i] !== 0));
    return fromFlat(shape, out, grad.dtype);
  }),
  samples: ['x[6,5], bits[6,5], [7,9]', 'x[5,6], bits[5,6], [40]'],
});

export const diagonalOps: readonly OperatorRecord[] = [
  diagEmbed,
  diagonalBackward,
  unfoldBackward,
  maskedScatter,
  maskedScatterBackward,
];
