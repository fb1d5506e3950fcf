/** Ties of whole plans: which plan of least seconds is returned. */
import { expect, test } from 'vitest';

import { defined } from '../../../src/defined.ts';
import { parseGraph } from '../../../src/graph/text/parse.ts';
import { decode } from '../../../src/plan/choice/decode.ts';
import { type Candidate, planned } from '../../../src/plan/choice/result.ts';
import { candidatesOf } from '../../../src/plan/choose.ts';
import { prepare } from '../../../src/plan/prepare/prepare.ts';
import { Deadline } from '../../../src/plan/request/deadline.ts';
import { brokenTies, TIE_BREAK, TIES_LEFT } from '../../../src/plan/solve/ties.ts';
import { evaluate } from '../../../src/solver/check/verify.ts';
import { solve } from '../../../src/solver/solve.ts';
import { differencesOf, load, planFor, request, TABLE } from '../support.ts';

interface Placed {
  readonly name: string;
  readonly shape: readonly number[];
  readonly placement: string;
}

/**
 * Pairs of neighbouring parameters, equal but for numbers in their names, that are placed
 * differently.
 */
function unequal(parameters: readonly Placed[]): number {
  const last = new Map<string, string>();
  let count = 0;
  for (const { name, shape, placement } of parameters) {
    const key = `${name.replace(/\d+/g, '#')} ${shape.join('x')}`;
    if (last.has(key) && last.get(key) !== placement) count++;
    last.set(key, placement);
  }
  return count;
}

/** Two weights of one kind whose squares are added up: rows and columns are cut at one price. */
const SQUARES = parseGraph(`swgraph 1
graph @g {
  in %w0: f32[8192, 8192] parameter "layers.0.weight"
  in %w1: f32[8192, 8192] parameter "layers.1.weight"
  %q0 = aten.mul.Tensor(%w0, %w0): f32[8192, 8192]
  %q1 = aten.mul.Tensor(%w1, %w1): f32[8192, 8192]
  %s0 = aten.sum.default(%q0): f32[]
  %s1 = aten.sum.default(%q1): f32[]
  %loss = aten.add.Tensor(%s0, %s1): f32[]
  out %loss output 0
}
`);

test('among plans of equal seconds, equal layers are placed the same way as far as that costs nothing', async () => {
  const prepared = prepare(SQUARES, request('dp=4'), TABLE);
  const {
    model,
    left: { compact, problem },
  } = prepared;
  const engine = await solve(compact.problem);
  expect(engine.status).toBe('optimal');
  // An optimum that cuts one by rows and the other by columns.
  const pins = ['S(0)', 'S(1)'].map((spec, k) => ({ node: `w${k}`, spec }));
  const { left } = prepare(SQUARES, request('dp=4', { pins }), TABLE);
  const mixed = await solve(left.compact.problem);
  const before = left.compact.expand(mixed.choice);
  expect(evaluate(problem, before)).toMatchObject({
    violations: [],
    cost: BigInt(engine.objective),
  });
  const after = brokenTies(model, problem, before, engine.objective);
  expect(after).toBeDefined();
  expect(evaluate(problem, after!)).toMatchObject({
    violations: [],
    cost: BigInt(engine.objective),
  });
  const [first, second] = [decode(model, before), decode(model, after!)];
  expect([first, second].map(({ parameters }) => unequal(parameters))).toEqual([1, 0]);
  // What is preferred once is preferred again.
  expect(brokenTies(model, problem, after!, engine.objective)).toEqual(after);

  const best = { ...engine, choice: before };
  const solved = { best, problem: compact.problem };
  const [preferred] = candidatesOf(prepared, solved, new Deadline(undefined));
  const { plan } = planned(preferred, { version: 1, ...defined({ free: engine.certificate }) });
  expect(plan.objective.seconds).toBe(engine.objective / model.unitsPerSecond);
  expect(plan.proof).toMatchObject({ status: 'optimal', gap: 0 });
  expect(unequal(plan.parameters)).toBe(0);
  expect(plan.assumptions).toContain(TIE_BREAK);
});

test('where a memory row binds, ties are not compared and the plan does not say so', async () => {
  const graph = load('torch/mlp/joint.expanded');
  const free = await planFor(graph, 'x=4');
  const tight = await planFor(graph, 'x=4', {
    memoryBytes: Math.ceil(free.memory.peakBytes * 0.6),
  });
  expect(tight.assumptions).not.toContain(TIE_BREAK);
  expect(tight.memory.peakBytes).toBeLessThanOrEqual(tight.memory.budgetBytes);
});

test('where the peak is a constraint, ties are not compared, however much memory there is', async () => {
  const graph = load('torch/resnet14/joint.expanded');
  const plan = await planFor(graph, 'dp=2,tp=2', { activations: 'constraint' });
  expect(plan.proof.status).toBe('optimal');
  expect(plan.assumptions).not.toContain(TIE_BREAK);
});

test('where the time is over, the plan stays as the solver found it, and says so', async () => {
  const prepared = prepare(load('torch/mlp/joint.expanded'), request('x=2,y=2'), TABLE);
  const { compact } = prepared.left;
  const engine = await solve(compact.problem);
  const best = { ...engine, choice: compact.expand(engine.choice) };
  const found = (limitSeconds?: number): Candidate[] => {
    const clock = { now: () => 1e6 };
    const deadline = new Deadline(limitSeconds, { clock, since: 0 });
    return [...candidatesOf(prepared, { best, problem: compact.problem }, deadline)];
  };
  const [late, ...others] = found(1);
  expect(others).toEqual([]);
  expect(late.solution).toBe(best);
  expect(late.prepared.notes).toContain(TIES_LEFT);
  for (const { prepared: said } of found()) expect(said.notes).not.toContain(TIES_LEFT);
  const result = planned(late, { version: 1, ...defined({ free: engine.certificate }) });
  expect(result.plan.assumptions).toContain(TIES_LEFT);
  expect(differencesOf(result)).toEqual([]);
});
