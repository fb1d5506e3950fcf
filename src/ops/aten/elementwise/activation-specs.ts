/**
 * Activations, losses and statistics that are described by other operators, with their gradients,
 * as PyTorch defines them (torch/_decomp/decompositions.py).
 */

import type { ValueRef } from '../../../graph/types.ts';
import { full } from '../../../ndarray/array.ts';
import { map } from '../../../ndarray/elementwise.ts';
import { defineOp, elements, type OperatorRecord, type TypedContext } from '../../record/record.ts';
import { R, type Rule } from '../../record/rule.ts';
import { normalDim } from '../../rules/dims.ts';
import { pointwiseRules, TRANSCENDENTAL } from '../../rules/pointwise.ts';
import type { Body, DecomposedSpec } from '../../vjp/composite/decomposed.ts';

/** The gradients of both halves, side by side. */
function gluBackward({ b, ctx, x }: Body): readonly ValueRef[] {
  const [grad, self] = [x('grad_output'), x('self')];
  const shape = b.shape(self);
  const dim = normalDim(ctx, ctx.int('dim'), shape.length);
  const half = shape[dim] / 2;
  if (!Number.isInteger(half))
    ctx.fail(`dim ${dim} has ${shape[dim]} rows, which are not two halves`);
  const [first, second] = [b.slice(self, dim, 0, half), b.slice(self, dim, half, shape[dim])];
  const gate = b.unary('sigmoid', second);
  const passed = b.mul(gate, grad);
  return [b.cat([passed, b.mul(b.mul(passed, b.rsub(gate, 1)), first)], dim)];
}

const slope = ({ b, x }: Body, above: ValueRef | number, below: ValueRef | number): ValueRef =>
  b.where(b.compare('gt', x('self'), 0), above, below);

const bySlope = (body: Body, value: ValueRef): ValueRef => body.b.mul(body.x('weight'), value);

/** Turned by quarters in the plane of two dims. */
function rot90({ b, ctx, x }: Body): readonly ValueRef[] {
  const self = x('self');
  const [first, second] = ctx.ints('dims').map((d) => normalDim(ctx, d, b.rank(self)));
  switch (((ctx.int('k') % 4) + 4) % 4) {
    case 1:
      return [b.transpose(b.flip(self, second), first, second)];
    case 2:
      return [b.flip(b.flip(self, first), second)];
    case 3:
      return [b.transpose(b.flip(self, first), first, second)];
    default:
      return [b.unary('clone', self)];
  }
}

/** Products of three tensors with new dims of one row each, summed over some dims. */
function trilinear({ b, ctx, x }: Body): readonly ValueRef[] {
  const [first, second, third] = ['1', '2', '3'].map((k) =>
    [...ctx.ints(`expand${k}`)]
      .sort((p, q) => p - q)
      .reduce((value, dim) => b.unsqueeze(value, dim), x(`i${k}`)),
  );
  const product = b.mul(b.mul(first, second), third);
  return [b.cast(b.sum(product, ctx.ints('sumdim')), b.dtype(product))];
}

/** Elements of the tensor read as one row. */
function take({ b, x }: Body): readonly ValueRef[] {
  const self = x('self');
  const row = b.reshape(self, [elements(b.shape(self))]);
  return [b.call('aten.index.Tensor', [row, [x('index')]])];
}

/** Elements of the tensor, read as one row, written or added to. */
function put({ b, ctx, x }: Body): readonly ValueRef[] {
  const [self, index, source] = ['self', 'index', 'source'].map((name) => x(name));
  const row = (value: ValueRef): ValueRef => b.reshape(value, [elements(b.shape(value))]);
  const args = [row(self), [row(index)], row(source), ctx.bool('accumulate')];
  return [b.reshape(b.call('aten.index_put.default', args), b.shape(self))];
}

/** exp(-target * x). */
const margin = ({ b, x }: Body): ValueRef => b.unary('exp', b.neg(b.mul(x('target'), x('self'))));

function softMargin(body: Body): readonly ValueRef[] {
  const { b, ctx } = body;
  const losses = b.unary('log1p', margin(body));
  const how = ctx.int('reduction');
  return [how === 0 ? losses : b.unary(how === 1 ? 'mean' : 'sum', losses)];
}

function softMarginBackward(body: Body): readonly ValueRef[] {
  const { b, ctx, x } = body;
  const z = margin(body);
  const factor = ctx.int('reduction') === 1 ? -1 / elements(b.shape(x('self'))) : -1;
  const slopes = b.div(b.mul(x('target'), z), b.add(z, 1));
  return [b.mul(x('grad_output'), b.scaled(slopes, factor))];
}

