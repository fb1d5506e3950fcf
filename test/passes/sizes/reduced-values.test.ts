/** Programs at reduced sizes are programs that PyTorch's own kernels run, too. */
import { expect, test } from 'vitest';

import { parseGraph } from '../../../src/graph/text/parse.ts';
import type { Graph } from '../../../src/graph/types.ts';
import { exampleShape } from '../../../src/graph/value.ts';
import { importGraph } from '../../../src/import/import.ts';
import { reduced } from '../../../src/simulate/reduced.ts';
import { TABLE } from '../../plan/support.ts';

const small = (lines: string): Graph =>
  reduced(parseGraph(`swgraph 1\ngraph @g {\n${lines}\n}\n`), TABLE, { meshSizes: [2] }).graph;

function shapeOf(graph: Graph, name: string): readonly number[] {
  const type = graph.nodes.find((node) => node.name === name)?.type;
  if (type?.kind !== 'tensor') throw new Error(`${name} is no tensor`);
  return exampleShape(type);
}

test('an inverse transform of real numbers keeps half of its sizes and one', () => {
  const graph = small(`  in %x: f64[4, 64, 16] input "x"
  %r = aten._fft_r2c.default(%x, [1], 0, true): c128[4, 33, 16]
  %c = aten._fft_c2r.default(%r, [1], 2, 64): f64[4, 64, 16]
  out %c output 0`);
  const [, made] = shapeOf(graph, 'c');
  expect(shapeOf(graph, 'r')[1]).toBe(Math.floor(made / 2) + 1);
});

test('the gradient of a reflection has the sizes of what was padded', () => {
  const graph = small(`  in %g: f64[4, 4, 27, 32] input "g"
  in %x: f64[4, 4, 26, 26] input "x"
  %p = aten.constant_pad_nd.default(%g, [1, 0, -2, 2]): f64[4, 4, 27, 33]
  %s = aten.slice.Tensor(%p, 3, 0, 29): f64[4, 4, 27, 29]
  %b = aten.reflection_pad2d_backward.default(%s, %x, [1, 2, 0, 1]): f64[4, 4, 26, 26]
  out %b output 0`);
  const [, , rows, columns] = shapeOf(graph, 'x');
  expect(shapeOf(graph, 's').slice(2)).toEqual([rows + 1, columns + 3]);
});

test('bags that a program numbers itself stay within the indices', () => {
  const graph = small(`  in %w: f64[64, 16] parameter "w"
  in %i: i64[4, 6] input "i"
  %o = aten.arange.start_step(0, 24, 6, dtype=dtype:i64): i64[4]
  %v = aten.view.default(%i, [24]): i64[24]
  %e = aten._embedding_bag.default(%w, %v, %o): (f64[4, 16], i64[24], i64[4], i64[0])
  %y = operator.getitem(%e, 0): f64[4, 16]
  out %y output 0`);
  const [, end, step] = graph.nodes.find(({ name }) => name === 'o')?.args ?? [];
  expect(Number(end) - Number(step)).toBeLessThanOrEqual(shapeOf(graph, 'v')[0]);
});

test.each([
  [
    'aten._fft_c2r.default(%x, [1], 2, 64): f64[4, 64]',
    'c128[4, 20]',
    '64 numbers are made of 33 complex ones, not of 20',
  ],
  [
    'aten.reflection_pad1d_backward.default(%x, %x, [1, 2]): f64[4, 20]',
    'f64[4, 20]',
    'the gradient has sizes [4, 20], wanted [4, 23]',
  ],
])('sizes that its kernel refuses are refused: %s', (call, type, message) => {
  const text = `swgraph 1\ngraph @g {\n  in %x: ${type} input "x"\n  %y = ${call}\n  out %y output 0\n}\n`;
  expect(() => importGraph(text)).toThrow(message);
});
