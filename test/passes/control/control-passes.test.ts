import { describe, expect, it } from 'vitest';

import type { Graph } from '../../../src/graph/types.ts';
import { boundedLoopsToScans } from '../../../src/passes/control/loops/bounded-loops.ts';
import { hoistInvariants } from '../../../src/passes/control/loops/hoist-invariants.ts';
import { unrollScan } from '../../../src/passes/control/loops/unroll-scan.ts';
import { predicate } from '../../../src/passes/control/predicate.ts';
import { cond } from '../../../src/trace/control/cond.ts';
import { map, scan, whileLoop } from '../../../src/trace/control/loops.ts';
import { spec } from '../../../src/trace/record/spec.ts';
import { type Tensor, trace } from '../../../src/trace/trace.ts';
import { errorOf } from '../../trace/support.ts';
import { controlCalls, expectClose, gradients, numbers, run } from '../control-support.ts';

const f64 = (...shape: number[]) => spec(shape, 'f64');

describe('predicate', () => {
  const branches = trace(
    ({ x }: { x: Tensor }) =>
      cond(
        x.sum().gt(0),
        (y) => y.sin(),
        (y) => y.cos(),
        [x],
      ).sum(),
    { x: f64(2) },
  );
  const doubling = trace(
    ({ x }: { x: Tensor }) =>
      whileLoop(
        ([i]) => i.lt(5),
        ([i, c]) => [i.add(1), c.mul(2)],
        [0, x] as const,
        { maxTrips: 8 },
      )[1].sum(),
    { x: f64(2) },
  );

  it('no control flow is left; values and gradients are equal', () => {
    for (const graph of [branches, doubling]) {
      const { graph: straight, remaining } = predicate(graph);
      expect(controlCalls(straight)).toEqual([]);
      expect(Object.keys(straight.subgraphs)).toEqual([]);
      expect(remaining).toEqual([]);
      for (const x of [
        [1, 2],
        [-1, -2],
      ]) {
        expect(run(straight, { x })).toEqual(run(graph, { x }));
        expectClose(
          gradients(straight, { x }, ['x']).x ?? [],
          gradients(graph, { x }, ['x']).x ?? [],
          1e-12,
        );
      }
    }
  });

  it('wasted work is reported, site by site', () => {
    const products = trace(
      ({ x, w }: { x: Tensor; w: Tensor }) =>
        cond(
          x.sum().gt(0),
          () => x.matmul(w).matmul(w),
          () => x.matmul(w),
        ),
      { x: spec([4, 8]), w: spec([8, 8]) },
    );
    expect(predicate(products).wasted).toMatchObject([
      {
        node: 'cond',
        kind: 'cond',
        least: { matrix: 2 * 4 * 8 * 8 },
        most: { matrix: 2 * 2 * 4 * 8 * 8 },
      },
    ]);
    const [loop] = predicate(doubling).wasted;
    expect(loop).toMatchObject({ node: 'while_loop', kind: 'while_loop' });
    expect(loop.least).toEqual({ matrix: 0, vector: 0 });
    // A comparison, an addition of scalars and a product of two numbers on each of eight trips.
    expect(loop.most).toEqual({ matrix: 0, vector: 8 * (1 + 1 + 2) });
  });

  it('no NaN from the untaken side: log at 0', () => {
    const graph = trace(
      ({ x }: { x: Tensor }) =>
        cond(
          x.gt(0),
          () => x.log(),
          () => x.mul(2),
        ),
      { x: f64() },
    );
    const { graph: straight } = predicate(graph);
    expect(run(straight, { x: [0] })).toEqual([[0]]);
    expect(gradients(straight, { x: [0] }, ['x']).x).toEqual([2]);
    expectClose(gradients(straight, { x: [3] }, ['x']).x ?? [], [1 / 3], 1e-12);
  });

  it('also where the safe value itself gives an infinite derivative', () => {
    const graph = trace(
      ({ x }: { x: Tensor }) =>
        cond(
          x.gt(2),
          () => x.sub(1).log(),
          () => x.mul(3),
        ),
      { x: f64() },
    );
    const { graph: straight } = predicate(graph);
    expect(gradients(straight, { x: [0.5] }, ['x']).x).toEqual([3]);
    expect(run(straight, { x: [0.5] })).toEqual([[1.5]]);
  });

  const counting = (maxTrips: number): Graph =>
    trace(
      ({ x, n }: { x: Tensor; n: Tensor }) =>
        whileLoop(
          ([i]) => i.lt(n),
          ([i, c]) => [i.add(1), c.mul(3).add(i)],
          [0, x] as const,
          { maxTrips },
        )[1],
      { x: f64(), n: spec([], 'i64') },
    );

  it('a loop of n trips unrolled to 8, n = 0 to 8', () => {
    const graph = counting(8);
    const { graph: straight } = predicate(graph);
    expect(controlCalls(straight)).toEqual([]);
    const asScan = boundedLoopsToScans(graph);
    for (let n = 0; n <= 8; n++) {
      let wanted = 1;
      for (let i = 0; i < n; i++) wanted = wanted * 3 + i;
      expect(run(straight, { x: [1], n: [n] })).toEqual([[wanted]]);
      expect(run(graph, { x: [1], n: [n] })).toEqual([[wanted]]);
      expect(run(asScan, { x: [1], n: [n] })).toEqual([[wanted]]);
    }
  });

  it('conditions inside loops; loops without a bound stay and are named', () => {
    const inner = trace(
      ({ x }: { x: Tensor }) =>
        scan(
          (h: Tensor, r: Tensor) => [
            cond(
              r.gt(0),
              () => h.mul(r),
              () => h.sub(r),
            ),
            h,
          ],
          x.sum(),
          x,
        ),
      { x: f64(4) },
    );
    const { graph, remaining } = predicate(inner);
    expect(remaining).toEqual(['scan']);
    const x = [0.5, -1, 2, -0.25];
    expect(run(graph, { x })).toEqual(run(inner, { x }));
    const open = trace(
      ({ x: y }: { x: Tensor }) =>
        whileLoop(
          (h) => h.lt(9),
          (h) => h.mul(2),
          y,
        ),
      { x: f64() },
    );
    expect(predicate(open).remaining).toEqual(['while_loop']);
    expect(predicate(open).graph).toBe(open);
  });
});

