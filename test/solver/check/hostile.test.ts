/** Certificates that nobody would write but a forger: each is refused, soon and with a reason. */
import { readFileSync } from 'node:fs';

import { describe, expect, it } from 'vitest';

import { readIopddl } from '../../../src/contest/iopddl.ts';
import { STEP } from '../../../src/solver/check/certificate-format.ts';
import {
  hashProblem,
  NO_CHOICE,
  type Verdict,
  verifyCertificate,
} from '../../../src/solver/check/verify.ts';
import { solveNow } from '../../../src/solver/solve.ts';
import type { Certificate, Problem } from '../../../src/solver/types.ts';
import { bruteForce, dice, randomChoice } from '../check-support.ts';
import { build } from '../support.ts';

const file = (name: string): unknown =>
  JSON.parse(readFileSync(new URL(`../../fixtures/iopddl/${name}.json`, import.meta.url), 'utf8'));

/** Two nodes of two values: the optimum is 1. */
const TWO = readIopddl(file('two-nodes'));

function verdictOf(problem: Problem, proof: Partial<Certificate>): Verdict {
  const certificate: Certificate = {
    version: 2,
    problem: hashProblem(problem),
    rows: [],
    steps: [],
    lists: [],
    ...proof,
  };
  return verifyCertificate(problem, { choice: [], objective: Infinity, certificate });
}

function refusal(problem: Problem, proof: unknown): string {
  const { accepted, reason } = verdictOf(problem, proof as Partial<Certificate>);
  expect(accepted).toBe(false);
  return reason ?? '';
}

