import { describe, expect, it } from 'vitest';

import { printGraph } from '../../../src/graph/text/write.ts';
import type { Graph } from '../../../src/graph/types.ts';
import { tensorBytes } from '../../../src/graph/value.ts';
import { programFlops } from '../../../src/ops/program-flops.ts';
import { jointGraph } from '../../../src/passes/autodiff/joint.ts';
import { unrollScan } from '../../../src/passes/control/loops/unroll-scan.ts';
import { cond } from '../../../src/trace/control/cond.ts';
import { foriLoop, map, scan, whileLoop } from '../../../src/trace/control/loops.ts';
import { spec } from '../../../src/trace/record/spec.ts';
import { onesLike } from '../../../src/trace/tensor/functional.ts';
import { parameter, type Tensor, trace } from '../../../src/trace/trace.ts';
import { errorOf } from '../../trace/support.ts';
import {
  controlCalls,
  expectClose,
  expectGradients,
  gradients,
  numbers,
  run,
  table,
} from '../control-support.ts';

const f64 = (...shape: number[]) => spec(shape, 'f64');

/**
 * Stacked forward values that the backward pass reads: results of forward loops beyond what the
 * program returns.
 */
const bodyNames = (graph: Graph): string[] => Object.keys(graph.subgraphs);

describe('cond', () => {
  const graph = trace(
    ({ x }: { x: Tensor }) =>
      cond(
        x.sum().gt(0),
        (y) => y.sin(),
        (y) => y.cos(),
        [x],
      ).sum(),
    { x: f64(2) },
  );

  it('gradients of the summed output on either side', () => {
    expectClose(gradients(graph, { x: [1, 2] }, ['x']).x ?? [], [0.540302, -0.416147], 1e-6);
    expectClose(gradients(graph, { x: [-1, -2] }, ['x']).x ?? [], [0.841471, 0.909297], 1e-6);
  });

  it('the backward pass is a second cond on the same predicate', () => {
    const joint = jointGraph(graph, { wrt: 'all', seed: 1 });
    const conds = joint.nodes.filter((node) => node.target === 'cond');
    expect(conds.map((node) => node.meta.phase)).toEqual(['forward', 'backward']);
    expect(conds[1].args[0]).toEqual(conds[0].args[0]);
    expect(conds[1].meta.of).toBe(conds[0].name);
    expect(bodyNames(joint)).toHaveLength(4);
  });

  it('operands that one branch does not use get zeros there', () => {
    const uneven = trace(
      ({ x, w, v, p }: Record<string, Tensor>) =>
        cond(
          p.gt(0),
          () => x.mul(w).sum(),
          () => v.exp().mul(x).sum(),
        ),
      { x: f64(3), w: f64(3), v: f64(3), p: f64() },
    );
    const values = { x: numbers(3), w: numbers(3, 2), v: numbers(3, 3) };
    for (const p of [1, -1]) expectGradients(uneven, { ...values, p: [p] }, ['x', 'w', 'v']);
    expect(gradients(uneven, { ...values, p: [1] }, ['v']).v).toEqual([0, 0, 0]);
  });

  it('a branch without any gradient, several results, a result used twice', () => {
    const several = trace(
      ({ x, p }: { x: Tensor; p: Tensor }) => {
        const { a, b } = cond(
          p.gt(0),
          () => ({ a: x.mul(x), b: x.tanh() }),
          () => ({ a: onesLike(x), b: onesLike(x).add(2) }),
        );
        return a.mul(a).add(b).sum();
      },
      { x: f64(3), p: f64() },
    );
    for (const p of [1, -1]) expectGradients(several, { x: numbers(3), p: [p] }, ['x']);
  });
});

