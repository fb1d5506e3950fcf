import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { FULL } from '../support/full.ts';
import { FUZZERS } from './all.ts';
import { fuzzer } from './runner.ts';

/**
 * The first sixth of the first turn of `npm run fuzz`, with the same examples in every run; forty turns
 * with SHARDWRIGHT_FULL=1, so that each kind has the same share of the time.
 */
const SEED = 20_260_101;

describe('the adversary finds nothing', () => {
  test.each(FUZZERS.map((f) => [f.name, f] as const))(
    '%s',
    async (_, f) => {
      const few = Math.max(4, Math.ceil(f.sample / 6));
      expect(await f.run(SEED, FULL ? 40 * f.sample : few)).toBeUndefined();
      expect(f.outcomes.size, [...f.outcomes].join('; ')).toBeGreaterThan(1);
    },
    3_600_000,
  );
});

describe('the runner', () => {
  test('reports the seed and the smallest example of what fails', async () => {
    const small = fuzzer('numbers below 40', 100, fc.nat(1000), (n) => {
      expect(n).toBeLessThan(40);
      return 'small';
    });
    const report = await small.run(7, 100);
    expect(report).toMatch(/^numbers below 40: .*failed after \d+ tests/);
    expect(report).toContain('seed: 7');
    expect(report).toContain('Counterexample: [40]');
    expect(report).toMatch(/expected \d+ to be less than 40/);
    expect(await small.run(7, 0)).toBeUndefined();
  });
});
