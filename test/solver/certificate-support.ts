/** Certificates taken apart into their steps, to be tampered with. */
import { ARGUMENTS, STEP } from '../../src/solver/check/certificate-format.ts';
import type { Certificate } from '../../src/solver/types.ts';
import { FULL } from '../support/full.ts';

/** A code and its arguments. */
export type Step = readonly number[];

export function stepsOf({ steps }: Certificate): Step[] {
  const out: Step[] = [];
  for (let at = 0, next = 0; at < steps.length; at = next) {
    next = at + 1 + (ARGUMENTS[steps[at]] ?? '').length;
    out.push(steps.slice(at, next));
  }
  return out;
}

/** The certificate with every step replaced by what `change` makes of it. */
export function withSteps(
  certificate: Certificate,
  change: (step: Step, at: number) => Step,
): Certificate {
  return { ...certificate, steps: stepsOf(certificate).flatMap(change) };
}

/** The certificate with one list changed. */
export function withList(
  certificate: Certificate,
  list: number,
  change: (list: readonly number[]) => readonly number[],
): Certificate {
  return { ...certificate, lists: certificate.lists.map((l, i) => (i === list ? change(l) : l)) };
}

/** Places of the steps of a kind. */
export function placesOf(certificate: Certificate, code: keyof typeof STEP): number[] {
  return [...stepsOf(certificate).entries()].flatMap(([at, step]) =>
    step[0] === STEP[code] ? [at] : [],
  );
}

/** Every number of every list left out, and changed by a sign, by one, and by 1e9 units. */
export function* changedLists(certificate: Certificate): Generator<Certificate> {
  for (const [l, list] of certificate.lists.entries())
    for (const [k, x] of list.entries()) {
      yield withList(certificate, l, (old) => old.toSpliced(k, 1));
      for (const y of [-x, x + 1, x - 1, x + 1e9, x - 1e9])
        if (y !== x) yield withList(certificate, l, (old) => old.with(k, y));
    }
}

/**
 * Every step left out, said twice, at the end again or before its neighbour; pairs of deletions
 * left out; every code and argument changed.
 */
export function* changedSteps(certificate: Certificate): Generator<Certificate> {
  const all = stepsOf(certificate);
  const written = (steps: readonly Step[]): Certificate => ({
    ...certificate,
    steps: steps.flat(),
  });
  for (const [at, step] of all.entries()) {
    yield written(all.toSpliced(at, 1));
    yield written(all.toSpliced(at, 0, step));
    yield written([...all, step]);
    if (at > 0) yield written(all.toSpliced(at - 1, 2, step, all[at - 1]));
    if (step[0] === STEP.drop) yield withList(certificate, step[2], (list) => list.slice(2));
  }
  for (const [k, x] of certificate.steps.entries())
    for (const y of [x + 1, x - 1, 0, 1e6, -1, 0.5])
      if (y !== x) yield { ...certificate, steps: certificate.steps.with(k, y) };
}

/** Rows that are not there, left out, in another order, or listed twice. */
export function* changedRows(certificate: Certificate): Generator<Certificate> {
  const { rows } = certificate;
  for (const other of [[], [{ row: 99 }], [...rows, ...rows], [{ time: 3 }], rows.toReversed()])
    yield { ...certificate, rows: other };
}

/**
 * Every fifth of the changes, all of them with SHARDWRIGHT_FULL: numbers are changed in five or six
 * ways each, so that every way is drawn of some number.
 */
export function* drawn(changes: Iterable<Certificate>): Generator<Certificate> {
  let at = 0;
  for (const change of changes) if (FULL || at++ % 5 === 0) yield change;
}
