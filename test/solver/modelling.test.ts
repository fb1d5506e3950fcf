import { describe, expect, it } from 'vitest';

import { encode } from '../../src/solver/milp/encode.ts';
import { networkOf } from '../../src/solver/network/from-problem.ts';
import { ProblemBuilder } from '../../src/solver/problem/builder.ts';
import { Reducer } from '../../src/solver/reduce/presolve.ts';
import { solve } from '../../src/solver/solve.ts';
import { Pool } from '../../src/solver/store/pool.ts';
import type { Problem } from '../../src/solver/types.ts';
import { build } from './support.ts';

describe('a redistribution that several consumers share is paid once', () => {
  const R = [100, 0]; // a consumer: wants S0 (50), wants R (0); the producer: S0 (0), R (100)
  const consumers = [1, 2, 3];
  const unary = [[0, R[0]], ...consumers.map(() => [0, 50])];

  it('priced per edge the optimum is 100, with the producer replicated', async () => {
    // Rows: producer S0, R; columns: wants R, wants S0. A replicated tensor is sliced for free.
    const edges = consumers.map((c): [number, number, number[]] => [0, c, [60, 0, 0, 0]]);
    const solution = await solve(build({ unary, edges }));
    expect([solution.status, solution.objective, [...solution.choice]]).toEqual([
      'optimal',
      100,
      [1, 0, 0, 0],
    ]);
  });

  it('with one auxiliary variable per wanted placement it is 60', async () => {
    const z = 4; // absent, a copy made from S0 (60), a copy made from R (0)
    const I = Infinity;
    const edges: [number, number, number[]][] = [
      [0, z, [0, 0, I, 0, I, 0]],
      ...consumers.map((c): [number, number, number[]] => [z, c, [I, 0, 0, 0, 0, 0]]),
    ];
    for (const compress of [false, true]) {
      const solution = await solve(build({ unary: [...unary, [0, 60, 0]], edges }, compress));
      expect([solution.status, solution.objective, [...solution.choice]]).toEqual([
        'optimal',
        60,
        [0, 0, 0, 0, 1],
      ]);
    }
  });
});

describe('pairing', () => {
  /**
   * Parameter {S0, R} and gradient {S0, P}: only S0 pairs. A pin makes every other value infinite.
   */
  const pairing = (parameter: number[], gradient: number[]): Problem =>
    build({ unary: [parameter, gradient], edges: [[0, 1, [0, Infinity, Infinity, Infinity]]] });

  it('deletes the value without a partner on both sides', async () => {
    const problem = pairing([7, 0], [3, 0]);
    const solution = await solve(problem);
    expect([solution.status, solution.objective, [...solution.choice]]).toEqual([
      'optimal',
      10,
      [0, 0],
    ]);
    expect(encode(problem).columns).toBe(2);
    const net = networkOf(problem, new Pool());
    expect(new Reducer().reduce(net)).toBe(true);
    expect([...net.size].filter((_, i) => net.gone[i] === 0).every((k) => k === 1)).toBe(true);
    expect([...net.complete(new Int32Array(net.count))]).toEqual([0, 0]);
  });

  it('a pin against the pairing is infeasible in every engine', async () => {
    for (const problem of [pairing([Infinity, 0], [3, 0]), pairing([7, 0], [Infinity, 0])]) {
      for (const engine of ['exact', 'highs', 'javascript-lp-solver'] as const) {
        const solution = await solve(problem, { engine });
        expect([solution.status, solution.objective, solution.choice.length]).toEqual([
          'infeasible',
          Infinity,
          0,
        ]);
      }
    }
  });
});

describe('validation', () => {
  it('malformed problems are refused', () => {
    const b = new ProblemBuilder();
    b.addVariable(Float64Array.of(0, 1.5));
    expect(() => b.build()).toThrow(/vector 0 holds 1.5/);
    const f = new ProblemBuilder();
    f.addVariable(Float64Array.of(0, 1e18));
    expect(() => f.build()).toThrow(
      /vector 0 holds 1000000000000000000 at 1; costs are integers below 2\^53 or Infinity/,
    );
    const c = new ProblemBuilder();
    c.addVariable(Float64Array.of(0, 1));
    c.addVariable(Float64Array.of(0, 1));
    c.addEdge(0, 1, Float64Array.of(0, 1, 2));
    expect(() => c.build()).toThrow(/table 0/);
  });
});
