/**
 * Proofs by messages alone: the checker's bound against brute force, and long layered problems
 * against dynamic programming (that real layers are proven this way: test/plan/deep.test.ts).
 */
import { describe, expect, it } from 'vitest';

import { STEP } from '../../src/solver/check/certificate-format.ts';
import { hashProblem, verifyCertificate } from '../../src/solver/check/verify.ts';
import { ProblemBuilder } from '../../src/solver/problem/builder.ts';
import { solveNow } from '../../src/solver/solve.ts';
import type { Certificate, Problem } from '../../src/solver/types.ts';
import { FULL } from '../support/full.ts';
import { bruteForce, dice, randomChoice } from './check-support.ts';

/** Random messages for the first edge of every pair of variables. */
function randomMessages(problem: Problem, seed: number): Certificate {
  const roll = dice(seed + 1);
  const { first, second } = problem.edges;
  const lists: number[][] = [[]];
  const leaders = new Map<string, number>();
  const steps: number[] = [];
  const triples: number[] = [];
  for (let e = 0; e < first.length; e++) {
    if (first[e] === second[e]) continue;
    const pair = [first[e], second[e]].sort((a, b) => a - b).join();
    const leader = leaders.get(pair);
    if (leader === undefined) leaders.set(pair, e);
    else steps.push(STEP.add, leader, e);
    if (leader !== undefined || roll(5) === 0) continue;
    const list = (v: number): number =>
      lists.push(Array.from({ length: problem.domains[v] }, () => roll(61) - 30)) - 1;
    triples.push(e, list(first[e]), list(second[e]));
  }
  steps.push(STEP.messages, 0, 0, lists.push(triples) - 1);
  return { version: 2, problem: hashProblem(problem), rows: [], steps, lists };
}

const none = { choice: new Int32Array(0), objective: Infinity };

describe('the checker on messages', () => {
  it('never proves more than the optimum, whatever the messages', () => {
    let tight = 0;
    for (let seed = 1; seed <= (FULL ? 300 : 100); seed++) {
      const problem = randomChoice(seed, {
        variables: 5,
        values: 4,
        edges: 0.6,
        forbidden: 0.15,
        rows: 0,
      });
      const { accepted, bound, reason } = verifyCertificate(problem, {
        ...none,
        certificate: randomMessages(problem, seed),
      });
      expect(accepted, `seed ${seed}: ${reason}`).toBe(true);
      const { objective } = bruteForce(problem);
      if (objective < Infinity)
        expect(Number(bound), `seed ${seed}`).toBeLessThanOrEqual(objective);
      if (Number(bound) === objective) tight++;
    }
    // Some of these problems have no real choice left, so that any messages are tight.
    expect(tight).toBeGreaterThan(0);
  });

  const b = new ProblemBuilder();
  const f = (...costs: number[]): Float64Array => Float64Array.from(costs);
  const [x, y, z] = [b.addVariable(f(0, 10)), b.addVariable(f(0, 0)), b.addVariable(f(4, 0))];
  b.addEdge(x, y, f(5, 3, 0, 2));
  b.addEdge(y, z, f(0, 7, 8, 1));
  b.addEdge(y, x, f(1, 0, 0, 1));
  const problem = b.build();
  const certificate = (over: Partial<Certificate>): Certificate => ({
    version: 2,
    problem: hashProblem(problem),
    rows: [],
    steps: [STEP.add, 0, 2, STEP.messages, 0, 0, 1],
    lists: [[], [0, 2, 3], [3, 1], [1, 0]],
    ...over,
  });
  const verify = (over: Partial<Certificate>) =>
    verifyCertificate(problem, { ...none, certificate: certificate(over) });

  it('sums the rest of the edges and the least cost of the variables, parallel edges as one', () => {
    // x and y together: 6 3 / 0 3 less 3 1 in rows, less 1 0 in columns: 2 0 / -2 2; y-z keeps its
    // least 0. x: 3 11, y: 1 0, z: 4 0.
    expect(verify({})).toMatchObject({ accepted: true, bound: -2n + 0n + 3n + 0n + 0n });
  });

  it.each([
    ['that are not triples', { lists: [[], [0, 2], [3, 1], [1, 0]] }, 'not in triples'],
    ['without their lists', { steps: [STEP.add, 0, 2, STEP.messages, 0, 0] }, 'ends within a step'],
    [
      'followed by an elimination',
      { steps: [STEP.add, 0, 2, STEP.messages, 0, 0, 1, STEP.eliminate, 0] },
      'follows messages',
    ],
    [
      'with a list that is not there',
      { lists: [[], [0, 9, 3], [3, 1], [1, 0]] },
      'names list 9, of 4',
    ],
    [
      'with a list of another length',
      { lists: [[], [0, 2, 3], [3, 1, 0], [1, 0]] },
      '3 entries for 2 values',
    ],
    ['with fractions', { lists: [[], [0, 2, 3], [3, 0.5], [1, 0]] }, 'not an integer'],
    [
      'with more than can be summed',
      { lists: [[], [0, 2, 3], [3, 2 ** 51], [1, 0]] },
      'larger than 2^50',
    ],
    [
      'for an edge that is part of another',
      { lists: [[], [0, 2, 3, 2, 2, 3], [3, 1], [1, 0]] },
      'factor 2 is not there',
    ],
    ['twice for an edge', { lists: [[], [0, 2, 3, 0, 2, 3], [3, 1], [1, 0]] }, 'messages twice'],
    ['with a price of no row', { lists: [[1], [0, 2, 3], [3, 1], [1, 0]] }, '1 prices for 0 rows'],
  ])('refuses messages %s', (_, over, reason) => {
    const verdict = verify(over);
    expect(verdict.accepted).toBe(false);
    expect(verdict.reason).toContain(reason);
  });

  it('refuses format 1, which is not read any more', () => {
    expect(verify({ version: 1 } as unknown as Partial<Certificate>).reason).toContain(
      'solve again',
    );
  });

  it('rounds a bound up to what all costs are multiples of', () => {
    const twice = new ProblemBuilder();
    const [p, q] = [twice.addVariable(f(0, 24)), twice.addVariable(f(8, 0))];
    twice.addEdge(p, q, f(16, 40, 0, 8));
    const even = twice.build();
    // Bound 24 less 3: nothing lies between two multiples of 8.
    const steps = [STEP.messages, 0, 0, 1];
    const lists = [[], [0, 2, 3], [0, 0], [-3, 0]];
    const proof = { version: 2, problem: hashProblem(even), rows: [], steps, lists } as const;
    const { bound } = verifyCertificate(even, { ...none, certificate: proof });
    expect(Number(bound) % 8).toBe(0);
    expect(Number(bound)).toBeLessThanOrEqual(bruteForce(even).objective);
  });
});

