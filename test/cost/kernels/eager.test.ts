import { expect, test } from 'vitest';

import { eagerWork } from '../../../src/cost/kernels/eager.ts';
import type { Arg, DType } from '../../../src/graph/types.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { bindCall, withOutputs } from '../../../src/ops/record/context.ts';
import type { TensorMeta } from '../../../src/ops/record/record.ts';

const table = builtinOperators();

/** Work of a call whose tensors are given as `bf16[8,4]`. */
function work(
  name: string,
  args: readonly unknown[],
  kwargs: Record<string, Arg> = {},
): ReturnType<typeof eagerWork> {
  const record = table.get(name);
  if (record === undefined) throw new Error(`no operator ${name}`);
  const metas = new Map<string, TensorMeta>();
  const given = args.map((value): Arg => {
    const match = typeof value === 'string' ? /^(\w+)\[([\d,]*)\]$/.exec(value) : null;
    if (match === null) return value as Arg;
    const name = `x${metas.size}`;
    const shape = match[2] === '' ? [] : match[2].split(',').map(Number);
    metas.set(name, { dtype: match[1] as DType, shape });
    return { kind: 'value', name };
  });
  const call = bindCall(record, given, kwargs, (name) => metas.get(name) as TensorMeta);
  return eagerWork(record, withOutputs(call, record.infer(call)));
}
const MIB = 2 ** 20;

test('softmax reads rows that no block holds three times, and others once', () => {
  expect(work('aten._log_softmax.default', ['f32[64,16384]', 1, false])).toEqual({
    bytes: 4 * 4 * MIB,
    kernels: 1,
  });
  expect(work('aten._log_softmax.default', ['f32[128,8192]', 1, false])).toEqual({
    bytes: 2 * 4 * MIB,
    kernels: 1,
  });
  expect(work('aten._softmax.default', ['bf16[128,16384]', -1, false])).toEqual({
    bytes: 2 * 4 * MIB,
    kernels: 1,
  });
  expect(work('aten._log_softmax.default', ['f32[16384,64]', 0, false])).toEqual({
    bytes: 2 * 4 * MIB,
    kernels: 1,
  });
});

test('the backward pass of softmax multiplies gradient and result first; that of log softmax adds long rows up and reads them again', () => {
  const dtype: Arg = { kind: 'dtype', dtype: 'f32' };
  const log = 'aten._log_softmax_backward_data.default';
  expect(work(log, ['f32[64,16384]', 'f32[64,16384]', 1, dtype])).toEqual({
    bytes: 4 * 4 * MIB,
    kernels: 1,
  });
  expect(work(log, ['f32[128,8192]', 'f32[128,8192]', 1, dtype])).toEqual({
    bytes: 3 * 4 * MIB,
    kernels: 1,
  });
  const plain = 'aten._softmax_backward_data.default';
  expect(work(plain, ['f32[128,8192]', 'f32[128,8192]', 1, dtype])).toEqual({
    bytes: 6 * 4 * MIB,
    kernels: 2,
  });
});

test('gradients of a norm with weights read gradient and input twice', () => {
  const args = (weights: boolean): readonly unknown[] => [
    'bf16[1024,1024]',
    'bf16[1024,1024]',
    [1024],
    'f32[1024,1]',
    'f32[1024,1]',
    'bf16[1024]',
    'bf16[1024]',
    [true, weights, weights],
  ];
  const name = 'aten.native_layer_norm_backward.default';
  const [whole, alone] = [work(name, args(true)), work(name, args(false))];
  expect(whole.bytes - alone.bytes).toBeGreaterThanOrEqual(4 * MIB);
  expect([whole.kernels, alone.kernels]).toEqual([3, 1]);
});

test('casts to 32 bits take longer than their bytes; those to 16 bits and other calls take what they move', () => {
  const to = (dtype: DType): Record<string, Arg> => ({ dtype: { kind: 'dtype', dtype } });
  expect(work('aten._to_copy.default', ['bf16[1024,1024]'], to('f32')).bytes).toBeCloseTo(
    1.36 * 6 * MIB,
  );
  expect(work('aten._to_copy.default', ['f32[1024,1024]'], to('bf16')).bytes).toBe(6 * MIB);
  expect(work('aten.add.Tensor', ['bf16[1024,1024]', 'bf16[1024,1024]'])).toEqual({
    bytes: 6 * MIB,
    kernels: 1,
  });
});

test('the gradient of a table sorts many indices in many kernels', () => {
  const name = 'aten.embedding_dense_backward.default';
  expect(work(name, ['bf16[4096,64]', 'i64[4096]', 1000, -1, false]).kernels).toBe(31);
  expect(work(name, ['bf16[1024,64]', 'i64[1024]', 1000, -1, false]).kernels).toBe(2);
});
