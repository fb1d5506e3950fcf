import { describe, expect, it } from 'vitest';

import { parseGraph } from '../../../src/graph/text/parse.ts';
import { printGraph } from '../../../src/graph/text/write.ts';
import { jointGraph } from '../../../src/passes/autodiff/joint.ts';
import { plannable } from '../../../src/passes/plannable/plannable.ts';
import { scan } from '../../../src/trace/control/loops.ts';
import { customVjp } from '../../../src/trace/custom/custom-vjp.ts';
import { spec } from '../../../src/trace/record/spec.ts';
import { param } from '../../../src/trace/tensor/state.ts';
import { type Tensor, trace } from '../../../src/trace/trace.ts';
import { errorOf } from '../../trace/support.ts';
import { expectClose, expectGradients, gradients, run, table } from '../control-support.ts';

const f64 = (...shape: number[]) => spec(shape, 'f64');

/** log(1 + e^x), whose own derivative e^x / (1 + e^x) is not a number for large x. */
const softplus = customVjp(
  (x: Tensor) => x.exp().add(1).log(),
  (x: Tensor) => ({ result: x.exp().add(1).log(), saved: [x] }),
  ([x], [g]) => [g.mul(x.sigmoid())],
);

describe('customVjp', () => {
  it('the stated derivative is taken: a number where that of the function is none', () => {
    const graph = trace(({ x }) => softplus(x).sum(), { x: f64(3) });
    expectGradients(graph, { x: [-2, 0.5, 3] }, ['x']);
    const large = gradients(graph, { x: [800, -800, 0] }, ['x']).x ?? [];
    expectClose(large, [1, 0, 0.5], 1e-12);
    const plain = trace(({ x }) => x.exp().add(1).log().sum(), { x: f64(3) });
    const joint = jointGraph(plain, { wrt: 'all', seed: 1 });
    expect(run(joint, { x: [800, -800, 0] })[1]?.[0]).toBeNaN();
    expect(printGraph(parseGraph(printGraph(graph)))).toBe(printGraph(graph));
  });

  it('without a gradient the function runs; with one, what was kept is read', () => {
    const graph = trace(({ x }) => softplus(x), { x: f64(2) });
    expectClose(run(graph, { x: [0, 1] })[0] ?? [], [Math.log(2), Math.log(1 + Math.E)], 1e-12);
    // Not wanted: the plain function stays.
    const still = jointGraph(graph, { wrt: [] });
    expect(still.nodes.find((n) => n.target === 'call')?.args[0]).toEqual({
      kind: 'graph',
      name: 'custom_0',
    });
    const flat = plannable(jointGraph(graph, { wrt: 'all' }), table);
    expect(
      flat.nodes.filter((n) => n.target === 'aten.sigmoid.default').map((n) => n.meta.phase),
    ).toEqual(['backward']);
    expect(Object.keys(flat.subgraphs)).toEqual([]);
  });

  it('several inputs and results, one without a gradient, one result that nobody reads', () => {
    const divmod = customVjp(
      (a: Tensor, b: Tensor) => [a.div(b), a.mul(b)],
      (a: Tensor, b: Tensor) => ({ result: [a.div(b), a.mul(b)], saved: [a, b] }),
      // A wrong derivative on purpose (100 instead of 1 / b), so that it can be told from the true
      // one.
      ([, b], [first, second]) => [first.mul(100).add(second.mul(b)), null],
    );
    const inputs = { a: f64(2), b: f64(2) };
    const values = { a: [1, 2], b: [3, 4] };
    const both = trace(({ a, b }) => divmod(a, b)[0].sum().add(divmod(a, b)[1].sum()), inputs);
    expect(gradients(both, values, ['a', 'b'])).toEqual({ a: [103, 104], b: undefined });
    const one = trace(({ a, b }) => divmod(a, b)[1].sum(), inputs);
    expect(gradients(one, values, ['a']).a).toEqual([3, 4]);
  });

  it('in the body of a scan', () => {
    const graph = trace(
      ({ x, h }) => scan((c, row: Tensor) => [softplus(c.add(row)), null], h, x)[0].sum(),
      { x: f64(3, 2), h: f64(2) },
    );
    expectGradients(graph, { x: [0.5, -1, 2, 0.25, -0.5, 1], h: [0.1, 0.2] }, ['x', 'h']);
  });

  it('customVjp refuses captured parameters and wrong results', () => {
    const refused = (make: (x: Tensor) => Tensor): string =>
      errorOf(() => trace(({ x }) => make(x), { x: f64(2, 3) })).code;
    const captured = (x: Tensor) =>
      customVjp(
        (a: Tensor) => a.mul(param('w', { shape: [3], dtype: 'f64' })),
        (a: Tensor) => ({ result: a, saved: [] }),
        (_, [g]) => [g],
      )(x);
    expect(refused(captured)).toBe('E_OPAQUE_CAPTURE');
    const other = (x: Tensor) =>
      customVjp(
        (a: Tensor) => a.sum(),
        (a: Tensor) => ({ result: a, saved: [] }),
        (_, [g]) => [g],
      )(x);
    expect(refused(other)).toBe('E_SHAPE');
    const shape = (x: Tensor) =>
      customVjp(
        (a: Tensor) => a.sum(),
        (a: Tensor) => ({ result: a.sum(), saved: [] }),
        (_, [g]) => [g],
      )(x);
    expect(refused(shape)).toBe('E_SHAPE');
    const few = (x: Tensor) =>
      customVjp(
        (a: Tensor) => a,
        (a: Tensor) => ({ result: a, saved: [] }),
        () => [],
      )(x);
    expect(refused(few)).toBe('E_SHAPE');
  });
});
