import loadHighs from 'highs';
import { describe, expect, it } from 'vitest';

import { encode, lpText } from '../../../src/solver/milp/encode.ts';
import { build, enumerate, randomProblem } from '../support.ts';

describe('lpText', () => {
  it('writes the program of a small problem in full', () => {
    const problem = build({
      unary: [
        [3, 0],
        [1, 2],
      ],
      edges: [[0, 1, [0, 5, Infinity, 7]]],
      rows: [
        {
          name: 'memory per device',
          variables: [0, 1],
          amounts: [
            [1, 2],
            [0, 4],
          ],
          bound: 5,
        },
      ],
      constant: 11,
    });
    expect(lpText(encode(problem))).toBe(`\\ choice problem: 7 columns, 7 rows, 17 nonzeros
Minimize
 objective: 3 s_0_0 + s_1_0 + 2 s_1_1 + 5 y_0_0_1 + 7 y_0_1_1 + 11
Subject To
 one_0: s_0_0 + s_0_1 = 1
 one_1: s_1_0 + s_1_1 = 1
 first_0_0: - s_0_0 + y_0_0_0 + y_0_0_1 = 0
 first_0_1: - s_0_1 + y_0_1_1 = 0
 second_0_0: - s_1_0 + y_0_0_0 = 0
 second_0_1: - s_1_1 + y_0_0_1 + y_0_1_1 = 0
 memory_per_device: s_0_0 + 2 s_0_1 + 4 s_1_1 <= 5
Bounds
Binary
 s_0_0 s_0_1 s_1_0 s_1_1
End
`);
  });

  it('HiGHS reads the text and finds the optimum of 60 random problems', async () => {
    const highs = await loadHighs();
    for (let seed = 500; seed < 560; seed++) {
      const plain = randomProblem(seed, {
        most: 8,
        values: 4,
        row: seed % 2 === 0,
        usage: seed % 3 === 0,
      });
      const text = lpText(encode(build(plain)));
      for (const line of text.split('\n')) expect(line.length).toBeLessThan(510);
      const optimum = enumerate(plain);
      const answer = highs.solve(text, { mip_rel_gap: 0 });
      if (optimum === Infinity) expect(answer.Status, `seed ${seed}`).toMatch(/Infeasible/);
      else expect(answer.ObjectiveValue, `seed ${seed}`).toBeCloseTo(optimum, 3);
    }
  });
});
