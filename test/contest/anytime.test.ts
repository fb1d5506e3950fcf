import { describe, expect, it } from 'vitest';

import { solveAnytime } from '../../src/contest/anytime.ts';
import { PriceAscent } from '../../src/contest/bound/row-prices.ts';
import { costOf, Dual, usageOf } from '../../src/contest/bound/trws.ts';
import { dualCertificate } from '../../src/contest/finish/dual-certificate.ts';
import { presolve } from '../../src/contest/model/presolve.ts';
import { firstChoice } from '../../src/contest/run/member.ts';
import { type Findings, search } from '../../src/contest/run/rounds.ts';
import { STEP } from '../../src/solver/check/certificate-format.ts';
import { evaluate, type Verdict, verifyCertificate } from '../../src/solver/check/verify.ts';
import type { Certificate, Problem } from '../../src/solver/types.ts';
import { stepsOf, withList } from '../solver/certificate-support.ts';
import {
  build,
  enumerate,
  exhaust,
  limitedInstance,
  mulberry32,
  type PlainProblem,
  randomProblem,
  ring,
} from '../solver/support.ts';
import { FULL } from '../support/full.ts';

/** Seed and optimum of the sixteen limited instances. */
const OPTIMA: readonly (readonly [number, number])[] = [
  [1, 694],
  [2, 606],
  [3, 483],
  [4, 641],
  [5, 837],
  [6, 743],
  [7, 228],
  [8, 280],
  [9, 292],
  [10, 474],
  [11, 545],
  [12, 427],
  [13, 702],
  [14, 314],
  [15, 284],
  [16, 565],
];

const numbers = (choice: ArrayLike<number>): number[] => Array.from(choice);

describe('reduction to the search model', () => {
  it('the optimum of the reduced model is that of the problem, and every choice expands to one of equal cost', () => {
    let reducedAway = 0;
    for (let seed = 1; seed <= (FULL ? 216 : 80); seed++) {
      const plain =
        seed <= 16
          ? limitedInstance(seed)
          : randomProblem(seed, { most: 6, values: 3, usage: true, row: seed % 3 === 0 });
      const problem = build(plain, seed % 2 === 0);
      const { objective } = exhaust(plain);
      const reduced = presolve(problem);
      if (reduced === undefined) {
        expect(objective, `seed ${seed}`).toBe(Infinity);
        continue;
      }
      const { model } = reduced;
      if (model.count === 0) reducedAway++;
      let best = Infinity;
      const x = new Int32Array(model.count);
      for (;;) {
        const cost = costOf(model, x);
        const keeps = usageOf(model, x).every((u, t) => u <= model.capacity[t]);
        if (cost < Infinity) {
          const found = evaluate(problem, reduced.expand(x));
          const broken = found.violations.map((v) => v.code);
          expect([found.cost, broken.length === 0], `seed ${seed}`).toEqual([BigInt(cost), keeps]);
          if (keeps) best = Math.min(best, cost);
        }
        let i = model.count - 1;
        while (i >= 0 && ++x[i] === model.sizes[i]) x[i--] = 0;
        if (i < 0) break;
      }
      expect(best, `seed ${seed}`).toBe(objective);
    }
    expect(reducedAway).toBeGreaterThan(0);
  });
});

/** What the checker says of a bound alone. */
const proves = (problem: Problem, certificate: Certificate): Verdict =>
  verifyCertificate(problem, { choice: [], objective: Infinity, certificate });

