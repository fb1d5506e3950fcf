/**
 * Certificates of the anytime mode, changed in every place: a bound that the checker still accepts
 * is a true bound.
 */
import { describe, expect, it } from 'vitest';

import { solveAnytime } from '../../src/contest/anytime.ts';
import { dualCertificate } from '../../src/contest/finish/dual-certificate.ts';
import { partsCertificate } from '../../src/contest/proof/parts-certificate.ts';
import { STEP } from '../../src/solver/check/certificate-format.ts';
import { verifyCertificate } from '../../src/solver/check/verify.ts';
import type { Certificate, Problem } from '../../src/solver/types.ts';
import {
  changedLists,
  changedRows,
  changedSteps,
  drawn,
  stepsOf,
} from '../solver/certificate-support.ts';
import { bruteForce, type Flavour, randomChoice } from '../solver/check-support.ts';
import { FULL } from '../support/full.ts';
import { partsOf } from './bounded.ts';

const PLAIN: Flavour = { variables: 5, values: 3, edges: 0.6, forbidden: 0.15, rows: 0 };
const FLAVOURS: readonly (readonly [string, Flavour])[] = [
  ['no rows', PLAIN],
  ['many forbidden pairs', { ...PLAIN, forbidden: 0.4 }],
  ['a tight row', { ...PLAIN, rows: 1, tightness: 0.2 }],
  ['rows and usage over time', { ...PLAIN, rows: 2, usage: true, tightness: 0.4 }],
  ['repeated layers with a row', { ...PLAIN, variables: 2, layers: 3, edges: 1.2, rows: 1 }],
];
const SEEDS = Array.from({ length: FULL ? 40 : 2 }, (_, k) => k + 1);

interface Subject {
  readonly name: string;
  readonly problem: Problem;
  readonly optimum: number;
  /** The bound of the certificate as it was written. */
  readonly bound: bigint;
  readonly certificate: Certificate;
}

const proven = (problem: Problem, certificate: Certificate): ReturnType<typeof verifyCertificate> =>
  verifyCertificate(problem, { choice: [], objective: Infinity, certificate });

/**
 * Of each problem the certificates of its ascent alone, of parts with sweeps and with messages, and
 * of a whole run of the mode.
 */
async function certificatesOf(
  problem: Problem,
  optimum: number,
): Promise<(readonly [string, Certificate])[]> {
  const certificates: [string, Certificate | undefined][] = [];
  const bounded = partsOf(problem, optimum);
  if (bounded !== undefined) {
    certificates.push(['ascent', dualCertificate(problem, bounded.reduced, bounded.report)]);
    for (const swept of [true, false])
      certificates.push([
        `parts, ${String(swept)}`,
        partsCertificate(problem, bounded.root, bounded.tree, swept),
      ]);
  }
  for (const close of [true, false]) {
    const { certificate } = await solveAnytime(problem, { threads: 1, rounds: 4, close });
    certificates.push([`solve, ${String(close)}`, certificate]);
  }
  return certificates.flatMap(([way, certificate]) =>
    certificate === undefined ? [] : [[way, certificate]],
  );
}

async function subjects(): Promise<Subject[]> {
  const found: Subject[] = [];
  for (const [flavour, options] of FLAVOURS)
    for (const seed of SEEDS) {
      const problem = randomChoice(seed, options);
      const optimum = bruteForce(problem).objective;
      if (optimum === Infinity) continue;
      for (const [way, certificate] of await certificatesOf(problem, optimum)) {
        const { accepted, bound } = proven(problem, certificate);
        const name = `${flavour}, seed ${seed}, ${way}`;
        expect([name, accepted]).toEqual([name, true]);
        found.push({ name, problem, optimum, bound, certificate });
      }
    }
  return found;
}

describe('a changed certificate of the anytime mode', async () => {
  const all = await subjects();
  /**
   * How many changes were tried, and how many of them the checker refused or gave another bound.
   */
  const judge = (
    changes: (certificate: Certificate) => Iterable<Certificate>,
  ): { tried: number; hurt: number } => {
    let [tried, hurt] = [0, 0];
    for (const { name, problem, optimum, bound, certificate } of all)
      for (const changed of changes(certificate)) {
        const verdict = proven(problem, changed);
        tried++;
        if (verdict.accepted && verdict.bound > BigInt(optimum))
          expect.fail(
            `${name}: ${verdict.bound} is above the optimum ${optimum}: ${JSON.stringify(changed)}`,
          );
        if (!verdict.accepted || verdict.bound !== bound) hurt++;
      }
    return { tried, hurt };
  };

  it('is of messages, sweeps, branches and merges, and some bounds are not yet the optimum', () => {
    const codes = new Set(
      all.flatMap(({ certificate }) => stepsOf(certificate).map(([code]) => code)),
    );
    for (const code of [
      'messages',
      'sweep',
      'branch',
      'part',
      'end',
      'support',
      'merge',
      'add',
      'separate',
    ] as const)
      expect([code, codes.has(STEP[code])]).toEqual([code, true]);
    expect(all.some(({ bound, optimum }) => bound < BigInt(optimum))).toBe(true);
    expect(all.some(({ bound, optimum }) => bound === BigInt(optimum))).toBe(true);
  });

  it('proves no more than is true with any number of any list changed or left out', () => {
    const { tried, hurt } = judge((certificate) => drawn(changedLists(certificate)));
    expect(tried).toBeGreaterThan(FULL ? 1000 : 200);
    expect(hurt).toBeGreaterThan(tried / 4);
  }, 60_000);

  it('proves no more than is true with steps left out, said twice or moved, and with any argument changed', () => {
    const { tried, hurt } = judge((certificate) => drawn(changedSteps(certificate)));
    expect(tried).toBeGreaterThan(FULL ? 1000 : 200);
    expect(hurt).toBeGreaterThan(tried / 4);
  }, 60_000);

  it('proves no more than is true with other rows', () => {
    expect(judge(changedRows).tried).toBeGreaterThan(FULL ? 100 : 60);
  });
});
