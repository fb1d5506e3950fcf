import { describe, expect, it } from 'vitest';

import { STEP } from '../../../src/solver/check/certificate-format.ts';
import { hashProblem, NO_CHOICE, verifyCertificate } from '../../../src/solver/check/verify.ts';
import { eliminationCertificate } from '../../../src/solver/search/answer/certify.ts';
import { solveNow } from '../../../src/solver/solve.ts';
import type { Certificate, Problem, Solution } from '../../../src/solver/types.ts';
import { FULL } from '../../support/full.ts';
import { changedLists, changedRows, changedSteps, drawn, stepsOf } from '../certificate-support.ts';
import { bruteForce, type Flavour, randomChoice } from '../check-support.ts';

const PLAIN: Flavour = { variables: 6, values: 4, edges: 0.6, forbidden: 0.15, rows: 0 };
const FLAVOURS: readonly (readonly [string, Flavour, number])[] = [
  ['no rows', PLAIN, 200],
  ['many forbidden pairs', { ...PLAIN, forbidden: 0.45 }, 60],
  ['one row', { ...PLAIN, rows: 1 }, 150],
  ['a tight row', { ...PLAIN, rows: 1, tightness: 0.12 }, 80],
  ['three rows', { ...PLAIN, variables: 5, rows: 3, tightness: 0.5 }, 60],
  ['usage over time', { ...PLAIN, variables: 5, rows: 0, usage: true, tightness: 0.3 }, 60],
  ['repeated layers', { ...PLAIN, variables: 2, values: 3, layers: 5, edges: 1.2 }, 60],
  [
    'repeated layers with a row',
    { ...PLAIN, variables: 2, values: 3, layers: 4, edges: 1.2, rows: 1 },
    40,
  ],
];

function solved(problem: Problem): Solution & { readonly certificate: Certificate } {
  const solution = solveNow(problem);
  const { certificate } = solution;
  if (certificate === undefined) throw new Error('the solution has no certificate');
  return { ...solution, certificate };
}

describe('every optimum carries an accepted certificate', () => {
  for (const [name, flavour, most] of FLAVOURS) {
    const count = FULL ? most : most / 10;
    it(`equals exhaustive search on ${count} random problems: ${name}`, () => {
      let feasible = 0;
      for (let seed = 1; seed <= count; seed++) {
        const problem = randomChoice(seed, flavour);
        const truth = bruteForce(problem);
        const solution = solved(problem);
        const verdict = verifyCertificate(problem, solution);
        const label = `${name}, seed ${seed}`;
        expect(verdict.reason, label).toBeUndefined();
        expect(solution.evidence, label).toBeUndefined();
        if (truth.objective === Infinity) {
          expect(solution.status, label).toBe('infeasible');
          expect(verdict.bound, label).toBe(NO_CHOICE);
          continue;
        }
        feasible++;
        expect(solution.status, label).toBe('optimal');
        expect(solution.objective, label).toBe(truth.objective);
        expect(verdict.bound, label).toBe(BigInt(truth.objective));
      }
      expect(feasible).toBeGreaterThan(count / 10);
    }, 60_000);
  }

  it('a certificate survives JSON', () => {
    const problem = randomChoice(3, { ...PLAIN, rows: 1 });
    const solution = solved(problem);
    const copy: Certificate = structuredClone(solution.certificate);
    const read = JSON.parse(JSON.stringify(copy)) as Certificate;
    expect(read).toEqual(solution.certificate);
    expect(verifyCertificate(problem, { ...solution, certificate: read }).accepted).toBe(true);
  });

  it('is one plain elimination for a small problem, too', () => {
    for (let seed = 1; seed <= 40; seed++) {
      const problem = randomChoice(seed, { ...PLAIN, rows: seed % 2 });
      const truth = bruteForce(problem);
      if (truth.objective === Infinity) continue;
      const rows = (problem.rows ?? []).map((_, row) => ({ row }));
      const certificate = eliminationCertificate(problem, hashProblem(problem), rows);
      if (certificate === undefined) throw new Error('none was written');
      const verdict = verifyCertificate(problem, {
        choice: truth.choice,
        objective: truth.objective,
        certificate,
      });
      expect(verdict).toEqual({ accepted: true, bound: BigInt(truth.objective) });
    }
  });
});

describe('a changed certificate never proves more than is true', () => {
  const cases = FLAVOURS.flatMap(([name, flavour]) =>
    (FULL ? [1, 2, 3, 4, 5, 6] : [1, 2]).map(
      (seed) => [name, randomChoice(seed, flavour)] as const,
    ),
  );
  const subjects = cases
    .map(([name, problem]) => ({ name, problem, truth: bruteForce(problem) }))
    .filter((s) => s.truth.objective < Infinity)
    .map((s) => ({ ...s, solution: solved(s.problem) }));

  /** The verdict on a changed certificate; its bound must not exceed the optimum. */
  const judged = (s: (typeof subjects)[number], certificate: Certificate): boolean => {
    const verdict = verifyCertificate(s.problem, {
      choice: new Int32Array(0),
      objective: Infinity,
      certificate,
    });
    if (verdict.accepted)
      expect(Number(verdict.bound), s.name).toBeLessThanOrEqual(s.truth.objective);
    return verdict.accepted && verdict.bound === BigInt(s.truth.objective);
  };

  it('has subjects with messages, prices, deletions and eliminations', () => {
    const codes = new Set(
      subjects.flatMap((s) => stepsOf(s.solution.certificate).map(([code]) => code)),
    );
    for (const code of [
      STEP.drop,
      STEP.merge,
      STEP.shift,
      STEP.prune,
      STEP.eliminate,
      STEP.price,
      STEP.pareto,
    ]) {
      expect(codes).toContain(code);
    }
  });

  it('another problem, another hash: refused', () => {
    for (const s of subjects) {
      const certificate = { ...s.solution.certificate, problem: '0123456789abcdef' };
      expect(verifyCertificate(s.problem, { ...s.solution, certificate }).accepted).toBe(false);
      const vectors = s.problem.vectors.map((v, k) => (k === 0 ? v.map((c) => c + 1) : v));
      expect(verifyCertificate({ ...s.problem, vectors }, s.solution).accepted).toBe(false);
    }
  });

  it('a wrong objective or choice: refused', () => {
    for (const s of subjects) {
      expect(
        verifyCertificate(s.problem, { ...s.solution, objective: s.solution.objective + 1 })
          .accepted,
      ).toBe(false);
      expect(
        verifyCertificate(s.problem, { ...s.solution, choice: new Int32Array(1) }).accepted,
      ).toBe(false);
    }
  });

  it('every number of every list left out, changed by a sign, by one and by 1e9 units', () => {
    let [hurt, tried] = [0, 0];
    for (const s of subjects)
      for (const changed of drawn(changedLists(s.solution.certificate))) {
        tried++;
        if (!judged(s, changed)) hurt++;
      }
    expect(tried).toBeGreaterThan(FULL ? 1000 : 200);
    expect(hurt).toBeGreaterThan(tried / 4);
  }, 60_000);

  it('every step left out, said twice or moved, and every argument changed', () => {
    for (const s of subjects)
      for (const changed of drawn(changedSteps(s.solution.certificate))) judged(s, changed);
  }, 60_000);

  it('rows that are not there, left out, or listed twice', () => {
    for (const s of subjects)
      for (const changed of changedRows(s.solution.certificate)) judged(s, changed);
  });
});
