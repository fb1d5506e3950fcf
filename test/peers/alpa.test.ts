import { describe, expect, it } from 'vitest';

import { verifyCertificate } from '../../src/solver/check/verify.ts';
import { ProblemBuilder } from '../../src/solver/problem/builder.ts';
import { solve } from '../../src/solver/solve.ts';
import type { Problem } from '../../src/solver/types.ts';
import { AlpaCosts, type AlpaMesh, bytesOf } from './alpa-costs.ts';
import { type AlpaOptions, alpaProblem, UNITS } from './alpa-problem.ts';
import { attention, DRESSED, mlp, summedDots } from './alpa-programs.ts';
import type { Hlo } from './hlo.ts';

const mesh = (
  a: number,
  b: number,
  beta: readonly [number, number] = [1, 1],
  allGather?: number,
): AlpaMesh => ({
  sizes: [a, b],
  alpha: [1, 1],
  beta,
  ...(allGather === undefined ? {} : { allGather }),
});
const LINE = [mesh(4, 1), mesh(1, 4)];
const GRIDS = [
  [4, 8],
  [8, 4],
  [3, 4],
].map(([a, b]) => mesh(a, b, [1, 0.01]));

interface Case {
  readonly id: string;
  readonly program: () => Hlo;
  readonly meshes: readonly AlpaMesh[];
  readonly options?: AlpaOptions;
  /** Cost in Alpa's units, per mesh where it differs. */
  readonly optimum: readonly number[];
  /** Instructions, free variables, edges, binaries, as far as stated. */
  readonly counts: readonly (number | undefined)[];
}

const CASES: readonly Case[] = [
  {
    id: 'A1',
    program: () => mlp(2, 1024, 128),
    meshes: LINE,
    optimum: [196614.02],
    counts: [16, 9, 13, 144],
  },
  {
    id: 'A2',
    program: () => mlp(2, 128, 1024),
    meshes: LINE,
    optimum: [786437.01],
    counts: [16, 9, 13, 144],
  },
  {
    id: 'A3',
    program: () => mlp(12, 1024, 128),
    meshes: LINE,
    optimum: [1179684.12],
    counts: [66, 49, 83, 894],
  },
  {
    id: 'A4',
    program: () => mlp(12, 128, 1024),
    meshes: LINE,
    optimum: [8650767.11],
    counts: [66, 49, 83, 894],
  },
  {
    id: 'A5-A7',
    program: () => mlp(2, 1024, 128),
    meshes: GRIDS,
    optimum: [26872.03, 58330.03, 46314.03],
    counts: [16, 9, 13, 470],
  },
  {
    id: 'A8-A10',
    program: () => mlp(12, 1024, 128),
    meshes: GRIDS,
    optimum: [172702.23, 354900.23, 290994.23],
    counts: [66, 49, 83, 3040],
  },
  {
    id: 'A11',
    program: () => mlp(2, 1024, 128, true),
    meshes: LINE,
    optimum: [198156.04],
    counts: [26, 11, 16, 166],
  },
  {
    id: 'A12',
    program: () => mlp(2, 128, 1024, true),
    meshes: LINE,
    optimum: [786439.01],
    counts: [26, 11, 16, 166],
  },
  {
    id: 'A13-A15',
    program: () => mlp(2, 1024, 128, true),
    meshes: GRIDS,
    optimum: [27740.05, 59454.05, 47170.05],
    counts: [undefined, undefined, undefined, 530],
  },
  {
    id: 'A16',
    program: () => mlp(2, 128, 1024),
    meshes: [mesh(4, 1, [1, 1], 1e10)],
    options: { batchAxis: 0 },
    optimum: [12582918.02],
    counts: [16, 6, 3, 45],
  },
  ...DRESSED.map((program, i) => ({
    id: `A${17 + i}`,
    program,
    meshes: [i % 2 === 0 ? mesh(1, 4, [1, 1], 1e8) : mesh(4, 1, [1, 1], 1e8)],
    optimum: [98305.01],
    counts: [undefined, undefined, undefined, 27],
  })),
  {
    id: 'A21',
    program: () => summedDots(2, false),
    meshes: [mesh(1, 4, [1, 1], 1e8)],
    optimum: [196610.02],
    counts: [undefined, undefined, undefined, 57],
  },
  {
    id: 'A22',
    program: () => summedDots(3, true),
    meshes: [mesh(1, 4, [1, 1], 1e8)],
    optimum: [294917.03],
    counts: [undefined, undefined, undefined, 103],
  },
  {
    id: 'A23',
    program: () => attention(4, 128, 512, 16),
    meshes: [mesh(4, 1, [1, 1], 1e8), mesh(1, 4, [1, 1], 1e8)],
    optimum: [1572871.01],
    counts: [60, 16, 16, 258],
  },
  {
    id: 'A24',
    program: () => attention(4, 128, 2048, 16, true),
    meshes: [mesh(4, 4, [1, 1], 1e8)],
    optimum: [1572869.01],
    counts: [59, 14, 11, 484],
  },
];

