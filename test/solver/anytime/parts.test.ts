import { describe, expect, it } from 'vitest';
import { asCertificate } from '../../../src/plan/record/certificate.ts';
import { AnytimeRun } from '../../../src/solver/anytime/anytime-run.ts';
import { PriceAscent } from '../../../src/solver/anytime/bound/row-prices.ts';
import { costOf, Dual } from '../../../src/solver/anytime/bound/trws.ts';
import { wholeBound, type WholeBound } from '../../../src/solver/anytime/finish/dual-certificate.ts';
import { presolve, type Presolved } from '../../../src/solver/anytime/model/presolve.ts';
import { allValues, BoundByParts } from '../../../src/solver/anytime/proof/bound-by-parts.ts';
import { partsCertificate } from '../../../src/solver/anytime/proof/parts-certificate.ts';
import { boundByParts, leastBound, type Part } from '../../../src/solver/anytime/proof/parts.ts';
import { firstChoice } from '../../../src/solver/anytime/run/member.ts';
import { search } from '../../../src/solver/anytime/run/rounds.ts';
import { type Verdict, verifyCertificate } from '../../../src/solver/check/verify.ts';
import type {
  Certificate,
  DualCertificate,
  DualPart,
  DualSplit,
  DualSwept,
  Problem,
} from '../../../src/solver/types.ts';
import { build, enumerate, randomProblem, ring, so28 } from '../support.ts';

/** What the checker says of a bound alone. */
const proves = (problem: Problem, certificate: Certificate): Verdict =>
  verifyCertificate(problem, { choice: [], objective: Infinity, certificate });

interface Bounded {
  readonly reduced: Presolved;
  readonly root: WholeBound;
  readonly tree: Part;
}

/** Parts of a problem after a few steps of its whole bound; undefined where the reduction finds it infeasible. */
function partsOf(problem: Problem, cost: number): Bounded | undefined {
  const reduced = presolve(problem);
  if (reduced === undefined) return undefined;
  const ascent = new PriceAscent(new Dual(reduced.model));
  for (let k = 0; k < 20; k++) ascent.step();
  const root = wholeBound(allValues(problem, reduced), reduced, { lambda: ascent.kept, toFirst: ascent.bestFirst, toSecond: ascent.bestSecond });
  const { lambda, toFirst, toSecond } = root.dual;
  const start = { lambda, toFirst, toSecond, steps: 0 };
  const tree = boundByParts({ model: root.whole.model, start, cost, deadline: Infinity, partMilliseconds: 0 });
  return { reduced, root, tree };
} // prettier-ignore

/** A certificate with a tree, of a problem whose bound needs one; its parts are swept unless told otherwise. */
function divided(swept?: boolean): {
  readonly problem: Problem;
  readonly optimum: number;
  readonly good: DualCertificate;
} {
  const optimum = 837;
  const problem = build(so28(5));
  const bounded = partsOf(problem, optimum);
  const good = bounded === undefined ? undefined : partsCertificate(problem, bounded.root, bounded.tree, swept);
  if (good === undefined) throw new Error('its bound needs parts');
  return { problem, optimum, good };
}

/** The tree with its first leaf changed. */
function changed(part: DualPart, change: (leaf: DualPart) => unknown): DualPart {
  if (!('variable' in part)) return change(part) as DualPart;
  return { ...part, parts: [changed(part.parts[0], change), part.parts[1]] };
}

/** The tree with all of its swept leaves changed. */
function everywhere(part: DualPart, change: (leaf: DualSwept) => DualSwept): DualPart {
  if ('sweeps' in part) return change(part);
  if (!('variable' in part)) return part;
  return { ...part, parts: [everywhere(part.parts[0], change), everywhere(part.parts[1], change)] };
}

