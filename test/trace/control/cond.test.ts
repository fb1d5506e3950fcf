import { describe, expect, it } from 'vitest';

import { parseGraph } from '../../../src/graph/text/parse.ts';
import { printGraph } from '../../../src/graph/text/write.ts';
import type { Graph } from '../../../src/graph/types.ts';
import { jointGraph } from '../../../src/passes/autodiff/joint.ts';
import { cond } from '../../../src/trace/control/cond.ts';
import { foriLoop, map, scan, whileLoop } from '../../../src/trace/control/loops.ts';
import { dim, spec } from '../../../src/trace/record/spec.ts';
import { cat } from '../../../src/trace/tensor/functional.ts';
import { param } from '../../../src/trace/tensor/state.ts';
import { apply } from '../../../src/trace/tensor/tensor.ts';
import { capture, type Tensor, trace } from '../../../src/trace/trace.ts';
import { expectClose, run } from '../../passes/control-support.ts';
import { errorOf } from '../support.ts';

const calls = (graph: Graph): string[] =>
  graph.nodes.filter((n) => n.kind === 'call').map((n) => n.name);
const f64 = (...shape: number[]) => spec(shape, 'f64');
const roundTrips = (graph: Graph): void => {
  const text = printGraph(graph);
  expect(printGraph(parseGraph(text))).toBe(text);
};

describe('cond', () => {
  const graph = trace(
    ({ x }: { x: Tensor }) =>
      cond(
        x.sum().gt(0),
        (y) => y.sin(),
        (y) => y.cos(),
        [x],
      ),
    { x: f64(2) },
  );

  it('calls sum gt cond getitem, one call a body; values on both sides', () => {
    expect(calls(graph)).toEqual(['sum', 'gt', 'cond', 'getitem']);
    expect(Object.values(graph.subgraphs).map(calls)).toEqual([['sin'], ['cos']]);
    expectClose(run(graph, { x: [1, 2] })[0] ?? [], [Math.sin(1), Math.sin(2)], 1e-12);
    expectClose(run(graph, { x: [-1, -2] })[0] ?? [], [Math.cos(-1), Math.cos(-2)], 1e-12);
    roundTrips(graph);
  });

  it('captured tensors are operands in the order of first use, the same for both bodies', () => {
    const captured = trace(
      ({ x, v }: { x: Tensor; v: Tensor }) =>
        cond(
          x.sum().gt(0),
          () => ({ y: x.mul(v) }),
          () => ({ y: x.add(param('w', [2])).mul(v) }),
        ),
      { x: spec([2]), v: spec([2]) },
    );
    const call = captured.nodes.find((node) => node.target === 'cond');
    expect(call?.args[3]).toEqual(['x', 'v', 'w'].map((name) => ({ kind: 'value', name })));
    for (const body of Object.values(captured.subgraphs))
      expect(body.nodes.filter((n) => n.kind === 'placeholder').map((n) => n.name)).toEqual([
        'x',
        'v',
        'w',
      ]);
  });

  it('branches of different shape, dtype or structure; a predicate of shape [2]', () => {
    const mismatch = (other: (x: Tensor) => Tensor | readonly Tensor[]) =>
      errorOf(() =>
        trace(
          ({ x }: { x: Tensor }) =>
            cond<Tensor | readonly Tensor[]>(
              x.sum().gt(0),
              () => x,
              () => other(x),
            ) as Tensor,
          { x: spec([4]) },
        ),
      );
    const shapes = mismatch((x) => cat([x, x.slice(0, 0, 1)]));
    expect(shapes.code).toBe('E_COND_BRANCH_MISMATCH');
    expect(shapes.message).toContain('f32[4] and f32[5]');
    expect(shapes.message).toContain('cond.test.ts:');
    const dtypes = mismatch((x) => x.to('i64'));
    expect(dtypes.code).toBe('E_COND_BRANCH_MISMATCH');
    expect(dtypes.message).toContain('f32[4] and i64[4]');
    expect(mismatch((x) => [x, x]).code).toBe('E_COND_BRANCH_MISMATCH');
    const pred = errorOf(() =>
      trace(
        ({ x }: { x: Tensor }) =>
          cond(
            x.gt(0),
            () => x,
            () => x,
          ),
        { x: spec([2]) },
      ),
    );
    expect(pred.code).toBe('E_COND_PRED');
    expect(pred.message).toContain('b8[2]');
    expect(
      errorOf(() =>
        trace(
          ({ x }: { x: Tensor }) =>
            cond(
              x.sum(),
              () => x,
              () => x,
            ),
          { x: spec([2]) },
        ),
      ).code,
    ).toBe('E_COND_PRED');
  });

  it('an in-place operator in a branch, traced or in a foreign graph', () => {
    const traced = errorOf(() =>
      trace(
        ({ x }: { x: Tensor }) =>
          cond(
            x.sum().gt(0),
            () => apply('aten.add_.Tensor', [x, 1]),
            () => x,
          ),
        { x: spec([2]) },
      ),
    );
    expect(traced.code).toBe('E_HOP_MUTATION');
    const foreign = parseGraph(`swgraph 1
graph @main {
  in %x: f32[2] parameter "x"
  in %p: b8[] input "p"
  %cond = cond(%p, @t, @f, [%x]): (f32[2])
  %y = operator.getitem(%cond, 0): f32[2]
  out %y output 0
  graph @t {
    in %a: f32[2] arg 0
    %b = aten.add_.Tensor(%a, 1): f32[2]
    out %b output 0
  }
  graph @f {
    in %a: f32[2] arg 0
    out %a output 0
  }
}
`);
    expect(errorOf(() => jointGraph(foreign)).code).toBe('E_HOP_MUTATION');
  });

  it('a host predicate is resolved at trace time, and noted', () => {
    const { graph: resolved, report } = capture(
      ({ x }: { x: Tensor }) =>
        cond(
          true,
          () => x.sin(),
          () => x.cos(),
        ),
      { x: spec([2]) },
    );
    expect(calls(resolved)).toEqual(['sin']);
    expect(resolved.notes?.join()).toContain('host predicate');
    expect(report.controlFlow).toMatchObject([{ kind: 'cond', policy: 'guards' }]);
  });

  it('a tensor of a branch used outside is refused', () => {
    let kept: Tensor | undefined;
    const error = errorOf(() =>
      trace(
        ({ x }: { x: Tensor }) => {
          cond(
            x.sum().gt(0),
            () => (kept = x.sin()),
            () => x,
          );
          return (kept as Tensor).mul(x);
        },
        { x: spec([2]) },
      ),
    );
    expect(error.code).toBe('E_TRACE_LEAK');
  });

  it('numbers that differ become tensors; equal constants stay', () => {
    const mixed = trace(
      ({ x }: { x: Tensor }) => {
        const { n, s } = cond<{ n: Tensor | number; s: string }>(
          x.sum().gt(0),
          () => ({ n: 3, s: 'a' }),
          () => ({ n: 4, s: 'a' }),
        );
        return s === 'a' ? x.mul(n) : x;
      },
      { x: f64(1) },
    );
    expect(run(mixed, { x: [2] })).toEqual([[6]]);
    expect(run(mixed, { x: [-2] })).toEqual([[-8]]);
  });
});

