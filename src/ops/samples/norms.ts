/** Normalisations: statistics per row, per group of channels, per channel. */
export const norms: readonly string[] = [
  'native_layer_norm(x[6,5,7], [7], x[7], x[7], 1e-5)',
  'native_layer_norm(x[5,6,7], [6, 7], None, None, 1e-5)',
  'native_layer_norm(x[5,6], [6], x[6], None, 1e-5)',
  'native_layer_norm_backward(x[6,5,7], x[6,5,7], [7], x[6,5,1], pos[6,5,1], x[7], x[7], ' +
    '[True,True,True])',
  'native_layer_norm_backward(x[5,6], x[5,6], [6], x[5,1], pos[5,1], x[6], None, ' +
    '[True,True,False])',
  'native_layer_norm_backward(x[5,6], x[5,6], [6], x[5,1], pos[5,1], None, None, ' +
    '[True,False,False])',
  'layer_norm(x[6,5,7], [7], x[7], x[7])',
  'layer_norm(x[5,6], [6])',
  '_fused_rms_norm(x[6,5,7], [7], x[7], 1e-5)',
  '_fused_rms_norm(x[5,6], [6], None, None)',
  '_fused_rms_norm_backward(x[6,5,7], x[6,5,7], [7], pos[6,5,1], x[7], [True,True])',
  '_fused_rms_norm_backward(x[5,6], x[5,6], [6], pos[5,1], None, [True,False])',
  'rms_norm(x[6,5,7], [7], x[7], 1e-5)',
  'rms_norm(x[5,6], [6])',
  'native_group_norm(x[5,6,7], x[6], x[6], 5, 6, 7, 3, 1e-5)',
  'native_group_norm(x[6,12,5], None, None, 6, 12, 5, 6, 1e-5)',
  'native_group_norm(bf16[5,6,7], f32[6], f32[6], 5, 6, 7, 3, 1e-5)',
  'group_norm(x[5,6,7], 3, x[6], x[6])',
  'group_norm(x[6,12,5,2], 6)',
  'native_group_norm_backward(x[5,6,7], x[5,6,7], x[5,3], pos[5,3], x[6], 5, 6, 7, 3, ' +
    '[True,True,True])',
  'native_group_norm_backward(x[6,12,5], x[6,12,5], x[6,6], pos[6,6], x[12], 6, 12, 5, 6, ' +
    '[True,True,True])',
  'native_group_norm_backward(x[6,12,5], x[6,12,5], x[6,6], pos[6,6], None, 6, 12, 5, 6, ' +
    '[True,False,False])',
  'batch_norm(x[6,5,7], x[5], x[5], x[5], pos[5], True, 0.1, 1e-5, False)',
  'batch_norm(x[5,6,7], x[6], x[6], x[6], pos[6], False, 0.1, 1e-5, False)',
  'native_batch_norm(x[6,5,7], x[5], x[5], x[5], pos[5], True, 0.1, 1e-5)',
  'native_batch_norm(x[5,6,7], None, None, x[6], pos[6], False, 0.1, 1e-5)',
  '_native_batch_norm_legit(x[6,5,7], x[5], x[5], x[5], pos[5], True, 0.1, 1e-5)',
  '_native_batch_norm_legit(x[5,6,7], x[6], x[6], x[6], pos[6], False, 0.1, 1e-5)',
  '_native_batch_norm_legit.no_stats(x[5,6,7], x[6], x[6], True, 0.1, 1e-5)',
  '_native_batch_norm_legit_no_training(x[5,6,7], x[6], x[6], x[6], pos[6], 0.1, 1e-5)',
  '_native_batch_norm_legit_functional(x[6,5,7], x[5], x[5], x[5], pos[5], True, 0.1, 1e-5)',
  '_native_batch_norm_legit_functional(x[5,6,7], x[6], x[6], x[6], pos[6], False, 0.1, 1e-5)',
  '_batch_norm_with_update_functional(x[6,5,7], x[5], x[5], x[5], pos[5], 0.1, 1e-5)',
  'native_batch_norm_backward(x[6,5,7], x[6,5,7], x[5], x[5], pos[5], x[5], pos[5], True, ' +
    '1e-5, [True,True,True])',
  'native_batch_norm_backward(x[5,6,7], x[5,6,7], x[6], x[6], pos[6], x[6], pos[6], False, ' +
    '1e-5, [True,True,True])',
  'native_batch_norm_backward(x[5,6,7], x[5,6,7], x[6], x[6], pos[6], x[6], pos[6], False, ' +
    '1e-5, [True,False,False])',
];