describe('bounds by parts', () => {
  it('are no higher than the optimum of random problems under budgets, are certified, and mostly meet it', () => {
    let [met, split] = [0, 0];
    for (let seed = 1; seed <= 90; seed++) {
      const plain = seed <= 16 ? so28(seed) : randomProblem(seed, { most: 8, values: 4, usage: true, row: seed % 2 === 0 });
      const problem = build(plain, seed % 2 === 0);
      const optimum = enumerate(plain);
      const bounded = optimum === Infinity ? undefined : partsOf(problem, optimum);
      if (bounded === undefined) continue;
      expect(leastBound(bounded.tree), `seed ${seed}`).toBeLessThanOrEqual(optimum + 1e-6 * Math.abs(optimum) + 1e-6);
      const certificate = partsCertificate(problem, bounded.root, bounded.tree);
      if (certificate === undefined) continue;
      split++;
      const verdict = proves(problem, certificate);
      expect([seed, verdict.reason]).toEqual([seed, undefined]);
      expect(verdict.bound, `seed ${seed}`).toBeLessThanOrEqual(BigInt(optimum));
      if (verdict.bound === BigInt(optimum)) met++;
      expect(asCertificate(JSON.parse(JSON.stringify(certificate)), 'x.json')).toEqual(certificate);
    }
    expect(split).toBeGreaterThan(15);
    expect(met).toBeGreaterThan(0.9 * split);
  }); // prettier-ignore

  it('raise the bound of an infeasible problem past any cost, and their certificate is accepted', () => {
    let past = 0;
    for (let seed = 17; seed <= 120; seed++) {
      const plain = randomProblem(seed, { most: 6, values: 3, usage: true, row: true });
      if (enumerate(plain) < Infinity) continue;
      const problem = build(plain);
      const bounded = partsOf(problem, 1e6);
      const certificate = bounded === undefined ? undefined : partsCertificate(problem, bounded.root, bounded.tree);
      if (bounded === undefined || certificate === undefined) continue;
      expect(proves(problem, certificate).reason, `seed ${seed}`).toBeUndefined();
      if (leastBound(bounded.tree) > 1e6 - 1) past++;
    }
    expect(past).toBeGreaterThan(3);
  });

  it('parts with sweeps prove what parts with messages do, in fewer bytes; tampered ones are refused or prove no more', () => {
    const { problem, optimum, good } = divided();
    const { tree } = good;
    const full = divided(false).good;
    if (tree === undefined || full.tree === undefined) throw new Error('both have trees');
    const leaves = (part: DualPart): DualPart[] => ('variable' in part ? part.parts.flatMap(leaves) : [part]);
    expect(leaves(tree).filter((leaf) => 'sweeps' in leaf).length).toBeGreaterThan(0.5 * leaves(tree).length);
    expect(leaves(full.tree).filter((leaf) => 'sweeps' in leaf)).toEqual([]);
    expect(3 * JSON.stringify(tree).length).toBeLessThan(JSON.stringify(full.tree).length);
    expect([proves(problem, good).bound, proves(problem, full).bound]).toEqual([BigInt(optimum), BigInt(optimum)]);
    const refused: [string, unknown][] = [
      ['half a sweep', changed(tree, (leaf) => ({ ...leaf, sweeps: 0.5 }))],
      ['fewer than no sweeps', changed(tree, (leaf) => ({ ...leaf, sweeps: -1 }))],
      ['endless sweeps', changed(tree, (leaf) => ({ ...leaf, sweeps: 1e9 }))],
      ['no number of sweeps', changed(tree, (leaf) => ({ ...leaf, sweeps: undefined }))],
      ['messages, too', changed(tree, (leaf) => ({ ...leaf, sweeps: 1, messages: [] }))],
      ['a scale that is none', changed(tree, (leaf) => ({ ...leaf, messageBits: -1 }))],
      ['a negative price', changed(tree, (leaf) => ({ ...leaf, prices: [{ row: { time: 0 }, price: '-1' }] }))],
    ];
    for (const [what, bad] of refused)
      expect(proves(problem, { ...good, tree: bad as DualSplit }).accepted, what).toBe(false);
    // Whatever the sweeps begin at, what they end at bounds.
    const weaker: [string, DualCertificate][] = [
      ['no messages to begin at', { ...good, messages: [] }],
      ['messages in another scale', { ...good, messageBits: good.messageBits - 1 }],
      ['no sweep', { ...good, tree: everywhere(tree, (leaf) => ({ ...leaf, sweeps: 0 })) as DualSplit }],
      ['more sweeps', { ...good, tree: everywhere(tree, (leaf) => ({ ...leaf, sweeps: 300 })) as DualSplit }],
      ['no prices', { ...good, tree: everywhere(tree, (leaf) => ({ ...leaf, prices: [] })) as DualSplit }],
    ];
    for (const [what, bad] of weaker) {
      const { accepted, bound } = proves(problem, bad);
      expect([what, accepted]).toEqual([what, true]);
      expect(bound, what).toBeLessThanOrEqual(BigInt(optimum));
    }
  });

  it('tampered trees are refused, or prove no more than the optimum', () => {
    const { problem, optimum, good } = divided(false);
    const { tree } = good;
    if (tree === undefined) throw new Error('it has a tree');
    const honest = proves(problem, good);
    expect([honest.accepted, honest.bound]).toEqual([true, BigInt(optimum)]);
    expect(proves(problem, { ...good, tree: undefined } as unknown as Certificate).bound).toBeLessThan(honest.bound);
    const refused: [string, unknown][] = [
      ['no such variable', { ...tree, variable: problem.domains.length }],
      ['half a variable', { ...tree, variable: 0.5 }],
      ['one side', { ...tree, parts: [tree.parts[0]] }],
      ['three sides', { ...tree, parts: [...tree.parts, tree.parts[1]] }],
      ['no values', { ...tree, values: undefined }],
      ['a negative price', changed(tree, (leaf) => ({ ...leaf, prices: [{ row: { time: 0 }, price: '-1' }] }))],
      ['a price of no row', changed(tree, (leaf) => ({ ...leaf, prices: [{ row: { row: 99 }, price: '1' }] }))],
      ['a scale that is none', changed(tree, (leaf) => ({ ...leaf, messageBits: 31 }))],
      ['a message of no edge', changed(tree, (leaf) => ({ ...leaf, messages: [{ first: 0, second: 0, toFirst: [], toSecond: [] }] }))],
      ['half a message', changed(tree, (leaf) => 'messages' in leaf ? { ...leaf, messages: leaf.messages.map((m) => ({ ...m, toFirst: m.toFirst.map(() => 0.5) })) } : leaf)],
      ['a short message', changed(tree, (leaf) => 'messages' in leaf ? { ...leaf, messages: leaf.messages.map((m) => ({ ...m, toFirst: m.toFirst.slice(1) })) } : leaf)],
    ]; // prettier-ignore
    for (const [what, bad] of refused)
      expect(proves(problem, { ...good, tree: bad as DualSplit }).accepted, what).toBe(false);
    expect(proves(problem, { ...good, problem: '0123456789abcdef' }).accepted).toBe(false);
    expect(proves(build(so28(6)), good).accepted).toBe(false);
    // Numbers that no ascent found still bound what they say they bound.
    const weaker: [string, unknown][] = [
      ['sides swapped', { ...tree, parts: [tree.parts[1], tree.parts[0]] }],
      ['all values on one side', { ...tree, values: [0, 1, 2, 3, 4, 5, 6, 7] }],
      ['no values on one side', { ...tree, values: [] }],
      ['a leaf cut off', { ...tree, parts: [tree.parts[0], tree.parts[0]] }],
      ['an empty leaf', changed(tree, () => ({ messageBits: 0, prices: [], messages: [] }))],
      ['a higher price', changed(tree, (leaf) => 'prices' in leaf ? { ...leaf, prices: leaf.prices.map((p) => ({ ...p, price: `${p.price}0` })) } : leaf)],
      ['messages in another scale', changed(tree, (leaf) => 'messageBits' in leaf ? { ...leaf, messageBits: leaf.messageBits - 1 } : leaf)],
    ]; // prettier-ignore
    for (const [what, bad] of weaker)
      expect(proves(problem, { ...good, tree: bad as DualSplit }).bound, what).toBeLessThanOrEqual(BigInt(optimum));
  });

  it('are the same from a thread, and a second run goes on with the parts of the first', async () => {
    const problem = build(ring(7, 16, 3, 1.1));
    const reduced = presolve(problem);
    const start = reduced === undefined ? undefined : firstChoice(reduced.model);
    if (reduced === undefined || start === undefined) throw new Error('it has choices');
    const control = new Int32Array(new SharedArrayBuffer(4));
    const cost = costOf(reduced.model, start);
    const found = await search(reduced.model, start, cost, { seed: 1, threads: 1, deadline: Infinity, control, rounds: 4, onRound: () => false });
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
    const job = { model: root.whole.model, start: { lambda, toFirst, toSecond, steps: 0 }, deadline: Infinity, partMilliseconds: 0 };
    const tree = boundByParts({ ...job, cost: found.cost, tree: boundByParts({ ...job, cost: near }) });
    expect(threaded.certificate()).toEqual(partsCertificate(problem, root, tree));
    const certificate = threaded.certificate();
    if (certificate === undefined) throw new Error('it has parts');
    const verdict = proves(problem, certificate);
    expect(verdict.accepted).toBe(true);
    expect(Number(verdict.bound)).toBeGreaterThan(found.bound.best);
    expect(Number(verdict.bound)).toBeLessThanOrEqual(found.cost);
  }); // prettier-ignore
});
