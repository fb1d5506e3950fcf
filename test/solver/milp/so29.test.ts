import { describe, expect, it } from 'vitest';

import { programSize } from '../../../src/solver/milp/encode.ts';
import { HIGHS } from '../../../src/solver/milp/highs.ts';
import { JSLP } from '../../../src/solver/milp/jslp.ts';
import { consult } from '../../../src/solver/milp/verdict.ts';
import { solve } from '../../../src/solver/solve.ts';
import { FULL } from '../../support/full.ts';
import { build, enumerate, type RandomOptions, randomProblem } from '../support.ts';

// The long runs belong to `npm run test:full`.

const CASES: readonly (readonly [string, number, number, RandomOptions])[] = [
  ['no row', 10_000, 400, { most: 12, values: 4 }],
  ['a memory row', 20_000, 400, { most: 12, values: 3, row: true }],
  ['usage over time', 30_000, 300, { most: 10, values: 4, usage: true }],
  ['usage over time and rows', 40_000, 100, { most: 9, values: 3, row: true, usage: true }],
  [
    'units beside gigabytes',
    50_000,
    100,
    { most: 9, values: 3, row: true, usage: true, mixed: true },
  ],
];

describe('enumeration = own engine = HiGHS = javascript-lp-solver', () => {
  it.each(CASES)('%s', async (_, seed0, all, options) => {
    const count = FULL ? all : Math.max(25, all / 20);
    let infeasible = 0;
    let asked = 0;
    let silent = 0;
    // Rows that mix units and gigabytes are beyond its tolerance of 1e-8: the wrapper must then
    // reject, never repeat, it. It answers all others, however busy the machine is.
    const timeLimitSeconds = options.mixed === true ? 1 : 60;
    for (let seed = seed0; seed < seed0 + count; seed++) {
      const plain = randomProblem(seed, options);
      const optimum = enumerate(plain);
      const problem = build(plain, seed % 2 === 0);
      const ours = await solve(problem, { engine: 'exact' });
      expect(ours.objective, `seed ${seed}`).toBe(optimum);
      expect(ours.bound, `seed ${seed}`).toBe(optimum);
      expect(ours.status, `seed ${seed}`).toBe(optimum === Infinity ? 'infeasible' : 'optimal');
      const highs = await consult(problem, HIGHS);
      if (optimum === Infinity) {
        infeasible++;
        expect(highs.choice, `seed ${seed}`).toBeUndefined();
        expect(highs.word, `seed ${seed}`).toMatch(/nfeasible/);
      } else expect(highs.objective, `seed ${seed}: HiGHS says ${highs.word}`).toBe(optimum);
      if (programSize(problem).binaries > 50) continue;
      asked++;
      const second = await consult(problem, JSLP, { timeLimitSeconds });
      // Its word is not trusted, but a choice that the checker accepted is never cheaper than the
      // optimum.
      if (second.choice === undefined) silent += optimum === Infinity ? 0 : 1;
      else
        expect(second.objective, `seed ${seed}: javascript-lp-solver says ${second.word}`).toBe(
          optimum,
        );
    }
    expect(infeasible).toBeGreaterThan(0);
    expect(infeasible).toBeLessThan(count * 0.7);
    expect(asked).toBeGreaterThan(count / 2);
    if (options.mixed !== true) expect(silent).toBe(0);
  });
});
