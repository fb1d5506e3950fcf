/**
 * Random choice problems: what the engines answer and prove is what looking at every choice finds.
 */
import fc from 'fast-check';
import { expect } from 'vitest';

import { solveAnytime } from '../../src/contest/anytime.ts';
import { NO_CHOICE, verifyCertificate } from '../../src/solver/check/verify.ts';
import { NoChoiceInTime, solveNow } from '../../src/solver/prove.ts';
import {
  build,
  costOf,
  exhaust,
  type Exhausted,
  peakOf,
  type PlainProblem,
  rowsHold,
} from '../solver/support.ts';
import { problems } from './problems.ts';
import { fuzzer } from './runner.ts';

/**
 * A choice is allowed and costs what is said, no less than the optimum; no bound is above the
 * optimum.
 */
function isTrue(
  plain: PlainProblem,
  truth: Exhausted,
  choice: Int32Array,
  objective: number,
  bound: number,
): void {
  const x = [...choice];
  expect(costOf(plain, x), 'cost of the choice').toBe(objective);
  expect(rowsHold(plain, x), 'rows').toBe(true);
  expect(peakOf(plain, x), 'peak').toBeLessThanOrEqual(plain.limit ?? Infinity);
  expect(objective, 'objective').toBeGreaterThanOrEqual(truth.objective);
  expect(bound, 'bound').toBeLessThanOrEqual(truth.objective);
}

const examples = fc.record({
  plain: problems(),
  compress: fc.boolean(),
  ties: fc.constantFrom('engine' as const, 'lexicographic' as const),
  /** What ends a search before its proof; undefined asks for proof. */
  end: fc.constantFrom(undefined, undefined, { gap: 0.1 }, { workLimit: 1 }, { workLimit: 2000 }),
});

export const SOLVER = fuzzer('problems', 150, examples, ({ plain, compress, ties, end }) => {
  const problem = build(plain, compress);
  const truth = exhaust(plain);
  try {
    const answer = solveNow(problem, { ties, ...end });
    if (answer.status === 'infeasible') {
      expect(truth.objective).toBe(Infinity);
    } else {
      isTrue(plain, truth, answer.choice, answer.objective, answer.bound);
      if (answer.status === 'optimal') expect(answer.objective).toBe(truth.objective);
      if (end === undefined && ties === 'lexicographic')
        expect([...answer.choice]).toEqual(truth.choices[0]);
    }
    if (end !== undefined) return answer.status;
    expect(answer.status).toBe(truth.objective === Infinity ? 'infeasible' : 'optimal');
    expect(verifyCertificate(problem, answer)).toEqual({
      accepted: true,
      bound: truth.objective === Infinity ? NO_CHOICE : BigInt(truth.objective),
    });
    return answer.status;
  } catch (error) {
    // Work ran out before anybody knows whether there is a choice.
    if (!(error instanceof NoChoiceInTime) || end?.workLimit === undefined) throw error;
    return 'no choice in time';
  }
});

export const ANYTIME = fuzzer('problems, large-problem engine', 12, problems(), async (plain) => {
  const truth = exhaust(plain);
  const answer = await solveAnytime(build(plain), { threads: 1, rounds: 3 });
  if (answer.status === 'infeasible') expect(truth.objective).toBe(Infinity);
  else isTrue(plain, truth, answer.choice, answer.objective, answer.bound);
  if (answer.status === 'optimal') expect(answer.objective).toBe(truth.objective);
  return answer.status;
});