describe('costs out of range', () => {
  it('are refused where shifts make every choice exceed 2^52, not dropped as if there were none', () => {
    const forged = file('two-nodes.forged') as Certificate;
    expect(refusal(TWO, forged)).toBe('costs of labels add up to more than 2^52');
  });

  it.each([2 ** 49, 2 ** 50, 2 ** 51, 2 ** 52 - 8])(
    'shifts of %d and back prove the optimum or nothing, whatever ends the proof',
    (x) => {
      for (const [first, second] of [
        [
          [x, x],
          [-x, -x],
        ],
        [
          [x, -x],
          [-x, x],
        ],
        [
          [-x, x],
          [x, x],
        ],
        [
          [-x, -x],
          [-x, -x],
        ],
      ])
        for (const end of [
          [STEP.pareto],
          [STEP.prune, 2],
          [STEP.eliminate, 0, STEP.eliminate, 1],
          [],
        ]) {
          const { accepted, bound } = verdictOf(TWO, {
            steps: [STEP.shift, 0, 0, 1, 0, 1, ...end],
            lists: [first, second, []],
          });
          if (accepted) expect(bound).toBeLessThanOrEqual(1n);
        }
    },
  );

  it('a value does not go because the difference to a dearer one is lost in the rounding of large tables', () => {
    // Value 0 of the first variable costs 0, value 1 costs 1. Shifts put M into three of its edges
    // and -M into three others: 1 + 3 M - 3 M is 0 in doubles.
    const M = 2 ** 52 - 8;
    const star = build({
      unary: [[0, 1], ...Array.from({ length: 6 }, () => [0, 0])],
      edges: Array.from({ length: 6 }, (_, k) => [0, k + 1, [0, 0, 0, 0]] as const),
    });
    const lists = [
      [M, 0],
      [-M, 0],
      [0, 0],
      [0, 1],
    ];
    const shift = (edge: number, list: number): number[] => [
      STEP.shift,
      edge,
      0,
      edge + 1,
      list,
      2,
    ];
    const shifts = [0, 1, 2].flatMap((k) => [...shift(k, 0), ...shift(k + 3, 1)]);
    expect(refusal(star, { steps: [...shifts, STEP.drop, 0, 3], lists })).toContain('2^53');
    expect(refusal(star, { steps: [STEP.drop, 0, 3], lists })).toBe(
      'value 1 of variable 0 is not always as good as 0',
    );
  });

  it('costs beyond 2^52 are refused, those of the problem and those of a list', () => {
    const reason = (cost: number): string => `a cost of ${cost} is not an integer of at most 2^52`;
    for (const cost of [2 ** 52 + 1, -(2 ** 52) - 1])
      expect(refusal(build({ unary: [[cost, 0]], edges: [] }), {})).toBe(reason(cost));
    for (const cost of [2 ** 52 + 1, -(2 ** 52) - 1, 2 ** 53, 2 ** 60]) {
      const lists = [
        [cost, 0],
        [0, 0],
      ];
      expect(refusal(TWO, { steps: [STEP.shift, 0, 0, 1, 0, 1], lists })).toBe(reason(cost));
    }
  });

  it('labels are refused where prices hide costs whose sum is beyond 2^52', () => {
    // Each value costs -2^51, and 0 with the price of what it takes.
    const count = 4;
    const priced = build({
      unary: Array.from({ length: count }, () => [-(2 ** 51)]),
      edges: [],
      rows: [
        {
          name: 'row',
          variables: Array.from({ length: count }, (_, i) => i),
          amounts: Array.from({ length: count }, () => [2 ** 50]),
          bound: 2 ** 52,
        },
      ],
    });
    const proof = { rows: [{ row: 0 }], steps: [STEP.price, 0, STEP.pareto], lists: [[2 ** 41]] };
    expect(refusal(priced, proof)).toBe('costs of labels add up to more than 2^52');
  });

  it('a row is refused whose amounts add up to more than 2^52', () => {
    const heavy = (amount: number): Problem =>
      build({
        unary: [[0], [0]],
        edges: [],
        rows: [
          {
            name: 'row',
            variables: [0, 1],
            amounts: [[2 ** 52 - 1], [amount]],
            bound: 2 ** 52 - 1,
          },
        ],
      });
    const proof = { rows: [{ row: 0 }], steps: [STEP.pareto] };
    // The amounts leave no choice, in exact sums.
    expect(verdictOf(heavy(1), proof)).toEqual({ accepted: true, bound: NO_CHOICE });
    expect(refusal(heavy(2), proof)).toBe('the amounts of a row add up to more than 2^52');
  });

  it('a levelled table is refused for a cost above 2^52 that it leaves, and not for one that it forbids', () => {
    const most = 2 ** 51;
    const wide = build({
      unary: [
        [0, 0],
        [0, 0],
      ],
      edges: [[0, 1, [0, most, most, 0]]],
    });
    const proof = (limit: number[]): Partial<Certificate> => ({
      steps: [STEP.shift, 0, 0, 1, 0, 1, STEP.prune, 2],
      lists: [[0, 1 - most], [most, 1 - most], limit],
    });
    expect(refusal(wide, proof([]))).toContain('2^52');
    expect(verdictOf(wide, proof([12 - 3 * most])).accepted).toBe(true);
  });
});

describe('work', () => {
  it('is limited by the problem: a short certificate cannot ask for a minute of sweeps', () => {
    const large = randomChoice(1, { variables: 60, values: 60, edges: 2, forbidden: 0, rows: 0 });
    const sweeps = Array.from({ length: 200 }, () => [STEP.sweep, 0, 0, 1000]).flat();
    expect(refusal(large, { steps: sweeps, lists: [[]] })).toContain('more work');
  });

  it('is limited where pairs of values become values again and again', () => {
    const many = Array.from({ length: 8 }, () => new Array<number>(40).fill(0));
    const chain = build({
      unary: many,
      edges: many.slice(1).map((_, i) => [i, i + 1, new Array<number>(1600).fill(1)] as const),
    });
    // Edge e joins variable e + 1 to what the edges before it made of all earlier ones.
    const steps = many.slice(1).flatMap((_, e) => [STEP.fuse, e, e === 0 ? 0 : 7 + e, e + 1]);
    expect(refusal(chain, { steps })).toContain('more work');
  });

  it('branches 20,000 deep are replayed without recursion, and deeper than the problem allows refused', () => {
    const nested = (depth: number): Partial<Certificate> => ({
      steps: [
        ...Array.from({ length: depth }, () => [STEP.branch, 0, 1, STEP.part, 0]).flat(),
        ...Array.from({ length: depth }, () => STEP.end),
      ],
      lists: [[0, 1]],
    });
    expect(verdictOf(TWO, nested(20_000))).toEqual({ accepted: true, bound: 1n });
    expect(refusal(TWO, nested(200_000))).toContain('nested');
  });
});

