import { existsSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

import { describe, expect, it } from 'vitest';

import { IopddlError, readIopddl } from '../../../src/contest/iopddl.ts';
import { evaluate } from '../../../src/solver/check/verify.ts';
import { solve } from '../../../src/solver/solve.ts';
import type { Problem } from '../../../src/solver/types.ts';
import { FULL } from '../../support/full.ts';

// The contest's files are not ours to copy: they are read beside the checkout, and their tests are
// skipped without them.
const FILES = new URL('../../../../shared/fixtures/iopddl/', import.meta.url);
const has = (name: string): boolean => existsSync(new URL(name, FILES));

interface Example {
  problem: {
    nodes: { intervals: number[][]; costs: number[][]; usages: number[][] };
    edges: { nodes: number[][]; costs: number[][] };
    usage_limit?: number;
  };
}
type Edit = (file: Example) => void;
const example = (edit: Edit = () => undefined): Problem => {
  const file = JSON.parse(readFileSync(new URL('example.json', FILES), 'utf8')) as Example;
  edit(file);
  return readIopddl(file);
};

/** A small instance of our own in the same format. */
const OWN: Example = {
  problem: {
    nodes: {
      intervals: [
        [0, 4],
        [1, 5],
        [2, 6],
        [5, 8],
        [4, 8],
      ],
      costs: [[7], [3, 9], [4, 2, 8], [6, 1], [5]],
      usages: [[2], [3, 1], [4, 6, 1], [2, 2], [3]],
    },
    edges: {
      nodes: [
        [0, 1],
        [0, 2],
        [1, 3],
        [2, 4],
        [3, 4],
      ],
      costs: [
        [2, 8],
        [1, 5, 3],
        [0, 7, 9, 2],
        [4, 6, 1],
        [3, 8],
      ],
    },
    usage_limit: 10,
  },
};
const own = (edit: Edit = () => undefined): Problem => {
  const file = structuredClone(OWN);
  edit(file);
  return readIopddl(file);
};

/** Least cost over all twelve choices, by the evaluator alone. */
function least(problem: Problem): number {
  let best = Infinity;
  for (let k = 0; k < 12; k++) {
    const found = evaluate(problem, [0, k % 2, Math.floor(k / 2) % 3, Math.floor(k / 6), 0]);
    if (found.violations.length === 0) best = Math.min(best, Number(found.cost));
  }
  return best;
}

describe.skipIf(!has('example.json'))(
  'IOPDDL: the example of the contest (../shared/fixtures/iopddl)',
  () => {
    it('all twelve choices, and the optimum 445', async () => {
      const table =
        '00000 575 50,00010 475 50,00100 515 55,00110 415 55,00200 545 50,00210 445 50,01000 525 50,01010 565 50,01100 465 55,01110 505 55,01200 495 50,01210 535 50';
      for (const line of table.split(',')) {
        const [choice, cost, peak] = line.split(' ');
        const found = evaluate(example(), [...choice].map(Number));
        expect([choice, found.cost, found.peak]).toEqual([choice, BigInt(cost), BigInt(peak)]);
        expect(found.violations.map((v) => v.code)).toEqual(Number(peak) > 50 ? ['memory'] : []);
      }
      for (const engine of ['auto', 'exact', 'highs', 'javascript-lp-solver'] as const) {
        const solution = await solve(example(), { engine });
        expect([solution.objective, solution.bound, [...solution.choice]], engine).toEqual([
          445,
          445,
          [0, 0, 2, 1, 0],
        ]);
      }
    });

    it('415 without a limit, with a second opinion; the evaluator refuses what is not a choice', async () => {
      const free = example((f) => delete f.problem.usage_limit);
      const solution = await solve(free);
      expect([solution.status, solution.objective, [...solution.choice]]).toEqual([
        'optimal',
        415,
        [0, 0, 1, 1, 0],
      ]);
      expect(solution.secondOpinion).toBe('javascript-lp-solver agrees: 415');
      expect(evaluate(example(), [0, 1, 2, 0, 0])).toMatchObject({
        cost: 495n,
        unaryCost: 295n,
        edgeCost: 200n,
      });
      const codes = (choice: number[]): string[] =>
        evaluate(example(), choice).violations.map((v) => v.code);
      expect(codes([0, 0, 1, 1, 0])).toEqual(['memory']);
      expect(codes([0, 0, 1, 1, 0, 0])).toEqual(['length']);
      expect(codes([0, 0, 1, 1])).toEqual(['length']);
      expect(codes([0, -1, 1, 1, 0])).toEqual(['range']);
      expect(codes([0, 4, 1, 1, 0])).toEqual(['range']);
    });

    it('a limit of 49 or 0 is infeasible', async () => {
      for (const limit of [49, 0]) {
        const solution = await solve(example((f) => (f.problem.usage_limit = limit)));
        expect(solution.status).toBe('infeasible');
        expect(solution.choice).toHaveLength(0);
        expect(solution.conflict?.length).toBeGreaterThan(0);
      }
    });

    it('node 3 pinned to 0', async () => {
      const pin = (f: Example): void => void (f.problem.nodes.costs[3][1] = 1e18);
      const pinned = await solve(example(pin));
      expect([pinned.objective, [...pinned.choice]]).toEqual([495, [0, 1, 2, 0, 0]]);
      const free = await solve(
        example((f) => {
          pin(f);
          delete f.problem.usage_limit;
        }),
      );
      expect([free.objective, [...free.choice]]).toEqual([465, [0, 1, 1, 0, 0]]);
    });
  },
);

describe('IOPDDL: the format', () => {
  it('reads costs, edges row by row, half-open intervals and the limit', async () => {
    // Node 2 in strategy 1 needs 6 while node 1 (3) and node 0 (2) live: 11 > 10.
    expect(evaluate(own(), [0, 0, 1, 1, 0]).violations.map((v) => v.code)).toEqual(['memory']);
    // 7 + 3 + 4 + 1 + 5 and edges 2 + 1 + 7 + 4 + 8; nodes 1, 2 and 4 live at 4: 3 + 4 + 3.
    expect(evaluate(own(), [0, 0, 0, 1, 0])).toMatchObject({
      cost: 42n,
      peak: 10n,
      violations: [],
    });
    for (const limit of [10, 9, 8, undefined]) {
      const problem = own((f) => {
        if (limit === undefined) delete f.problem.usage_limit;
        else f.problem.usage_limit = limit;
      });
      expect((await solve(problem)).objective).toBe(least(problem));
    }
  });

  it('reads forbidden costs, empty intervals and edges listed in descending order', async () => {
    const problem = own((f) => {
      f.problem.nodes.intervals[0] = [3, 3];
      f.problem.edges.nodes[2] = [3, 1];
      f.problem.edges.costs[2] = [0, 9, 1e18, 2];
    });
    expect(problem.usage?.pieces).toHaveLength(4);
    // The memory fits, but the cell (3 = 1, 1 = 0) is forbidden.
    expect(evaluate(problem, [0, 0, 0, 1, 0]).violations.map((v) => v.code)).toEqual([
      'forbidden-edge',
    ]);
    expect((await solve(problem)).objective).toBe(least(problem));
  });

  it('adds an edge of one node to its costs, as the evaluator of the contest does', async () => {
    const problem = own((f) => {
      f.problem.edges.nodes.push([2], [3]);
      f.problem.edges.costs.push([5, 0, 1e18], [0, 3]);
    });
    const [at2, at3] = [
      [5, 0, Infinity],
      [0, 3],
    ];
    const before = own();
    for (let k = 0; k < 12; k++) {
      const choice = [0, k % 2, Math.floor(k / 2) % 3, Math.floor(k / 6), 0];
      const more = at2[choice[2]] + at3[choice[3]];
      const found = evaluate(problem, choice);
      if (more === Infinity)
        expect(found.violations.map((v) => v.code)).toContain('forbidden-node');
      else expect(found.cost).toBe(evaluate(before, choice).cost + BigInt(more));
    }
    expect((await solve(problem)).objective).toBe(least(problem));
  });

  it('refuses an edge of three nodes or of none by name', () => {
    for (const nodes of [[0, 1, 2], []])
      expect(() => own((f) => void (f.problem.edges.nodes[1] = nodes))).toThrow(
        `problem.edges.nodes[1]: expected one or two nodes, got "an edge of ${nodes.length} nodes"`,
      );
  });

  it('refuses costs and usages whose sums a double does not hold', () => {
    const name = '../../fixtures/iopddl/row-sums-above-2-53.json';
    const large: unknown = JSON.parse(readFileSync(new URL(name, import.meta.url), 'utf8'));
    expect(() => readIopddl(large)).toThrow(/^problem\.nodes\.usages: .* at time 0 /);
    const costs = (x: number) => (): unknown => own((f) => void (f.problem.nodes.costs[0][0] = x));
    expect(costs(2 ** 52)).toThrow(/^problem: .* at most 2\^52/);
    expect(costs(2 ** 52 - 100)).not.toThrow();
    try {
      readIopddl(large);
    } catch (error) {
      expect(error).toMatchObject({ code: 'E_LIMIT' });
    }
  });

  it.each([
    ['problem.nodes', (f: Example): unknown => ({ problem: { ...f.problem, nodes: 7 } })],
    ['problem.edges.costs[3]', (f: Example): unknown => (f.problem.edges.costs[3].pop(), f)],
    ['problem.edges.nodes[1]', (f: Example): unknown => ((f.problem.edges.nodes[1][1] = 5), f)],
    ['problem.nodes.costs[2][1]', (f: Example): unknown => ((f.problem.nodes.costs[2][1] = -1), f)],
    [
      'problem.nodes.costs[2][0]',
      (f: Example): unknown => ((f.problem.nodes.costs[2][0] = 2 ** 54), f),
    ],
    ['problem.nodes.usages[1]', (f: Example): unknown => (f.problem.nodes.usages[1].push(3), f)],
    ['problem.nodes.intervals', (f: Example): unknown => (f.problem.nodes.intervals.pop(), f)],
    [
      'problem.usage_limit',
      (f: Example): unknown => ({ problem: { ...f.problem, usage_limit: 'much' } }),
    ],
  ])('refuses a fault at %s and says where', (path, edit) => {
    const broken = edit(structuredClone(OWN));
    expect(() => readIopddl(broken)).toThrow(IopddlError);
    expect(() => readIopddl(broken)).toThrow(path);
  });
});

/** Optima of two public files, from the contest (proven by its organisers and by others). */
const PUBLIC: readonly (readonly [string, number, number, number, number])[] = [
  ['B', 816, 1096, 532843, 20],
  ['G', 816, 1023, 217039, 20],
  ['V', 816, 1023, 1617084, 8],
];

describe('IOPDDL: public files (../shared/fixtures/iopddl)', () => {
  for (const [letter, nodes, edges, optimum, seconds] of PUBLIC) {
    const name = `${letter}.json.gz`;
    it.skipIf(!has(name) || ('BGV'.includes(letter) && !FULL))(
      `${letter}: a checked choice in time, bound and cost on both sides of the optimum`,
      async () => {
        const problem = readIopddl(
          JSON.parse(gunzipSync(readFileSync(new URL(name, FILES))).toString()),
        );
        expect([problem.domains.length, problem.edges.first.length]).toEqual([nodes, edges]);
        const solution = await solve(problem, { timeLimitSeconds: seconds });
        expect(solution.choice).toHaveLength(nodes);
        expect(evaluate(problem, solution.choice)).toMatchObject({
          violations: [],
          cost: BigInt(solution.objective),
        });
        expect(solution.objective).toBeGreaterThanOrEqual(optimum);
        expect(solution.bound).toBeLessThanOrEqual(optimum);
        expect(solution.bound).toBeGreaterThan(0);
        if (solution.status === 'optimal') expect(solution.objective).toBe(optimum);
      },
      60_000,
    );
  }
});
