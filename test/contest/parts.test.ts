import { describe, expect, it } from 'vitest';

import { AnytimeRun } from '../../src/contest/anytime-run.ts';
import { costOf } from '../../src/contest/bound/trws.ts';
import { wholeBound } from '../../src/contest/finish/dual-certificate.ts';
import { presolve } from '../../src/contest/model/presolve.ts';
import { allValues, BoundByParts } from '../../src/contest/proof/bound-by-parts.ts';
import { boundByParts, leastBound } from '../../src/contest/proof/parts.ts';
import { partsCertificate } from '../../src/contest/proof/parts-certificate.ts';
import { firstChoice } from '../../src/contest/run/member.ts';
import { search } from '../../src/contest/run/rounds.ts';
import { asCertificate } from '../../src/plan/record/certificate.ts';
import { STEP } from '../../src/solver/check/certificate-format.ts';
import { type Verdict, verifyCertificate } from '../../src/solver/check/verify.ts';
import type { Certificate, Problem } from '../../src/solver/types.ts';
import {
  placesOf,
  type Step,
  stepsOf,
  withList,
  withSteps,
} from '../solver/certificate-support.ts';
import { build, enumerate, limitedInstance, randomProblem, ring } from '../solver/support.ts';
import { FULL } from '../support/full.ts';
import { partsOf } from './bounded.ts';

/** What the checker says of a bound alone. */
const proves = (problem: Problem, certificate: Certificate): Verdict =>
  verifyCertificate(problem, { choice: [], objective: Infinity, certificate });

/**
 * A certificate with a tree, of a problem whose bound needs one; its parts are swept unless told
 * otherwise.
 */
function divided(swept?: boolean): {
  readonly problem: Problem;
  readonly optimum: number;
  readonly good: Certificate;
} {
  const optimum = 837;
  const problem = build(limitedInstance(5));
  const bounded = partsOf(problem, optimum);
  const good =
    bounded === undefined
      ? undefined
      : partsCertificate(problem, bounded.root, bounded.tree, swept);
  if (good === undefined) throw new Error('its bound needs parts');
  return { problem, optimum, good };
}

/** The certificate with some steps changed, which `of` chooses by their places. */
const changed = (
  certificate: Certificate,
  places: readonly number[],
  change: (step: Step) => Step,
): Certificate => withSteps(certificate, (step, at) => (places.includes(at) ? change(step) : step));

/** Steps before the first branch, and the lists that they name. */
function rootOf(certificate: Certificate): Certificate {
  const steps = stepsOf(certificate);
  const [branch] = placesOf(certificate, 'branch');
  const [root] = placesOf(certificate, 'messages');
  return {
    ...certificate,
    steps: steps.slice(0, branch).flat(),
    lists: certificate.lists.slice(0, steps[root][3] + 1),
  };
}

/** Bytes of all parts. */
const treeSize = (certificate: Certificate): number =>
  JSON.stringify(certificate).length - JSON.stringify(rootOf(certificate)).length;

