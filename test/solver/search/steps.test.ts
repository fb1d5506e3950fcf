import { describe, expect, it } from 'vitest';

import { verifyCertificate } from '../../../src/solver/check/verify.ts';
import { solve } from '../../../src/solver/solve.ts';
import { type Problem, type SolverStep, STEP_ABOUT } from '../../../src/solver/types.ts';
import { build, mulberry32 } from '../support.ts';

/** A grid with random costs, and a row that half of the cheap values would break. */
function grid(width: number, height: number, values: number): Problem {
  const random = mulberry32(7);
  const many = (count: number, most: number): number[] =>
    Array.from({ length: count }, () => Math.floor(random() * most));
  const n = width * height;
  const edges: [number, number, number[]][] = [];
  for (let v = 0; v < n; v++) {
    if (v % width > 0) edges.push([v - 1, v, many(values * values, 100)]);
    if (v >= width) edges.push([v - width, v, many(values * values, 100)]);
  }
  const amounts = Array.from({ length: n }, () => many(values, 1000));
  return build({
    unary: Array.from({ length: n }, () => many(values, 100)),
    edges,
    rows: [{ name: 'memory', variables: [...Array(n).keys()], amounts, bound: n * 300 }],
  });
}

async function stepsOf(problem: Problem, enough?: number): Promise<readonly SolverStep[]> {
  const steps: SolverStep[] = [];
  const given = enough === undefined ? {} : { enough };
  await solve(problem, { engine: 'exact', ...given, onStep: (step) => steps.push(step) });
  return steps.sort((a, b) => a.order - b.order);
}

describe('the steps that a solve tells', () => {
  const problem = grid(4, 5, 4);

  it('are those of the whole, each known, each within the one before, the same each time', async () => {
    const steps = await stepsOf(problem);
    expect(steps.map(({ order }) => order)).toEqual([...steps.keys()]);
    expect([steps[0].step, steps[0].level]).toEqual(['solve', 0]);
    for (const [k, { level, step }] of steps.entries()) {
      expect(STEP_ABOUT[step]).toBeDefined();
      if (k > 0) expect(level).toBeLessThanOrEqual(steps[k - 1].level + 1);
    }
    const names = new Set(steps.map(({ step }) => step));
    for (const step of ['relaxation', 'presolve', 'ascent', 'multipliers', 'fixing', 'replay'])
      expect(names).toContain(step);
    const timeless = (list: readonly SolverStep[]): unknown =>
      list.map(({ seconds: _, ...step }) => step);
    expect(timeless(await stepsOf(problem))).toEqual(timeless(steps));
  });

  it('do not change the answer, and end at its cost and bound', async () => {
    let last: SolverStep | undefined;
    const plain = await solve(problem, { engine: 'exact' });
    const told = await solve(problem, { engine: 'exact', onStep: (step) => (last = step) });
    expect([...told.choice]).toEqual([...plain.choice]);
    expect([last?.cost, last?.bound]).toEqual([plain.objective, plain.bound]);
  });
});

describe('a gap that is enough', () => {
  const problem = grid(6, 6, 5);

  it('ends a search before its expensive steps, with a bound that the checker accepts', async () => {
    const whole = await solve(problem, { engine: 'exact' });
    const early = await solve(problem, { engine: 'exact', enough: 0.5 });
    expect(early.gap).toBeGreaterThan(0);
    expect(early.gap).toBeLessThanOrEqual(0.5);
    expect(early.objective).toBeGreaterThanOrEqual(whole.objective);
    expect(early.bound).toBeLessThanOrEqual(whole.objective);
    expect(verifyCertificate(problem, early).accepted).toBe(true);
    const names = (await stepsOf(problem, 0.5)).map(({ step }) => step);
    expect(names).not.toContain('pareto elimination');
    expect(names).not.toContain('branching');
  });

  it('of 0 leaves nothing out', async () => {
    const [whole, same] = [
      await solve(problem, { engine: 'exact' }),
      await solve(problem, { engine: 'exact', enough: 0 }),
    ];
    expect([same.status, same.objective, same.bound]).toEqual([
      whole.status,
      whole.objective,
      whole.bound,
    ]);
  });
});