describe('while', () => {
  const doubling = trace(
    ({ x }: { x: Tensor }) =>
      whileLoop(
        ([i]) => i.lt(5),
        ([i, c]) => [i.add(1), c.mul(2)],
        [0, x] as const,
      )[1],
    { x: f64(2) },
  );

  it('the value after five trips', () => {
    expect(run(doubling, { x: [1, 1] })).toEqual([[32, 32]]);
    roundTrips(doubling);
  });

  it('a body that changes the shape of the carry', () => {
    const error = errorOf(() =>
      trace(
        ({ x }: { x: Tensor }) =>
          whileLoop(
            ({ h }) => h.sum().lt(9),
            ({ h }) => ({ h: cat([h, h]) }),
            { h: x },
          ).h,
        { x: spec([3]) },
      ),
    );
    expect(error.code).toBe('E_WHILE_CARRY');
    expect(error.message).toContain("leaf 'h': expected f32[3], got f32[6]");
  });

  it('a condition that is not a single truth value', () => {
    const error = errorOf(() =>
      trace(
        ({ x }: { x: Tensor }) =>
          whileLoop(
            (h) => h.lt(9),
            (h) => h,
            x,
          ),
        { x: spec([3]) },
      ),
    );
    expect(error.code).toBe('E_WHILE_COND');
  });

  it('both bodies have the same inputs; maxTrips ends the loop', () => {
    const graph = trace(
      ({ x, w, n }: Record<string, Tensor>) =>
        whileLoop(
          (h) => h.sum().lt(n),
          (h) => h.mul(w),
          x,
          { maxTrips: 3 },
        ),
      { x: f64(2), w: f64(2), n: f64() },
    );
    const [a, b] = Object.values(graph.subgraphs).map((g) =>
      g.nodes.filter((n) => n.kind === 'placeholder').map((n) => n.name),
    );
    expect(a).toEqual(b);
    expect(run(graph, { x: [1, 1], w: [2, 2], n: [1000] })).toEqual([[8, 8]]);
    expect(run(graph, { x: [1, 1], w: [2, 2], n: [3] })).toEqual([[2, 2]]);
  });
});