describe('bounds by parts', () => {
  it('are not a higher than the optimum of random problems under budgets, are certified, and mostly meet it', () => {
    let [met, split] = [0, 0];
    for (let seed = 1; seed <= (FULL ? 90 : 40); seed++) {
      const plain =
        seed <= 16
          ? limitedInstance(seed)
          : randomProblem(seed, { most: 8, values: 4, usage: true, row: seed % 2 === 0 });
      const problem = build(plain, seed % 2 === 0);
      const optimum = enumerate(plain);
      const bounded = optimum === Infinity ? undefined : partsOf(problem, optimum);
      if (bounded === undefined) continue;
      expect(leastBound(bounded.tree), `seed ${seed}`).toBeLessThanOrEqual(
        optimum + 1e-6 * Math.abs(optimum) + 1e-6,
      );
      const certificate = partsCertificate(problem, bounded.root, bounded.tree);
      if (certificate === undefined) continue;
      split++;
      const verdict = proves(problem, certificate);
      expect([seed, verdict.reason]).toEqual([seed, undefined]);
      expect(verdict.bound, `seed ${seed}`).toBeLessThanOrEqual(BigInt(optimum));
      if (verdict.bound === BigInt(optimum)) met++;
      expect(asCertificate(JSON.parse(JSON.stringify(certificate)), 'x.json')).toEqual(certificate);
    }
    expect(split).toBeGreaterThan(FULL ? 15 : 6);
    expect(met).toBeGreaterThan(0.9 * split);
  });

  it('raise the bound of an infeasible problem past any cost, and their certificate is accepted', () => {
    let past = 0;
    for (let seed = 17; seed <= 120; seed++) {
      const plain = randomProblem(seed, { most: 6, values: 3, usage: true, row: true });
      if (enumerate(plain) < Infinity) continue;
      const problem = build(plain);
      const bounded = partsOf(problem, 1e6);
      const certificate =
        bounded === undefined ? undefined : partsCertificate(problem, bounded.root, bounded.tree);
      if (bounded === undefined || certificate === undefined) continue;
      expect(proves(problem, certificate).reason, `seed ${seed}`).toBeUndefined();
      if (leastBound(bounded.tree) > 1e6 - 1) past++;
    }
    expect(past).toBeGreaterThan(3);
  });

  it('parts with sweeps prove what parts with messages do, in fewer bytes; tampered ones are refused or prove no more', () => {
    const { problem, optimum, good } = divided();
    const full = divided(false).good;
    const sweeps = placesOf(good, 'sweep');
    const [root, ...others] = placesOf(good, 'messages');
    expect(sweeps.length).toBeGreaterThan(others.length);
    expect(placesOf(full, 'sweep')).toEqual([]);
    expect(3 * treeSize(good)).toBeLessThan(treeSize(full));
    expect([proves(problem, good).bound, proves(problem, full).bound]).toEqual([
      BigInt(optimum),
      BigInt(optimum),
    ]);
    const first = sweeps.slice(0, 1);
    const sweptTimes = (places: number[], n: number): Certificate =>
      changed(good, places, ([code, bits, prices]) => [code, bits, prices, n]);
    const prices = (places: number[]): number[] =>
      stepsOf(good).flatMap((step, at) => (places.includes(at) ? [step[2]] : []));
    const refused: [string, Certificate][] = [
      ['half a sweep', sweptTimes(first, 0.5)],
      ['fewer than no sweeps', sweptTimes(first, -1)],
      ['endless sweeps', sweptTimes(first, 1e9)],
      ['no number of sweeps', sweptTimes(first, NaN)],
      ['an elimination, too', changed(good, first, (step) => [...step, STEP.eliminate, 0])],
      ['a scale that is none', changed(good, first, ([code, , ...rest]) => [code, -1, ...rest])],
      ['a negative price', withList(good, prices(first)[0], (list) => list.map(() => -1))],
    ];
    for (const [what, bad] of refused) expect(proves(problem, bad).accepted, what).toBe(false);
    // Whatever the sweeps begin at, what they end at bounds.
    const weaker: [string, Certificate][] = [
      ['no messages to begin at', withList(good, stepsOf(good)[root][3], () => [])],
      [
        'messages in another scale',
        changed(good, [root], ([code, bits, ...rest]) => [code, bits - 1, ...rest]),
      ],
      ['no sweep', sweptTimes(sweeps, 0)],
      ['more sweeps', sweptTimes(sweeps, 300)],
      [
        'no prices',
        prices(sweeps).reduce((bad, list) => withList(bad, list, (of) => of.map(() => 0)), good),
      ],
    ];
    for (const [what, bad] of weaker) {
      const { accepted, bound } = proves(problem, bad);
      expect([what, accepted]).toEqual([what, true]);
      expect(bound, what).toBeLessThanOrEqual(BigInt(optimum));
    }
  });

  it('tampered trees are refused, or prove no more than the optimum', () => {
    const { problem, optimum, good } = divided(false);
    const honest = proves(problem, good);
    expect([honest.accepted, honest.bound]).toEqual([true, BigInt(optimum)]);
    const whole = proves(problem, rootOf(good));
    expect([whole.accepted, whole.bound < honest.bound]).toEqual([true, true]);
    const steps = stepsOf(good);
    const branch = placesOf(good, 'branch').slice(0, 1);
    const leaf = placesOf(good, 'messages').slice(1, 2);
    const side = placesOf(good, 'part').slice(0, 1);
    const [, , prices, triples] = steps[leaf[0]];
    const [f, one, other] = good.lists[triples];
    const message = Math.max(one, other);
    const [, kept] = steps[side[0]];
    const parts = placesOf(good, 'part').map((at) => steps[at][1]);
    const refused: [string, Certificate][] = [
      [
        'no such variable',
        changed(good, branch, ([code, , n]) => [code, problem.domains.length, n]),
      ],
      ['half a variable', changed(good, branch, ([code, , n]) => [code, 0.5, n])],
      ['one side', changed(good, branch, ([code, v]) => [code, v, 1])],
      ['three sides', changed(good, branch, ([code, v]) => [code, v, 3])],
      ['no values', changed(good, side, ([code]) => [code, good.lists.length])],
      ['a side without a value of the other', withList(good, kept, (list) => list.slice(1))],
      ['a negative price', withList(good, prices, (list) => list.map(() => -1))],
      ['a price of no row', withList(good, prices, (list) => [...list, 1])],
      ['a row that is not there', { ...good, rows: good.rows.with(0, { row: 99 }) }],
      ['a scale that is none', changed(good, leaf, ([code, , ...rest]) => [code, 31, ...rest])],
      [
        'a message of no edge',
        withList(good, triples, () => [problem.edges.first.length, one, other]),
      ],
      ['two messages of an edge', withList(good, triples, () => [f, one, other, f, one, other])],
      ['half a message', withList(good, message, (list) => list.map(() => 0.5))],
      ['a short message', withList(good, message, (list) => list.slice(1))],
    ];
    for (const [what, bad] of refused)
      expect([what, proves(problem, bad).accepted]).toEqual([what, false]);
    expect(proves(problem, { ...good, problem: '0123456789abcdef' }).accepted).toBe(false);
    expect(proves(build(limitedInstance(6)), good).accepted).toBe(false);
    // Numbers that no ascent found still bound what they say they bound.
    const swapped =
      parts.find((list, k) => k > 0 && good.lists[list].length + good.lists[kept].length > 0) ??
      kept;
    const weaker: [string, Certificate][] = [
      [
        'sides swapped',
        withList(
          withList(good, kept, () => good.lists[swapped]),
          swapped,
          () => good.lists[kept],
        ),
      ],
      [
        'all values on one side',
        withList(good, kept, () => Array.from({ length: 8 }, (_, a) => a)),
      ],
      ['no values on one side', withList(good, kept, () => [])],
      ['a leaf cut off', changed(good, leaf, () => [])],
      ['an empty leaf', withList(good, triples, () => [])],
      ['no prices', withList(good, prices, (list) => list.map(() => 0))],
      ['a higher price', withList(good, prices, (list) => list.map((p) => 10 * p))],
      [
        'messages in another scale',
        changed(good, leaf, ([code, bits, ...rest]) => [code, bits - 1, ...rest]),
      ],
    ];
    for (const [what, bad] of weaker)
      expect(proves(problem, bad).bound, what).toBeLessThanOrEqual(BigInt(optimum));
    // Of these, the ones that fit are accepted.
    for (const [what, bad] of weaker.slice(3))
      expect([what, proves(problem, bad).accepted]).toEqual([what, true]);
  });

  it('are the same from a thread, and a second run goes on with the parts of the first', async () => {
    const problem = build(ring(7, 16, 3, 1.1));
    const reduced = presolve(problem);
    const start = reduced === undefined ? undefined : firstChoice(reduced.model);
    if (reduced === undefined || start === undefined) throw new Error('it has choices');
    const control = new Int32Array(new SharedArrayBuffer(4));
    const cost = costOf(reduced.model, start);
    const found = await search(reduced.model, start, cost, {
      seed: 1,
      threads: 1,
      deadline: Infinity,
      control,
      rounds: FULL ? 4 : 1,
      onRound: () => false,
    });
    if (found.bound === undefined) throw new Error('it has a bound');
    const threaded = new BoundByParts(new AnytimeRun(problem, {}), reduced);
    // A cost that the parts reach at once, then the cost of the best choice.
    const near = found.bound.best + 0.02 * (found.cost - found.bound.best);
    await threaded.raise({ ...found, cost: near }, Infinity, 0);
    const before = threaded.best;
    await threaded.raise(found, Infinity, 0);
    expect(before).toBeGreaterThanOrEqual(near - 0.5);
    expect(threaded.best).toBeGreaterThan(before);
    const root = wholeBound(allValues(problem, reduced), reduced, found.bound);
    const { lambda, toFirst, toSecond } = root.dual;
    const job = {
      model: root.whole.model,
      start: { lambda, toFirst, toSecond, steps: 0 },
      deadline: Infinity,
      partMilliseconds: 0,
    };
    const tree = boundByParts({
      ...job,
      cost: found.cost,
      tree: boundByParts({ ...job, cost: near }),
    });
    expect(threaded.certificate()).toEqual(partsCertificate(problem, root, tree));
    const certificate = threaded.certificate();
    if (certificate === undefined) throw new Error('it has parts');
    const verdict = proves(problem, certificate);
    expect(verdict.accepted).toBe(true);
    expect(Number(verdict.bound)).toBeGreaterThan(found.bound.best);
    expect(Number(verdict.bound)).toBeLessThanOrEqual(found.cost);
  });
});
