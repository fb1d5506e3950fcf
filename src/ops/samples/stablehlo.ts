/**
 * Sample calls of the StableHLO vocabulary. Sizes are even on 2 and 3 ranks (6) and uneven on both
 * (5, 7), as for ATen.
 */

import type { OperatorRecord } from '../record/record.ts';

/** How operands are drawn where the domain is not the whole line. */
const DOMAIN: Readonly<Record<string, string>> = {
  log: 'pos',
  log_plus_one: 'pos',
  sqrt: 'pos',
  rsqrt: 'pos',
  lgamma: 'pos',
  digamma: 'pos',
  acos: 'unit',
  asin: 'unit',
  atanh: 'unit',
  acosh: 'above',
  power: 'pos',
  broadcast_power: 'pos',
  divide: 'pos',
  broadcast_divide: 'pos',
  remainder: 'pos',
  broadcast_remainder: 'pos',
  maximum: 'few',
  minimum: 'few',
  popcnt: 'index9',
  count_leading_zeros: 'index9',
  shift_left: 'index5',
  shift_right_arithmetic: 'index5',
  shift_right_logical: 'index5',
  not: 'bits',
  erf_inv: 'unit',
};
const LOGICAL = /(^|_)(and|or|xor|not)$/;

/** Elementwise records: equal shapes, and broadcasting where the operator does it. */
export function stablehloPointwise(record: OperatorRecord): string[] {
  const short = record.name.split('.')[1];
  const rest = EXTRA[short];
  if (rest !== undefined) return rest.map((args) => `${record.name}(${args})`);
  const word = DOMAIN[short] ?? (LOGICAL.test(short) ? 'bits' : 'x');
  const operands = record.schema.filter((s) => s.type === 'Tensor').length;
  const shapes = (a: string, b: string): string =>
    [a, b]
      .slice(0, operands)
      .map((shape) => `${word}[${shape}]`)
      .join(', ');
  const texts = [`${record.name}(${shapes('6,5', '6,5')})`];
  if (short.startsWith('broadcast_'))
    texts.push(`${record.name}(${shapes('5,6', '6')})`, `${record.name}(${shapes('6,5', '6,1')})`);
  if (LOGICAL.test(short))
    texts.push(`${record.name}(${shapes('6,5', '6,5').replaceAll('bits', 'index9')})`);
  return texts;
}

const EXTRA: Readonly<Record<string, readonly string[]>> = {
  // A body has no text.
  map: [],
  reduce_precision: ['x[6,5], exponent_bits=11, mantissa_bits=52'],
  compare: [
    ...['LT', 'GE', 'EQ', 'NE'].map((d) => `few[6,5], few[6,5], comparison_direction='${d}'`),
    "x[5,6], x[5,6], comparison_direction='GT', compare_type='FLOAT'",
  ],
  broadcast_compare: ["few[6,5], few[5], comparison_direction='LE'"],
  select: ['bits[6,5], x[6,5], x[6,5]', 'bits[], x[5,6], x[5,6]'],
  clamp: ['x[6,5], x[6,5], x[6,5]', 'few[], x[6,5], pos[]'],
  convert: [
    'x[6,5], dtype=f32',
    'x[6,5], dtype=i64',
    'bits[6,5], dtype=f64',
    'index5[6,5], dtype=b8',
  ],
};

