import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import { parseGraph } from '../../src/graph/text/parse.ts';
import type { Graph } from '../../src/graph/types.ts';
import { build, flat, fromFlat, fromList, full, NDArray, scalar } from '../../src/ndarray/array.ts';
import { evaluateGraph, type Value } from '../../src/simulate/evaluate.ts';
import { FULL } from '../support/full.ts';
import { drawnInputs, graphOf, GRAPHS, table, wrongNumbers } from './graph-inputs.ts';

const recorded = JSON.parse(
  readFileSync(join(import.meta.dirname, '..', 'fixtures', 'kernels', 'graphs.json'), 'utf8'),
) as { readonly graphs: Readonly<Record<string, readonly (readonly number[] | null)[]>> };

const run = (text: string, inputs: readonly Value[], options = {}) =>
  evaluateGraph(table, parseGraph(`swgraph 1\n${text}`), inputs, options);
const list = (value: Value | undefined): number[] =>
  value instanceof NDArray ? value.toArray() : [];

interface Evaluated {
  readonly graph: Graph;
  readonly inputs: readonly NDArray[];
  readonly outputs: readonly Value[];
}
const kept = new Map<string, Evaluated>();

/** A whole graph on its drawn inputs; once for all tests. */
function evaluated(id: string): Evaluated {
  let known = kept.get(id);
  if (known === undefined) {
    const graph = graphOf(id);
    const inputs = drawnInputs(graph);
    known = { graph, inputs, outputs: evaluateGraph(table, graph, inputs).outputs };
    kept.set(id, known);
  }
  return known;
}

function dot(a: NDArray, b: Float64Array): number {
  return flat(a).reduce((sum, v, i) => sum + v * b[i], 0);
}

describe('evaluation of whole graphs', () => {
  // The products of the largest take seconds.
  test.each(GRAPHS.filter((id) => FULL || id !== 'mlp-loss/joint'))(
    '%s gives what PyTorch gives in float64',
    (id) => {
      expect(wrongNumbers(id, evaluated(id).outputs, recorded.graphs[id])).toEqual([]);
    },
    120_000,
  );

  /** Along one direction of all inputs that have gradients. */
  test.each(['mlp/joint', ...GRAPHS.filter((id) => FULL && id.endsWith('/joint'))])(
    '%s: gradients are those of central differences of its outputs',
    (id) => {
      const { graph, inputs, outputs: all } = evaluated(id);
      const placeholders = graph.nodes.filter((n) => n.kind === 'placeholder');
      const tangents = placeholders.flatMap((n, i) => (n.meta.role === 'tangent' ? [i] : []));
      expect(tangents.length).toBeGreaterThan(0);
      // What is differentiated stands last among the outputs, after updated statistics.
      const forward = graph.outputs
        .flatMap((o, i) => (o.role === 'output' ? [i] : []))
        .slice(-tangents.length);
      // Gradients stand after the outputs, one for each input that is not a tangent, in their order.
      const directions = new Map<number, Float64Array>();
      let exact = 0;
      placeholders.slice(0, placeholders.length - tangents.length).forEach((_, i) => {
        const grad = all[graph.outputs.length - (placeholders.length - tangents.length) + i];
        if (!(grad instanceof NDArray)) return;
        const direction = new Float64Array(grad.size).map((__, k) => Math.sin(1.9 * k + i));
        directions.set(i, direction);
        exact += dot(grad, direction);
      });
      expect(directions.size).toBeGreaterThan(0);
      const at = (step: number): number => {
        const moved = inputs.map((x, i) => {
          const by = directions.get(i);
          return by === undefined
            ? x
            : fromFlat(
                x.shape,
                flat(x).map((v, k) => v + step * by[k]),
                x.dtype,
              );
        });
        const { outputs } = evaluateGraph(table, graph, moved, { outputs: forward });
        return forward.reduce(
          (s, o, k) => s + dot(outputs[o] as NDArray, flat(inputs[tangents[k]])),
          0,
        );
      };
      const step = 1e-6;
      const numeric = (at(step) - at(-step)) / (2 * step);
      expect(Math.abs(exact)).toBeGreaterThan(1e-4);
      expect(Math.abs(numeric - exact) / Math.abs(exact)).toBeLessThan(2e-5);
    },
    120_000,
  );

  test('only what wanted outputs need is evaluated', () => {
    const graph = graphOf('llama-tiny/joint');
    const inputs = drawnInputs(graph);
    const forward = evaluateGraph(table, graph, inputs, { outputs: [0] });
    const whole = evaluateGraph(table, graph, inputs);
    expect(list(forward.outputs[0])).toEqual(list(whole.outputs[0]));
    expect(forward.outputs.slice(1).every((o) => o === null)).toBe(true);
    expect(forward.peakElements).toBeLessThan(whole.peakElements);
  });
});