/**
 * Solves with proof; the checker replays the proof and evaluates the choice. @returns cost in
 * Alpa's units
 */
async function proven(problem: Problem): Promise<number> {
  const solution = await solve(problem);
  expect(solution.status).toBe('optimal');
  const { accepted, bound, reason } = verifyCertificate(problem, solution);
  expect(reason).toBeUndefined();
  expect(accepted).toBe(true);
  expect(bound).toBe(BigInt(solution.objective));
  return solution.objective / UNITS;
}

describe('programs of Alpa with its literal costs', () => {
  it.each(CASES)('$id', async ({ program, meshes, options, optimum, counts }) => {
    for (const [m, on] of meshes.entries()) {
      const hlo = program();
      const made = alpaProblem(hlo, on, options);
      const own = [hlo.instructions.length, made.free, made.edges, made.binaries];
      counts.forEach((count, i) => {
        if (count !== undefined) expect(own[i]).toBe(count);
      });
      expect(await proven(made.problem)).toBe(optimum[m] ?? optimum[0]);
    }
  });

  it('A21 with pending sums: one all-reduce serves both products', async () => {
    // Values of product and sum on four devices: rows cut, columns cut, operands of a pending sum.
    const reduce = new AlpaCosts(mesh(1, 4)).allReduce(bytesOf([128, 128]), 1) * UNITS;
    const gather = 1e8 * UNITS;
    const b = new ProblemBuilder();
    const free = Float64Array.of(0, 0, 0);
    const inputs = [b.addVariable(free), b.addVariable(free)];
    // The result is asked for whole: gathered, or reduced.
    const sum = b.addVariable(Float64Array.of(gather, gather, reduce));
    for (const i of inputs)
      b.addEdge(
        i,
        sum,
        Float64Array.of(0, gather, Infinity, gather, 0, Infinity, reduce, reduce, 0),
      );
    expect(await proven(b.build())).toBe(98305.01);
  });
});

describe('resharding costs of Alpa', () => {
  it.each([
    ['equal', [0, 1], [0, 1], 0],
    ['slicing', [0, -1], [0, 1], 0],
    ['S0S1 to S0R', [0, 1], [0, -1], 43691.1],
    ['S0S1 to RR', [0, 1], [-1, -1], 76460.2],
  ] as const)('%s', (_, from, to, seconds) => {
    expect(new AlpaCosts(mesh(2, 3)).reshard([128, 128], from, to)).toBeCloseTo(seconds, 9);
  });

  it('an axis of one device', () => {
    expect(new AlpaCosts(mesh(1, 3)).reshard([128, 128], [0, -1], [-1, -1])).toBe(0);
    expect(new AlpaCosts(mesh(2, 1)).reshard([128, 128], [-1, 1], [1, -1])).toBe(0);
  });
});