describe('bounds by prices and messages', () => {
  it('no bound above the optimum, on the way up or certified', () => {
    let close = 0;
    const count = FULL ? 60 : 20;
    for (let seed = 1; seed <= count; seed++) {
      const plain =
        seed <= 16
          ? limitedInstance(seed)
          : randomProblem(seed, { most: 8, values: 3, usage: true, row: seed % 3 === 0 });
      const problem = build(plain, seed % 2 === 0);
      const optimum = enumerate(plain);
      const reduced = presolve(problem);
      if (reduced === undefined || optimum === Infinity) continue;
      const ascent = new PriceAscent(new Dual(reduced.model));
      for (let k = 0; k < 80; k++)
        expect(ascent.step(), `seed ${seed}`).toBeLessThanOrEqual(optimum + 1e-6);
      const certificate = dualCertificate(problem, reduced, {
        lambda: ascent.kept,
        toFirst: ascent.bestFirst,
        toSecond: ascent.bestSecond,
      });
      const verdict = proves(problem, certificate);
      expect(verdict.reason).toBeUndefined();
      expect(verdict.bound, `seed ${seed}`).toBeLessThanOrEqual(BigInt(optimum));
      if (Number(verdict.bound) >= optimum - 0.2 * Math.abs(optimum)) close++;
    }
    expect(close).toBeGreaterThan(count / 2);
  });

  it('a certificate with a flipped, shifted or foreign part is refused or proves less, never more than the optimum', () => {
    const plain = limitedInstance(5);
    const problem = build(plain);
    const reduced = presolve(problem);
    if (reduced === undefined) throw new Error('it has choices');
    const ascent = new PriceAscent(new Dual(reduced.model));
    for (let k = 0; k < 60; k++) ascent.step();
    const good = dualCertificate(problem, reduced, {
      lambda: ascent.kept,
      toFirst: ascent.bestFirst,
      toSecond: ascent.bestSecond,
    });
    const honest = proves(problem, good);
    expect(honest.accepted).toBe(true);
    const [[, , prices, triples]] = stepsOf(good).filter(([code]) => code === STEP.messages);
    expect(good.lists[prices].length).toBeGreaterThan(0);
    expect(good.lists[triples].length).toBeGreaterThan(0);
    const flipped = proves(
      problem,
      withList(good, prices, (list) => list.map((p) => -p)),
    );
    expect(flipped.accepted).toBe(false);
    const message = good.lists[triples].slice(0, 3);
    const list = Math.max(message[1], message[2]);
    const shifted = proves(
      problem,
      withList(good, list, (of) => of.map((m, a) => (a === 0 ? m - 1e9 : m))),
    );
    expect(shifted.accepted && shifted.bound >= honest.bound).toBe(false);
    const scaled = proves(
      problem,
      withList(good, prices, (of) => of.map((p) => 1000 * p)),
    );
    expect([scaled.accepted, scaled.bound <= 837n]).toEqual([true, true]);
    expect(proves(problem, { ...good, problem: '0123456789abcdef' }).accepted).toBe(false);
    expect(proves(problem, { ...good, steps: [STEP.merge, 0, 1, 0, ...good.steps] }).accepted).toBe(
      false,
    );
    expect(
      proves(
        problem,
        withList(good, triples, () => [...message, ...message]),
      ).accepted,
    ).toBe(false);
    expect(
      proves(
        problem,
        withList(good, list, () => [0.5]),
      ).accepted,
    ).toBe(false);
    expect(
      proves(problem, { ...good, steps: [...good.steps, STEP.eliminate, 0] }).reason,
    ).toContain('follows messages');
    expect(proves(build(limitedInstance(6)), good).accepted).toBe(false);
  });

  it('edges of variables with one value are certified with the costs of their other ends', () => {
    // Alone every edge and every variable costs nothing at best; together each pair costs 10.
    const pairs = 5;
    const unary = [[3], ...Array.from({ length: pairs }, () => [0, 10, 12])];
    const edges = Array.from({ length: pairs }, (_, k): [number, number, number[]] => [
      0,
      k + 1,
      [10, 0, 1],
    ]);
    const problem = build({ unary, edges, pieces: [], limit: Infinity });
    const reduced = presolve(problem);
    if (reduced === undefined) throw new Error('it has choices');
    const none = {
      lambda: new Float64Array(reduced.model.rows),
      toFirst: new Float64Array(0),
      toSecond: new Float64Array(0),
    };
    expect(proves(problem, dualCertificate(problem, reduced, none))).toEqual({
      accepted: true,
      bound: BigInt(3 + 10 * pairs),
    });
  });
});

/**
 * The problem with two more edges beside some: each leaves every value a partner, but not the same
 * one to the first value of the first end, which therefore has none in their sum.
 */
function withPartnerless(plain: PlainProblem, seed: number): PlainProblem {
  const random = mulberry32(seed);
  const doubled = plain.edges.flatMap(([i, j]): [number, number, number[]][] => {
    const [k, l] = [plain.unary[i].length, plain.unary[j].length];
    if (k < 2 || l < 2 || random() < 0.5) return [];
    const table = (side: number): number[] =>
      Array.from({ length: k * l }, (_, c) =>
        c < l && c % 2 === side ? Infinity : Math.floor(9 * random()),
      );
    return [
      [i, j, table(0)],
      [i, j, table(1)],
    ];
  });
  return { ...plain, edges: [...plain.edges, ...doubled] };
}

describe('values without a partner', () => {
  it('values that two edges together leave without a partner are deleted, and bounds of such problems are certified', () => {
    let doubled = 0;
    const count = FULL ? 120 : 40;
    for (let seed = 1; seed <= count; seed++) {
      const random = randomProblem(seed, { most: 6, values: 4, usage: true, row: seed % 3 === 0 });
      const plain = withPartnerless(random, seed);
      if (plain.edges.length > random.edges.length) doubled++;
      const problem = build(plain);
      const { objective } = exhaust(plain);
      const reduced = presolve(problem);
      if (reduced === undefined) {
        expect(objective, `seed ${seed}`).toBe(Infinity);
        continue;
      }
      const ascent = new PriceAscent(new Dual(reduced.model));
      for (let k = 0; k < 30; k++) ascent.step();
      expect(
        [...ascent.bestFirst, ...ascent.bestSecond].every(Number.isFinite),
        `seed ${seed}`,
      ).toBe(true);
      const report = {
        lambda: ascent.kept,
        toFirst: ascent.bestFirst,
        toSecond: ascent.bestSecond,
      };
      const verdict = proves(problem, dualCertificate(problem, reduced, report));
      expect(verdict.reason, `seed ${seed}`).toBeUndefined();
      if (objective < Infinity)
        expect(verdict.bound, `seed ${seed}`).toBeLessThanOrEqual(BigInt(objective));
    }
    expect(doubled).toBeGreaterThan(count / 4);
  });
});

