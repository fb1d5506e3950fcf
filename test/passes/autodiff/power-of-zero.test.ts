import { expect, test } from 'vitest';

import { flat, fromList, NDArray } from '../../../src/ndarray/array.ts';
import { jointGraph } from '../../../src/passes/autodiff/joint.ts';
import { evaluateGraph } from '../../../src/simulate/evaluate.ts';
import { input, type Tensor, trace } from '../../../src/trace/trace.ts';
import { table } from '../../local-spmd/support/simulated.ts';

test.each([
  ['a number', (x: Tensor) => x.pow(0)],
  ['a tensor', (x: Tensor, zero: Tensor) => x.pow(zero)],
])('the gradient of x^0 is 0 at 0 and elsewhere, the exponent %s', (_name, power) => {
  const graph = jointGraph(
    trace(({ x, zero }) => power(x, zero).add(x.mul(3)).sum(), {
      x: input([4], 'f64'),
      zero: input([4], 'f64'),
    }),
    { wrt: ['x'], seed: 1 },
  );
  const { outputs } = evaluateGraph(table, graph, [
    fromList([4], [0, -2, 1.5, 0], 'f64'),
    fromList([4], [0, 0, 0, 0], 'f64'),
  ]);
  const gradient = outputs[graph.outputs.findIndex(({ role }) => role === 'grad')];
  expect(gradient instanceof NDArray ? [...flat(gradient)] : []).toEqual([3, 3, 3, 3]);
});
