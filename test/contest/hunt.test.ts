import { describe, expect, it } from 'vitest';

import { costOf, Dual } from '../../src/contest/bound/trws.ts';
import { Block } from '../../src/contest/lns/block.ts';
import { presolve } from '../../src/contest/model/presolve.ts';
import { type BoundReport, firstChoice, type Orders } from '../../src/contest/run/member.ts';
import { search } from '../../src/contest/run/rounds.ts';
import { type Outlook, Schedule } from '../../src/contest/run/schedule.ts';
import { evaluate } from '../../src/solver/check/verify.ts';
import { Arena } from '../../src/solver/store/kernels.ts';
import { build, mulberry32, type PlainProblem } from '../solver/support.ts';
import { FULL } from '../support/full.ts';

// The long runs belong to `npm run test:full`.

describe('(the kernels in WebAssembly)', () => {
  it('least sums and messages of any width, the same bits as plain loops', () => {
    const next = mulberry32(5);
    const arena = new Arena();
    for (const [d, width] of [
      [1, 1],
      [2, 3],
      [4, 4],
      [5, 7],
      [19, 23],
      [64, 2],
      [33, 31],
    ]) {
      const padded = 4 * Math.ceil(d / 4);
      const [x, y, to] = [padded, padded + d * width + 8, padded + 2 * (d * width + 8)];
      arena.need(to + width + 8);
      const { numbers, kernel } = arena;
      numbers.fill(Infinity, 0, padded);
      for (let a = 0; a < d; a++) numbers[a] = next() - 0.5;
      for (let c = x; c < to; c++) numbers[c] = next() < 0.1 ? Infinity : 1e9 * (next() - 0.5);
      const plain = (cost: (a: number, b: number) => number): number[] =>
        Array.from({ length: width }, (_, b) =>
          Math.min(...Array.from({ length: d }, (_, a) => cost(a, b))),
        );
      const got = (): number[] => Array.from(numbers.subarray(to, to + width));
      kernel.least(0, 8 * padded, 8 * x, 8 * d, width, 8 * to);
      expect(got()).toEqual(plain((a, b) => numbers[a] + numbers[x + b * d + a]));
      kernel.leastOfTwo(0, 8 * padded, 8 * x, 8 * d, 8 * y, 8 * d, width, 8 * to);
      expect(got()).toEqual(
        plain((a, b) => numbers[a] + numbers[x + b * d + a] + numbers[y + b * d + a]),
      );
      kernel.send(0, d, 8 * x, 8 * width, 8 * width, 8 * to);
      expect(got()).toEqual(plain((a, b) => numbers[a] + numbers[x + a * width + b]));
    }
  });

  it('memory grows and keeps what it holds', () => {
    const arena = new Arena();
    const before = arena.numbers.length;
    arena.numbers[before - 1] = 7;
    arena.need(before + 1);
    expect(arena.numbers.length).toBeGreaterThan(before);
    expect(arena.numbers[before - 1]).toBe(7);
    expect(() => arena.need(2 ** 31)).toThrow(RangeError);
  });

  it('a block of many neighbours at one variable is the minimum of enumeration', () => {
    const next = mulberry32(9);
    for (let round = 0; round < 40; round++) {
      const sizes = Array.from({ length: 6 }, () => 2 + Math.floor(next() * 3));
      const block = new Block(6);
      block.begin();
      const unary = sizes.map((size) =>
        Array.from({ length: size }, () => Math.floor(1000 * next())),
      );
      unary.forEach((costs, i) => block.costs.set(costs, block.add(sizes[i], 0)));
      // All pairs: eliminations sum one, two and more tables.
      const edges: { readonly i: number; readonly j: number; readonly cells: readonly number[] }[] =
        [];
      for (let i = 0; i < 6; i++)
        for (let j = i + 1; j < 6; j++) {
          const cells = Array.from({ length: sizes[i] * sizes[j] }, () =>
            Math.floor(1000 * next()),
          );
          edges.push({ i, j, cells });
          const at = block.join(i, j);
          block.cells().set(cells, at);
        }
      block.arrange(1e6, 0);
      const cost = (c: ArrayLike<number>): number =>
        unary.reduce((sum, costs, i) => sum + costs[c[i]], 0) +
        edges.reduce((sum, { i, j, cells }) => sum + cells[c[i] * sizes[j] + c[j]], 0);
      let least = Infinity;
      const c = new Int32Array(6);
      for (let i = 0; i >= 0;) {
        least = Math.min(least, cost(c));
        for (i = 5; i >= 0 && ++c[i] === sizes[i]; i--) c[i] = 0;
      }
      expect(block.minimise()).toBe(least);
      expect(cost(block.chosen)).toBe(least);
    }
  });
});