describe('scan', () => {
  const product = (reverse: boolean): Graph =>
    trace(
      ({ c, x }: { c: Tensor; x: Tensor }) =>
        scan((h: Tensor, r: Tensor) => [h.mul(r), h.mul(r)], c, x, { reverse })[0],
      { c: f64(), x: f64(3) },
    );

  it('d carry / d xs and d init', () => {
    const found = gradients(product(false), { c: [1], x: [2, 3, 4] }, ['c', 'x']);
    expect(found).toEqual({ c: [24], x: [12, 8, 6] });
    expect(gradients(product(true), { c: [1], x: [2, 3, 4] }, ['c', 'x'])).toEqual({
      c: [24],
      x: [12, 8, 6],
    });
  });

  const rnn = (checkpoint: boolean, dtype: 'f32' | 'f64') =>
    trace(
      ({ h0, xs, wx, wh }: Record<string, Tensor>) => {
        const [, ys] = scan(
          (h: Tensor, x: Tensor) => {
            const next = x.matmul(wx).add(h.matmul(wh)).tanh();
            return [next, next];
          },
          h0,
          xs,
          { checkpoint },
        );
        return ys.sum();
      },
      {
        h0: spec([4, 16], dtype),
        xs: spec([6, 4, 16], dtype),
        wx: parameter([16, 16], dtype),
        wh: parameter([16, 16], dtype),
      },
    );
  const values = {
    h0: numbers(64),
    xs: numbers(6 * 64, 2),
    wx: numbers(256, 3).map((v) => v / 4),
    wh: numbers(256, 4).map((v) => v / 4),
  };

  it('gradients match finite differences and the unrolled program, saved or recomputed', () => {
    const graph = rnn(false, 'f64');
    const wrt = ['wx', 'wh', 'h0'];
    const ours = gradients(graph, values, wrt);
    const again = gradients(rnn(true, 'f64'), values, wrt);
    const unrolled = unrollScan(graph);
    expect(controlCalls(unrolled)).toEqual([]);
    const straight = gradients(unrolled, values, wrt);
    for (const name of wrt) {
      expectClose(ours[name] ?? [], straight[name] ?? [], 1e-12, name);
      expectClose(again[name] ?? [], straight[name] ?? [], 1e-12, name);
    }
    expectGradients(graph, values, ['h0']);
    for (const [name, at] of [
      ['wx', 5],
      ['wh', 77],
    ] as const) {
      const moved = (by: number): number =>
        run(graph, {
          ...values,
          [name]: values[name].map((v, i) => (i === at ? v + by : v)),
        })[0]?.[0] ?? NaN;
      expect((moved(1e-6) - moved(-1e-6)) / 2e-6).toBeCloseTo(ours[name]?.[at] ?? NaN, 6);
    }
  });

  it('the reverse scan carries d h, d Wx, d Wh; nothing of [6, 16, 16] is stacked; FLOPs', () => {
    const joint = jointGraph(rnn(false, 'f32'), { seed: 1 });
    const scans = joint.nodes.filter((node) => node.target === 'scan');
    expect(scans.map((node) => node.meta.phase)).toEqual(['forward', 'backward']);
    expect(scans[1].kwargs).toEqual({ reverse: true });
    const carried =
      scans[1].type.kind === 'tuple'
        ? scans[1].type.items.map((t) => (t.kind === 'tensor' ? t.shape : []))
        : [];
    expect(carried).toEqual([
      [4, 16],
      [16, 16],
      [16, 16],
    ]);
    const sizes = joint.nodes.map((node) =>
      node.type.kind === 'tensor' ? tensorBytes(node.type) : 0,
    );
    expect(sizes).not.toContain(6144);
    expect(programFlops(joint, table)).toMatchObject({ forward: 24_576, backward: 36_864 });
  });

  it('checkpoint: only the carry is stacked, and the forward FLOPs appear again', () => {
    const joint = jointGraph(rnn(true, 'f32'), { seed: 1 });
    const [forward] = joint.nodes.filter((node) => node.target === 'scan');
    // Final carry, ys, and the carry of each trip.
    expect(forward.type.kind === 'tuple' ? forward.type.items.length : 0).toBe(3);
    expect(programFlops(joint, table).backward).toBe(36_864);
  });

  it('values that depend on neither carry nor xs are made once, before the loop', () => {
    const graph = trace(
      ({ x, a, b }: Record<string, Tensor>) =>
        scan(
          (h: Tensor, r: Tensor) => [h.matmul(a.matmul(b)).mul(r).sin(), null],
          x.select(0, 0),
          x,
        )[0].sum(),
      { x: f64(3, 2, 2), a: f64(2, 2), b: f64(2, 2) },
    );
    const joint = jointGraph(graph, { wrt: 'all', seed: 1 });
    const top = joint.nodes.filter((node) => node.target === 'aten.mm.default');
    expect(top.filter((node) => node.meta.phase === 'forward')).toHaveLength(1);
    expectGradients(graph, { x: numbers(12), a: numbers(4, 5), b: numbers(4, 6) }, ['x', 'a', 'b']);
  });

  it('several carries of which one is an integer, ys and carry both used, captured values, reverse', () => {
    for (const reverse of [false, true])
      for (const checkpoint of [false, true]) {
        const graph = trace(
          ({ x, w, c }: Record<string, Tensor>) => {
            const [last, ys] = scan(
              ({ h, t, k }: Record<string, Tensor>, { r }: { r: Tensor }) => {
                const next = h.mul(w).add(r.exp()).div(t.add(2));
                return [{ h: next, t: t.add(1), k: k.add(next.mul(0.5)) }, [next.sin(), r.mul(w)]];
              },
              { h: c, t: 0, k: c.mul(2) },
              { r: x },
              { reverse, checkpoint },
            );
            return last.h.mul(last.k).sum().add(ys[0].mul(ys[1]).sum());
          },
          { x: f64(4, 3), w: f64(3), c: f64(3) },
        );
        const at = { x: numbers(12), w: numbers(3, 2), c: numbers(3, 3) };
        expectGradients(graph, at, ['x', 'w', 'c']);
        const straight = gradients(unrollScan(graph), at, ['x', 'w', 'c']);
        const ours = gradients(graph, at, ['x', 'w', 'c']);
        for (const name of ['x', 'w', 'c'])
          expectClose(ours[name] ?? [], straight[name] ?? [], 1e-12, name);
      }
  });

  it('nested: a scan in a cond in a scan', () => {
    const graph = trace(
      ({ x, w }: { x: Tensor; w: Tensor }) =>
        scan(
          (h: Tensor, r: Tensor) => [
            cond(
              r.sum().gt(0),
              () => scan((d: Tensor) => [d.mul(w).add(r), null], h, null, { length: 2 })[0],
              () => h.sub(r.mul(w)),
            ),
            h.mul(h),
          ],
          w.mul(2),
          x,
        ).reduce(
          (sum: Tensor | number, part) => part.sum().add(sum),
          0 as Tensor | number,
        ) as Tensor,
      { x: f64(4, 2), w: f64(2) },
    );
    expectGradients(graph, { x: [1, 2, -1, -3, 0.5, 0.2, -0.1, 0.05], w: [0.7, -0.4] }, ['x', 'w']);
  });

  it('linear, layer norm and softmax in a body', () => {
    const graph = trace(
      ({ x, w, b, g }: Record<string, Tensor>) =>
        scan(
          (h: Tensor, r: Tensor) => {
            const y = h.add(r).linear(w, b).layerNorm([3], g).softmax(-1);
            return [y, y.mul(h)];
          },
          x.select(0, 0),
          x,
        )[1]
          .mul(x)
          .sum(),
      { x: f64(3, 2, 3), w: f64(3, 3), b: f64(3), g: f64(3) },
    );
    const at = { x: numbers(18), w: numbers(9, 2), b: numbers(3, 3), g: numbers(3, 4) };
    expectGradients(graph, at, ['x', 'w', 'b', 'g']);
  });
});

