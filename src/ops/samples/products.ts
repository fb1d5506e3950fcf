/**
 * Products, convolutions, pools and attention: sizes that are even on 2 and 3 ranks (6) and uneven
 * on both (5, 7).
 */
export const products: readonly string[] = [
  'mm(x[6,5], x[5,7])',
  'mm(x[5,6], x[6,9])',
  'mm(x[7,1], x[1,6])',
  'bmm(x[5,6,7], x[5,7,6])',
  'bmm(x[6,5,9], x[6,9,5])',
  'addmm(x[7], x[6,5], x[5,7])',
  'addmm(x[6,7], x[6,5], x[5,7], beta=0.5, alpha=-2)',
  'addmm(x[6,1], x[6,5], x[5,7])',
  'addmm(x[], x[6,5], x[5,7])',
  'addmm(x[1,7], x[5,6], x[6,7], beta=0)',
  'baddbmm(x[5,6,7], x[5,6,9], x[5,9,7], beta=2, alpha=0.5)',
  'baddbmm(x[6,1], x[5,6,9], x[5,9,7])',
  'addmv(x[6], x[6,5], x[5], beta=0.5)',
  'addmv(x[], x[5,6], x[6], alpha=3)',
  'addbmm(x[5,7], x[6,5,9], x[6,9,7], beta=0.5)',
  'mv(x[6,5], x[5])',
  'mv(x[5,6], x[6])',
  'dot(x[6], x[6])',
  'dot(x[5], x[5])',
  'vdot(x[5], x[5])',
  'outer(x[6], x[5])',
  'linear(x[5,6,7], x[9,7], x[9])',
  'linear(x[6,5], x[7,5])',
  'linear(x[5], x[6,5], x[6])',
  'matmul(x[6,5], x[5,7])',
  'matmul(x[5], x[5])',
  'matmul(x[6,5], x[5])',
  'matmul(x[5], x[5,6])',
  'matmul(x[5,6,7], x[7,6])',
  'matmul(x[5,1,6,7], x[3,7,5])',
  '_grouped_mm(bf16[6,8,16], bf16[6,16,8])',
  'convolution(x[6,3,9,9], x[6,3,3,3], x[6], [1,1], [1,1], [1,1], False, [0,0], 1)',
  'convolution(x[5,6,7,7], x[6,1,3,3], None, [2,2], [0,0], [1,1], False, [0,0], 6)',
  'convolution(x[5,6,7], x[9,2,3], x[9], [1], [1], [1], False, [0], 3)',
  'convolution(x[5,6,7], x[12,3,3], x[12], [1], [2], [2], False, [0], 2)',
  'convolution(x[6,5,7,7], x[5,6,3,3], x[6], [2,2], [1,1], [1,1], True, [1,1], 1)',
  'convolution(x[5,6,5,5,5], x[6,6,1,1,1], None, [1,1,1], [0,0,0], [1,1,1], False, [0,0,0], 1)',
  'conv1d(x[5,6,7], x[9,6,3], x[9], [2], [1])',
  'conv2d(x[6,3,9,9], x[6,3,3,3], x[6], [1,1], [1,1])',
  'conv2d(x[5,6,7,7], x[6,2,3,3], None, [1,1], [0,0], [1,1], 3)',
  'conv3d(x[5,6,5,5,5], x[6,6,3,3,3], x[6])',
  'convolution_backward(x[6,6,9,9], x[6,3,9,9], x[6,3,3,3], [6], [1,1], [1,1], [1,1], False, ' +
    '[0,0], 1, [True,True,True])',
  'convolution_backward(x[5,6,5], x[5,7,7], x[6,7,3], [6], [1], [0], [1], False, [0], 1, ' +
    '[True,True,True])',
  'convolution_backward(x[5,6,5], x[5,7,7], x[6,7,3], [0], [1], [0], [1], False, [0], 1, ' +
    '[False,True,False])',
  'convolution_backward(x[5,6,5,5], x[5,6,7,7], x[6,1,3,3], None, [1,1], [0,0], [1,1], ' +
    'False, [0,0], 6, [True,True,False])',
  'max_pool2d(x[5,6,8,8], [2,2])',
  'max_pool2d(x[6,8,7], [3,3], [2,2], [1,1], [1,1], True)',
  'max_pool2d_with_indices(x[5,6,8,8], [2,2], [2,2])',
  'max_pool2d_with_indices(x[6,5,7,7], [3,3], [2,2], [1,1])',
  'max_pool2d_with_indices_backward(x[5,6,4,4], x[5,6,8,8], [2,2], [2,2], [0,0], [1,1], ' +
    'False, index64[5,6,4,4])',
  'avg_pool2d(x[5,6,8,8], [2,2])',
  'avg_pool2d(x[6,5,7,7], [3,3], [2,2], [1,1], True, False)',
  'avg_pool2d(x[6,7,7], [3,3], [2,2], [1,1], False, True, 5)',
  'avg_pool2d_backward(x[5,6,4,4], x[5,6,8,8], [2,2], [2,2], [0,0], False, True, None)',
  'adaptive_avg_pool2d(x[5,6,7,7], [1,1])',
  'adaptive_avg_pool2d(x[5,6,7,7], [3,2])',
  '_adaptive_avg_pool2d(x[6,5,8,8], [2,2])',
  '_adaptive_avg_pool2d(x[6,8,8], [1,1])',
  '_adaptive_avg_pool2d_backward(x[5,6,2,2], x[5,6,8,8])',
  '_scaled_dot_product_flash_attention_for_cpu(x[5,6,7,4], x[5,6,9,4], x[5,6,9,4])',
  '_scaled_dot_product_flash_attention_for_cpu(x[6,5,7,4], x[6,5,7,4], x[6,5,7,4], 0.0, True)',
  '_scaled_dot_product_flash_attention_for_cpu(x[6,5,7,4], x[6,5,9,4], x[6,5,9,4], ' +
    'attn_mask=x[6,1,7,9], scale=0.25)',
  '_scaled_dot_product_flash_attention_for_cpu(x[5,6,7,4], x[5,6,9,4], x[5,6,9,4], ' +
    'attn_mask=x[7,9])',
  '_scaled_dot_product_flash_attention_for_cpu_backward(x[5,6,7,4], x[5,6,7,4], x[5,6,9,4], ' +
    'x[5,6,9,4], x[5,6,7,4], large[5,6,7], 0.0, False)',
  '_scaled_dot_product_flash_attention_for_cpu_backward(x[6,5,7,4], x[6,5,7,4], x[6,5,7,4], ' +
    'x[6,5,7,4], x[6,5,7,4], large[6,5,7], 0.0, True, scale=0.5)',
  '_scaled_dot_product_flash_attention_for_cpu_backward(x[6,5,7,4], x[6,5,7,4], x[6,5,9,4], ' +
    'x[6,5,9,4], x[6,5,7,4], large[6,5,7], 0.0, False, attn_mask=x[6,1,7,9])',
  '_scaled_dot_product_flash_attention_for_cpu(x[2,6,7,4], x[2,2,7,4], x[2,2,7,4], 0.0, True)',
  '_scaled_dot_product_flash_attention_for_cpu_backward(x[2,6,7,4], x[2,6,7,4], x[2,2,7,4], ' +
    'x[2,2,7,4], x[2,6,7,4], large[2,6,7], 0.0, True)',
  '_scaled_dot_product_flash_attention_for_cpu_backward(x[2,12,7,4], x[2,12,7,4], x[2,2,5,4], ' +
    'x[2,2,5,4], x[2,12,7,4], large[2,12,7], 0.0, False, attn_mask=x[1,12,7,5])',
  'scaled_dot_product_attention(x[5,6,7,4], x[5,6,9,4], x[5,6,9,4])',
  'scaled_dot_product_attention(x[6,5,7,4], x[6,5,7,4], x[6,5,7,4], None, 0.0, True)',
  'scaled_dot_product_attention(x[6,5,7,4], x[6,5,9,4], x[6,5,9,3], x[7,9], scale=0.25)',
  'scaled_dot_product_attention(x[5,12,7,4], x[5,6,9,4], x[5,6,9,4], enable_gqa=True)',
  'scaled_dot_product_attention(x[2,6,7,4], x[2,1,7,4], x[2,1,7,3], None, 0.0, True, ' +
    'enable_gqa=True)',
];