/** A chain of equal layers (a, b, c in a row, c to the next a), all of whose b read one hub. */
function withHub(seed: number, layers: number): { problem: Problem; optimum: number } {
  const roll = dice(seed);
  const costs = (n: number): Float64Array =>
    Float64Array.from({ length: n }, () => 4096 * roll(50));
  // The first value is expensive once and free for every reader.
  const hubCosts = costs(3);
  hubCosts[0] += 4096 * 500;
  const own = [costs(3), costs(4), costs(3)];
  const inside = [costs(12), costs(12)];
  // Layers like to agree, as placements along a residual stream do.
  const across = costs(9).map((c, at) => (at % 4 === 0 ? 0 : c + 4096 * 20));
  const read = costs(12).map((c, at) => (at < 4 ? 0 : c + 4096 * 10));
  const b = new ProblemBuilder();
  const hub = b.addVariable(hubCosts);
  let before = -1;
  for (let l = 0; l < layers; l++) {
    const [i, j, k] = own.map((c) => b.addVariable(c));
    b.addEdge(i, j, inside[0]);
    b.addEdge(j, k, inside[1]);
    b.addEdge(hub, j, read);
    if (before >= 0) b.addEdge(before, i, across);
    before = k;
  }
  let optimum = Infinity;
  for (let h = 0; h < 3; h++) {
    let least = new Float64Array(3);
    for (let l = 0; l < layers; l++) {
      const enter = own[0].map(
        (c, i) => c + (l === 0 ? 0 : Math.min(...least.map((t, k) => t + across[k * 3 + i]))),
      );
      const middle = own[1].map(
        (c, j) => c + read[h * 4 + j] + Math.min(...enter.map((t, i) => t + inside[0][i * 4 + j])),
      );
      least = own[2].map((c, k) => c + Math.min(...middle.map((t, j) => t + inside[1][j * 3 + k])));
    }
    optimum = Math.min(optimum, hubCosts[h] + Math.min(...least));
  }
  return { problem: b.build(), optimum };
}

describe('long layered problems', () => {
  it('cost what dynamic programming says', () => {
    for (let seed = 1; seed <= (FULL ? 4 : 1); seed++) {
      const { problem, optimum } = withHub(seed, 520);
      const solution = solveNow(problem);
      expect(solution, `seed ${seed}`).toMatchObject({
        status: 'optimal',
        objective: optimum,
        bound: optimum,
        gap: 0,
      });
      expect(verifyCertificate(problem, solution).accepted).toBe(true);
    }
  });
});
