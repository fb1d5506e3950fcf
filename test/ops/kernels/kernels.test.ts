import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { describe, expect, test } from 'vitest';

import { type ElementType, fromList, type NDArray, scalar } from '../../../src/ndarray/array.ts';
import { complexOf } from '../../../src/ndarray/complex.ts';
import {
  evaluateCall,
  type EvaluatedArg,
  operatorsWithoutKernel,
} from '../../../src/ops/kernels/evaluate.ts';
import { KERNELS } from '../../../src/ops/kernels/table.ts';
import { operators } from '../../engines/samples/all.ts';
import { ABSENT } from '../../engines/support/not-run.ts';
import { refusalText } from '../../support/thrown.ts';
import { kernelSamples } from '../support/kernel-calls.ts';
import { compareSample, evaluateSample, UNCOMPARED } from '../support/kernel-check.ts';
import { difference, readRecording } from '../support/kernel-record.ts';

const recording = readRecording(
  readFileSync(fileURLToPath(new URL('../../fixtures/kernels/torch.json.gz', import.meta.url))),
);
const torchRecords = operators.records.filter((r) => /^(aten|prims)\./.test(r.name));

const x = (
  values: readonly number[],
  dtype: ElementType = 'f64',
  shape = [values.length],
): NDArray => fromList(shape, values, dtype);
const call = (
  target: string,
  args: readonly EvaluatedArg[],
  kwargs: Readonly<Record<string, EvaluatedArg>> = {},
): NDArray => evaluateCall(operators, target, args, kwargs) as NDArray;

describe('kernels', () => {
  // What PyTorch 2.13 gives. Cut over devices, one NaN in the sum is one for all of the run.
  test.each([
    [
      [1, Infinity],
      [NaN, NaN],
    ],
    [
      [-Infinity, -Infinity],
      [NaN, NaN],
    ],
    [
      [1, NaN],
      [NaN, NaN],
    ],
    [
      [1, -Infinity],
      [0, -Infinity],
    ],
  ])('the logarithm of the softmax of %j is %j', (values, wanted) => {
    for (const target of ['aten._log_softmax.default', 'aten.log_softmax.int'])
      expect(
        call(
          target,
          target.startsWith('aten._') ? [x(values), 0, false] : [x(values), 0],
        ).toArray(),
      ).toEqual(wanted);
  });

  test('every ATen and prims operator has one, and there is none without an operator', () => {
    expect(torchRecords.length).toBeGreaterThanOrEqual(492);
    expect(
      operatorsWithoutKernel(operators).filter((name) => /^(aten|prims)\./.test(name)),
    ).toEqual([]);
    expect([...KERNELS.keys()].filter((name) => operators.get(name)?.name !== name)).toEqual([]);
  });

  test('each agrees with PyTorch in float64 to 1e-9 on its sample calls', () => {
    expect(recording.torch).toBe('2.13.0');
    const missing = kernelSamples.filter((s) => !(s.text in recording.calls));
    expect(missing.map((s) => s.text)).toEqual([]);
    const wrong = kernelSamples.flatMap((s) => compareSample(s, recording.calls[s.text]) ?? []);
    expect(wrong).toEqual([]);
  });

  test('every operator is compared with PyTorch, but those whose values are drawn, unset, or of a GPU', () => {
    const compared = new Set(
      kernelSamples
        .filter((s) => 'results' in recording.calls[s.text] && !UNCOMPARED.has(s.call.target))
        .map((s) => operators.get(s.call.target)?.name),
    );
    const others = torchRecords.map((r) => r.name).filter((name) => !compared.has(name));
    const gpu = ['flash', 'efficient', 'cudnn'].flatMap((kind) =>
      ['', '_backward'].map(
        (suffix) => `aten._scaled_dot_product_${kind}_attention${suffix}.default`,
      ),
    );
    expect(others.sort()).toEqual([...UNCOMPARED, ...ABSENT, ...gpu].sort());
  });

  test('the comparison finds wrong results', () => {
    const sample = kernelSamples.find((s) => s.text === 'mm(x[6,5], x[5,7])');
    if (sample === undefined) throw new Error('no sample of mm');
    const [right] = evaluateSample(sample) as [NDArray];
    const other = fromList(
      right.shape,
      right.toArray().map((v, i) => (i === 3 ? v * (1 + 1e-8) : v)),
    );
    expect(difference(right, right)).toBeUndefined();
    expect(difference(other, right)).toMatch(/^element 3 is/);
    expect(difference(right.as('f32'), right)).toBe('f32[6,7] for f64[6,7]');
    expect(difference(x([1, NaN]), x([1, 2]))).toMatch(/^element 1 is NaN/);
    expect(compareSample(sample, recording.calls['mm(x[5,6], x[6,9])'])?.[0]).toMatch(/^mm/);
  });
});