export const activationSpecs: Readonly<Record<string, DecomposedSpec>> = {
  'aten.glu_backward.default': {
    schema: 'Tensor grad_output, Tensor self, int dim',
    cls: 'other',
    decompose: gluBackward,
    samples: ['x[5,3], x[5,6], 1', 'x[2,6], x[4,6], 0'],
  },
  'aten._prelu_kernel.default': {
    schema: 'Tensor self, Tensor weight',
    cls: 'other',
    decompose: (body) => [slope(body, body.x('self'), bySlope(body, body.x('self')))],
    samples: ['x[5,6], x[1,6]', 'x[6,5], x[1,1]'],
  },
  'aten._prelu_kernel_backward.default': {
    schema: 'Tensor grad_output, Tensor self, Tensor weight',
    cls: 'other',
    results: 'tuple',
    decompose: (body) => {
      const grad = body.x('grad_output');
      return [
        slope(body, grad, bySlope(body, grad)),
        slope(body, 0, body.b.mul(body.x('self'), grad)),
      ];
    },
    samples: ['x[5,6], x[5,6], x[1,6]', 'x[6,5], x[6,5], x[1,1]'],
  },
  'aten.std_mean.correction': {
    schema: 'Tensor self, int[]? dim=None, *, Scalar? correction=None, bool keepdim=False',
    cls: 'reduction',
    results: 'tuple',
    decompose: ({ b, ctx, x }) => {
      const self = x('self');
      const dims = ctx.optionalInts('dim') ?? [];
      const all = dims.length === 0 ? b.shape(self).map((_, d) => d) : [...dims];
      const correction = ctx.optionalNumber('correction') ?? 1;
      const keepdim = ctx.bool('keepdim');
      return [
        b.call('aten.std.correction', [self, all], { correction, keepdim }),
        b.call('aten.mean.dim', [self, all, keepdim]),
      ];
    },
    samples: ['x[5,6], [1]', 'x[6,5], [0], correction=0, keepdim=True', 'x[6,5]'],
  },
  'aten.rot90.default': {
    schema: 'Tensor self, int k=1, int[] dims=[0, 1]',
    cls: 'other',
    decompose: rot90,
    samples: ['x[5,6,4]', 'x[6,5,4], 2, [1,2]', 'x[6,5,4], -1, [2,1]', 'x[5,6], 4'],
  },
  'aten._trilinear.default': {
    schema:
      'Tensor i1, Tensor i2, Tensor i3, int[] expand1, int[] expand2, int[] expand3, ' +
      'int[] sumdim, int unroll_dim=1',
    cls: 'matmul',
    decompose: trilinear,
    samples: ['x[6,3], x[5,3,4], x[6,4], [1,3], [0], [1,2], [2,3]'],
  },
  'aten.take.default': {
    schema: 'Tensor self, Tensor index',
    cls: 'other',
    decompose: take,
    samples: ['x[9,2], index18[6,5]', 'x[6], index6[5]'],
  },
  'aten.put.default': {
    schema: 'Tensor self, Tensor index, Tensor source, bool accumulate=False',
    cls: 'other',
    decompose: put,
    samples: ['x[6,2], distinct12[5], x[5]', 'x[6,3], index18[6], x[6], True'],
  },
  'aten.soft_margin_loss.default': {
    schema: 'Tensor self, Tensor target, int reduction=1',
    cls: 'reduction',
    decompose: softMargin,
    samples: ['x[6,5], x[6,5], 2', 'x[5,6], x[5,6], 0', 'x[6], x[6]'],
  },
  'aten.soft_margin_loss_backward.default': {
    schema: 'Tensor grad_output, Tensor self, Tensor target, int reduction',
    cls: 'other',
    decompose: softMarginBackward,
    samples: ['x[], x[6,5], x[6,5], 2', 'x[6,5], x[6,5], x[6,5], 0', 'x[], x[6], x[6], 1'],
  },
};

/**
 * On CPUs `exp(-|x|)` is kept for the gradient; elsewhere the buffer is empty, which a graph then
 * states.
 */
const logSigmoidForward = defineOp('aten.log_sigmoid_forward.default', {
  schema: 'Tensor self',
  cls: 'other',
  results: 'tuple',
  infer: ({ inputs: [x] }) => [x, x],
  variants: ({ inputs: [x] }) => [[x, { dtype: x.dtype, shape: [0] }]],
  shard: (ctx) => withoutBuffer(pointwiseRules(ctx), ctx),
  flops: (ctx) => ({ matrix: 0, vector: TRANSCENDENTAL * elements(ctx.inputs[0].shape) }),
  kernel: ({ inputs: [x], ctx }) => {
    const kept = ctx.outputs[1]?.shape.join() === x.shape.join();
    const buffer = map(x, (v) => Math.exp(-Math.abs(v)));
    return [
      map(x, (v) => Math.min(v, 0) - Math.log1p(Math.exp(-Math.abs(v)))),
      kept ? buffer : full([0], 0, x.dtype),
    ];
  },
  samples: ['x[6,5]', 'x[5]'],
});

/** An empty buffer is whole on every rank. */
function withoutBuffer(rules: readonly Rule[], ctx: TypedContext): Rule[] {
  const [values, buffer] = ctx.outputs;
  if (buffer?.shape.join() === values?.shape.join()) return [...rules];

  return rules.map((r) => ({ ...r, outputs: [r.outputs[0], R] }));
}

export const logSigmoidOps: readonly OperatorRecord[] = [logSigmoidForward];