describe('map and fori', () => {
  it('gradients of a map: d w is summed after the map', () => {
    const graph = trace(
      ({ x, w }: { x: Tensor; w: Tensor }) => map((r: Tensor, v: Tensor) => r.mul(v), x, w).sum(),
      { x: f64(2, 2), w: f64(2) },
    );
    expect(gradients(graph, { x: [1, 2, 3, 4], w: [10, 20] }, ['x', 'w'])).toEqual({
      w: [4, 6],
      x: [10, 20, 10, 20],
    });
    const joint = jointGraph(graph, { wrt: ['w'], seed: 1 });
    const maps = joint.nodes.filter((node) => node.target === 'map');
    expect(maps).toHaveLength(2);
    const slot = joint.outputs.find((output) => output.of === 'w')?.value;
    expect(joint.nodes.find((node) => node.name === slot)?.target).toBe('aten.sum.dim_IntList');
  });

  it('fori lowers to a scan that a gradient passes', () => {
    const graph = trace(
      ({ x }: { x: Tensor }) => foriLoop(0, 3, (i, c) => c.add(i).mul(x).sin(), x).sum(),
      {
        x: f64(3),
      },
    );
    expect(controlCalls(graph)).toEqual(['scan']);
    expectGradients(graph, { x: [0.3, -0.7, 1.1] }, ['x']);
  });
});

describe('while', () => {
  const doubling = (maxTrips?: number): Graph =>
    trace(
      ({ x }: { x: Tensor }) =>
        whileLoop(
          ([i]) => i.lt(5),
          ([i, c]) => [i.add(1), c.mul(2)],
          [0, x] as const,
          maxTrips === undefined ? {} : { maxTrips },
        )[1].sum(),
      { x: f64() },
    );

  it('the gradient of a while loop without maxTrips is refused', () => {
    const error = errorOf(() => jointGraph(doubling(), { wrt: 'all', seed: 1 }));
    expect(error.code).toBe('E_GRAD_WHILE');
    expect(error.details.hint).toContain('maxTrips');
  });

  it('with maxTrips 5 or 8: value 32, gradient 32', () => {
    for (const trips of [5, 8]) {
      expect(run(doubling(trips), { x: [1] })).toEqual([[32]]);
      expect(gradients(doubling(trips), { x: [1] }, ['x']).x).toEqual([32]);
    }
  });

  it('a data-dependent number of trips', () => {
    const graph = trace(
      ({ x, w }: { x: Tensor; w: Tensor }) =>
        whileLoop(
          (h) => h.mul(h).sum().lt(50),
          (h) => h.mul(w).add(1),
          x,
          { maxTrips: 12 },
        ).sum(),
      { x: f64(2), w: f64(2) },
    );
    for (const x of [
      [0.1, 0.2],
      [3, 1],
      [90, 1],
    ])
      expectGradients(graph, { x, w: [1.5, 1.2] }, ['x', 'w']);
  });

  it('the joint graph of a while loop has a reversed loop', () => {
    expect(printGraph(jointGraph(doubling(8), { wrt: 'all', seed: 1 }))).toContain('reverse=true');
  });
});
