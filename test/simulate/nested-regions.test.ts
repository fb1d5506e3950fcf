import { expect, test } from 'vitest';

import { flat, fromFlat, NDArray } from '../../src/ndarray/array.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { evaluateGraph } from '../../src/simulate/evaluate.ts';
import { check } from '../../src/simulate/strip.ts';
import { psum } from '../../src/trace/spmd/jax-names.ts';
import { localMap } from '../../src/trace/spmd/local-map.ts';
import { input, type Tensor, trace } from '../../src/trace/trace.ts';

/** A region over `b` inside a region over `a`, which cuts the rows. */
const nested = (inner: (z: Tensor) => Tensor, cut: string, out: string) =>
  trace(
    (x) =>
      localMap(
        (rows: Tensor) =>
          localMap(inner, { axes: ['b'], inSpecs: [cut], outSpecs: out })(rows.mul(2)).add(1),
        { axes: ['a'], inSpecs: ['P("a", None)'], outSpecs: 'P("a", None)' },
      )(x),
    [input([4, 4], 'f64')],
    { mesh: 'a=2,b=2' },
  );
const X = Array.from({ length: 16 }, (_, i) => i - 5);
const run = (graph: ReturnType<typeof nested>): number[] => {
  const x = fromFlat([4, 4], Float64Array.from(X), 'f64');
  const [y] = evaluateGraph(builtinOperators(), graph, [x]).outputs;
  return y instanceof NDArray ? [...flat(y)] : [];
};
const row = (r: number): number[] => X.slice(4 * r, 4 * r + 4).map((v) => 2 * v);

test('columns that an inner region adds up over its axis', () => {
  const graph = nested((z) => psum(z.sin(), 'b'), 'P(None, "b")', 'P(None, None)');
  const expected = [0, 1, 2, 3].flatMap((r) =>
    [0, 1].map((c) => Math.sin(row(r)[c]) + Math.sin(row(r)[c + 2]) + 1),
  );
  run(graph).forEach((v, i) => expect(v).toBeCloseTo(expected[i], 12));
  expect(run(graph)).toHaveLength(8);
});

test('pieces that an inner region returns are joined around it', () => {
  const graph = nested((z) => z.square(), 'P("b", None)', 'P("b", None)');
  expect(run(graph)).toEqual([0, 1, 2, 3].flatMap((r) => row(r).map((v) => v * v + 1)));
});

test('its types can be stripped, and its gradient too', () => {
  const graph = trace(
    (x) =>
      localMap(
        (rows: Tensor) =>
          localMap((z: Tensor) => psum(z.sin(), 'b'), {
            axes: ['b'],
            inSpecs: ['P(None, "b")'],
            outSpecs: 'P(None, None)',
          })(rows),
        { axes: ['a'], inSpecs: ['P("a", None)'], outSpecs: 'P("a", None)' },
      )(x),
    [input([4, 4], 'f64')],
    { mesh: 'a=2,b=2' },
  );
  const { eraseable, runs } = check(graph, { mode: 'strict' });
  expect(eraseable).toBe(true);
  expect(runs.map(({ of, devices }) => [of, devices])).toEqual([
    ['program', 4],
    ['gradient', 4],
  ]);
});