describe('scan, map, fori', () => {
  it('scan gives cumulative sums', () => {
    const graph = trace(
      ({ c, x }: { c: Tensor; x: Tensor }) =>
        scan((h: Tensor, r: Tensor) => [h.add(r), h.add(r)], c, x),
      { c: f64(2), x: f64(3, 2) },
    );
    expect(run(graph, { c: [0, 0], x: [0, 1, 2, 3, 4, 5] })).toEqual([
      [6, 9],
      [0, 1, 2, 4, 6, 9],
    ]);
    roundTrips(graph);
  });

  it('scan gives cumulative products in both directions', () => {
    const graph = (reverse: boolean): Graph =>
      trace(
        ({ c, x }: { c: Tensor; x: Tensor }) =>
          scan((h: Tensor, r: Tensor) => [h.mul(r), h.mul(r)], c, x, { reverse }),
        { c: f64(), x: f64(3) },
      );
    expect(run(graph(false), { c: [1], x: [2, 3, 4] })).toEqual([[24], [2, 6, 24]]);
    expect(run(graph(true), { c: [1], x: [2, 3, 4] })).toEqual([[24], [24, 12, 4]]);
  });

  it('another dim is moved to the front; no xs needs a length; lengths must agree; a dynamic length', () => {
    const along = trace(
      ({ x }: { x: Tensor }) =>
        scan((h: Tensor, r: Tensor) => [h.add(r), null], x.select(1, 0), x, { dim: 1 })[0],
      { x: f64(2, 3) },
    );
    expect(run(along, { x: [1, 2, 3, 4, 5, 6] })).toEqual([[1 + 6, 4 + 15]]);
    const error = (body: (x: Tensor, y: Tensor) => unknown) =>
      errorOf(() =>
        trace(({ x, y }: { x: Tensor; y: Tensor }) => (body(x, y), x), {
          x: spec([3]),
          y: spec([4]),
        }),
      ).code;
    expect(error((x, y) => scan((h: Tensor) => [h, null], x, { x, y }))).toBe('E_SCAN_LENGTH');
    expect(error((x) => scan((h: Tensor) => [h, null], x, null))).toBe('E_SCAN_LENGTH');
    expect(error((x) => scan((h: Tensor) => [h, null], x, x, { length: 5 }))).toBe('E_SCAN_LENGTH');
    expect(error((x) => map((r: { a: Tensor; b: Tensor }) => r.a, { a: x, b: x.sum() }))).toBe(
      'E_SCAN_LENGTH',
    );
    const dynamic = trace(
      ({ x }: { x: Tensor }) => scan((h: Tensor, r: Tensor) => [h.add(r), h], x.select(0, 0), x),
      { x: spec([dim('s0', { max: 64 }), 2]) },
    );
    expect(printGraph(dynamic, { source: false })).toMatch(/: \(f32\[2\], f32\[s0(=\d+)?, 2\]\)/);
    roundTrips(dynamic);
  });

  it('a carry that changes in type', () => {
    const code = (body: (h: Tensor) => Tensor) =>
      errorOf(() =>
        trace(({ x }: { x: Tensor }) => scan((h: Tensor) => [body(h), null], x, x)[0], {
          x: spec([3]),
        }),
      );
    expect(code((h) => h.gt(0)).code).toBe('E_SCAN_CARRY');
    expect(code((h) => h.sum()).message).toContain('expected f32[3], got f32[]');
  });

  it('a scan without trips returns its carry and rows of the right type', () => {
    const graph = trace(
      ({ c }: { c: Tensor }) => scan((h: Tensor) => [h.mul(2), h], c, null, { length: 0 }),
      {
        c: f64(2),
      },
    );
    expect(run(graph, { c: [3, 4] })).toEqual([[3, 4], []]);
  });

  it('map and foriLoop give the values of their loops', () => {
    const graph = trace(({ x, w }: { x: Tensor; w: Tensor }) => map((r: Tensor) => r.mul(w), x), {
      x: f64(2, 2),
      w: f64(2),
    });
    expect(run(graph, { x: [1, 2, 3, 4], w: [10, 20] })).toEqual([[10, 40, 30, 80]]);
    const counted = trace(
      ({ x }: { x: Tensor }) => [x, foriLoop(0, 3, (i, c) => c.add(i).mul(2), 1)],
      { x: f64() },
    );
    expect(run(counted, { x: [0] })[1]).toEqual([16]);
    const call = counted.nodes.find((node) => node.target === 'scan');
    expect(counted.nodes.find((node) => node.name === 'arange')?.type).toMatchObject({
      shape: [3],
    });
    expect(call).toBeDefined();
    const none = trace(({ x }: { x: Tensor }) => foriLoop(3, 1, (i, c) => c.add(i), x), {
      x: f64(),
    });
    expect(calls(none)).toEqual([]);
    expect(run(none, { x: [7] })).toEqual([[7]]);
    const bounded = trace(
      ({ x, n }: { x: Tensor; n: Tensor }) => foriLoop(0, n, (i, c) => c.add(i).mul(2), x),
      { x: f64(), n: spec([], 'i64') },
    );
    expect(calls(bounded)).toContain('while_loop');
    expect(run(bounded, { x: [1], n: [3] })).toEqual([[16]]);
  });

  it('conditions may nest 50 deep', () => {
    const deep = (h: Tensor, depth: number): Tensor =>
      depth === 0
        ? h.sin()
        : cond(
            h.sum().gt(0),
            () => deep(h, depth - 1),
            () => h,
          );
    const graph = trace(({ x }: { x: Tensor }) => deep(x, 50), { x: spec([2]) });
    roundTrips(graph);
  });

  it('the report names operators and positions', () => {
    const { report } = capture(
      ({ x }: { x: Tensor }) =>
        scan((h: Tensor, r: Tensor) => [h.add(r), null], x.select(0, 0), x)[0],
      { x: spec([3, 2]) },
    );
    expect(report.controlFlow).toEqual([
      {
        kind: 'scan',
        policy: 'operators',
        reason: 'explicit operator',
        position: expect.stringMatching(/cond\.test\.ts:\d+:\d+/) as string,
      },
    ]);
  });
});

