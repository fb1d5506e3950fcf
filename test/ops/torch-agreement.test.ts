import { describe, expect, test } from 'vitest';

import type { Arg, DType, TensorType, ValueType } from '../../src/graph/types.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { inferCall } from '../../src/ops/record/infer.ts';

/**
 * Names and types in which records once differed from PyTorch 2.13 (found by `npm run
 * test:engines`).
 */
const operators = builtinOperators();

function tensor(text: string): TensorType {
  const [dtype, sizes] = text.slice(0, -1).split('[');
  return {
    kind: 'tensor',
    dtype: dtype as DType,
    shape: sizes === '' ? [] : sizes.split(',').map(Number),
  };
}

const x = (name: string): Arg => ({ kind: 'value', name });
const text = (type: ValueType | undefined): string =>
  type?.kind === 'tensor'
    ? `${type.dtype}[${type.shape.map(String).join()}]`
    : type?.kind === 'tuple'
      ? type.items.map(text).join(' ')
      : '-';
const infer = (
  target: string,
  args: readonly Arg[],
  kwargs: Readonly<Record<string, Arg>> = {},
): string => text(inferCall(operators, { target: `aten.${target}`, args, kwargs }, tensor));

describe('records agree with PyTorch 2.13', () => {
  test.each([
    'pow_.Scalar',
    '__iand__.Tensor',
    '__ior__.Scalar',
    '__ixor__.Tensor',
    'bitwise_left_shift_.Tensor_Scalar',
  ])('aten.%s is known under that name', (name) => {
    expect(infer(name, [x('i64[4]'), name.includes('Scalar') ? 2 : x('i64[4]')])).toBe('i64[4]');
  });

  test('heaviside names its second argument values; to.dtype takes the memory format by position', () => {
    expect(infer('heaviside.default', [x('f32[4,1]')], { values: x('f32[3]') })).toBe('f32[4,3]');
    const args = [x('f32[4]'), { kind: 'dtype', dtype: 'bf16' }, false, false, null] as const;
    expect(infer('to.dtype', args)).toBe('bf16[4]');
  });

  test('the square of bools is an integer', () => {
    expect(infer('square.default', [x('b8[4]')])).toBe('i64[4]');
    expect(infer('square_.default', [x('f16[4]')])).toBe('f16[4]');
  });

  test('attention: float64 keeps a float64 logsumexp; the cuDNN one has a last dim of size 1 and no debug mask', () => {
    const q = (dtype: string): Arg => x(`${dtype}[2,4,6,8]`);
    const cpu = '_scaled_dot_product_flash_attention_for_cpu.default';
    expect(infer(cpu, [q('f64'), q('f64'), q('f64')])).toBe('f64[2,4,6,8] f64[2,4,6]');
    expect(infer(cpu, [q('bf16'), q('bf16'), q('bf16')])).toBe('bf16[2,4,6,8] f32[2,4,6]');
    expect(
      infer('_scaled_dot_product_cudnn_attention.default', [
        q('bf16'),
        q('bf16'),
        q('bf16'),
        null,
        true,
      ]),
    ).toBe('bf16[2,4,6,8] f32[2,4,6,1] - - - - i64[] i64[] -');
    expect(
      infer('_scaled_dot_product_flash_attention.default', [q('bf16'), q('bf16'), q('bf16')]),
    ).toBe('bf16[2,4,6,8] f32[2,4,6] - - - - u64[2] u64[] bf16[0]');
  });

  test('group norm keeps the statistics of 16-bit input in 16 bits, unless its weights are f32', () => {
    const name = 'native_group_norm.default';
    const eps = { kind: 'float', value: 1e-5 } as const;
    const sizes = [2, 6, 5, 3, eps] as const;
    expect(infer(name, [x('bf16[2,6,5]'), null, null, ...sizes])).toBe(
      'bf16[2,6,5] bf16[2,3] bf16[2,3]',
    );
    expect(infer(name, [x('bf16[2,6,5]'), x('f32[6]'), x('f32[6]'), ...sizes])).toBe(
      'bf16[2,6,5] f32[2,3] f32[2,3]',
    );
  });
});
