import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { FITTED } from '../../src/cost/training/fitted.ts';
import { KernelSum, tailFactor } from '../../src/cost/training/kernels.ts';
import { stepTime } from '../../src/cost/training/step.ts';
import type { MeasuredRun } from '../../src/cost/validation/runs.ts';
import { parseRuns } from '../../src/cost/validation/runs.ts';
import { predictRun } from '../../src/cost/validation/validate.ts';

const file = new URL('../fixtures/runs/measured.csv.gz', import.meta.url);
const { runs } = parseRuns(gunzipSync(readFileSync(file)).toString('utf8'));
const run = (id: string): MeasuredRun => {
  const found = runs.find((r) => r.id === id);
  if (found === undefined) throw new Error(`no run ${id}`);
  return found;
};

describe('last wave of tiles', () => {
  // 256 x 128 tiles on 108 multiprocessors: 8 x 56 = 448 tiles take 5 waves of 108 places.
  test('whole waves by hand', () => {
    expect(tailFactor(2048, 7168, 1, 'A100-SXM4-80GB')).toBeCloseTo(540 / 448, 12);
    // 108 tiles fill the device exactly.
    expect(tailFactor(9 * 256, 12 * 128, 1, 'A100-SXM4-80GB')).toBe(1);
    expect(tailFactor(2048, 7168, 1, 'TPU v5p')).toBe(1);
  });

  test('never below 1, and gone in the limit of many tiles', () => {
    for (const m of [1, 64, 100, 129, 2048, 5000])
      for (const n of [64, 1000, 4096, 7168]) expect(tailFactor(m, n, 1, 'H100')).toBeGreaterThanOrEqual(1);
    expect(tailFactor(256 * 999, 128 * 999, 1, 'H100')).toBeLessThan(1.001);
  });
});

describe('matrix units of 8 bits', () => {
  test('casts cost memory traffic by hand, the output head stays wide', () => {
    const { system } = run('r0003');
    expect(system.matmulUnit).toBe('fp8');
    const with5 = new KernelSum(system).matmul(8192, 4096, 4096).time.deviceSeconds;
    const with0 = new KernelSum({ ...system, narrowCastBytes: 0 }).matmul(8192, 4096, 4096).time.deviceSeconds;
    const { memoryBytesPerSecond, memoryEfficiency } = system.cluster;
    const bytes = 5 * (8192 * 4096 + 4096 * 4096) * FITTED.pointwiseTraffic;
    expect(with5 - with0).toBeCloseTo(bytes / (memoryBytesPerSecond * memoryEfficiency), 12);
    const wide = new KernelSum(system).wideMatmul(8192, 4096, 128_256).time.deviceSeconds;
    const bf16 = new KernelSum({ ...system, matmulUnit: 'bf16' }).matmul(8192, 4096, 128_256).time.deviceSeconds;
    expect(wide).toBe(bf16);
  });
});

describe('power and overlap', () => {
  test('half of the power takes a cube root of 2 longer in matmuls', () => {
    const { system } = run('r0001');
    const at = (powerShare: number): number =>
      new KernelSum({ ...system, powerShare }).wideMatmul(8192, 8192, 8192).productSeconds;
    expect(at(0.5) / at(1)).toBeCloseTo(2 ** (1 / 3), 9);
  });

  test('async tensor parallelism is faster, by less than all of the collectives', () => {
    // Llama 8B on 8 x 8 devices with tensor and sequence parallelism.
    const { shape, system, plan: base } = run('r0001');
    const plan = { ...base, tensor: 8, sequenceParallel: true, microbatch: 12, globalBatch: 96 };
    const at = (tensorOverlap: number): number => stepTime(shape, plan, { ...system, tensorOverlap }).seconds;
    expect(at(1)).toBeLessThan(at(0.75));
    expect(at(0.75)).toBeLessThan(at(0));
    // A plan without tensor parallelism has nothing to hide.
    const alone = run('r0001');
    const of = (tensorOverlap: number): number =>
      stepTime(alone.shape, alone.plan, { ...alone.system, tensorOverlap }).seconds;
    expect(of(1)).toBe(of(0));
  });

  test('weights that a pipeline keeps gathered are gathered once a step, whatever the microbatches', () => {
    const { shape, plan, system } = run('r0013');
    const exposed = (globalBatch: number): number =>
      stepTime(shape, { ...plan, globalBatch }, { ...system, overlap: false }).exposedSeconds;
    expect(exposed(plan.globalBatch * 2)).toBe(exposed(plan.globalBatch));
  });
});

test('a prediction with other constants differs, so that a refit means something', () => {
  const slow = predictRun(run('r0001'), { ...FITTED, hotMatmulTime: 2 * FITTED.hotMatmulTime });
  expect(slow.seconds).toBeGreaterThan(predictRun(run('r0001')).seconds);
  expect(slow.peakBytes).toBe(predictRun(run('r0001')).peakBytes);
});