describe('steps that would prove too much', () => {
  it('pairs of an edge do not become the values of a variable that it does not join', () => {
    const chain = build({
      unary: [
        [0, 1],
        [2, 0],
        [0, 3],
      ],
      edges: [
        [0, 1, [0, 4, 4, 0]],
        [1, 2, [0, 2, 2, 0]],
      ],
    });
    for (const [u, v] of [
      [0, 2],
      [2, 0],
      [1, 2],
    ])
      expect(refusal(chain, { steps: [STEP.fuse, 0, u, v] })).toBe(
        `factor 0 does not join ${u} and ${v}`,
      );
    expect(verdictOf(chain, { steps: [STEP.fuse, 0, 0, 1] }).accepted).toBe(true);
  });

  it('pairs with a value that has no partner are forbidden', () => {
    // Value 1 of variable 1 has no partner; the least of the others is 1 + 3 + 5.
    const forbidden = build({
      unary: [
        [1, 2],
        [5, 0],
      ],
      edges: [[0, 1, [3, Infinity, 4, Infinity]]],
    });
    for (const steps of [
      [STEP.support, STEP.fuse, 0, 0, 1],
      [STEP.fuse, 0, 0, 1],
      [STEP.fuse, 0, 1, 0],
    ]) {
      const { accepted, bound } = verdictOf(forbidden, { steps: [...steps, STEP.pareto] });
      expect([accepted, bound]).toEqual([true, 9n]);
    }
  });

  it('a value that takes one unit more of a row does not stand in for another', () => {
    const knapsack = build({
      unary: [[0, 5]],
      edges: [],
      rows: [{ name: 'row', variables: [0], amounts: [[4, 3]], bound: 3 }],
    });
    const rows = [{ row: 0 }];
    // Only value 1 fits: without it no choice would be left.
    expect(
      refusal(knapsack, { rows, steps: [STEP.drop, 0, 0, STEP.pareto], lists: [[1, 0]] }),
    ).toBe('value 0 of variable 0 needs more of a row than 1');
    const { accepted, bound } = verdictOf(knapsack, { rows, steps: [STEP.pareto] });
    expect([accepted, bound]).toEqual([true, 5n]);
  });

  it('a value whose partner is forbidden does not stand in, whatever its neighbours in the table are', () => {
    // Value 0 forbids value 1 of the other variable, which value 1 allows.
    for (const [cells, i] of [
      [[0, Infinity, 0, 0], 0],
      [[0, 0, Infinity, 0], 1],
    ] as const) {
      const forbidding = build({
        unary: [
          [0, 0],
          [0, 0],
        ],
        edges: [[0, 1, cells]],
      });
      expect(refusal(forbidding, { steps: [STEP.drop, i, 0], lists: [[1, 0]] })).toBe(
        `value 0 of variable ${i} is not always as good as 1`,
      );
    }
  });

  it('a value that is dearer does not stand in because the price of a row made it cheaper', () => {
    // At the price 1 the values cost 5 and 4; the costs of variable 0 equal the amounts.
    const knapsack = build({
      unary: [
        [5, 3],
        [0, 1],
      ],
      edges: [],
      rows: [{ name: 'row', variables: [1], amounts: [[5, 3]], bound: 5 }],
    });
    const proof = {
      rows: [{ row: 0 }],
      steps: [STEP.price, 0, STEP.drop, 1, 1],
      lists: [[2 ** 40], [0, 1]],
    };
    expect(refusal(knapsack, proof)).toBe('value 1 of variable 1 is not always as good as 0');
  });

  it('a value does not stand in for itself', () => {
    const one = build({ unary: [[3, 7]], edges: [] });
    expect(refusal(one, { steps: [STEP.drop, 0, 0], lists: [[0, 0]] })).toBe(
      'value 0 of 0 cannot stand in',
    );
  });
});

