import { describe, expect, it } from 'vitest';

import { solveAnytime } from '../../src/contest/anytime.ts';
import { PriceAscent } from '../../src/contest/bound/row-prices.ts';
import { costOf, Dual, usageOf } from '../../src/contest/bound/trws.ts';
import { branchTree } from '../../src/contest/finish/branch-tree.ts';
import { branchingOf } from '../../src/contest/finish/branching.ts';
import { close } from '../../src/contest/finish/close.ts';
import { finish } from '../../src/contest/finish/finish.ts';
import { runJob } from '../../src/contest/finish/job.ts';
import { type BoundSource, fix } from '../../src/contest/finish/reduced-cost-fixing.ts';
import { presolve, type Presolved } from '../../src/contest/model/presolve.ts';
import { firstChoice } from '../../src/contest/run/member.ts';
import { monotonicMilliseconds as milliseconds } from '../../src/platform/platform.ts';
import { evaluate, verifyCertificate } from '../../src/solver/check/verify.ts';
import type { Problem } from '../../src/solver/types.ts';
import {
  build,
  exhaust,
  limitedInstance,
  type PlainProblem,
  randomProblem,
  ring,
} from '../solver/support.ts';
import { FULL } from '../support/full.ts';

// The long runs belong to `npm run test:full`.

interface Case {
  readonly seed: number;
  readonly plain: PlainProblem;
  readonly problem: Problem;
  readonly reduced: Presolved;
  readonly start: Int32Array;
  readonly source: BoundSource;
  readonly optimum: number;
}

/**
 * Small problems with memory rows that the reduction does not already solve, with a bound of a few
 * sweeps.
 */
function* cases(): Generator<Case> {
  for (let seed = 1; seed <= 70; seed++) {
    const plain =
      seed <= 16
        ? limitedInstance(seed)
        : randomProblem(seed, { most: 7, values: 3, usage: true, row: seed % 3 === 0 });
    const problem = build(plain, seed % 2 === 0);
    const reduced = presolve(problem);
    const start = reduced === undefined ? undefined : firstChoice(reduced.model);
    if (reduced === undefined || start === undefined || reduced.model.count === 0) continue;
    const ascent = new PriceAscent(new Dual(reduced.model));
    for (let k = 0; k < 25; k++) ascent.step();
    const source = { lambda: ascent.kept, toFirst: ascent.bestFirst, toSecond: ascent.bestSecond };
    yield { seed, plain, problem, reduced, start, source, optimum: exhaust(plain).objective };
  }
}