describe('a carry that starts as a number of the host', () => {
  it('starts as the type that the body gives it', () => {
    const halves = trace(({ x }: { x: Tensor }) => foriLoop(0, 3, (_, c) => c.mul(0.5), 1).mul(x), {
      x: spec([2], 'f64'),
    });
    expect(run(halves, { x: [8, 16] })).toEqual([[1, 2]]);
    const sums = trace(
      ({ x }: { x: Tensor }) =>
        scan(
          ({ n, s }, row: Tensor) => [{ n: n.add(1), s: s.add(row) }, null],
          { n: 0, s: 0 },
          x,
        )[0],
      { x: spec([3], 'f64') },
    );
    // The counter stays a whole number, the sum takes the type of the rows.
    expect(run(sums, { x: [0.5, 0.25, 4] })).toEqual([[3], [4.75]]);
    const types = sums.nodes.flatMap((n) =>
      n.target === 'operator.getitem' && n.type.kind === 'tensor' ? [n.type.dtype] : [],
    );
    expect(types).toEqual(['i64', 'f64']);
    const loop = trace(
      ({ x }: { x: Tensor }) =>
        whileLoop(
          ({ a }) => a.lt(100),
          ({ a, b }) => ({ a: b, b: a.add(x) }),
          { a: 1, b: 2 },
        ).a,
      { x: spec([], 'f64') },
    );
    const truth = (x: number): number => {
      let [a, b] = [1, 2];
      while (a < 100) [a, b] = [b, a + x];
      return a;
    };
    expect(run(loop, { x: [2.5] })).toEqual([[truth(2.5)]]);
  });

  it('a number that the body returns decides too; a tensor keeps its type', () => {
    const constant = trace(
      ({ x }: { x: Tensor }) => scan((_, row: Tensor) => [0.5, row], 1, x)[0].mul(1),
      { x: spec([3]) },
    );
    expect(run(constant, { x: [1, 2, 3] })).toEqual([[0.5]]);
    const error = errorOf(() =>
      trace(({ x }: { x: Tensor }) => foriLoop(0, 3, (_, c) => c.mul(0.5), x.sum().to('i64')), {
        x: spec([3]),
      }),
    );
    expect(error.code).toBe('E_SCAN_CARRY');
  });

  it('what the body notes is noted once', () => {
    const { report } = capture(
      ({ x }: { x: Tensor }) =>
        foriLoop(
          0,
          3,
          (_, c) =>
            cond(
              x.sum().gt(0),
              () => c.mul(0.5),
              () => c.mul(0.25),
            ),
          1,
        ),
      { x: spec([3]) },
    );
    expect(report.controlFlow.map(({ kind }) => kind)).toEqual(['cond', 'scan']);
  });
});
