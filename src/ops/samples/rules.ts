/**
 * Calls that rules depend on and kernels do not: whole windows, scalars of bools, signs of factors.
 */
export const ruleSamples: readonly string[] = [
  'avg_pool2d(x[5,6,12,8], [2,2])',
  'max_pool2d(x[5,6,12,6], [2,3])',
  'bitwise_not(bits[6,5])',
  "div.Scalar_mode(x[6,5], -2, rounding_mode='floor')",
  "div.Scalar_mode(x[6,5], 2, rounding_mode='trunc')",
  'floor_divide.Scalar(x[6,5], -1.5)',
  '__xor__.Scalar(bits[6,5], False)',
  'addmm(x[7], x[6,5], x[5,7], alpha=-2)',
  'scatter_add(x[6,5], 1, index5[6,4], x[6,4])',
  'mean.dim(x[6,6], [1])',
  'sum.dim_IntList(x[6,6,6], [0, 2])',
  '_softmax(x[6,6], 1, False)',
  'expand(x[1,5], [6, 5])',
  'triu(x[6,6], 0)',
  'embedding(x[9,5], index9[5,6])',
  'nll_loss_forward(x[6,6], index6[6], pos[6], 1, 2)',
  'mse_loss_backward(x[], x[7,6], x[7,6], 1)',
  '_scaled_mm(f8e4m3fn[6,12], f8e4m3fn[12,4], f32[6,6], f32[6,2], out_dtype=f32)',
  '_grouped_mm(bf16[12,16], bf16[6,16,8], ends12[6])',
  '_grouped_mm(bf16[5,16], bf16[5,16,8], ends5[5])',
  '_grouped_mm(bf16[6,8,16], bf16[16,12], ends12[6])',
  '_grouped_mm(bf16[8,12], bf16[12,16], ends12[6])',
  '_grouped_mm(bf16[16,5], bf16[5,8], ends5[5])',
];
