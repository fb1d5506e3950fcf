/**
 * ATen operators that are described by other operators, as PyTorch defines them (torch/_decomp,
 * torch/_refs and the composite kernels of ATen); types, rules, work and values follow from the
 * body.
 */

import type { ValueRef } from '../../graph/types.ts';
import { elements, type OperatorRecord } from '../record/record.ts';
import type { OperatorTable } from '../record/table.ts';
import { normalDim } from '../rules/dims.ts';
import { literal } from '../vjp/build.ts';
import { type Body, decomposedOp, type DecomposedSpec } from '../vjp/composite/decomposed.ts';
import { matmulOf } from '../vjp/composite/product.ts';
import { activationSpecs } from './elementwise/activation-specs.ts';
import { complexSpecs } from './elementwise/complex.ts';
import { triangularSpecs } from './products/solutions.ts';

/** Reduces the losses of the elements as the loss asks: 0 keeps them, 1 averages, 2 adds. */
function reduced({ b, ctx }: Body, losses: ValueRef): ValueRef {
  const how = ctx.int('reduction');
  if (how === 0) return losses;
  if (how !== 1 && how !== 2) return ctx.fail(`reduction is 0, 1 or 2, not ${how}`);
  return b.unary(how === 1 ? 'mean' : 'sum', losses);
}

function normOf(
  { b }: Body,
  x: ValueRef,
  p: number,
  dims: readonly number[] | null,
  keepdim = false,
): ValueRef {
  return b.call('aten.linalg_vector_norm.default', [
    x,
    literal(p),
    dims === null ? null : [...dims],
    keepdim,
  ]);
}

const shapeOf = ({ b }: Body, x: ValueRef): readonly number[] => b.shape(x);

/** p-norm of the difference of two vectors in the last dim, moved away from zero by `eps`. */
function distance(body: Body, left: ValueRef, right: ValueRef, keepdim: boolean): ValueRef {
  const { b, ctx } = body;
  return normOf(body, b.add(b.sub(left, right), ctx.number('eps')), ctx.number('p'), [-1], keepdim);
}

/** Channels in blocks of `r * r` become `r` times as many rows and columns. */
function pixelShuffle(body: Body): ValueRef {
  const { b, ctx } = body;
  const r = ctx.int('upscale_factor');
  const shape = shapeOf(body, body.x('self'));
  const [channels, height, width] = shape.slice(-3);
  const batch = shape.slice(0, -3);
  if (shape.length < 3 || channels % (r * r) !== 0)
    ctx.fail(`cannot shuffle [${shape.join(', ')}] by ${r}`);
  const n = batch.length;
  const view = b.call('aten.view.default', [
    body.x('self'),
    [...batch, channels / (r * r), r, r, height, width],
  ]);
  const places = [n, n + 3, n + 1, n + 4, n + 2];
  const moved = b.permute(view, [...batch.keys(), ...places]);
  return b.call('aten.reshape.default', [
    moved,
    [...batch, channels / (r * r), height * r, width * r],
  ]);
}

/** The inverse of `pixelShuffle`. */
function pixelUnshuffle(body: Body): ValueRef {
  const { b, ctx } = body;
  const r = ctx.int('downscale_factor');
  const shape = shapeOf(body, body.x('self'));
  const [channels, height, width] = shape.slice(-3);
  const batch = shape.slice(0, -3);
  if (shape.length < 3 || height % r !== 0 || width % r !== 0)
    ctx.fail(`cannot take [${shape.join(', ')}] apart by ${r}`);
  const n = batch.length;
  const view = b.call('aten.view.default', [
    body.x('self'),
    [...batch, channels, height / r, r, width / r, r],
  ]);
  const moved = b.permute(view, [...batch.keys(), n, n + 2, n + 4, n + 1, n + 3]);
  return b.call('aten.reshape.default', [
    moved,
    [...batch, channels * r * r, height / r, width / r],
  ]);
}

function channelShuffle(body: Body): ValueRef {
  const { b, ctx } = body;
  const groups = ctx.int('groups');
  const shape = shapeOf(body, body.x('self'));
  const [batch, channels, ...rest] = shape;
  if (shape.length < 3 || channels % groups !== 0)
    ctx.fail(`cannot shuffle [${shape.join(', ')}] in ${groups} groups`);
  const view = b.call('aten.view.default', [
    body.x('self'),
    [batch, groups, channels / groups, ...rest],
  ]);
  return b.call('aten.reshape.default', [b.transpose(view, 1, 2), [...shape]]);
}

