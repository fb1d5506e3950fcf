import { describe, expect, it } from 'vitest';

import { verifyCertificate } from '../../src/solver/check/verify.ts';
import { solve } from '../../src/solver/solve.ts';
import { build } from './support.ts';

/**
 * Which activations to keep: memory and runtime of each item, the capacity, the runtime saved, the
 * items kept.
 */
const CASES: readonly (readonly [
  string,
  readonly number[],
  readonly number[],
  number,
  number,
  readonly number[],
])[] = [
  ['K1', [2, 3, 2, 4, 1], [1, 2, 1, 3, 2], 5, 5, [3, 4]],
  ['K2', [1, 1, 1], [1, 2, 3], 3, 6, [0, 1, 2]],
  ['K3', [10, 20, 30], [1, 2, 3], 5, 0, []],
  ['K4', [1, 2, 3], [10, 20, 30], 1, 10, [0]],
  ['K5', [1, 1, 1], [2, 2, 2], 2, 4, [0, 1]],
  ['K6', [0, 2, 3], [5, 2, 3], 5, 10, [0, 1, 2]],
  ['K7', [1, 2, 3], [0, 2, 3], 3, 3, [2]],
  ['K8', [100, 200, 300], [1000, 2000, 3000], 500, 5000, [1, 2]],
  ['K9', [0.5, 1.5, 2], [1, 2, 3], 2, 3, [0, 1]],
  ['K10', [], [], 0, 0, []],
  ['K11', [1, 2, 3], [1, 2, 3], 0, 0, []],
  ['K12', [0, 0, 0], [1, 2, 3], 0, 6, [0, 1, 2]],
  ['K13', [1, 2, 3], [0, 0, 0], 6, 0, []],
];

describe('the knapsack as a choice problem', () => {
  it.each(CASES)('%s', async (_, memory, runtime, capacity, saved, kept) => {
    // Value 0 is to keep, so that ties go to the items of lowest index; what saves nothing has
    // dropping first.
    const keep = runtime.map((t) => (t > 0 ? 0 : 1));
    const problem = build({
      unary: runtime.map((t, i) => (keep[i] === 0 ? [0, t] : [t, 0])),
      edges: [],
      // Halves of bytes: K9 has them.
      rows: [
        {
          name: 'memory',
          variables: [...memory.keys()],
          amounts: memory.map((m, i) => (keep[i] === 0 ? [2 * m, 0] : [0, 2 * m])),
          bound: 2 * capacity,
        },
      ],
    });
    const solution = await solve(problem, { ties: 'lexicographic' });
    expect(solution.status).toBe('optimal');
    const { accepted, bound } = verifyCertificate(problem, solution);
    expect(accepted).toBe(true);
    expect(bound).toBe(BigInt(solution.objective));
    expect(solution.objective).toBe(runtime.reduce((a, b) => a + b, 0) - saved);
    expect([...memory.keys()].filter((i) => solution.choice[i] === keep[i])).toEqual(kept);
  });
});
