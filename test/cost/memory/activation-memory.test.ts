import { describe, expect, test } from 'vitest';

import { stateBytes } from '../../../src/cost/memory/state-bytes.ts';
import {
  ACTIVATION_POLICIES,
  activationBytes,
  type ActivationPolicy,
  interleavingFactor,
  layerStackParameters,
} from '../../support/activation-memory.ts';
import { zeroBytes } from '../../support/zero-bytes.ts';

const GIB = 2 ** 30;
/**
 * hidden, heads, layers, microbatch, pipeline, chunks; GiB of the five policies; percent of the
 * first.
 */
const MODELS: readonly (readonly [
  string,
  number,
  number,
  number,
  number,
  number,
  number,
  readonly number[],
  readonly number[],
])[] = [
  ['22B', 6144, 64, 48, 4, 1, 1, [59.25, 39.56, 29.25, 9.56, 4.5], [66.8, 49.4, 16.1, 7.6]],
  ['175B', 12288, 96, 96, 1, 8, 3, [66.84, 41.41, 37.78, 12.35, 5.81], [62.0, 56.5, 18.5, 8.7]],
  [
    '530B',
    20480,
    128,
    105,
    1,
    35,
    3,
    [114.02, 66.51, 70.59, 23.08, 10.86],
    [58.3, 61.9, 20.2, 9.5],
  ],
  ['1T', 25600, 160, 128, 1, 64, 1, [131.25, 76.56, 81.25, 26.56, 12.5], [58.3, 61.9, 20.2, 9.5]],
];

describe('activation closed form of four models and five policies', () => {
  test.each(MODELS)(
    '%s',
    (_, hidden, heads, layers, microbatch, pipeline, chunks, gib, percent) => {
      const shape = { sequence: 2048, microbatch, hidden, heads, layers };
      const kappa = interleavingFactor(pipeline, chunks);
      const bytes = ACTIVATION_POLICIES.map((p) => activationBytes(shape, p, 8, kappa));
      bytes.forEach((b, i) => expect(b / GIB, ACTIVATION_POLICIES[i]).toBeCloseTo(gib[i], 2));
      percent.forEach((p, i) =>
        expect(Math.abs((100 * bytes[i + 1]) / bytes[0] - p)).toBeLessThan(0.06),
      );
    },
  );

  test('each policy keeps fewer bytes than the one before it', () => {
    for (const [, hidden, heads, layers, microbatch] of MODELS) {
      const shape = { sequence: 2048, microbatch, hidden, heads, layers };
      const of = (p: ActivationPolicy) => activationBytes(shape, p, 8);
      expect(of('selective+sp')).toBeLessThan(of('tp+sp'));
      expect(of('tp+sp')).toBeLessThan(of('tp'));
      expect(Math.min(...ACTIVATION_POLICIES.map(of))).toBe(of('full'));
    }
    expect(interleavingFactor(8, 3)).toBeCloseTo(1.2917, 4);
    expect(interleavingFactor(4, 2)).toBe(1.375);
    expect(() => interleavingFactor(0, 1)).toThrow(/at least 1/);
  });

  test('states and activations of 22B and 175B with selective recomputation and sequence parallelism', () => {
    const total = (i: number): number => {
      const [, hidden, heads, layers, microbatch, pipeline, chunks] = MODELS[i];
      const states = layerStackParameters(layers, hidden, 8, pipeline) * 18;
      const shape = { sequence: 2048, microbatch, hidden, heads, layers };
      return (
        (states + activationBytes(shape, 'selective+sp', 8, interleavingFactor(pipeline, chunks))) /
        GIB
      );
    };
    // 55.125 is published as 55.12.
    expect(total(0)).toBe(55.125);
    expect(Math.abs(total(1) - 57.91)).toBeLessThan(0.0051);
  });
});

describe('states', () => {
  const state = stateBytes('adamw-mixed', 'bf16');

  test('ZeRO stages of 7.5e9 parameters, GB', () => {
    const table: readonly (readonly [number, readonly number[]])[] = [
      [8, [120, 41.25, 28.125, 15]],
      [64, [120, 31.41, 16.64, 1.88]],
      [1024, [120, 30.09, 15.1, 0.12]],
    ];
    for (const [dataParallel, gb] of table)
      gb.forEach((expected, stage) => {
        const bytes = zeroBytes(state, 7.5e9, { stage: stage as 0 | 1 | 2 | 3, dataParallel });
        expect(Math.abs(bytes.totalBytes / 1e9 - expected)).toBeLessThan(0.0051);
      });
  });

  test('the gathered unit of stage 3, once or with prefetch and gradient', () => {
    const plan = { stage: 3, dataParallel: 8, largestUnitElements: 1e6 } as const;
    const one = zeroBytes(state, 8e6, plan);
    expect(one.gatheredBytes).toBe(2e6);
    expect(one.totalBytes).toBe(16e6 + 2e6);
    expect(zeroBytes(state, 8e6, { ...plan, gatheredUnits: 3 }).gatheredBytes).toBe(6e6);
    expect(zeroBytes(state, 8e6, { ...plan, stage: 2 }).gatheredBytes).toBe(0);
  });

  test('Megatron with float32 gradients: 18 bytes a parameter', () => {
    const megatron = stateBytes('adamw-mixed', 'bf16', 'f32');
    const perParameter = megatron.parameter + megatron.gradient + megatron.optimizer;
    expect(perParameter).toBe(18);
    expect((layerStackParameters(48, 6144, 8, 1) * perParameter) / GIB).toBeCloseTo(45.5625, 4);
    expect((layerStackParameters(96, 12288, 8, 8) * perParameter) / GIB).toBeCloseTo(45.5625, 4);
  });

  test('state bytes never rise with one more shard', () => {
    for (const elements of [7, 1000, 12345, 7.5e9])
      for (const stage of [0, 1, 2, 3] as const)
        for (let n = 1; n < 9; n++) {
          const less = zeroBytes(state, elements, { stage, dataParallel: n + 1 }).totalBytes;
          const more = zeroBytes(state, elements, { stage, dataParallel: n }).totalBytes;
          expect(less).toBeLessThanOrEqual(more);
          expect(
            (n + 1) * zeroBytes(state, elements, { stage, dataParallel: n + 1 }).parameterBytes,
          ).toBeGreaterThanOrEqual(2 * elements);
        }
  });
});
