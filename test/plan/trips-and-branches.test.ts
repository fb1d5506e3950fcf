import { describe, expect, it } from 'vitest';

import type { Graph } from '../../src/graph/types.ts';
import { programFlops } from '../../src/ops/program-flops.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { plannable } from '../../src/passes/plannable/plannable.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import { cond } from '../../src/trace/control/cond.ts';
import { whileLoop, type WhileOptions } from '../../src/trace/control/loops.ts';
import { input, parameter, type Tensor, trace } from '../../src/trace/trace.ts';
import { errorOf } from '../trace/support.ts';
import { planFor, TABLE } from './support.ts';

/** What control flow costs: loops by their trips, branches by their probability. */

const N = 1024;
const PRODUCT = 2 * N ** 3;
const inputs = { w: parameter([N, N]), x: input([N, N]) };

type State = { readonly i: Tensor; readonly x: Tensor };
function loop(
  start: number,
  test: (i: Tensor) => Tensor,
  next: (i: Tensor) => Tensor,
  options?: WhileOptions,
): Graph {
  return trace(
    ({ w, x }) =>
      whileLoop(
        ({ i }: State) => test(i),
        ({ i, x: now }: State) => ({ i: next(i), x: now.matmul(w) }),
        { i: start, x },
        options,
      ).x,
    inputs,
  );
}

const timesOf = (plan: Plan): number | undefined =>
  plan.nodes.find((n) => n.target === 'aten.mm.default')?.times;

describe('a while loop costs its trips', () => {
  it.each([
    [
      'i < 5 from 0 by 1',
      5,
      loop(
        0,
        (i) => i.lt(5),
        (i) => i.add(1),
      ),
    ],
    [
      'i <= 5 from 2 by 2',
      2,
      loop(
        2,
        (i) => i.le(5),
        (i) => i.add(2),
      ),
    ],
    [
      'i > 0 from 10 by -3',
      4,
      loop(
        10,
        (i) => i.gt(0),
        (i) => i.sub(3),
      ),
    ],
    [
      'i >= 0 from 10 by -3',
      4,
      loop(
        10,
        (i) => i.ge(0),
        (i) => i.sub(3),
      ),
    ],
    [
      'i != 9 from 0 by 3',
      3,
      loop(
        0,
        (i) => i.ne(9),
        (i) => i.add(3),
      ),
    ],
  ])('%s: counted, %i', async (_, trips, graph) => {
    expect(programFlops(plannable(graph, TABLE), TABLE)).toMatchObject({
      total: trips * PRODUCT,
      uncountedLoops: 0,
    });
    const plan = await planFor(graph, 'd=4');
    expect(timesOf(plan)).toBe(trips);
    expect(plan.assumptions.join()).not.toContain('not known');
  });

  it('a counter that jumps past its end is not counted, and the plan says so', async () => {
    const plan = await planFor(
      loop(
        0,
        (i) => i.ne(10),
        (i) => i.add(3),
      ),
      'd=4',
    );
    expect(plan.assumptions.join()).toContain(
      'The trips of while_loop are not known; its body is counted once.',
    );
  });

  it('a loop on data: the most trips, else those that are to be expected', async () => {
    const decided = (options: WhileOptions): Graph =>
      trace(
        ({ w, x }) =>
          whileLoop(
            (h: Tensor) => h.sum().lt(100),
            (h: Tensor) => h.matmul(w),
            x,
            options,
          ),
        inputs,
      );
    expect(timesOf(await planFor(decided({ maxTrips: 8 }), 'd=4'))).toBe(8);
    expect(timesOf(await planFor(decided({ expectedTrips: 3 }), 'd=4'))).toBe(3);
    expect(timesOf(await planFor(decided({ maxTrips: 8, expectedTrips: 3 }), 'd=4'))).toBe(8);
    expect(programFlops(decided({ expectedTrips: 3 }), TABLE)).toMatchObject({
      total: 3 * PRODUCT,
      uncountedLoops: 0,
    });
    expect(errorOf(() => decided({ expectedTrips: 1.5 })).code).toBe('E_WHILE_COND');
  });
});

describe('a condition costs its branches', () => {
  const branching = (prob?: number): Graph =>
    trace(
      ({ w, x }) =>
        cond(
          x.sum().gt(0),
          () => x.matmul(w).matmul(w).matmul(w),
          () => x.matmul(w),
          [],
          prob === undefined ? {} : { prob },
        ),
      inputs,
    );

  it.each([
    [undefined, 3],
    [0.25, 1.5],
    [0, 1],
    [1, 3],
  ])('probability %s: %d products', (prob, products) => {
    expect(programFlops(branching(prob), TABLE).total).toBe(products * PRODUCT);
  });

  it('the plan weights what stands in a branch, and its gradient keeps the probability', async () => {
    const plan = await planFor(branching(0.25), 'd=4');
    const times = (side: number) =>
      plan.nodes
        .filter((n) => n.name.startsWith(`cond.${side}.`) && n.target === 'aten.mm.default')
        .map((n) => n.times);
    expect([times(0), times(1)]).toEqual([[0.25, 0.25, 0.25], [0.75]]);
    expect(plan.assumptions.join()).not.toContain('thousandth');
    const joint = jointGraph(branching(0.25));
    const conds = joint.nodes.filter((n) => n.target === 'cond');
    expect(conds.map((n) => n.kwargs.prob)).toEqual([
      { kind: 'float', value: 0.25 },
      { kind: 'float', value: 0.25 },
    ]);
  });

  it('a probability is a number from 0 to 1', () => {
    expect(errorOf(() => branching(1.5)).code).toBe('E_COND_PRED');
    expect(errorOf(() => branching(NaN)).code).toBe('E_COND_PRED');
  });
});