describe('unrollScan', () => {
  it('values equal the loop, forwards and backwards, nested, and for map', () => {
    for (const reverse of [false, true]) {
      const graph = trace(
        ({ x, w }: { x: Tensor; w: Tensor }) => {
          const [h, ys] = scan(
            (c: Tensor, r: Tensor) => [c.mul(w).add(r), map((q: Tensor) => q.mul(c.sum()), r)],
            w,
            x,
            { reverse },
          );
          return [h, ys];
        },
        { x: f64(4, 3), w: f64(3) },
      );
      const straight = unrollScan(graph);
      expect(controlCalls(straight)).toEqual([]);
      const at = { x: numbers(12), w: numbers(3, 2) };
      const [wanted, got] = [run(graph, at), run(straight, at)];
      wanted.forEach((value, i) => expectClose(got[i] ?? [], value ?? [], 1e-12));
    }
  });

  it('unrollScan stops at its limit of nodes', () => {
    const graph = trace(
      ({ x }: { x: Tensor }) => scan((h: Tensor) => [h.mul(2), null], x, null, { length: 50 })[0],
      {
        x: f64(),
      },
    );
    expect(errorOf(() => unrollScan(graph, { maxTrips: 49 })).code).toBe('E_LIMIT');
    expect(run(unrollScan(graph, { maxTrips: 50 }), { x: [1] })).toEqual([[2 ** 50]]);
  });
});

describe('hoistInvariants', () => {
  it('calls on captured values alone leave the loop, in nested loops as far as they can', () => {
    const graph = trace(
      ({ x, a, b }: Record<string, Tensor>) =>
        scan(
          (h: Tensor, r: Tensor) => [
            scan((d: Tensor) => [d.mul(a.matmul(b).sum()).add(r.exp()), null], h, null, {
              length: 2,
            })[0],
            h,
          ],
          x.select(0, 0),
          x,
        ),
      { x: f64(3, 2), a: f64(2, 2), b: f64(2, 2) },
    );
    const hoisted = hoistInvariants(graph);
    const top = hoisted.nodes.map((node) => node.target);
    expect(top.filter((target) => target === 'aten.mm.default')).toHaveLength(1);
    const [body] = Object.values(hoisted.subgraphs);
    expect(body.nodes.map((node) => node.target)).toContain('aten.exp.default');
    expect(Object.values(body.subgraphs)[0].nodes.map((node) => node.target)).not.toContain(
      'aten.exp.default',
    );
    const at = { x: numbers(6), a: numbers(4, 2), b: numbers(4, 3) };
    expect(run(hoisted, at)).toEqual(run(graph, at));
  });

  it('while loops too; constants and what depends on the carry stay', () => {
    const graph = trace(
      ({ x, w }: { x: Tensor; w: Tensor }) =>
        whileLoop(
          (h) => h.sum().lt(w.exp().sum()),
          (h) => h.add(w.exp()).add(1),
          x,
        ),
      { x: f64(2), w: f64(2) },
    );
    const hoisted = hoistInvariants(graph);
    expect(hoisted.nodes.map((node) => node.target)).toContain('aten.exp.default');
    const at = { x: [0, 0], w: [1, 1.5] };
    expect(run(hoisted, at)).toEqual(run(graph, at));
    const still = trace(
      ({ x }: { x: Tensor }) =>
        whileLoop(
          (h) => h.sum().lt(9),
          (h) => h.mul(2),
          x,
        ),
      { x: f64(2) },
    );
    expect(hoistInvariants(still)).toBe(still);
  });
});
