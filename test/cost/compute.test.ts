import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { computeCost, matrixPeak } from '../../src/cost/compute.ts';
import type { Cluster } from '../../src/cost/hardware/cluster.ts';
import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { matmulEfficiency, matrixSeconds } from '../../src/cost/kernels/matmul.ts';
import type { DType } from '../../src/graph/types.ts';
import { bindCall, withOutputs } from '../../src/ops/record/context.ts';
import { defineOp, type OperatorRecord, type TypedContext } from '../../src/ops/record/record.ts';

/** Seconds of one call at the sizes of the context; see `computeCost`. */
function computeSeconds(record: OperatorRecord, ctx: TypedContext, cluster: Cluster): number {
  return computeCost(record, ctx, cluster).seconds;
}

const mm = defineOp('test.mm', {
  schema: 'Tensor self, Tensor mat2',
  cls: 'matmul',
  infer: (ctx) => [
    { dtype: ctx.inputs[0].dtype, shape: [ctx.inputs[0].shape[0], ctx.inputs[1].shape[1]] },
  ],
  flops: (ctx) => ({
    matrix: 2 * ctx.inputs[0].shape[0] * ctx.inputs[0].shape[1] * ctx.inputs[1].shape[1],
    vector: 0,
  }),
});
const view = defineOp('test.view', {
  schema: 'Tensor self',
  cls: 'view',
  infer: (ctx) => [ctx.inputs[0]],
});
const relu = defineOp('test.relu', {
  schema: 'Tensor self',
  cls: 'pointwise',
  infer: (ctx) => [ctx.inputs[0]],
});

function call(
  record: typeof mm,
  ...inputs: { dtype: DType; shape: readonly number[] }[]
): TypedContext {
  const args = inputs.map((_, i) => ({ kind: 'value' as const, name: `x${i}` }));
  const ctx = bindCall(record, args, {}, (name) => inputs[Number(name.slice(1))]);
  return withOutputs(ctx, record.infer(ctx));
}
const product = (m: number, k: number, n: number, dtype: DType = 'bf16'): TypedContext =>
  call(mm, { dtype, shape: [m, k] }, { dtype, shape: [k, n] });

const cluster = loadCluster('dgx-h100');

describe('matmul efficiency', () => {
  test.each([
    [10, 0.0136],
    [50, 0.1231],
    [150, 0.371],
    [500, 0.634],
    [1365, 0.7142],
    [2731, 0.7317],
  ])('at %i FLOPs per byte', (intensity, expected) => {
    expect(matmulEfficiency(intensity)).toBeCloseTo(expected, 4);
  });

  /** Best measured dense matmuls over the data-sheet peak, TFLOPS. */
  test.each([
    ['dgx-a100-80gb', 271, 312],
    ['dgx-h100', 794.5, 989],
    ['dgx-h200', 794.5, 989],
    ['dgx-b200', 1745, 2250],
    ['mi300x-platform', 668, 1300],
  ])('the cap of %s is %f of %f TFLOPS in bf16, and never exceeded', (name, best, peak) => {
    const c = loadCluster(name);
    expect(Math.abs(c.matmulCap / (best / peak) - 1)).toBeLessThan(0.01);
    for (const dtype of [
      'bf16',
      'f16',
      'f32',
      ...(c.peakFlopsPerSecond.fp8 === undefined ? [] : (['f8e4m3fn'] as const)),
    ] as const) {
      const { flopsPerSecond, unit } = matrixPeak(c, dtype);
      for (let k = 30; k <= 60; k++)
        for (const bytes of [1, 2 ** (k - 8), 2 ** (k - 4)]) {
          const share =
            2 ** k / matrixSeconds(2 ** k, bytes, flopsPerSecond, c, unit) / flopsPerSecond;
          expect(share).toBeLessThanOrEqual(c.matmulCap * (1 + 1e-12));
        }
    }
  });
});

describe('computeSeconds', () => {
  test('views are free, small kernels cost a launch, large pointwise ones the memory', () => {
    expect(computeSeconds(view, call(view, { dtype: 'f32', shape: [1024, 1024] }), cluster)).toBe(
      0,
    );
    expect(computeSeconds(relu, call(relu, { dtype: 'f32', shape: [8] }), cluster)).toBe(4e-6);
    const big = computeSeconds(relu, call(relu, { dtype: 'bf16', shape: [8192, 8192] }), cluster);
    expect(big).toBeCloseTo((2 * 8192 * 8192 * 2) / (3350e9 * 0.8), 9);
  });

  test('a large matmul runs at the fitted share of the peak', () => {
    const seconds = computeSeconds(mm, product(4096, 4096, 4096), cluster);
    const flops = 2 * 4096 ** 3;
    const intensity = flops / (3 * 4096 * 4096 * 2);
    expect(seconds).toBeCloseTo(flops / (989.4e12 * matmulEfficiency(intensity)), 9);
  });

  test('float32 runs on the TF32 units and says so', () => {
    const cost = computeCost(mm, product(4096, 4096, 4096, 'f32'), cluster);
    expect(cost.source).toContain('f32 on the tf32 units');
    expect(cost.seconds).toBeGreaterThan(
      1.8 * computeSeconds(mm, product(4096, 4096, 4096), cluster),
    );
  });

  test('monotone: more local work never costs less', () => {
    const size = fc.integer({ min: 1, max: 20000 });
    fc.assert(
      fc.property(
        size,
        size,
        size,
        fc.integer({ min: 0, max: 2 }),
        fc.double({ min: 1, max: 4, noNaN: true }),
        (m, k, n, grow, by) => {
          const dims: [number, number, number] = [m, k, n];
          const more: [number, number, number] = [m, k, n];
          more[grow] = Math.ceil(more[grow] * by);
          const less = computeSeconds(mm, product(...dims), cluster);
          expect(computeSeconds(mm, product(...more), cluster)).toBeGreaterThanOrEqual(
            less * (1 - 1e-12),
          );
        },
      ),
      { numRuns: 500 },
    );
  });

  test('a dtype that the device cannot do is an error that lists what it can', () => {
    const bare = { ...cluster, peakFlopsPerSecond: { fp4: 1e15 } };
    expect(() => matrixPeak(bare, 'bf16')).toThrow(/no peak for bf16; it has fp4/);
  });
});
