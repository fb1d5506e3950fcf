import { describe, expect, it } from 'vitest';

import { leastCostPlanOf } from '../../../src/plan/least-cost-plan.ts';
import { prepare } from '../../../src/plan/prepare/prepare.ts';
import { verify } from '../../../src/simulate/verify.ts';
import { associativeScan } from '../../../src/trace/control/associative-scan.ts';
import { scan } from '../../../src/trace/control/loops.ts';
import { dim, spec } from '../../../src/trace/record/spec.ts';
import { cat } from '../../../src/trace/tensor/functional.ts';
import { capture, type Tensor, trace } from '../../../src/trace/trace.ts';
import { expectClose, expectGradients, numbers, run } from '../../passes/control-support.ts';
import { request, TABLE } from '../../plan/support.ts';
import { errorOf } from '../support.ts';

interface Affine {
  readonly a: Tensor;
  readonly b: Tensor;
}
/** x -> a x + b, one after the other: not commutative. */
const compose = (f: Affine, g: Affine): { a: Tensor; b: Tensor } => ({
  a: g.a.mul(f.a),
  b: g.a.mul(f.b).add(g.b),
});

/** The same as a loop. */
const loop = ({ a, b }: Affine, reverse = false) =>
  scan(
    (h: Affine, x: Affine) => {
      const next = compose(h, x);
      return [next, next];
    },
    { a: a.select(0, 0).mul(0).add(1), b: b.select(0, 0).mul(0) },
    { a, b },
    { reverse },
  )[1];

const input = (n: number) => ({ a: spec([n, 2], 'f64'), b: spec([n, 2], 'f64') });
const drawn = (n: number) => ({ a: numbers(2 * n, 11), b: numbers(2 * n, 12) });

describe('associativeScan', () => {
  it.each([1, 2, 3, 4, 5, 7, 8, 13, 16, 31])('%i rows: the results of the loop, both ways', (n) => {
    for (const reverse of [false, true]) {
      const pairs = trace(({ a, b }) => associativeScan(compose, { a, b }, { reverse }), input(n));
      const rows = trace(({ a, b }) => loop({ a, b }, reverse), input(n));
      const [got, truth] = [run(pairs, drawn(n)), run(rows, drawn(n))];
      got.forEach((values, i) => expectClose(values ?? [], truth[i] ?? [], 1e-12));
    }
  });

  it('calls the function at most 2 log2 n times, on fewer than 2 n rows in all', () => {
    for (const n of [2, 8, 100, 1024]) {
      let calls = 0;
      let rows = 0;
      trace(
        ({ x }) =>
          associativeScan((a, b) => {
            calls++;
            rows += Number(b.shape[0]);
            return a.add(b);
          }, x),
        { x: spec([n]) },
        { checkTwice: false },
      );
      expect(calls).toBeLessThanOrEqual(2 * Math.ceil(Math.log2(n)));
      expect(rows).toBeLessThan(2 * n);
    }
  });

  it('gradients of associativeScan agree with differences', () => {
    const graph = trace(({ a, b }) => associativeScan(compose, { a, b }).b.sum(), input(6));
    expectGradients(graph, drawn(6), ['a', 'b']);
  });

  it('rows are cut over devices like those of any operator', async () => {
    const graph = trace(({ x }) => associativeScan((a, b) => a.maximum(b), x), {
      x: spec([8, 16]),
    });
    const prepared = prepare(graph, request('d=4', { pins: [{ node: 'x', spec: 'S(1)' }] }), TABLE);
    const result = await leastCostPlanOf(prepared);
    if (result.status !== 'planned') throw new Error('infeasible');
    expect(result.plan.outputs.map((o) => o.placement)).toEqual(['S(1)']);
    expect(result.plan.objective.communicationSeconds).toBe(0);
    const { mismatches, outputsCompared } = verify(result.graph, result.plan, { table: TABLE });
    expect([mismatches, outputsCompared]).toEqual([[], 1]);
  });

  it('associativeScan refuses combinations that change the shape', () => {
    const scanOf = (combine: (a: Tensor, b: Tensor) => Tensor) => () =>
      trace(({ x }) => associativeScan(combine, x), { x: spec([4, 2]) });
    expect(errorOf(scanOf((a, b) => a.add(b).sum(0))).code).toBe('E_SCAN_CARRY');
    expect(errorOf(scanOf((a, b) => cat([a, b]))).code).toBe('E_SCAN_CARRY');
    expect(errorOf(scanOf((a, b) => a.add(b).to('f64'))).code).toBe('E_SCAN_CARRY');
    const sizes = [
      { x: spec([4]), y: spec([5]) },
      { x: spec([dim('n')]), y: spec([dim('n')]) },
    ];
    for (const inputs of sizes)
      expect(
        errorOf(() =>
          trace(
            ({ x, y }) => associativeScan((a, b) => [a[0].add(b[0]), a[1].add(b[1])], [x, y]),
            inputs,
          ),
        ).code,
      ).toBe('E_SCAN_LENGTH');
    const { report } = capture(({ x }) => associativeScan((a, b) => a.add(b), x), { x: spec([4]) });
    expect(report.controlFlow).toMatchObject([{ kind: 'associative_scan', policy: 'operators' }]);
  });
});