export const stablehloSamples: readonly string[] = [
  'stablehlo.dot_general(x[6,5], x[5,7], lhs_contracting_dimensions=[1], ' +
    'rhs_contracting_dimensions=[0])',
  'stablehlo.dot_general(x[5,6,7], x[5,7,9], lhs_batching_dimensions=[0], ' +
    'rhs_batching_dimensions=[0], lhs_contracting_dimensions=[2], ' +
    'rhs_contracting_dimensions=[1])',
  'stablehlo.dot(x[5,6], x[6,7])',
  'stablehlo.dot(x[6], x[6])',
  "stablehlo.einsum(x[5,6], x[6,7], einsum_config='ij,jk->ik')",
  'stablehlo.convolution(x[6,3,7,7], x[6,3,3,3], input_dimensions=[0,1,2,3], ' +
    'kernel_dimensions=[1,0,2,3], output_dimensions=[0,1,2,3])',
  'stablehlo.convolution(x[5,6,7], x[6,2,3], input_dimensions=[0,1,2], ' +
    'kernel_dimensions=[1,0,2], output_dimensions=[0,1,2], feature_group_count=3)',
  'stablehlo.constant(2.5, dtype=f64, shape=[5,6])',
  'stablehlo.iota(0, dtype=i64, shape=[5,6])',
  'stablehlo.iota(1, dtype=i64, shape=[5,6])',
  'stablehlo.broadcast_in_dim(x[6,5], broadcast_dimensions=[0,2], shape=[6,7,5])',
  'stablehlo.broadcast_in_dim(x[], broadcast_dimensions=[], shape=[5,6])',
  'stablehlo.broadcast_in_dim(x[1,6], broadcast_dimensions=[0,1], shape=[5,6])',
  'stablehlo.reshape(x[6,5], shape=[30])',
  'stablehlo.reshape(x[5,12], shape=[5,4,3])',
  'stablehlo.transpose(x[5,6,7], permutation=[2,0,1])',
  'stablehlo.slice(x[5,9], start_indices=[0,2], limit_indices=[5,7])',
  'stablehlo.slice(x[5,12], start_indices=[0,0], limit_indices=[5,12], strides=[1,2])',
  'stablehlo.pad(x[5,6], x[], edge_padding_low=[0,1], edge_padding_high=[0,2], ' +
    'interior_padding=[0,1])',
  'stablehlo.concatenate([x[5,6], x[5,7]], dimension=1)',
  'stablehlo.reverse(x[5,6,7], dimensions=[1])',
  'stablehlo.dynamic_slice(x[5,9], [index1[], index5[]], slice_sizes=[5,4])',
  'stablehlo.dynamic_slice(x[6,5], [index6[], index1[]], slice_sizes=[1,5])',
  'stablehlo.dynamic_update_slice(x[5,9], x[5,4], [index1[], index5[]])',
  'stablehlo.dynamic_update_slice(x[6,5], x[1,5], [index6[], index1[]])',
  'stablehlo.optimization_barrier([x[5,6], x[7]])',
  'sdy.sharding_constraint(x[5,6])',
  'sdy.reshard(x[5,6])',
  'stablehlo.get_dimension_size(x[5,6], dimension=1)',
  ...['add', 'maximum', 'minimum', 'multiply'].map(
    (reducer) => `stablehlo.reduce([x[5,6,7]], [x[]], dimensions=[1], reducer='${reducer}')`,
  ),
  "stablehlo.reduce([bits[6,5]], [bits[]], dimensions=[0], reducer='or')",
  "stablehlo.reduce([bits[6,5]], [bits[]], dimensions=[0], reducer='and')",
  'stablehlo.reduce_window([x[5,6,8]], [x[]], window_dimensions=[1,1,2], ' +
    "window_strides=[1,1,2], reducer='maximum')",
  'stablehlo.reduce_window([x[5,6,8]], [x[]], window_dimensions=[1,1,2], ' +
    "window_strides=[1,1,2], reducer='add')",
  'chlo.top_k(shuffled[5,6], k=3)',
  'stablehlo.sort([few[5,6], x[5,6]], dimension=0, is_stable=True)',
  'stablehlo.sort([few[6,5], few[6,5], x[6,5]], dimension=-1, is_stable=True, num_keys=2)',
  'stablehlo.cholesky(definite3[6,3,3], lower=True)',
  'stablehlo.cholesky(definite4[5,4,4])',
  'stablehlo.triangular_solve(definite4[5,4,4], x[5,4,6])',
  'stablehlo.triangular_solve(definite3[6,3,3], x[6,5,3], left_side=False, lower=False, ' +
    'unit_diagonal=True)',
  'stablehlo.bitcast_convert(f32[5,6], dtype=i32, shape=[5,6])',
  'stablehlo.gather(x[7,5], index7[6,1], offset_dims=[1], collapsed_slice_dims=[0], ' +
    'start_index_map=[0], index_vector_dim=1, slice_sizes=[1,5])',
  'stablehlo.gather(x[5,7], index7[5,6,1], operand_batching_dims=[0], ' +
    'start_indices_batching_dims=[0], collapsed_slice_dims=[1], start_index_map=[1], ' +
    'index_vector_dim=2, slice_sizes=[1,1])',
  ...['add', 'maximum', 'second'].map(
    (reducer) =>
      `stablehlo.scatter([x[7,5]], ${reducer === 'second' ? 'distinct7' : 'index7'}[6,1], ` +
      '[x[6,5]], update_window_dims=[1], inserted_window_dims=[0], ' +
      `scatter_dims_to_operand_dims=[0], index_vector_dim=1, reducer='${reducer}')`,
  ),
  'stablehlo.batch_norm_training(x[5,6,7], x[6], x[6], epsilon=1e-5, feature_index=1)',
  'stablehlo.batch_norm_inference(x[5,6,7], x[6], x[6], x[6], pos[6], epsilon=1e-5, ' +
    'feature_index=1)',
  'stablehlo.batch_norm_grad(x[5,6,7], x[6], x[6], pos[6], x[5,6,7], epsilon=1e-5, ' +
    'feature_index=1)',
  "stablehlo.rng(x[], pos[], shape=[5,6], rng_distribution='NORMAL', dtype=f64)",
];