describe('memory', () => {
  test('a long chain holds a few values only, and does not overflow the stack', () => {
    const n = 10_000;
    const lines = Array.from(
      { length: n },
      (_, i) => `  %v${i + 1} = aten.add.Tensor(%v${i}, 1): f64[100]`,
    );
    const { outputs, peakElements } = run(
      `graph @chain {\n  in %v0: f64[100] input "x"\n${lines.join('\n')}\n  out %v${n} output 0\n}\n`,
      [build([100], (i) => i)],
    );
    expect(list(outputs[0])).toEqual(Array.from({ length: 100 }, (_, i) => i + n));
    expect(peakElements).toBeLessThanOrEqual(300);
  });

  test('views count once, and what is returned or used later stays', () => {
    const { outputs, peakElements } = run(
      'graph @g {\n  in %x: f64[10] input "x"\n  %y = aten.mul.Tensor(%x, 2): f64[10]\n  %v = aten.view.default(%y, [2, 5]): f64[2, 5]\n' +
        '  %t = aten.t.default(%v): f64[5, 2]\n  %z = aten.add.Tensor(%y, %x): f64[10]\n  out %t output 0\n  out %z output 1\n}\n',
      [build([10], (i) => i)],
    );
    expect(list(outputs[0])).toEqual([0, 10, 2, 12, 4, 14, 6, 16, 8, 18]);
    expect(list(outputs[1])).toEqual([0, 3, 6, 9, 12, 15, 18, 21, 24, 27]);
    expect(peakElements).toBe(30);
  });
});