function glu(body: Body): ValueRef {
  const { b, ctx } = body;
  const x = body.x('self');
  const shape = shapeOf(body, x);
  const dim = normalDim(ctx, ctx.int('dim'), shape.length);
  const half = shape[dim] / 2;
  if (!Number.isInteger(half))
    ctx.fail(`dim ${dim} has ${shape[dim]} rows, which are not two halves`);
  return b.mul(b.slice(x, dim, 0, half), b.unary('sigmoid', b.slice(x, dim, half, shape[dim])));
}

/** A slope for each channel below zero. */
function prelu(body: Body): ValueRef {
  const { b } = body;
  const [x, weight] = [body.x('self'), body.x('weight')];
  const rank = shapeOf(body, x).length;
  const slopes = elements(shapeOf(body, weight));
  const wide =
    slopes === 1 || rank < 2
      ? weight
      : b.reshape(weight, [slopes, ...new Array<number>(rank - 2).fill(1)]);
  return b.where(b.compare('gt', x, 0), x, b.mul(x, wide));
}

/** Every row of the one times the whole of the other. */
function kron(body: Body): ValueRef {
  const { b } = body;
  const [x, y] = [body.x('self'), body.x('other')];
  const [a, c] = [[...shapeOf(body, x)], [...shapeOf(body, y)]];
  while (a.length < c.length) a.unshift(1);
  while (c.length < a.length) c.unshift(1);
  const left = b.call('aten.view.default', [x, a.flatMap((n) => [n, 1])]);
  const right = b.call('aten.view.default', [y, c.flatMap((n) => [1, n])]);
  return b.call('aten.view.default', [b.mul(left, right), a.map((n, d) => n * c[d])]);
}

/** Rows along `dim` whose norm is above `maxnorm` are scaled down to it. */
function renorm(body: Body): ValueRef {
  const { b, ctx } = body;
  const x = body.x('self');
  const rank = shapeOf(body, x).length;
  const dim = normalDim(ctx, ctx.int('dim'), rank);
  const others = Array.from({ length: rank }, (_, d) => d).filter((d) => d !== dim);
  const norms = normOf(body, x, ctx.number('p'), others, true);
  const scale = b.mul(b.unary('reciprocal', b.add(norms, 1e-7)), ctx.number('maxnorm'));
  return b.mul(x, b.where(b.compare('gt', norms, ctx.number('maxnorm')), scale, 1));
}

/** Distances of all rows by one product: |a|^2 + |b|^2 - 2 a b, never below zero. */
function euclideanDistance(body: Body): ValueRef {
  const { b } = body;
  const [x, y] = [body.x('x1'), body.x('x2')];
  const squares = (v: ValueRef): ValueRef => b.sum(b.mul(v, v), [-1], true);
  const products = matmulOf(b, x, b.transpose(y, -2, -1));
  const lengths = b.add(squares(x), b.transpose(squares(y), -2, -1));
  const square = b.sub(lengths, b.mul(products, 2));
  return b.unary('sqrt', b.call('aten.clamp_min.default', [square, 0]));
}

/** All dims but the one that keeps a length of its own; it is the first or the last. */
function normedDims({ b, ctx }: Body, v: ValueRef): number[] {
  const rank = b.shape(v).length;
  const dim = normalDim(ctx, ctx.int('dim'), rank);
  return Array.from({ length: rank }, (_, d) => d).filter((d) => d !== dim);
}

/** A direction and a length of each row: the weight, and the lengths of the directions. */
function weightNorm(body: Body): readonly ValueRef[] {
  const { b } = body;
  const [v, g] = [body.x('v'), body.x('g')];
  const norms = normOf(body, v, 2, normedDims(body, v), true);
  const wide = ['bf16', 'f16'].includes(b.dtype(g)) ? b.cast(norms, 'f32') : norms;
  return [b.cast(b.mul(v, b.div(g, wide)), b.dtype(v)), wide];
}

function weightNormBackward(body: Body): readonly ValueRef[] {
  const { b } = body;
  const [grad, v, g, norms] = [
    body.x('grad_w'),
    body.x('saved_v'),
    body.x('saved_g'),
    body.x('saved_norms'),
  ];
  const along = b.sum(b.mul(grad, v), normedDims(body, v), true);
  const gradV = b.mul(b.div(g, norms), b.sub(grad, b.mul(v, b.div(along, b.mul(norms, norms)))));
  return [b.cast(gradV, b.dtype(v)), b.cast(b.div(along, norms), b.dtype(g))];
}

