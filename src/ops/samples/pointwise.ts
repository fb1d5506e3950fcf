/** Writes sample calls for elementwise operators: equal shapes, broadcasting, numbers. */

import type { OperatorRecord } from '../record/record.ts';

/** How the values of an operator's tensors are drawn where its domain is not the whole line. */
const DOMAIN: Readonly<Record<string, string>> = {
  log: 'pos',
  log2: 'pos',
  log10: 'pos',
  log1p: 'pos',
  sqrt: 'pos',
  rsqrt: 'pos',
  lgamma: 'pos',
  digamma: 'pos',
  asin: 'unit',
  acos: 'unit',
  atanh: 'unit',
  acosh: 'above',
  pow: 'pos',
  xlogy: 'pos',
  special_xlog1py: 'pos',
  eq: 'few',
  ne: 'few',
  lt: 'few',
  le: 'few',
  gt: 'few',
  ge: 'few',
  logical_not: 'few',
  logical_and: 'few',
  logical_or: 'few',
  logical_xor: 'few',
  heaviside: 'few',
  maximum: 'few',
  minimum: 'few',
  bitwise_not: 'i64',
  bitwise_left_shift: 'i64',
  bitwise_right_shift: 'i64',
  sigmoid_backward: 'unit',
  tanh_backward: 'unit',
  special_modified_bessel_k0: 'pos',
  special_modified_bessel_k1: 'pos',
  special_scaled_modified_bessel_k0: 'pos',
  special_scaled_modified_bessel_k1: 'pos',
};
const INTEGERS = /^(bitwise_|__)/;

/**
 * Samples that the schema alone does not give: arguments with a meaning of their own. They are
 * listed by name with overload, in-place forms too.
 */
const OWN: Readonly<Record<string, readonly string[]>> = {
  'nan_to_num.default': ['x[6,5]', 'x[6,5], 1.0, 2.0, -2.0'],
  'gelu.default': ['x[6,5]', "x[6,5], approximate='tanh'"],
  'gelu_backward.default': ['x[6,5], x[6,5]', "x[5], x[5], approximate='tanh'"],
  'clamp.default': ['x[6,5], -0.5, 0.5', 'x[6,5], None, 1', 'x[6,5], 0'],
  'clamp.Tensor': ['x[6,5], x[6,5]', 'x[6,5], None, x[5]', 'x[6,5], few[6,1], pos[6,5]'],
  'hardtanh.default': ['x[6,5]', 'x[6,5], -0.5, 0.5'],
  'leaky_relu.default': ['x[6,5]', 'x[6,5], 0.5', 'x[6,5], -0.5'],
  'threshold.default': ['x[6,5], 0.5, 0.25', 'x[6,5], 0.5, 9', 'x[6,5], 0, 0'],
  'pow.Tensor_Scalar': ['x[6,5], 2', 'x[6,5], 3', 'x[6,5], 1', 'pos[6,5], -1.5', 'pos[6,5], 0.5'],
  'pow_.Scalar': ['x[6,5], 2', 'x[6,5], 3', 'x[6,5], 1', 'pos[6,5], -1.5'],
  'pow.Scalar': ['2, x[6,5]', '0.5, x[6,5]', '1, x[6,5]'],
  'add.Tensor': ['x[6,5], x[6,5], alpha=-2', 'x[6,5], x[5], alpha=0.5', 'x[6,5], 0'],
  'add.Scalar': ['x[6,5], 1.5', 'x[6,5], 0', 'x[6,5], 2, -3'],
  'sub.Tensor': ['x[6,5], x[6,5], alpha=-2', 'x[6,5], x[5], alpha=0.5'],
  'sub.Scalar': ['x[6,5], 1.5', 'x[6,5], 2, -3'],
  'rsub.Tensor': ['x[6,5], x[6,5], alpha=-2', 'x[6,5], x[5], alpha=0.5'],
  'rsub.Scalar': ['x[6,5], 1.5', 'x[6,5], 2, -3'],
  'mul.Scalar': ['x[6,5], 1.5', 'x[6,5], -2', 'x[6,5], 0'],
  'div.Scalar': ['x[6,5], 1.5', 'x[6,5], -4'],
  'div.Tensor_mode': [
    "x[6,5], pos[6,5], rounding_mode='floor'",
    "x[6,5], pos[5], rounding_mode='trunc'",
    'x[6,5], pos[6,1], rounding_mode=None',
  ],
  'div.Scalar_mode': ["x[6,5], 0.5, rounding_mode='floor'", 'x[6,5], -2, rounding_mode=None'],
  'where.self': ['bits[6,5], x[6,5], x[6,5]', 'bits[5], x[6,1], x[6,5]', 'bits[6,1], x[5], x[]'],
  'masked_fill.Scalar': ['x[6,5], bits[6,5], 0', 'x[6,5], bits[5], -9', 'x[6,5], bits[6,1], 1.5'],
  'fill.Tensor': ['x[6,5], x[]', 'i64[5], x[]', 'i64[5], i64[]'],
  'masked_fill.Tensor': ['x[6,5], bits[6,5], x[]', 'x[6,5], bits[5], x[]'],
  'lerp.Scalar': ['x[6,5], x[6,5], 0.25', 'x[6,5], x[5], 1.5'],
  'addcmul.default': ['x[6,5], x[6,5], x[6,5]', 'x[6,5], x[5], x[6,1], value=-0.5'],
  'addcdiv.default': ['x[6,5], x[6,5], pos[6,5]', 'x[6,5], x[5], pos[6,1], value=-0.5'],
  'threshold_backward.default': ['x[6,5], x[6,5], 0', 'x[6,5], x[6,5], 0.5'],
  'hardtanh_backward.default': ['x[6,5], x[6,5], -1, 1'],
  'leaky_relu_backward.default': ['x[6,5], x[6,5], 0.1, False'],
  'elu_backward.default': [
    'x[6,5], 1.0, 1.0, 1.0, False, x[6,5]',
    'x[6,5], 1.0, 1.5, 0.5, False, x[6,5]',
  ],
  'softplus_backward.default': ['x[6,5], x[6,5], 1, 20', 'x[6,5], x[6,5], 3.0, 0.5'],
  '_to_copy.default': [
    'x[6,5]',
    'x[6,5], dtype=f32',
    'x[6,5], dtype=i64',
    'bits[6,5], dtype=f64',
    'i64[6,5], dtype=b8',
  ],
  'to.dtype': ['x[6,5], f64', 'x[6,5], bf16', 'x[6,5], i32', 'bits[6,5], f32'],
  'to.device': ["x[6,5], 'cpu', f64", "x[6,5], 'cpu', bf16"],
  'to.dtype_layout': ['x[6,5], dtype=f16', 'x[6,5]'],
  'convert_element_type.default': ['x[6,5], f32', 'x[6,5], i64', 'bits[6,5], f64'],
  'type_as.default': ['x[6,5], f32[3]', 'i64[6,5], x[]'],
  'copy.default': ['x[6,5], x[6,5]', 'x[6,5], x[5]', 'f32[6,5], x[6,1]'],
  'copy_.default': ['x[6,5], x[6,5]', 'x[6,5], x[5]', 'f32[6,5], x[6,1]'],
  'contiguous.default': ['x[6,5]'],
  'clone.default': ['x[6,5]', 'bits[6,5]', 'i64[6,5]'],
  'logical_not.default': ['few[6,5]', 'bits[6,5]', 'i64[6,5]'],
};