describe('the finisher', () => {
  it('fixing never deletes a value or a pair of a choice within the limit, and does delete', () => {
    let deleted = 0;
    for (const { seed, reduced, source, optimum } of cases()) {
      const { model } = reduced;
      const { liveValue, liveCell, cellAt, bound } = fix(model, source, optimum);
      expect(bound, `seed ${seed}`).toBeLessThanOrEqual(optimum + 1e-6);
      deleted += liveValue.filter((x) => x === 0).length;
      const x = new Int32Array(model.count);
      for (;;) {
        if (
          costOf(model, x) <= optimum &&
          usageOf(model, x).every((u, t) => u <= model.capacity[t])
        ) {
          for (let i = 0; i < model.count; i++)
            expect(liveValue[model.start[i] + x[i]], `seed ${seed}`).toBe(1);
          model.first.forEach((i, e) => {
            const j = model.second[e];
            expect(liveCell[cellAt[e] + x[i] * model.sizes[j] + x[j]], `seed ${seed}`).toBe(1);
          });
        }
        let i = model.count - 1;
        while (i >= 0 && ++x[i] === model.sizes[i]) x[i--] = 0;
        if (i < 0) break;
      }
    }
    expect(deleted).toBeGreaterThan(20);
  });

  it('HiGHS with lazy rows finds the optimum of enumeration; a plan of branching is proven by the checker', async () => {
    let better = 0;
    let lazy = 0;
    let split = 0;
    for (const { seed, problem, reduced, start, source, optimum } of cases()) {
      if (!FULL && Math.min(better, lazy, split) > 0) break;
      const { model } = reduced;
      // Half of the cases hide the prices, so that rows have to be found.
      const given = seed % 2 === 0 ? source : { ...source, lambda: new Float64Array(model.rows) };
      const found = await finish({
        model,
        choice: start,
        source: given,
        deadline: Infinity,
        seed: 0,
      });
      expect([seed, found.word, found.cost]).toEqual([seed, 'done', optimum]);
      const checked = evaluate(problem, reduced.expand(found.choice));
      expect([seed, checked.violations.length, checked.cost]).toEqual([seed, 0, BigInt(optimum)]);
      if (found.cost < costOf(model, start)) better++;
      if (found.runs > 1) lazy++;
      const tree = await branchTree({
        model,
        source: given,
        cost: optimum,
        rows: found.rows,
        deadline: Infinity,
      });
      if (tree === undefined) throw new Error(`seed ${seed}: no plan`);
      if ('parts' in tree) split++;
      const choice = reduced.expand(found.choice);
      const plan = branchingOf(reduced, tree);
      const closed = close({ problem, choice, rows: [], prices: [], plan, deadline: Infinity });
      expect([seed, closed.objective, closed.bound]).toEqual([seed, optimum, optimum]);
      const { certificate } = closed;
      const verdict = verifyCertificate(problem, {
        choice: closed.choice,
        objective: optimum,
        certificate,
      });
      expect([seed, verdict.accepted, verdict.bound]).toEqual([seed, true, BigInt(optimum)]);
    }
    expect(Math.min(better, lazy, split)).toBeGreaterThan(FULL ? 3 : 0);
  }, 300_000);

  it('a plan with wrong prices proves less, never more', async () => {
    for (const { seed, problem, reduced, start, source, optimum } of cases()) {
      if (seed > 16) break;
      const { model } = reduced;
      const expensive = [{ row: 0, price: 1e4 }].slice(0, model.rows);
      const plan = branchingOf(reduced, {
        variable: 0,
        values: [0],
        parts: [{ prices: expensive }, { prices: [] }],
      });
      const closed = close({
        problem,
        choice: reduced.expand(start),
        rows: [],
        prices: [],
        plan,
        deadline: Infinity,
      });
      expect(closed.bound, `seed ${seed}`).toBeLessThanOrEqual(optimum);
      expect(source.lambda.length).toBe(model.rows);
    }
    await Promise.resolve();
  });

  it('out of time it says so and returns the choice it was given', async () => {
    const [{ reduced, start, source }] = cases();
    const found = await finish({
      model: reduced.model,
      choice: start,
      source,
      deadline: milliseconds() - 1,
      seed: 0,
    });
    expect([found.word, found.cost]).toEqual(['limit', costOf(reduced.model, start)]);
    const tree = {
      model: reduced.model,
      source,
      cost: found.cost,
      rows: [],
      deadline: milliseconds() - 1,
    };
    expect(await branchTree(tree)).toBeUndefined();
  });
});

describe('solve with the finisher', () => {
  const problem = build(ring(5, 110, 4, 1.15));

  it('asks HiGHS once and calls nothing optimal without an accepted bound; a stop is heard while it runs', async () => {
    const stop = new AbortController();
    let asked = 0;
    const solution = await solveAnytime(problem, {
      threads: 1,
      rounds: FULL ? 6 : 2,
      signal: stop.signal,
      onProgress: ({ phase }) => {
        if (phase === 'finish' && asked++ === 0) stop.abort();
      },
    });
    expect(asked).toBeGreaterThan(0);
    expect(solution.evidence).toEqual([
      expect.stringMatching(/^highs on the reduced problem: limit /),
    ]);
    expect(evaluate(problem, solution.choice).violations).toEqual([]);
    expect(solution.status === 'optimal').toBe(solution.bound === solution.objective);
  }, 20_000);

  it('a job in a worker is ended by its deadline', async () => {
    const began = milliseconds();
    const code = {
      from: import.meta.url,
      file: 'data:text/javascript,setInterval(() => undefined, 1000)',
    };
    const end = await runJob(code, {}, { deadline: began + 100, stopped: () => false });
    expect(end.kind).toBe('stopped');
    const now = await runJob(code, {}, { deadline: Infinity, stopped: () => true });
    expect(now.kind).toBe('stopped');
  });
});
