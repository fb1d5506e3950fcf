/** Backward of activations: elementwise, and linear in the incoming gradient. */

import { defineOp, elements, type OperatorRecord } from '../../record/record.ts';
import { R, rule, S } from '../../record/rule.ts';
import { cuttable, need, sameShape } from '../../rules/dims.ts';
import { linearIn } from '../../rules/partials.ts';
import { pointwise, TRANSCENDENTAL } from '../../rules/pointwise.ts';

const backward = (
  name: string,
  schema: string,
  grad = 'grad_output',
  cost = TRANSCENDENTAL,
): OperatorRecord => pointwise(`aten.${name}.default`, { schema, cost, extra: linearIn(grad) });

/** The buffer is that of the forward call, empty on accelerators. */
const logSigmoidBackward = defineOp('aten.log_sigmoid_backward.default', {
  schema: 'Tensor grad_output, Tensor self, Tensor buffer',
  cls: 'other',
  infer: (ctx) => [need(ctx, 'self')],
  shard: (ctx) => {
    const { shape } = need(ctx, 'self');
    const isEmpty = !sameShape(need(ctx, 'buffer').shape, shape);
    return [
      ...cuttable(shape).map((d) => rule([S(d), S(d), isEmpty ? R : S(d)], [S(d)])),
      ...linearIn('grad_output')(ctx),
    ];
  },
  flops: (ctx) => ({ matrix: 0, vector: TRANSCENDENTAL * elements(ctx.inputs[0].shape) }),
  samples: ['x[6,5], x[6,5], unit[6,5]', 'x[5], x[5], unit[5]'],
});

export const activationBackwardOps: readonly OperatorRecord[] = [
  backward('gelu_backward', "Tensor grad_output, Tensor self, *, str approximate='none'"),
  backward('silu_backward', 'Tensor grad_output, Tensor self'),
  backward('mish_backward', 'Tensor grad_output, Tensor self'),
  backward('sigmoid_backward', 'Tensor grad_output, Tensor output', 'grad_output', 3),
  backward('tanh_backward', 'Tensor grad_output, Tensor output', 'grad_output', 3),
  backward(
    'threshold_backward',
    'Tensor grad_output, Tensor self, Scalar threshold',
    'grad_output',
    1,
  ),
  backward(
    'hardtanh_backward',
    'Tensor grad_output, Tensor self, Scalar min_val, Scalar max_val',
    'grad_output',
    1,
  ),
  backward('hardswish_backward', 'Tensor grad_output, Tensor self', 'grad_output', 3),
  backward('hardsigmoid_backward', 'Tensor grad_output, Tensor self', 'grad_output', 1),
  backward(
    'leaky_relu_backward',
    'Tensor grad_output, Tensor self, Scalar negative_slope, bool self_is_result',
    'grad_output',
    1,
  ),
  backward(
    'elu_backward',
    'Tensor grad_output, Scalar alpha, Scalar scale, Scalar input_scale, bool is_result, ' +
      'Tensor self_or_result',
  ),
  backward('softplus_backward', 'Tensor grad_output, Tensor self, Scalar beta, Scalar threshold'),
  logSigmoidBackward,
  backward('hardshrink_backward', 'Tensor grad_out, Tensor self, Scalar lambd', 'grad_out', 1),
  backward(
    'softshrink_backward',
    'Tensor grad_output, Tensor self, Scalar lambd',
    'grad_output',
    1,
  ),
];
