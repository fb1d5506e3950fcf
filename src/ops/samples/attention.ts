/**
 * Fused attention of GPUs and grouped products by offsets: our kernels run them, PyTorch on a CPU
 * does not.
 */
export const gpuAttention: readonly string[] = [
  '_scaled_dot_product_flash_attention(x[5,6,7,4], x[5,6,9,4], x[5,6,9,4])',
  '_scaled_dot_product_flash_attention(x[6,5,7,4], x[6,5,7,4], x[6,5,7,4], 0.0, True)',
  '_scaled_dot_product_flash_attention(x[2,6,7,4], x[2,3,9,4], x[2,3,9,4])',
  '_scaled_dot_product_flash_attention_backward(x[2,6,7,4], x[2,6,7,4], x[2,3,9,4], ' +
    'x[2,3,9,4], x[2,6,7,4], large[2,6,7], None, None, 7, 9, 0.0, False, seven[2], seven[])',
  '_scaled_dot_product_flash_attention_backward(x[5,6,7,4], x[5,6,7,4], x[5,6,9,4], ' +
    'x[5,6,9,4], x[5,6,7,4], large[5,6,7], None, None, 7, 9, 0.0, False, seven[2], seven[])',
  '_scaled_dot_product_efficient_attention(x[5,6,7,4], x[5,6,9,4], x[5,6,9,3], None, False)',
  '_scaled_dot_product_efficient_attention(x[2,3,64,4], x[2,3,5,4], x[2,3,5,4], None, True)',
  '_scaled_dot_product_efficient_attention(x[3,2,7,4], x[3,2,5,4], x[3,2,5,4], x[3,2,7,5], False)',
  '_scaled_dot_product_efficient_attention_backward(x[2,3,64,4], x[2,3,64,4], x[2,3,5,4], ' +
    'x[2,3,5,4], None, x[2,3,64,4], large[2,3,64], seven[], seven[], 0.0, ' +
    '[True,True,True,False])',
  '_scaled_dot_product_efficient_attention_backward(x[2,4,7,4], x[2,4,7,4], x[2,1,5,4], ' +
    'x[2,1,5,4], x[4,7,5], x[2,4,7,4], large[2,4,32], seven[], seven[], 0.0, ' +
    '[True,True,True,True])',
  '_scaled_dot_product_cudnn_attention(x[5,6,7,4], x[5,6,9,4], x[5,6,9,3], None, True)',
  '_scaled_dot_product_cudnn_attention_backward(x[5,6,7,4], x[5,6,7,4], x[5,6,9,4], ' +
    'x[5,6,9,4], x[5,6,7,4], large[5,6,7], seven[], seven[], None, None, None, 7, 9, 0.0, ' +
    'False)',
];
