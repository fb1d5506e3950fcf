/** Backward of activations: elementwise, and linear in the incoming gradient. */

import type { OperatorRecord } from '../../record/record.ts';
import { linearIn } from '../../rules/partials.ts';
import { pointwise, TRANSCENDENTAL } from '../../rules/pointwise.ts';

const backward = (
  name: string,
  schema: string,
  grad = 'grad_output',
  cost = TRANSCENDENTAL,
): OperatorRecord => pointwise(`aten.${name}.default`, { schema, cost, extra: linearIn(grad) });

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
  backward('log_sigmoid_backward', 'Tensor grad_output, Tensor self, Tensor buffer'),
  backward('hardshrink_backward', 'Tensor grad_out, Tensor self, Scalar lambd', 'grad_out', 1),
  backward(
    'softshrink_backward',
    'Tensor grad_output, Tensor self, Scalar lambd',
    'grad_output',
    1,
  ),
];
