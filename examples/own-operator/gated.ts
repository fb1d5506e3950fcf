/** The gated unit `x * silu(g)` as an operator of one kernel: `mine::gated` of the PyTorch program beside this file. */
import { fromList, type NDArray } from 'shardwright/graph';
import { P, R, rule, S } from 'shardwright/ops';
import { customOp } from 'shardwright/trace';

const silu = (v: number): number => v / (1 + Math.exp(-v));
/** `a[i] * f(b[i])` for each element. */
const times = (a: NDArray, b: NDArray, f: (value: number) => number): NDArray => {
  const right = b.toArray();
  return fromList(
    a.shape,
    a.toArray().map((v, i) => v * f(right[i])),
    a.dtype,
  );
};

export const gated = customOp({
  name: 'mine.gated.default',
  schema: 'Tensor x, Tensor g',
  type: (ctx) => [ctx.inputs[0]],
  sharding: (ctx) => [
    // Any dim: every element is of one element of each operand.
    ...ctx.inputs[0].shape.map((_, dim) => rule([S(dim), S(dim)], [S(dim)])),
    // Linear in x: pending sums of x are pending sums of the result.
    rule([P('sum'), R], [P('sum')]),
    rule([P('avg'), R], [P('avg')]),
  ],
  kernel: ({ inputs: [x, g] }) => [times(x, g, silu)],
  vjp: (c) => ({
    x: () => c.b.call('mine.gated.default', [c.g(), c.x('g')]),
    g: () => c.b.call('aten.silu_backward.default', [c.b.mul(c.g(), c.x('x')), c.x('g')]),
  }),
  samples: ['x[6,4], x[6,4]', 'x[5,2,3], x[5,2,3]'],
});
export const operators = [gated];
