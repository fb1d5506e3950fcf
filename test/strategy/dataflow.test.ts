import { expect, it } from 'vitest';

import { parseGraph } from '../../src/graph/text/parse.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { dataflow } from '../../src/strategy/dataflow.ts';

/** Collectives take row-major values: moves of others are priced with a copy. */
it.each<readonly [string, string, boolean]>([
  ['4, 3', '3, 1', true],
  ['4, 3', '6, 1', false],
  ['4, 3', '1, 4', false],
  ['4, 3', '3, 2', false],
  // Dims of one element have no stride that matters.
  ['1, 3', '99, 1', true],
  ['4, 1', '1, 7', true],
])('a value of sizes [%s] and strides [%s] is row-major: %s', (shape, stride, isRowMajor) => {
  const graph = parseGraph(
    `swgraph 1\ngraph @strided {\n  in %x: f32[${shape}] input "x" ; stride=[${stride}]\n` +
      '  out %x output 0\n}\n',
  );
  const [x] = dataflow(graph, builtinOperators(), false).values;
  expect(x.contiguous).toBe(isRowMajor);
});
