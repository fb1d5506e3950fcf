/**
 * Operators that PyTorch differentiates through the operators they are made of. Where a gradient is
 * to pass, such a call is replaced by the same calls that AOTAutograd traces.
 */

import type { Arg, DType, ValueRef } from '../../../graph/types.ts';
import { elements, type OperatorRecord } from '../../record/record.ts';
import { literal } from '../build.ts';
import type { VjpCall } from '../vjp.ts';
import { attention, withRowSums } from './attention.ts';
import { isDecomposed } from './decomposed.ts';
import { crossEntropy } from './loss.ts';
import { matmulOf } from './product.ts';

/**
 * Replaces a call; `update` tells that an operand's storage takes a new value (running statistics).
 */
type Composite = (c: VjpCall, update: (operand: ValueRef, value: ValueRef) => void) => ValueRef;

/** `x W^T + bias`: one product of matrices, whatever the leading dims. */
function linear(c: VjpCall): ValueRef {
  const { b } = c;
  const x = c.x('input');
  const bias = c.optional('bias');
  const shape = b.shape(x);
  if (b.rank(c.x('weight')) === 1) {
    const product = matmulOf(b, x, c.x('weight'));
    return bias === null ? product : b.add(product, bias);
  }
  const weight = b.t(c.x('weight'));
  if (shape.length === 1) {
    const product = b.call('aten.mv.default', [c.x('weight'), x]);
    return bias === null ? product : b.add(product, bias);
  }
  const product = (rows: ValueRef): ValueRef =>
    bias === null ? b.mm(rows, weight) : b.call('aten.addmm.default', [bias, rows, weight]);
  if (shape.length === 2) return product(x);
  const rows = b.reshape(x, [elements(shape.slice(0, -1)), shape[shape.length - 1]]);
  const result = product(rows);
  const whole = [...shape.slice(0, -1), b.shape(result)[1]];
  return b.call(bias === null ? 'aten._unsafe_view.default' : 'aten.view.default', [result, whole]);
}

const normalizedShape = (c: VjpCall): Arg => c.arg('normalized_shape') ?? [];

function layerNorm(c: VjpCall): ValueRef {
  const args = [
    c.x('input'),
    normalizedShape(c),
    c.optional('weight'),
    c.optional('bias'),
    literal(c.ctx.number('eps')),
  ];
  return c.b.item(c.b.call('aten.native_layer_norm.default', args), 0);
}

function rmsNorm(c: VjpCall): ValueRef {
  const args = [c.x('input'), normalizedShape(c), c.optional('weight'), c.arg('eps') ?? null];
  return c.b.item(c.b.call('aten._fused_rms_norm.default', args), 0);
}

function groupNorm(c: VjpCall): ValueRef {
  const [n, channels, ...rest] = c.shape('input');
  return c.b.item(
    c.b.call('aten.native_group_norm.default', [
      c.b.isStrided(c.x('input')) ? c.b.rowMajor(c.x('input')) : c.x('input'),
      c.optional('weight'),
      c.optional('bias'),
      n,
      channels,
      elements(rest),
      c.ctx.int('num_groups'),
      literal(c.ctx.number('eps')),
    ]),
    0,
  );
}

/** In training the running statistics move: they are results, and the buffers take them. */
function batchNorm(c: VjpCall, update: (operand: ValueRef, value: ValueRef) => void): ValueRef {
  const { b } = c;
  const [mean, variance] = [c.optional('running_mean'), c.optional('running_var')];
  const training = c.ctx.bool('training');
  const affine = [c.x('input'), c.optional('weight'), c.optional('bias')];
  const numbers = [literal(c.ctx.number('momentum')), literal(c.ctx.number('eps'))];
  if (mean === null || variance === null) {
    if (!training) return c.ctx.fail('without training it needs running_mean and running_var');
    return b.item(
      b.call('aten._native_batch_norm_legit.no_stats', [...affine, true, ...numbers]),
      0,
    );
  }
  const target = 'aten._native_batch_norm_legit_functional.default';
  const call = b.call(target, [...affine, mean, variance, training, ...numbers]);
  if (training) {
    update(mean, b.item(call, 3));
    update(variance, b.item(call, 4));
  }
  return b.item(call, 0);
}

/** One number for every spatial dim. */
function spatial(values: readonly number[], n: number): number[] {
  return values.length === n ? [...values] : Array.from({ length: n }, () => values[0] ?? 0);
}

