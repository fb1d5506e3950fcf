import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import { describe, expect, test } from 'vitest';

import { parseGraph } from '../../src/graph/text/parse.ts';
import type { Graph } from '../../src/graph/types.ts';
import { build, flat, fromFlat, type NDArray } from '../../src/ndarray/array.ts';
import { concat, select, unsqueeze } from '../../src/ndarray/views.ts';
import { evaluateGraph } from '../../src/simulate/evaluate.ts';
import { FULL } from '../support/full.ts';
import { inputSpecs, table } from './graph-inputs.ts';

/** Programs that JAX lowered to StableHLO, evaluated whole. */
function graphOf(name: string): Graph {
  const path = join(import.meta.dirname, '..', 'fixtures', 'kernels', `${name}.swg.gz`);
  return parseGraph(gunzipSync(readFileSync(path)).toString('utf8'));
}

const wave = (shape: readonly number[], k: number, dtype: NDArray['dtype'] = 'f32'): NDArray =>
  build(
    shape,
    (i) => 0.3 * Math.sin(0.7 * i + 1.3 * k + 0.3) + (shape.length < 2 ? 0.6 : 0),
    dtype,
  );

function dot(a: NDArray, b: NDArray): number {
  const [p, q] = [flat(a), flat(b)];
  return p.reduce((sum, v, i) => sum + v * q[i], 0);
}

describe('StableHLO programs', () => {
  test('the gradients of an encoder are those of central differences of its loss', () => {
    const graph = graphOf('flax-encoder');
    const specs = inputSpecs(graph);
    const inputs = specs.map(({ dtype, shape }, k) =>
      dtype.startsWith('f')
        ? wave(shape, k)
        : build(shape, (i) => (7 * i + 3 * k) % 10, dtype as 'i32'),
    );
    const { outputs } = evaluateGraph(table, graph, inputs);
    // The loss, then a gradient for each parameter in the order of the inputs.
    const [loss, ...grads] = outputs as readonly NDArray[];
    expect(loss.size).toBe(1);
    expect(grads.length).toBeGreaterThan(30);
    grads.forEach((grad, i) => expect(grad.shape).toEqual(specs[i].shape));
    const directions = grads.map((grad, i) => wave(grad.shape, 100 + i));
    const exact = grads.reduce((sum, grad, i) => sum + dot(grad, directions[i]), 0);
    const at = (step: number): number => {
      const moved = inputs.map((x, i) => {
        if (i >= grads.length) return x;
        const by = flat(directions[i]);
        return fromFlat(
          x.shape,
          flat(x).map((v, j) => v + step * by[j]),
          x.dtype,
        );
      });
      return (evaluateGraph(table, graph, moved, { outputs: [0] }).outputs[0] as NDArray).item();
    };
    const numeric = (at(1e-6) - at(-1e-6)) / 2e-6;
    expect(Math.abs(exact)).toBeGreaterThan(1e-2);
    expect(Math.abs(numeric - exact) / Math.abs(exact)).toBeLessThan(1e-5);
  });

  test.runIf(FULL)(
    'a training step of two layers in a row is that of a loop over stacked layers',
    () => {
      const [unrolled, looped] = [graphOf('lm2-unrolled'), graphOf('lm2-scan')];
      // In both: embedding, head, the parameters of a layer (twice, or stacked), last norm.
      const shapes = inputSpecs(unrolled)
        .slice(0, 21)
        .map((s) => s.shape);
      const stack = (list: readonly NDArray[]): NDArray[] => [
        ...list.slice(0, 2),
        ...list
          .slice(2, 11)
          .map((first, i) => concat([unsqueeze(first, 0), unsqueeze(list[11 + i], 0)], 0)),
        list[20],
      ];
      const parameters = shapes.map((shape, k) => wave(shape, k));
      const first = shapes.map((shape, k) => wave(shape, 50 + k));
      // Second moments are squares.
      const second = shapes.map((shape, k) =>
        build(shape, (i) => 0.1 + 0.05 * Math.sin(i + k), 'f32'),
      );
      const step = build([], () => 3, 'i32');
      const data = inputSpecs(unrolled)
        .slice(64)
        .map(({ dtype, shape }, k) => build(shape, (i) => (7 * i + 3 * k) % 500, dtype as 'i32'));
      const one = evaluateGraph(table, unrolled, [
        ...parameters,
        step,
        ...first,
        ...second,
        ...data,
      ]).outputs as NDArray[];
      const two = evaluateGraph(table, looped, [
        ...stack(parameters),
        step,
        ...stack(first),
        ...stack(second),
        ...data,
      ]).outputs as NDArray[];
      // New parameters, step, new moments, loss: 3 * 21 + 2 against 3 * 12 + 2.
      expect([one.length, two.length]).toEqual([65, 38]);
      const want = [
        ...stack(one.slice(0, 21)),
        one[21],
        ...stack(one.slice(22, 43)),
        ...stack(one.slice(43, 64)),
        one[64],
      ];
      two.forEach((got, i) => {
        expect(got.shape).toEqual(want[i].shape);
        const [a, b] = [flat(got), flat(want[i])];
        const largest = b.reduce((m, v) => Math.max(m, Math.abs(v)), 0);
        const worst = a.reduce((m, v, j) => Math.max(m, Math.abs(v - b[j])), 0);
        expect(worst, `output ${i}`).toBeLessThanOrEqual(1e-9 * Math.max(largest, 1e-3));
      });
      const loss = two[37].item();
      expect(loss).toBeGreaterThan(1);
      expect(loss).toBeLessThan(20);
      expect(flat(select(two[4], 0, 1)).some((v, j) => v !== flat(parameters[13])[j])).toBe(true);
    },
  );
});