describe('steps that hold', () => {
  const dear = 2 ** 50;
  /** The optimum is 3; of value 1 of the first variable it is 8. */
  const wide = build({
    unary: [
      [3, 1],
      [0, 2],
    ],
    edges: [[0, 1, [0, dear, dear, 5]]],
  });
  /** Messages 0 to both ends of the edge. */
  const messages = (bits: number): number[] => [STEP.messages, bits, 0, 1];
  const lists = [[], [0, 2, 2], [0, 0], [0], [1], [0, 1]];
  const branch = (...parts: readonly number[]): number[] => [
    STEP.branch,
    0,
    parts.length,
    ...parts.flatMap((list) => [STEP.part, list, STEP.end]),
  ];

  it('messages hold at every scale from 2^0 to 2^-30, and at none beside', () => {
    for (const bits of [0, 1, 29, 30])
      expect(verdictOf(wide, { steps: messages(bits), lists })).toEqual({
        accepted: true,
        bound: 1n,
      });
    for (const bits of [-1, 31, 40])
      expect(refusal(wide, { steps: messages(bits), lists })).toContain('the scale');
  });

  it('a bound by messages leaves out values that a branch took away, also of costs beyond 2^52', () => {
    for (const bits of [0, 4, 30])
      expect(verdictOf(wide, { steps: [...messages(bits), ...branch(3, 4)], lists })).toEqual({
        accepted: true,
        bound: 3n,
      });
  });

  it('sweeps prove the optimum of a tree once values without a partner are gone', () => {
    for (let seed = 1; seed <= 40; seed++) {
      const roll = dice(seed);
      const sizes = Array.from({ length: 6 }, () => 1 + roll(4));
      const unary = sizes.map((size) => Array.from({ length: size }, () => roll(60)));
      const edges = sizes.slice(1).map((size, k) => {
        const to = roll(k + 1);
        const cells = Array.from({ length: size * sizes[to] }, () =>
          roll(8) === 0 ? Infinity : roll(60),
        );
        // Every other edge is written from its higher variable.
        return k % 2 === 0 ? ([k + 1, to, cells] as const) : ([to, k + 1, cells] as const);
      });
      const tree = build({ unary, edges });
      const { objective } = bruteForce(tree);
      if (objective === Infinity) continue;
      const { accepted, bound } = verdictOf(tree, {
        steps: [STEP.support, STEP.sweep, 20, 0, 2],
        lists: [[]],
      });
      expect([seed, accepted, Number(bound)]).toEqual([seed, true, objective]);
    }
  });

  it('a branch has all its parts, and none after them', () => {
    expect(verdictOf(wide, { steps: branch(3, 5), lists }).accepted).toBe(true);
    expect(refusal(wide, { steps: branch(3, 3), lists })).toBe('the parts do not cover variable 0');
    expect(refusal(wide, { steps: [STEP.branch, 0, 2, STEP.part, 5, STEP.end], lists })).toBe(
      'a branch lacks a part',
    );
    expect(refusal(wide, { steps: [...branch(3, 4), STEP.part, 4, STEP.end], lists })).toContain(
      'steps follow after the end',
    );
  });

  it('a bound is at most one above the limit by which values were deleted', () => {
    // The first variable costs 6, 4 + 4 or 9, whatever the second one is: the optimum is 6. The
    // limit 5 deletes the 6 and the 9, each of which is above it alone, and leaves 4 + 4.
    const pair = build({
      unary: [
        [6, 4, 0],
        [0, 0],
      ],
      edges: [[0, 1, [0, 0, 4, 4, 9, 9]]],
    });
    expect(bruteForce(pair).objective).toBe(6);
    const steps = [STEP.prune, 0, STEP.support];
    expect(verdictOf(pair, { steps, lists: [[5]] })).toEqual({ accepted: true, bound: 6n });
  });

  it('steps where nothing is left say nothing, and are steps all the same', () => {
    // No choice costs 0 or less.
    const nothing = [STEP.prune, 0];
    const proof = (...steps: number[]): Partial<Certificate> => ({
      steps: [...nothing, ...steps],
      lists: [[0]],
    });
    expect(verdictOf(wide, proof(STEP.eliminate, 7, STEP.merge, 1, 2, 3))).toEqual({
      accepted: true,
      bound: 1n,
    });
    expect(refusal(wide, proof(99))).toBe('unknown step 99');
    expect(refusal(wide, proof(STEP.part, 0))).toContain('unknown step');
    expect(refusal(wide, proof(STEP.branch, 0, 1))).toBe('a branch where nothing is left');
    expect(refusal(wide, proof(STEP.merge, 1, 2))).toContain('ends within a step');
  });
});