describe('control flow', () => {
  const body = (name: string, calls: string, out: string, inputs = 'in %x: f64[2] arg 0'): string =>
    `  graph @${name} {\n    ${inputs}\n    ${calls}\n    ${out}\n  }\n`;

  test('cond takes the branch that its predicate says', () => {
    const text =
      'graph @main {\n  in %x: f64[2] input "x"\n  %s = aten.sum.default(%x): f64[]\n  %p = aten.gt.Scalar(%s, 0): b8[]\n' +
      '  %c = cond(%p, @t, @f, [%x]): (f64[2])\n  %y = operator.getitem(%c, 0): f64[2]\n  out %y output 0\n' +
      body('t', '%r = aten.sin.default(%x): f64[2]', 'out %r output 0') +
      body('f', '%r = aten.cos.default(%x): f64[2]', 'out %r output 0') +
      '}\n';
    expect(list(run(text, [fromList([2], [1, 2])]).outputs[0])).toEqual([Math.sin(1), Math.sin(2)]);
    expect(list(run(text, [fromList([2], [-1, -2])]).outputs[0])).toEqual([
      Math.cos(-1),
      Math.cos(-2),
    ]);
  });

  const loop =
    'graph @main {\n  in %i: i64[] input "i"\n  in %x: f64[] input "x"\n  %w = while_loop(@c, @b, [%i, %x], []): (i64[], f64[])\n' +
    '  %y = operator.getitem(%w, 1): f64[]\n  out %y output 0\n' +
    body(
      'c',
      '%r = aten.lt.Scalar(%i, 5): b8[]',
      'out %r output 0',
      'in %i: i64[] arg 0\n    in %x: f64[] arg 1',
    ) +
    body(
      'b',
      '%j = aten.add.Tensor(%i, 1): i64[]\n    %r = aten.mul.Tensor(%x, 2): f64[]',
      'out %j output 0\n    out %r output 1',
      'in %i: i64[] arg 0\n    in %x: f64[] arg 1',
    ) +
    '}\n';

  test('a while loop doubles five times', () => {
    expect(list(run(loop, [scalar(0, 'i64'), scalar(1)]).outputs[0])).toEqual([32]);
    expect(list(run(loop, [scalar(9, 'i64'), scalar(1)]).outputs[0])).toEqual([1]);
  });

  test('an endless loop ends with an error', () => {
    expect(() => run(loop, [scalar(-100, 'i64'), scalar(1)], { maxTrips: 20 })).toThrow(
      /more than 20 trips/,
    );
  });

  const scanned = (kwargs: string): string =>
    `graph @main {\n  in %h: f64[] input "h"\n  in %xs: f64[3] input "xs"\n  %s = scan(@b, [%h], [%xs], []${kwargs}): (f64[], f64[3])\n` +
    '  %c = operator.getitem(%s, 0): f64[]\n  %ys = operator.getitem(%s, 1): f64[3]\n  out %c output 0\n  out %ys output 1\n' +
    body(
      'b',
      '%r = aten.mul.Tensor(%h, %x): f64[]',
      'out %r output 0\n    out %r output 1',
      'in %h: f64[] arg 0\n    in %x: f64[] arg 1',
    ) +
    '}\n';

  test('a scan carries and stacks, forwards and backwards', () => {
    const inputs = [scalar(1), fromList([3], [2, 3, 4])];
    expect(run(scanned(''), inputs).outputs.map(list)).toEqual([[24], [2, 6, 24]]);
    expect(run(scanned(', reverse=true'), inputs).outputs.map(list)).toEqual([[24], [24, 12, 4]]);
  });

  test('a case takes the branch of its index, the last one for an index outside; a call runs its body', () => {
    const text =
      'graph @main {\n  in %i: i32[] input "i"\n  in %x: f64[2] input "x"\n  %c = case(%i, [@a, @b], [%x]): (f64[2])\n' +
      '  %y = operator.getitem(%c, 0): f64[2]\n  %d = call(@a, [%y]): (f64[2])\n  %z = operator.getitem(%d, 0): f64[2]\n  out %z output 0\n' +
      body('a', '%r = aten.neg.default(%x): f64[2]', 'out %r output 0') +
      body('b', '%r = aten.mul.Scalar(%x, 3): f64[2]', 'out %r output 0') +
      '}\n';
    const at = (i: number): number[] =>
      list(run(text, [scalar(i, 'i32'), fromList([2], [1, 2])]).outputs[0]);
    expect([0, 1, 7, -1].map(at)).toEqual([
      [1, 2],
      [-3, -6],
      [-3, -6],
      [-3, -6],
    ]);
  });

  test('random calls differ between nodes and trips, and repeat for the same seed', () => {
    const text =
      'graph @main {\n  in %x: f64[4, 50] input "x"\n  %m = map_impl(@b, [%x], []): (f64[4, 50])\n  %y = operator.getitem(%m, 0): f64[4, 50]\n' +
      '  %d = aten.dropout.default(%x, 0.5, true): f64[4, 50]\n  %e = aten.dropout.default(%x, 0.5, true): f64[4, 50]\n' +
      '  out %y output 0\n  out %d output 1\n  out %e output 2\n' +
      body(
        'b',
        '%r = aten.dropout.default(%x, 0.5, true): f64[50]',
        'out %r output 0',
        'in %x: f64[50] arg 0',
      ) +
      '}\n';
    const x = full([4, 50], 1);
    const first = run(text, [x], { seed: 3 }).outputs.map(list);
    expect(run(text, [x], { seed: 3 }).outputs.map(list)).toEqual(first);
    expect(run(text, [x], { seed: 4 }).outputs.map(list)).not.toEqual(first);
    expect(first[1]).not.toEqual(first[2]);
    const trips = [0, 1, 2, 3].map((t) => first[0].slice(50 * t, 50 * t + 50).join());
    expect(new Set(trips).size).toBe(4);
  });
});

describe('what cannot be evaluated', () => {
  const one =
    'graph @g {\n  in %x: f64[2] input "x"\n  %y = aten.neg.default(%x): f64[2]\n  out %y output 0\n}\n';

  test('inputs that do not fit are refused with their placeholder', () => {
    expect(() => run(one, [])).toThrow(/takes 1 inputs, got 0/);
    expect(() => run(one, [full([3], 0)])).toThrow(/input 0 \(x\) must be f64\[2\], is f64\[3\]/);
    expect(() => run(one, [full([2], 0, 'f32')])).toThrow(/is f32\[2\]/);
    expect(() => run(one, [null])).toThrow(/absent/);
  });

  test('an unknown operator is an error that names it and its node', () => {
    const text = one.replace('aten.neg.default', 'custom.op.default');
    expect(() => run(text, [full([2], 0)])).toThrow(
      expect.objectContaining({
        code: 'E_NO_KERNEL',
        message: expect.stringContaining('custom.op.default') as string,
        details: expect.objectContaining({ node: 'y' }) as object,
      }),
    );
  });

  test('a value error names its node', () => {
    const text =
      'graph @g {\n  in %x: f64[2, 3] input "x"\n  in %i: i64[1] input "i"\n  %y = aten.embedding.default(%x, %i): f64[1, 3]\n  out %y output 0\n}\n';
    expect(() => run(text, [full([2, 3], 0), fromList([1], [7], 'i64')])).toThrow(
      expect.objectContaining({
        code: 'E_VALUE',
        details: expect.objectContaining({ node: 'y' }) as object,
      }),
    );
  });
});