function aminmax(body: Body): readonly ValueRef[] {
  const { b, ctx } = body;
  const dim = ctx.optionalInt('dim');
  const dims = dim === undefined ? [] : [dim];
  const [least, most] = ['amin', 'amax'].map((name) =>
    b.call(`aten.${name}.default`, [body.x('self'), dims, ctx.bool('keepdim')]),
  );
  return [least, most];
}

/** Tells whether each element is among the test elements. */
function isin(body: Body): ValueRef {
  const { b, ctx } = body;
  const [x, tests] = [body.x('elements'), body.x('test_elements')];
  const width = shapeOf(body, tests).length;
  const wide = b.call('aten.view.default', [
    x,
    [...shapeOf(body, x), ...new Array<number>(width).fill(1)],
  ]);
  let found = b.call('aten.eq.Tensor', [wide, tests]);
  for (let d = 0; d < width; d++) found = b.call('aten.any.dim', [found, -1]);
  return ctx.bool('invert') ? b.unary('logical_not', found) : found;
}

function tripletMargin(body: Body): ValueRef {
  const { b, ctx } = body;
  const [anchor, positive, negative] = ['anchor', 'positive', 'negative'].map((name) =>
    body.x(name),
  );
  const near = distance(body, anchor, positive, false);
  const direct = distance(body, anchor, negative, false);
  const far = ctx.bool('swap')
    ? b.call('aten.minimum.default', [direct, distance(body, positive, negative, false)])
    : direct;
  return reduced(
    body,
    b.call('aten.clamp_min.default', [b.add(b.sub(near, far), ctx.number('margin')), literal(0)]),
  );
}

function marginRanking(body: Body): ValueRef {
  const { b, ctx } = body;
  const behind = b.mul(b.neg(body.x('target')), b.sub(body.x('input1'), body.x('input2')));
  return reduced(
    body,
    b.call('aten.clamp_min.default', [b.add(behind, ctx.number('margin')), literal(0)]),
  );
}

/** `beta * self + alpha * (vec1 outer vec2)`. */
function addr(body: Body): ValueRef {
  const { b, ctx } = body;
  const outer = b.call('aten.outer.default', [body.x('vec1'), body.x('vec2')]);
  return b.add(b.scaled(body.x('self'), ctx.number('beta')), b.scaled(outer, ctx.number('alpha')));
}

/** One row of an image. */
function averagePool1d({ b, ctx, x }: Body): ValueRef {
  const image = b.call('aten.unsqueeze.default', [x('self'), -2]);
  const [kernel] = ctx.ints('kernel_size');
  const [stride = kernel] = ctx.ints('stride');
  const padding = [0, ctx.ints('padding')[0]];
  const flags = [ctx.bool('ceil_mode'), ctx.bool('count_include_pad')];
  const pooled = b.call('aten.avg_pool2d.default', [
    image,
    [1, kernel],
    [1, stride],
    padding,
    ...flags,
  ]);
  return b.call('aten.squeeze.dim', [pooled, -2]);
}

const one =
  (make: (body: Body) => ValueRef) =>
  (body: Body): readonly ValueRef[] => [make(body)];