/** Operators whose samples are listed with their families. */
export const ELSEWHERE =
  /_loss_backward$|^binary_cross_entropy_backward$|^native_dropout_backward$/;

/**
 * Texts of calls of one elementwise record: equal shapes, broadcasting both ways, numbers in place
 * of tensors.
 */
export function pointwiseSamples(record: OperatorRecord): string[] {
  const name = record.name.replace('aten.', '');
  const short = name.replace('prims.', '').split('.')[0];
  const bare = short.replace(/^__i?(\w+)__$/, '__$1__').replace(/([^_])_$/, '$1');
  const inPlace = bare !== short;
  const call = (args: string): string => `${name}(${args})`;
  const own = OWN[name.replace('prims.', '')] ?? OWN[`${bare}.${name.split('.').at(-1) ?? ''}`];
  const positional = record.schema.filter((s) => !s.kwargOnly && s.required);
  const word = DOMAIN[bare] ?? (INTEGERS.test(bare) ? 'i64' : 'x');
  const tensor = (shape: string): string => `${word}[${shape}]`;
  const fill = (first: string, rest: (k: number) => string): string => {
    let k = 0;
    return positional
      .map((s) => (s.type.startsWith('Tensor') ? tensor(k++ === 0 ? first : rest(k)) : scalar()))
      .join(', ');
  };
  const scalar = (): string => (INTEGERS.test(bare) ? '2' : '1.5');
  const tensors = positional.filter((s) => s.type.startsWith('Tensor')).length;
  const texts = own === undefined ? [call(fill('6,5', () => '6,5'))] : own.map(call);
  if (record.schema.some((s) => s.kwargOnly && s.required)) return texts;
  if (/_backward$|^where|^copy|^type_as|^masked_fill|^fill/.test(bare)) return texts;
  if (tensors >= 2) {
    texts.push(call(fill('6,5', (k) => (k === 2 ? '5' : '6,1'))));
    texts.push(call(fill('5,6', () => '')));
    if (!inPlace) texts.push(call(fill('6,1', (k) => (k === 2 ? '3,1,5' : '5'))));
  }
  if (INTEGERS.test(bare) && !/shift/.test(bare))
    texts.push(texts[0].replaceAll('i64[', 'bits[').replace(', 2)', ', True)'));
  const second = positional[1];
  // PyTorch takes a number for the tensor of these only, as Python does it: a number is a zero-dim
  // tensor.
  if (second?.type === 'TensorOrScalar' && /^(add|sub|mul|div|floor_divide)$/.test(bare)) {
    const number = '1.5';
    texts.push(call(`${tensor('5,6')}, ${number}`), call(`${tensor('5,6')}, 2`));
    if (positional[0].type === 'TensorOrScalar' && !inPlace)
      texts.push(call(`${number}, ${tensor('5,6')}`));
  }
  return [...new Set(texts)];
}
