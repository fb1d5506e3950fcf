/**
 * Certificates with changed numbers, lists, rows and problems: what the checker accepts is never
 * above the optimum of brute force.
 */
import fc from 'fast-check';
import { expect } from 'vitest';

import { hashProblem, verifyCertificate } from '../../src/solver/check/verify.ts';
import { solveNow } from '../../src/solver/solve.ts';
import type { Certificate } from '../../src/solver/types.ts';
import { build, exhaust, type PlainProblem } from '../solver/support.ts';
import { problems } from './problems.ts';
import { fuzzer } from './runner.ts';

const KINDS = ['number', 'number', 'add', 'add', 'insert', 'delete', 'copy', 'swap'] as const;
const NUMBERS = [0, 1, -1, 0.5, 1e6, -1e6, 2 ** 53, -(2 ** 53), 1e18, NaN, Infinity, -Infinity];

const edits = fc.array(
  fc.record({
    /** The steps, the rows, or else a list. */
    where: fc.constantFrom('steps' as const, 'lists' as const, 'lists' as const, 'rows' as const),
    list: fc.nat(1000),
    at: fc.nat(10_000),
    kind: fc.constantFrom(...KINDS),
    value: fc.oneof(fc.integer({ min: -30, max: 30 }), fc.constantFrom(...NUMBERS)),
  }),
  { minLength: 1, maxLength: 3 },
);
type Edit = (typeof edits extends fc.Arbitrary<infer T> ? T : never)[0];

function edited<T>(
  list: readonly T[],
  { kind, at, value }: Edit,
  make: (from: T | undefined) => T,
): readonly T[] {
  const i = at % (list.length + 1);
  switch (kind) {
    case 'number':
    case 'add':
      return list.length === 0 ? list : list.with(i % list.length, make(list[i % list.length]));
    case 'insert':
      return list.toSpliced(i, 0, make(undefined));
    case 'delete':
      return list.toSpliced(i, 1 + Math.min(5, Math.abs(Math.trunc(value)) || 0));
    case 'copy':
      return list.toSpliced(i, 0, ...list.slice(i, i + 4));
    case 'swap':
      return list.length < 2
        ? list
        : list.with(i % list.length, list[0]).with(0, list[i % list.length]);
  }
}

function forged(certificate: Certificate, edit: Edit): Certificate {
  const { steps, lists, rows } = certificate;
  const number = (from: number | undefined): number =>
    edit.kind === 'add' ? (from ?? 0) + edit.value : edit.value;
  switch (edit.where) {
    case 'steps':
      return { ...certificate, steps: edited(steps, edit, number) };
    case 'rows':
      return {
        ...certificate,
        rows: edited(rows, edit, () =>
          edit.list % 2 === 0 ? { row: edit.value } : { time: edit.value },
        ),
      };
    case 'lists': {
      const l = edit.list % Math.max(1, lists.length);
      return {
        ...certificate,
        lists: lists.map((list, i) => (i === l ? edited(list, edit, number) : list)),
      };
    }
  }
}

/**
 * The same problem with one cost lowered: what was proven of the first may be too much of the
 * second.
 */
function lowered(plain: PlainProblem, by: number): PlainProblem {
  const v = by % plain.unary.length;
  return {
    ...plain,
    unary: plain.unary.map((list, i) =>
      i === v ? list.map((c, a) => (a === by % list.length ? c - by : c)) : list,
    ),
  };
}

const examples = fc.record({ plain: problems(), edits, by: fc.constantFrom(0, 0, 1, 3, 1000) });

export const CERTIFICATES = fuzzer('certificates', 250, examples, ({ plain, edits: list, by }) => {
  const { certificate } = solveNow(build(plain));
  if (certificate === undefined) throw new Error('the answer has no certificate');
  const target = lowered(plain, by);
  const problem = build(target);
  const forgery = list.reduce(forged, { ...certificate, problem: hashProblem(problem) });
  const verdict = verifyCertificate(problem, {
    choice: [],
    objective: Infinity,
    certificate: forgery,
  });
  if (!verdict.accepted) return 'refused';
  expect(Number(verdict.bound)).toBeLessThanOrEqual(exhaust(target).objective);
  return 'accepted';
});