describe('form', () => {
  it.each<readonly [string, unknown, string]>([
    ['NaN as a step', { steps: [NaN] }, '$.steps[0] is NaN, not an integer'],
    ['a fraction as an argument', { steps: [STEP.eliminate, 0.5] }, '$.steps[1] is 0.5'],
    ['a text as a step', { steps: ['5', 0] }, '$.steps[0] is a string'],
    ['no steps', { steps: undefined }, '$.steps is missing, not a list'],
    ['lists that are none', { lists: [[1], null] }, '$.lists[1] is null'],
    ['a list in a list', { lists: [[[1]]] }, '$.lists[0][0] is a list of 1'],
    ['Infinity in a list', { lists: [[Infinity]] }, '$.lists[0][0] is Infinity'],
    ['a row of no kind', { rows: [{ at: 3 }] }, '$.rows[0] is neither'],
    ['a row that is none', { rows: [null] }, '$.rows[0] is neither'],
    ['a row of both kinds', { rows: [{ row: 0, time: 0 }] }, '$.rows[0] is neither'],
    ['a row by fraction', { rows: [{ row: 0.5 }] }, '$.rows[0].row is 0.5'],
    ['rows that are none', { rows: {} }, '$.rows is an object'],
    ['a problem that is not a text', { problem: 7 }, '$.problem is 7'],
    ['a field of no meaning', { note: 'trust me' }, '$.note is not part of a certificate'],
    ['an unknown version', { version: 3 }, 'version 3 is unknown'],
    ['a proof that ends within a step', { steps: [STEP.merge, 0] }, 'ends within a step'],
    ['a list that is not there', { steps: [STEP.price, 4] }, 'names list 4, of 0'],
    ['an unknown step', { steps: [99] }, 'unknown step 99'],
    ['a stray end', { steps: [STEP.end] }, 'steps follow after the end of the proof'],
    [
      'steps after the end of a proof',
      { steps: [STEP.pareto, STEP.pareto] },
      'steps follow after the end',
    ],
    ['a part outside of a branch', { steps: [STEP.part, 0], lists: [[0]] }, 'unknown step 12'],
    [
      'a part where nothing is left',
      { steps: [STEP.drop, 0, 0, STEP.part, 0], lists: [[0, -1, 1, -1]] },
      'though it has partners',
    ],
    ['a branch of no parts', { steps: [STEP.branch, 0, 0] }, 'has 0 parts'],
    ['a prune with two limits', { steps: [STEP.prune, 0], lists: [[1, 2]] }, 'several limits'],
    ['a stand-in of no value', { steps: [STEP.drop, 0, 0], lists: [[1, -2]] }, 'cannot stand in'],
  ])('%s is refused with its place', (_, proof, reason) => {
    expect(refusal(TWO, proof)).toContain(reason);
  });

  it.each([null, 7, 'text', [], {}])('%j is not a certificate', (certificate) => {
    const said = verifyCertificate(TWO, {
      choice: [],
      objective: Infinity,
      certificate: certificate as unknown as Certificate,
    });
    expect(said.accepted).toBe(false);
    expect(said.reason).toMatch(/not an object|missing/);
  });

  it('an objective that is not an integer is refused', () => {
    const { certificate } = solveNow(TWO);
    for (const objective of [NaN, 1.5, -Infinity])
      expect(
        verifyCertificate(TWO, { choice: [0, 0], objective, certificate: certificate! }).accepted,
      ).toBe(false);
  });
});