function convolution(c: VjpCall): ValueRef {
  const { b } = c;
  const n = c.shape('weight').length - 2;
  const lists = ['stride', 'padding', 'dilation'].map((name) => spatial(c.ctx.ints(name), n));
  const settings = [...lists, false, spatial([0], n), c.ctx.int('groups')];
  return b.call('aten.convolution.default', [
    c.x('input'),
    c.x('weight'),
    c.optional('bias'),
    ...settings,
  ]);
}

const maxPool =
  (dims: number) =>
  (c: VjpCall): ValueRef => {
    const target = `aten.max_pool${dims}d_with_indices.default`;
    return c.b.item(c.b.call(target, c.node.args, c.node.kwargs), 0);
  };

/** The mean where one number is left of every channel. */
const adaptivePool =
  (dims: number) =>
  (c: VjpCall): ValueRef => {
    const size = spatial(c.ctx.ints('output_size'), dims);
    const last = size.map((_, d) => -1 - d);
    if (size.every((n) => n === 1)) return c.b.call('aten.mean.dim', [c.x('self'), last, true]);
    return c.b.call(`aten._adaptive_avg_pool${dims}d.default`, [c.x('self'), size]);
  };

const softmax =
  (target: string) =>
  (c: VjpCall): ValueRef => {
    const dtype = c.ctx.dtype('dtype');
    const x = dtype === undefined ? c.x('self') : c.b.cast(c.x('self'), dtype);
    return c.b.call(target, [x, c.ctx.int('dim'), false]);
  };

/** Nothing is dropped outside of training; with probability 0 PyTorch makes a copy. */
function dropout(c: VjpCall): ValueRef {
  const { b } = c;
  const p = c.ctx.number('p');
  if (!c.ctx.bool('train')) return c.x('input');
  if (p === 0) return b.call('aten.clone.default', [c.x('input')]);
  return b.item(b.call('aten.native_dropout.default', [c.x('input'), literal(p), true]), 0);
}

const outputType = (c: VjpCall): DType => c.ctx.outputs[0]?.dtype ?? 'f32';

/** A view where the layout allows it, else a copy. */
function reshape(c: VjpCall): ValueRef {
  return c.b.reshape(c.x('self'), c.ctx.outputs[0]?.shape ?? []);
}

export const COMPOSITES: Readonly<Record<string, Composite>> = {
  'aten.linear.default': linear,
  'aten.matmul.default': (c) => matmulOf(c.b, c.x('self'), c.x('other')),
  'aten.layer_norm.default': layerNorm,
  'aten.rms_norm.default': rmsNorm,
  'aten.group_norm.default': groupNorm,
  'aten.batch_norm.default': batchNorm,
  'aten.conv1d.default': convolution,
  'aten.conv2d.default': convolution,
  'aten.conv3d.default': convolution,
  'aten.max_pool2d.default': maxPool(2),
  'aten.max_pool3d.default': maxPool(3),
  'aten.adaptive_avg_pool2d.default': adaptivePool(2),
  'aten.adaptive_avg_pool3d.default': adaptivePool(3),
  'aten.softmax.int': softmax('aten._softmax.default'),
  'aten.log_softmax.int': softmax('aten._log_softmax.default'),
  'aten.cross_entropy_loss.default': crossEntropy,
  'aten.scaled_dot_product_attention.default': attention,
  'aten._scaled_dot_product_efficient_attention.default': withRowSums,
  'aten.dropout.default': dropout,
  'aten.reshape.default': reshape,
  'aten.flatten.using_ints': reshape,
  'aten.unflatten.int': reshape,
  // A cast to the dtype that the value has is not a call.
  'aten.to.dtype': (c) => c.b.cast(c.x('self'), outputType(c)),
};

/** How an operator is put together: as PyTorch traces it, or by the body that its record has. */
export function compositeOf(record: OperatorRecord): Composite | undefined {
  if (Object.hasOwn(COMPOSITES, record.name)) return COMPOSITES[record.name];
  if (!isDecomposed(record) || record.results !== 'single') return undefined;
  return (c) =>
    record.decompose({
      b: c.b,
      ctx: c.ctx,
      x: (name) => c.x(name),
      optional: (name) => c.optional(name),
    })[0];
}
