import { describe, expect, test } from 'vitest';

import { stateBytes, zeroStateBytes } from '../../../src/cost/memory/state-bytes.ts';

describe('state bytes per parameter element', () => {
  test.each([
    ['adam', 'f32', undefined, [4, 4, 8]],
    ['adamw-mixed', 'bf16', undefined, [2, 2, 12]],
    ['adamw-mixed', 'bf16', 'f32', [2, 4, 12]],
    ['adam', 'bf16', undefined, [2, 2, 4]],
    ['sgd', 'f32', undefined, [4, 4, 4]],
    ['none', 'f32', undefined, [4, 0, 0]],
    ['adam', 'i64', undefined, [8, 0, 0]],
    ['adamw-mixed', 'f32', undefined, [4, 4, 8]],
  ] as const)('%s on %s with gradients in %s', (optimizer, dtype, gradient, [p, g, o]) => {
    expect(stateBytes(optimizer, dtype, gradient)).toEqual({
      parameter: p,
      gradient: g,
      optimizer: o,
    });
  });

  test('ZeRO stages of a model of 7.5e9 parameters, GB', () => {
    const state = stateBytes('adamw-mixed', 'bf16');
    const gb = (n: number): number[] =>
      ([0, 1, 2, 3] as const).map((s) => zeroStateBytes(state, 7.5e9, s, n) / 1e9);
    const table: [number, number[]][] = [
      [8, [120, 41.25, 28.125, 15]],
      [64, [120, 31.41, 16.64, 1.88]],
      [1024, [120, 30.09, 15.1, 0.12]],
    ];
    for (const [n, expected] of table)
      gb(n).forEach((x, i) => expect(Math.abs(x - expected[i])).toBeLessThan(0.006));
  });

  test('Megatron with float32 gradients: 18 bytes, 45.5625 GiB', () => {
    const s = stateBytes('adamw-mixed', 'bf16', 'f32');
    const each = s.parameter + s.gradient + s.optimizer;
    expect(each).toBe(18);
    expect((((12 * 48 * 6144 ** 2) / 8) * each) / 2 ** 30).toBe(45.5625);
    expect((((12 * 96 * 12288 ** 2) / 64) * each) / 2 ** 30).toBe(45.5625);
  });
});