const SPECS: Readonly<Record<string, DecomposedSpec>> = {
  ...complexSpecs,
  ...activationSpecs,
  ...triangularSpecs,
  'aten.aminmax.default': {
    schema: 'Tensor self, *, int? dim=None, bool keepdim=False',
    cls: 'reduction',
    results: 'tuple',
    decompose: aminmax,
  },
  'aten.addr.default': {
    schema: 'Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1',
    cls: 'matmul',
    decompose: one(addr),
  },
  'aten.linalg_vecdot.default': {
    schema: 'Tensor x, Tensor y, *, int dim=-1',
    cls: 'reduction',
    decompose: one(({ b, ctx, x }) => b.sum(b.mul(x('x'), x('y')), [ctx.int('dim')])),
  },
  'aten.dist.default': {
    schema: 'Tensor self, Tensor other, Scalar p=2',
    cls: 'reduction',
    decompose: one((body) =>
      normOf(body, body.b.sub(body.x('self'), body.x('other')), body.ctx.number('p'), null),
    ),
  },
  'aten.pairwise_distance.default': {
    schema: 'Tensor x1, Tensor x2, float p=2.0, float eps=1e-06, bool keepdim=False',
    cls: 'reduction',
    decompose: one((body) => distance(body, body.x('x1'), body.x('x2'), body.ctx.bool('keepdim'))),
  },
  'aten.trace.default': {
    schema: 'Tensor self',
    cls: 'reduction',
    decompose: one(({ b, x }) => b.unary('sum', b.call('aten.diagonal.default', [x('self')]))),
  },
  'aten.kron.default': { schema: 'Tensor self, Tensor other', cls: 'matmul', decompose: one(kron) },
  'aten.renorm.default': {
    schema: 'Tensor self, Scalar p, int dim, Scalar maxnorm',
    cls: 'norm',
    decompose: one(renorm),
  },
  'aten.glu.default': { schema: 'Tensor self, int dim=-1', cls: 'other', decompose: one(glu) },
  'aten.prelu.default': {
    schema: 'Tensor self, Tensor weight',
    cls: 'other',
    decompose: one(prelu),
  },
  'aten.channel_shuffle.default': {
    schema: 'Tensor self, int groups',
    cls: 'other',
    decompose: one(channelShuffle),
  },
  'aten.pixel_shuffle.default': {
    schema: 'Tensor self, int upscale_factor',
    cls: 'other',
    decompose: one(pixelShuffle),
  },
  'aten.pixel_unshuffle.default': {
    schema: 'Tensor self, int downscale_factor',
    cls: 'other',
    decompose: one(pixelUnshuffle),
  },
  'aten.isin.Tensor_Tensor': {
    schema: 'Tensor elements, Tensor test_elements, *, bool assume_unique=False, bool invert=False',
    cls: 'other',
    decompose: one(isin),
  },
  'aten.tile.default': {
    schema: 'Tensor self, int[] dims',
    cls: 'other',
    decompose: one(({ b, ctx, x }) => {
      const times = [...ctx.ints('dims')];
      while (times.length < b.shape(x('self')).length) times.unshift(1);
      return b.call('aten.repeat.default', [x('self'), times]);
    }),
  },
  'aten.norm.Scalar': {
    schema: 'Tensor self, Scalar p=2',
    cls: 'reduction',
    decompose: one((body) => normOf(body, body.x('self'), body.ctx.number('p'), null)),
  },
  'aten.norm.ScalarOpt_dim': {
    schema: 'Tensor self, Scalar? p, int[] dim, bool keepdim=False',
    cls: 'reduction',
    decompose: one((body) =>
      normOf(
        body,
        body.x('self'),
        body.ctx.optionalNumber('p') ?? 2,
        body.ctx.ints('dim'),
        body.ctx.bool('keepdim'),
      ),
    ),
  },
  'aten._euclidean_dist.default': {
    schema: 'Tensor x1, Tensor x2',
    cls: 'matmul',
    decompose: one(euclideanDistance),
  },
  'aten._weight_norm_interface.default': {
    schema: 'Tensor v, Tensor g, int dim=0',
    cls: 'other',
    results: 'tuple',
    decompose: weightNorm,
  },
  'aten._weight_norm_interface_backward.default': {
    schema: 'Tensor grad_w, Tensor saved_v, Tensor saved_g, Tensor saved_norms, int dim',
    cls: 'other',
    results: 'tuple',
    decompose: weightNormBackward,
  },
  'aten.avg_pool1d.default': {
    schema:
      'Tensor self, int[] kernel_size, int[] stride=[], int[] padding=[0], bool ' +
      'ceil_mode=False, bool count_include_pad=True',
    cls: 'reduction',
    decompose: one(averagePool1d),
  },
  'aten.adaptive_avg_pool1d.default': {
    schema: 'Tensor self, int[] output_size',
    cls: 'reduction',
    decompose: one(({ b, ctx, x }) => {
      const image = b.call('aten.unsqueeze.default', [x('self'), -2]);
      return b.call('aten.squeeze.dim', [
        b.call('aten._adaptive_avg_pool2d.default', [image, [1, ...ctx.ints('output_size')]]),
        -2,
      ]);
    }),
  },
  'aten.margin_ranking_loss.default': {
    schema: 'Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=1',
    cls: 'other',
    decompose: one(marginRanking),
  },
  'aten.triplet_margin_loss.default': {
    schema:
      'Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2, float ' +
      'eps=1e-06, bool swap=False, int reduction=1',
    cls: 'other',
    decompose: one(tripletMargin),
  },
};

/** @param table the operators that the bodies call */
export function decomposedOps(table: OperatorTable): readonly OperatorRecord[] {
  return Object.entries(SPECS).map(([name, spec]) => decomposedOp(table, name, spec));
}
