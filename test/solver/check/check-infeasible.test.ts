import { describe, expect, it } from 'vitest';

import { NO_CHOICE, verifyCertificate } from '../../../src/solver/check/verify.ts';
import { solveNow } from '../../../src/solver/solve.ts';
import type { Problem } from '../../../src/solver/types.ts';
import { FULL } from '../../support/full.ts';
import { bruteForce, type Flavour, randomChoice } from '../check-support.ts';

/** Random problems of each kind; all of them with SHARDWRIGHT_FULL. */
const share = FULL ? 1 : 1 / 6;

const SMALL: Flavour = {
  variables: 5,
  values: 4,
  edges: 0.5,
  forbidden: 0.12,
  rows: 1,
  tightness: -0.15,
};

function withBound(problem: Problem, bound: number): Problem {
  return { ...problem, rows: (problem.rows ?? []).map((row) => ({ ...row, bound })) };
}

describe('infeasible problems say what it takes', () => {
  it('one row: the smallest budget is the least amount of any choice', () => {
    let seen = 0;
    for (let seed = 1; seed <= 60 * share; seed++) {
      const problem = randomChoice(seed, SMALL);
      const truth = bruteForce(problem);
      const solution = solveNow(problem);
      if (truth.objective < Infinity) {
        expect(solution.status).toBe('optimal');
        continue;
      }
      expect(solution.status, `seed ${seed}`).toBe('infeasible');
      expect(solution.choice).toHaveLength(0);
      expect(verifyCertificate(problem, solution)).toEqual({ accepted: true, bound: NO_CHOICE });
      const [least] = truth.leastRows;
      if (least === Infinity) {
        expect(solution.smallestBudget).toBeUndefined();
        continue;
      }
      seen++;
      expect(solution.conflict).toEqual(['row 0']);
      expect(solution.smallestBudget, `seed ${seed}`).toBe(least);
      expect(solveNow(withBound(problem, least)).status).toBe('optimal');
      if (least > 0) expect(solveNow(withBound(problem, least - 1)).status).toBe('infeasible');
    }
    expect(seen).toBeGreaterThan(15 * share);
  }, 30_000);

  it('usage over time: the smallest limit is the least peak of any choice', () => {
    let seen = 0;
    for (let seed = 1; seed <= 30 * share; seed++) {
      const problem = randomChoice(seed, { ...SMALL, rows: 0, usage: true, tightness: -0.6 });
      const truth = bruteForce(problem);
      const solution = solveNow(problem);
      expect(solution.status, `seed ${seed}`).toBe(
        truth.objective < Infinity ? 'optimal' : 'infeasible',
      );
      if (truth.objective < Infinity || truth.leastPeak === Infinity) continue;
      seen++;
      expect(solution.smallestBudget, `seed ${seed}`).toBe(truth.leastPeak);
    }
    expect(seen).toBeGreaterThan(5 * share);
  }, 30_000);

  it('several rows: the named ones admit nothing, and any of them left out admits something', () => {
    let [seen, together] = [0, 0];
    for (let seed = 1; seed <= 80 * share; seed++) {
      const problem = randomChoice(seed, { ...SMALL, rows: 3, tightness: 0.12, forbidden: 0.05 });
      const { objective, leastRows } = bruteForce(problem);
      if (objective < Infinity || leastRows.includes(Infinity)) continue;
      seen++;
      const solution = solveNow(problem);
      expect(solution.status).toBe('infeasible');
      const named = (problem.rows ?? []).filter((row) => solution.conflict?.includes(row.name));
      expect(named.length, `seed ${seed}`).toBe(solution.conflict?.length);
      expect(bruteForce({ ...problem, rows: named }).objective).toBe(Infinity);
      for (const row of named) {
        const rest = named.filter((r) => r !== row);
        expect(bruteForce({ ...problem, rows: rest }).objective, `seed ${seed}`).toBeLessThan(
          Infinity,
        );
      }
      if (named.length > 1) together++;
      else expect(solution.smallestBudget).toBe(leastRows[(problem.rows ?? []).indexOf(named[0])]);
    }
    expect(seen).toBeGreaterThan(10 * share);
    expect(together).toBeGreaterThan(share);
  }, 30_000);

  it('no rows at all: names the variables that lose every value', () => {
    const problem = randomChoice(1, { ...SMALL, rows: 0 });
    const { domains, edges } = problem;
    const [i, j] = [edges.first[0], edges.second[0]];
    const { table, firstMap, secondMap } = edges;
    const [k, l] = [problem.tables[table[0]].rows, problem.tables[table[0]].columns];
    const tables = problem.tables.map((t) => t);
    tables.push({ rows: k, columns: l, costs: new Float64Array(k * l).fill(Infinity) });
    const changed = {
      ...edges,
      table: table.map((t, e) => (e === 0 ? tables.length - 1 : t)),
      firstMap,
      secondMap,
    };
    const solution = solveNow({ ...problem, tables, edges: changed });
    expect(domains.length).toBeGreaterThan(1);
    expect(solution.status).toBe('infeasible');
    expect([[`variable ${i}`], [`variable ${j}`]]).toContainEqual(solution.conflict);
  });
});

describe('a clock that has run out', () => {
  it('never says infeasible when there is a choice, nor more than it has proven', () => {
    let unfinished = 0;
    for (let seed = 1; seed <= 60 * share; seed++) {
      const problem = randomChoice(seed, { ...SMALL, tightness: 0.2 });
      const truth = bruteForce(problem);
      const solution = solveNow(problem, { timeLimitSeconds: 0 });
      if (truth.objective === Infinity) {
        expect(solution.status).toBe('infeasible');
        continue;
      }
      expect(['optimal', 'feasible']).toContain(solution.status);
      expect(solution.objective).toBeGreaterThanOrEqual(truth.objective);
      expect(solution.bound).toBeLessThanOrEqual(truth.objective);
      const verdict = verifyCertificate(problem, solution);
      expect(verdict.accepted).toBe(true);
      expect(Number(verdict.bound)).toBe(solution.bound);
      if (solution.status === 'feasible') {
        unfinished++;
        expect(solution.gap).toBeGreaterThan(0);
      } else {
        expect(solution.objective).toBe(truth.objective);
      }
    }
    expect(unfinished).toBeGreaterThan(0);
  });
});

describe('ties', () => {
  it('lexicographic: the smallest choice vector of all optima', () => {
    for (let seed = 1; seed <= 60 * share; seed++) {
      const whole = randomChoice(seed, { ...SMALL, rows: seed % 2, tightness: 0.5 });
      // Few different costs make many ties.
      const coarse = (v: Float64Array): Float64Array =>
        v.map((c) => (c < Infinity ? Math.floor(c / 25) : c));
      const tables = whole.tables.map((t) => ({ ...t, costs: coarse(t.costs) }));
      const problem = { ...whole, vectors: whole.vectors.map(coarse), tables };
      const truth = bruteForce(problem);
      if (truth.objective === Infinity) continue;
      const solution = solveNow(problem, { ties: 'lexicographic' });
      expect(solution.ties).toBe('lexicographic');
      expect([...solution.choice], `seed ${seed}`).toEqual(truth.choice);
      expect(verifyCertificate(problem, solution).bound).toBe(BigInt(truth.objective));
    }
  });
});