describe('solve, anytime', () => {
  it('sixteen random instances (one of them without SHARDWRIGHT_FULL), proven', async () => {
    for (const [i, [seed, optimum]] of OPTIMA.entries()) {
      if (i > 0 && !FULL) continue;
      const problem = build(limitedInstance(seed));
      const solution = await solveAnytime(problem, { threads: 1, rounds: 12 });
      expect([seed, solution.status, solution.objective, solution.bound]).toEqual([
        seed,
        'optimal',
        optimum,
        optimum,
      ]);
    }
  });

  it('random problems of every kind against enumeration; certificates are accepted', async () => {
    const last = FULL ? 425 : 403;
    for (let seed = 400; seed < last; seed++) {
      const plain = randomProblem(seed, { most: 9, values: 3, usage: true, row: seed % 2 === 0 });
      const problem = build(plain, seed % 3 === 0);
      const optimum = enumerate(plain);
      const solution = await solveAnytime(problem, { threads: 1, rounds: 8 });
      if (optimum === Infinity) {
        expect(solution.status, `seed ${seed}`).toBe('infeasible');
        continue;
      }
      expect([seed, solution.objective, solution.bound]).toEqual([seed, optimum, optimum]);
      const { certificate, choice } = solution;
      if (certificate === undefined) throw new Error('an optimum without certificate');
      const verdict = verifyCertificate(problem, { choice, objective: optimum, certificate });
      expect([verdict.accepted, verdict.bound]).toEqual([true, BigInt(optimum)]);
    }
  });

  it('the same bytes with one thread and with several', async () => {
    const problem = build(ring(7, FULL ? 120 : 40, 3, 1.1));
    const [alone, together] = await Promise.all([
      solveAnytime(problem, { threads: 1, rounds: 2, seed: 5, close: false }),
      solveAnytime(problem, { threads: FULL ? 3 : 2, rounds: 2, seed: 5, close: false }),
    ]);
    expect(numbers(together.choice)).toEqual(numbers(alone.choice));
    expect([together.objective, together.bound, together.certificate]).toEqual([
      alone.objective,
      alone.bound,
      alone.certificate,
    ]);
  });

  it('cost falls and bound rises; a stop in mid-search returns a checked choice with an honest bound', async () => {
    const problem = build(ring(3, FULL ? 200 : 80, 3, 1.1));
    const stop = new AbortController();
    const events: (readonly [number, number])[] = [];
    const solution = await solveAnytime(problem, {
      threads: 1,
      close: false,
      signal: stop.signal,
      onProgress: ({ objective, bound, phase }) => {
        events.push([objective, bound]);
        if (phase === 'search' && events.length > 3) stop.abort();
      },
    });
    expect(events.length).toBeGreaterThan(3);
    for (let k = 1; k < events.length; k++) {
      expect(events[k][0]).toBeLessThanOrEqual(events[k - 1][0]);
      expect(events[k][1]).toBeGreaterThanOrEqual(events[k - 1][1]);
    }
    const found = evaluate(problem, solution.choice);
    expect([found.violations.length, Number(found.cost)]).toEqual([0, solution.objective]);
    expect(solution.bound).toBeGreaterThan(0n);
    expect(solution.bound).toBeLessThanOrEqual(found.cost);
    if (solution.bound !== solution.objective) expect(solution.status).toBe('feasible');
  });

  it('searches a ring of sixty to a checked choice above its bound, the same every time', async () => {
    const problem = build(ring(11, 60, 3, 1.1));
    const reduced = presolve(problem);
    const start = reduced === undefined ? undefined : firstChoice(reduced.model);
    if (reduced === undefined || start === undefined) throw new Error('it has choices');
    const { model } = reduced;
    const run = (): Promise<Findings> => {
      const control = new Int32Array(new SharedArrayBuffer(4));
      return search(model, start, costOf(model, start), {
        seed: 1,
        threads: 1,
        deadline: Infinity,
        control,
        rounds: 3,
        onRound: () => false,
      });
    };
    const found = await run();
    expect(found.cost).toBeLessThan(costOf(model, start));
    expect(found.cost).toBeGreaterThanOrEqual(found.bound?.best ?? Infinity);
    expect(evaluate(problem, reduced.expand(found.choice))).toMatchObject({
      violations: [],
      cost: BigInt(found.cost),
    });
    expect(numbers((await run()).choice)).toEqual(numbers(found.choice));
  });
});