describe('values of kernels', () => {
  test('conversions under Python names agree with _to_copy, which is compared with PyTorch', () => {
    const source = x([-2.7, 0, 0.4, 3.5]);
    const named: readonly (readonly [string, ElementType])[] = [
      ['float', 'f32'],
      ['double', 'f64'],
      ['half', 'f16'],
      ['bfloat16', 'bf16'],
      ['long', 'i64'],
      ['int', 'i32'],
      ['bool', 'b8'],
    ];
    for (const [name, dtype] of named) {
      const got = call(`aten.${name}.default`, [source]);
      const want = call('aten._to_copy.default', [source], { dtype: { kind: 'dtype', dtype } });
      expect(difference(got, want), name).toBeUndefined();
      expect(got.dtype).toBe(dtype);
    }
    expect(call('aten.long.default', [source]).toArray()).toEqual([-2, 0, 0, 3]);
    expect(call('aten.half.default', [x([1 / 3])]).toArray()).toEqual([1 / 3]);
  });

  test('integers are exact up to 2^53 and refused beyond', () => {
    const big = Number.MAX_SAFE_INTEGER;
    expect(call('aten.add.Tensor', [x([big - 1], 'i64'), 1]).toArray()).toEqual([big]);
    expect(
      call('aten.div.Tensor_mode', [x([big], 'i64'), x([2], 'i64')], {
        rounding_mode: 'floor',
      }).toArray(),
    ).toEqual([4503599627370495]);
    expect(call('aten.bitwise_and.Scalar', [x([big], 'i64'), 2 ** 40 + 1]).toArray()).toEqual([
      2 ** 40 + 1,
    ]);
    expect(refusalText(() => call('aten.mul.Scalar', [x([big], 'i64'), 2]))).toMatch(
      /^E_VALUE: .*2\^53/,
    );
    expect(refusalText(() => call('aten.long.default', [x([NaN])]))).toMatch(
      /^E_VALUE: NaN does not convert to i64/,
    );
    expect(call('aten.long.default', [x([-Infinity])]).toArray()).toEqual([-(2 ** 63)]);
    expect(
      refusalText(() =>
        call('aten.div.Tensor_mode', [x([1], 'i64'), x([0], 'i64')], { rounding_mode: 'floor' }),
      ),
    ).toMatch(/division by zero/);
  });

  test('values outside of what an operator takes are refused with its name', () => {
    const table = x([1, 2, 3, 4, 5, 6], 'f64', [3, 2]);
    expect(refusalText(() => call('aten.embedding.default', [table, x([3], 'i64')]))).toMatch(
      /^E_VALUE: index 3 /,
    );
    expect(refusalText(() => call('aten.embedding.default', [table, x([-1], 'i64')]))).toMatch(
      /^E_VALUE: aten.embedding.default: index -1/,
    );
    expect(
      refusalText(() => call('aten.gather.default', [table, 0, x([5, 0], 'i64', [1, 2])])),
    ).toMatch(/^E_VALUE/);
    expect(
      refusalText(() =>
        call('aten.nll_loss_forward.default', [table, x([0, 1, 2], 'i64'), null, 1, -100]),
      ),
    ).toMatch(/^E_VALUE: .*target 2/);
    expect(refusalText(() => call('aten.one_hot.default', [x([4], 'i64'), 3]))).toMatch(/^E_VALUE/);
    expect(refusalText(() => call('aten.amax.default', [x([])]))).toMatch(/^E_VALUE/);
  });

  test('calls that fit no operator are refused', () => {
    expect(refusalText(() => call('aten.nothing.default', [x([1])]))).toMatch(
      /^E_NO_KERNEL: there is no operator aten.nothing/,
    );
    expect(refusalText(() => call('aten.mm.default', [x([1])]))).toMatch(/^E_TYPE/);
    expect(
      refusalText(() => call('aten.exp.default', [complexOf(x([2]), x([2]), 'c128')])),
    ).toMatch(/^E_NO_KERNEL: .*complex/);
    expect(refusalText(() => call('aten.zeros.default', [[1e6, 1e6]]))).toMatch(
      /^E_VALUE: .*more than/,
    );
  });

  test('in-place kernels leave their operands unchanged', () => {
    const source = x([3, 1, 2]);
    call('aten.add_.Tensor', [source, scalar(1)]);
    call('aten.index_put_.default', [source, [x([0], 'i64')], x([9])]);
    call('aten.relu_.default', [source]);
    evaluateCall(operators, 'aten.sort.default', [source]);
    expect(source.toArray()).toEqual([3, 1, 2]);
  });

  test('unset memory shows: NaN, the largest integer, true', () => {
    const unset = (dtype: ElementType): number[] =>
      call('aten.empty.memory_format', [[2]], { dtype: { kind: 'dtype', dtype } }).toArray();
    expect(unset('f32')).toEqual([NaN, NaN]);
    expect(unset('i32')).toEqual([2 ** 31 - 1, 2 ** 31 - 1]);
    expect(unset('u8')).toEqual([255, 255]);
    expect(unset('b8')).toEqual([1, 1]);
  });

  test('an eps that is not given is that of the declared type', () => {
    const norm = (dtype: ElementType): number =>
      call('aten.rms_norm.default', [x([1e-4], dtype), [1]]).item();
    expect(norm('f64')).toBeCloseTo(1, 7);
    expect(norm('f32')).toBeCloseTo(1e-4 / Math.sqrt(1e-8 + 2 ** -23), 12);
  });
});
