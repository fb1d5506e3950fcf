/** Certificates taken apart into their steps, to be tampered with. */
import { ARGUMENTS, STEP } from '../../src/solver/check/certificate-format.ts';
import type { Certificate } from '../../src/solver/types.ts';

/** A code and its arguments. */
export type Step = readonly number[];

export function stepsOf({ steps }: Certificate): Step[] {
  const out: Step[] = [];
  for (let at = 0; at < steps.length; at += 1 + ARGUMENTS[steps[at]].length)
    out.push(steps.slice(at, at + 1 + ARGUMENTS[steps[at]].length));
  return out;
}

/** The certificate with every step replaced by what `change` makes of it. */
export function withSteps(certificate: Certificate, change: (step: Step, at: number) => Step): Certificate {
  return { ...certificate, steps: stepsOf(certificate).flatMap(change) };
}

/** The certificate with one list changed. */
export function withList(certificate: Certificate, list: number, change: (list: readonly number[]) => readonly number[]): Certificate {
  return { ...certificate, lists: certificate.lists.map((l, i) => (i === list ? change(l) : l)) };
} // prettier-ignore

/** Places of the steps of a kind. */
export function placesOf(certificate: Certificate, code: keyof typeof STEP): number[] {
  return [...stepsOf(certificate).entries()].flatMap(([at, step]) => (step[0] === STEP[code] ? [at] : []));
}
