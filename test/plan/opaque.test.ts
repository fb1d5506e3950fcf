import { describe, expect, it } from 'vitest';

import { fromFlat } from '../../src/ndarray/array.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { one } from '../../src/ops/record/kernel.ts';
import { elements } from '../../src/ops/record/record.ts';
import { S } from '../../src/ops/record/rule.ts';
import { randomPlan } from '../../src/plan/choice/random-plan.ts';
import { leastCostPlanOf } from '../../src/plan/least-cost-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import type { Prepared } from '../../src/plan/prepare/prepared.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import type { PlanRequest } from '../../src/plan/request/request.ts';
import { verify } from '../../src/simulate/verify.ts';
import { type CustomOp, customOp, type CustomOpSpec } from '../../src/trace/custom/custom-op.ts';
import { spec } from '../../src/trace/record/spec.ts';
import { param } from '../../src/trace/tensor/state.ts';
import { type Tensor, trace } from '../../src/trace/trace.ts';
import { request } from './support.ts';

/**
 * Each row of x in ascending order, negative values masked to zero: rows stay whole, their number
 * may be cut.
 */
const sortAndMask = (extra: Partial<CustomOpSpec> = {}): CustomOp =>
  customOp({
    name: 'mine.sort_and_mask.default',
    schema: 'Tensor x',
    type: (ctx) => [ctx.inputs[0]],
    flops: (ctx) => ({ matrix: 0, vector: 10 * elements(ctx.inputs[0].shape) }),
    kernel: one(({ inputs: [x] }) => {
      const [rows, width] = x.shape;
      const values = x.toArray();
      const out = Array.from({ length: rows }, (_, r) =>
        values
          .slice(r * width, (r + 1) * width)
          .sort((a, b) => a - b)
          .map((v) => Math.max(v, 0)),
      );
      return fromFlat(x.shape, Float64Array.from(out.flat()));
    }),
    ...extra,
  });
const byRow: CustomOpSpec['sharding'] = () => [{ inputs: [S(0)], outputs: [S(0)], origin: 'base' }];

/** A program whose rows are tokens: two products around the opaque routine. */
function prepared(
  op: CustomOp,
  rows: number,
  width: number,
  pins: PlanRequest['pins'] = [],
): Prepared {
  const table = builtinOperators().with([op.record]);
  const graph = trace(
    ({ x }: { x: Tensor }) =>
      op.call(x.matmul(param('w1', [width, width]))).matmul(param('w2', [width, width])),
    { x: spec([rows, width]) },
    { table },
  );
  return prepare(graph, request('d=8', { pins }), table);
}

async function planOf(ready: Prepared): Promise<Plan> {
  const result = await leastCostPlanOf(ready);
  if (result.status !== 'planned') throw new Error('infeasible');
  expect(result.plan.proof.status).toBe('optimal');
  return result.plan;
}

const opaque = (plan: Pick<Plan, 'nodes'>): Plan['nodes'][number] => {
  const node = plan.nodes.find(({ target }) => target === 'mine.sort_and_mask.default');
  if (node === undefined) throw new Error('the plan has no opaque node');
  return node;
};

describe('an opaque operator is planned and simulated like any other', () => {
  it('with rules it is cut where they allow, and an eighth costs an eighth', async () => {
    const op = sortAndMask({ sharding: byRow });
    const cut = await planOf(prepared(op, 65_536, 4096));
    expect([opaque(cut).inputs, opaque(cut).outputs]).toEqual([['S(0)'], ['S(0)']]);
    const whole = await planOf(prepared(op, 65_536, 4096, [{ node: 'sort_and_mask', spec: 'R' }]));
    expect([opaque(whole).inputs, opaque(whole).outputs]).toEqual([['R'], ['R']]);
    expect(opaque(whole).seconds / opaque(cut).seconds).toBeCloseTo(8, 9);
    expect(cut.objective.seconds).toBeLessThan(whole.objective.seconds);
  });

  it('the cost is the declared one', async () => {
    const bytes = (factor: number) =>
      sortAndMask({ bytes: (ctx) => factor * 8 * elements(ctx.inputs[0].shape) });
    const [once, thrice] = [
      await planOf(prepared(bytes(1), 65_536, 4096)),
      await planOf(prepared(bytes(3), 65_536, 4096)),
    ];
    expect(opaque(thrice).seconds / opaque(once).seconds).toBeCloseTo(3, 9);
  });

  it('random feasible plans compute what one device does, with the promised collectives', () => {
    const ready = prepared(sortAndMask({ sharding: byRow }), 64, 32);
    const seen = new Set<string>();
    for (let seed = 0; seed < 20; seed++) {
      const plan = randomPlan(ready, seed);
      seen.add(opaque(plan).outputs.join());
      const { mismatches, maxRelativeError, collectives, promised } = verify(
        ready.model.graph,
        plan,
        { table: ready.model.table },
      );
      expect(mismatches).toEqual([]);
      expect(maxRelativeError).toBeLessThan(1e-12);
      expect(collectives).toEqual(promised);
    }
    expect([...seen].sort()).toEqual(['R', 'S(0)']);
  });

  it('a rule that is wrong is found out: cutting the sorted dim gives other numbers', () => {
    const ready = prepared(
      sortAndMask({ sharding: () => [{ inputs: [S(1)], outputs: [S(1)], origin: 'base' }] }),
      64,
      32,
    );
    const plans = Array.from({ length: 20 }, (_, seed) => randomPlan(ready, seed));
    const cut = plans.find((plan) => opaque(plan).outputs[0] === 'S(1)');
    expect(
      cut && verify(ready.model.graph, cut, { table: ready.model.table }).mismatches[0]?.where,
    ).toBe('sort_and_mask');
  });

  it('without rules it runs replicated', async () => {
    const ready = prepared(sortAndMask(), 65_536, 4096);
    const plan = await planOf(ready);
    expect([opaque(plan).inputs, opaque(plan).outputs]).toEqual([['R'], ['R']]);
    // The rows of the first product are cut; gathering them for the routine is cheaper than not
    // cutting them.
    expect(opaque(plan).redistributions.flatMap((r) => r.collectives.map((c) => c.kind))).toEqual([
      'all_gather',
    ]);
  });
});
