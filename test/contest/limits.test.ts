import { describe, expect, test } from 'vitest';

import { solveAnytime } from '../../src/contest/anytime.ts';
import { close, type ClosingJob } from '../../src/contest/finish/close.ts';
import { verifyCertificate } from '../../src/solver/check/verify.ts';
import { build, costOf, noise } from '../solver/support.ts';

const plain = noise(12, 12);
const problem = build(plain);

describe('closing without a time limit', () => {
  test('ends at its own limit with the best choice and a checked bound, and says so', async () => {
    const found = await solveAnytime(problem, { threads: 1, rounds: 4, closeSeconds: 0 });
    expect(found.status).toBe('feasible');
    expect(found.objective).toBe(costOf(plain, [...found.choice]));
    expect(found.bound).toBeLessThan(found.objective);
    expect(found.evidence).toEqual(['closing had a limit of 0 s']);
  });
});

describe('the memory of closing', () => {
  const job: ClosingJob = {
    problem,
    choice: new Int32Array(12),
    rows: [],
    prices: [],
    deadline: Infinity,
    cellLimit: 50_000,
  };

  test('ends an attempt with what it has, and a bound that the checker accepts', () => {
    const { fullAt, objective, bound, certificate, choice } = close(job);
    expect(fullAt).toBe(50_000);
    expect(objective).toBe(costOf(plain, [...choice]));
    expect(bound).toBeLessThan(objective);
    const replayed = verifyCertificate(problem, { choice: [], objective: Infinity, certificate });
    expect([replayed.accepted, Number(replayed.bound)]).toEqual([true, bound]);
  });

  test('is not named where there is enough of it', () => {
    const small = build(noise(5, 5));
    const closed = close({ ...job, problem: small, choice: new Int32Array(5) });
    expect(closed.fullAt).toBeUndefined();
    expect(closed.bound).toBe(closed.objective);
  });
});