/**
 * A chain of `n` variables with `values` values each and usage over time; costs are drawn, the
 * limit binds.
 */
function chain(seed: number, n: number, values: number): PlainProblem {
  const next = mulberry32(seed);
  const int = (k: number): number => Math.floor(next() * k);
  const unary = Array.from({ length: n }, () => Array.from({ length: values }, () => int(1000)));
  const edges = unary.flatMap((_, i): [number, number, number[]][] =>
    i + 1 < n ? [[i, i + 1, Array.from({ length: values * values }, () => int(500))]] : [],
  );
  const pieces = unary.map((u, variable) => ({
    variable,
    lo: variable,
    hi: variable + 2 + int(6),
    amounts: u.map(() => 1 + int(100)),
  }));
  const peak = Math.max(
    ...pieces.map(({ lo }) =>
      pieces.reduce((s, p) => (p.lo <= lo && lo < p.hi ? s + Math.min(...p.amounts) : s), 0),
    ),
  );
  return { unary, edges, pieces, limit: Math.floor(1.1 * peak) };
}

describe('(schedules)', () => {
  const bound: BoundReport = {
    best: 0,
    present: 0,
    lambda: new Float64Array(1),
    marginal: new Float64Array(1),
    injected: [],
    toFirst: new Float64Array(0),
    toSecond: new Float64Array(0),
    unconverged: false,
    rising: false,
    recent: 0,
    stalled: false,
  };
  const priced = (cost: number): Outlook['start'] => ({ choice: Int32Array.of(cost), cost });
  const outlook = (best: number): Outlook => ({
    bound,
    best: priced(best),
    elites: [priced(best).choice],
    start: priced(1000),
    tight: false,
  });
  const told = (orders: Orders): string =>
    'generation' in orders ? `${orders.kind} ${orders.generation}` : orders.kind;

  it('blocks while they gain, then descents, then both with injected choices, then restarts; nothing gained moves it on', () => {
    const schedule = new Schedule(true, true);
    const seen: string[] = [];
    let injected = 0;
    for (let round = 0; round < 80; round++) {
      const orders = schedule.orders(1, outlook(900));
      if (!('shared' in orders)) throw new Error('a schedule never rests');
      if (seen.at(-1) !== told(orders)) seen.push(told(orders));
      if (seen.length > 2) injected = Math.max(injected, orders.shared.injected.length);
      const cost = round < 5 ? 1000 - 10 * (round + 1) : 950;
      schedule.hear({ kind: orders.kind, choice: Int32Array.of(cost), cost, steps: 1 });
      if (seen.includes('search 1')) break;
    }
    expect(seen[0]).toBe('search 0');
    expect(seen[1]).toBe('descend 0');
    expect(seen.at(-1)).toBe('search 1');
    expect(injected).toBe(1);
    expect(schedule.ended?.cost).toBe(950);
  });

  it('with blocks alone a leader works on the best of all, others start anew', () => {
    const leader = new Schedule(false, true);
    const orders = leader.orders(1, outlook(900));
    expect('shared' in orders && orders.shared.cost).toBe(900);
    const rival = new Schedule(false, false);
    let last = '';
    for (let round = 0; round < 20; round++) {
      const own = rival.orders(1, outlook(900));
      expect('shared' in own && own.shared.cost).toBe(1000);
      last = told(own);
      rival.hear({ kind: 'search', cost: Infinity, steps: 0 });
    }
    expect(last).toBe('search 1');
  });

  it('a tight model gets blocks alone at the latest prices, then blocks with injected choices, then restarts', () => {
    const schedule = new Schedule(true, true);
    const near: BoundReport = { ...bound, best: 890, present: 890 };
    const seen: string[] = [];
    const scales: number[] = [];
    const united: number[] = [];
    for (let round = 0; round < 40 && seen.at(-1) !== 'search 1'; round++) {
      // Every round has prices of its own: the schedule is to take them.
      const lambda = Float64Array.of(round);
      const orders = schedule.orders(1, {
        ...outlook(900),
        bound: { ...near, lambda },
        tight: true,
      });
      if (!('shared' in orders)) throw new Error('a schedule never rests');
      expect(orders.shared.lambda).toBe(lambda);
      if (seen.at(-1) !== told(orders)) seen.push(told(orders));
      scales.push(orders.shared.scale);
      if (orders.shared.injected.length > 0) united.push(round);
      // Gains of a ten-thousandth of the cost count while they are large beside the distance to the
      // bound.
      const cost = round < 5 ? 895 - 0.1 * round : 894.6;
      schedule.hear({ kind: orders.kind, choice: Int32Array.of(cost), cost, steps: 1 });
    }
    expect(seen).toEqual(['search 0', 'search 1']);
    // Four times the distance of what the schedule has: 1000 at first, 895 after a round.
    expect(scales.slice(0, 2)).toEqual([440, 20]);
    // Five rounds gain, eight do not; four more with injected choices.
    expect(united).toEqual([13, 14, 15, 16]);
    expect(schedule.ended?.cost).toBe(894.6);
  });

  it('the scale of a search is never more than the cost', () => {
    const schedule = new Schedule(true, true);
    const orders = schedule.orders(1, outlook(900));
    expect('shared' in orders && orders.shared.scale).toBe(1000);
  });

  it.runIf(FULL)(
    'a large model goes through all stages to a checked choice, the same with one thread and with two',
    async () => {
      const problem = build(chain(3, 1900, 3));
      const reduced = presolve(problem);
      const start = reduced === undefined ? undefined : firstChoice(reduced.model);
      if (reduced === undefined || start === undefined) throw new Error('it has choices');
      const { model } = reduced;
      expect(model.count).toBeGreaterThan(1000);
      const run = (threads: number, members: number): ReturnType<typeof search> => {
        const control = new Int32Array(new SharedArrayBuffer(4));
        const cost = costOf(model, start);
        // Small rounds, so that the stages fit into a test.
        return search(model, start, cost, {
          seed: 1,
          threads,
          members,
          deadline: Infinity,
          control,
          work: 2e5,
          rounds: 16,
          onRound: () => false,
        });
      };
      const [alone, together] = [await run(1, 2), await run(2, 2)];
      expect([together.cost, Array.from(together.choice)]).toEqual([
        alone.cost,
        Array.from(alone.choice),
      ]);
      expect(alone.cost).toBeLessThan(costOf(model, start));
      expect(alone.cost).toBeGreaterThanOrEqual(alone.bound?.best ?? Infinity);
      expect(evaluate(problem, reduced.expand(alone.choice))).toMatchObject({
        violations: [],
        cost: BigInt(alone.cost),
      });
    },
  );

  it('bounds with kernels are those of plain loops', () => {
    // Past 100,000 cells the dual keeps a copy where kernels reach it; a tree is solved exactly by
    // messages alone.
    const plain = chain(8, 40, 60);
    const model = presolve(build({ ...plain, pieces: [], limit: Infinity }))?.model;
    if (model === undefined) throw new Error('it has choices');
    expect(model.cells.length).toBeGreaterThan(100_000);
    const dual = new Dual(model);
    dual.sweep();
    const bound = dual.sweep();
    let least = plain.unary[0].slice();
    for (const [, j, cells] of plain.edges)
      least = plain.unary[j].map(
        (u, b) => u + Math.min(...least.map((c, a) => c + cells[a * 60 + b])),
      );
    expect(bound).toBeCloseTo(Math.min(...least), 6);
    expect(costOf(model, dual.decode())).toBeCloseTo(bound, 6);
  });
});
