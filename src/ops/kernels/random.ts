import { build, flat, full, type NDArray } from '../../ndarray/array.ts';
import { map3, multiply } from '../../ndarray/elementwise.ts';
import { exponential, normal, uniform } from '../../ndarray/random.ts';
import { one, resultShape, tensor, type Kernel, type KernelCall, type Kernels } from './kernel.ts';

/**
 * Random operators. Element i of a result is a function of the seed, the stream of the call and i alone; the numbers are
 * not those of PyTorch, their distributions are.
 */

/** 1 where an element is kept, with probability 1 - p. */
function keepMask(call: KernelCall, shape: readonly number[], p: number): NDArray {
  return build(shape, (i) => (uniform(call.random, i) >= p ? 1 : 0), 'b8');
}

/** Kept elements over the probability of being kept; the others times zero. */
function dropped(x: NDArray, mask: NDArray, p: number): NDArray {
  return map3(x, mask, full([], p === 1 ? 0 : 1 / (1 - p)), (v, kept, factor) => (kept !== 0 ? v * factor : 0 * v));
}

const dropout: Kernel = one((call) => {
  const x = tensor(call, 'input');
  const p = call.ctx.number('p');
  return p === 0 || !call.ctx.bool('train') ? x : dropped(x, keepMask(call, x.shape, p), p);
});

/** Drops unless told that this is no training. */
const nativeDropout: Kernel = (call) => {
  const x = tensor(call, 'input');
  const p = call.ctx.number('p');
  if (call.ctx.has('train') && !call.ctx.bool('train')) return [x, full(x.shape, 1, 'b8')];
  const mask = keepMask(call, x.shape, p);
  return [dropped(x, mask, p), mask];
};

const nativeDropoutBackward: Kernel = one((call) => {
  const scale = full([], call.ctx.number('scale'));
  return multiply(multiply(tensor(call, 'grad_output'), tensor(call, 'mask')), scale);
});

/** A draw for each element of the result. */
const drawn = (draw: (call: KernelCall) => (i: number) => number): Kernel =>
  one((call) => build(resultShape(call), draw(call)));

const number = (call: KernelCall, name: string): number => call.ctx.number(name);

const bernoulli: Kernel = drawn((call) => {
  const p = number(call, 'p');
  return (i) => (uniform(call.random, i) < p ? 1 : 0);
});

const uniforms: Kernel = drawn((call) => (i) => uniform(call.random, i));
const normals: Kernel = drawn((call) => (i) => normal(call.random, i));

export const randomKernels: Kernels = {
  'aten.dropout.default': dropout,
  'aten.native_dropout.default': nativeDropout,
  'aten.native_dropout_backward.default': nativeDropoutBackward,
  'aten.bernoulli.default': drawn((call) => {
    const p = flat(tensor(call, 'self'));
    return (i) => (uniform(call.random, i) < p[i] ? 1 : 0);
  }),
  'aten.bernoulli.p': bernoulli,
  'aten.bernoulli_.float': bernoulli,
  'aten.normal_.default': drawn((call) => {
    const [mean, std] = [number(call, 'mean'), number(call, 'std')];
    return (i) => mean + std * normal(call.random, i);
  }),
  'aten.uniform_.default': drawn((call) => {
    const [from, to] = [number(call, 'from'), number(call, 'to')];
    return (i) => from + (to - from) * uniform(call.random, i);
  }),
  'aten.exponential_.default': drawn((call) => {
    const rate = number(call, 'lambd');
    return (i) => exponential(call.random, i) / rate;
  }),
  'aten.rand.default': uniforms,
  'aten.rand_like.default': uniforms,
  'aten.randn.default': normals,
  'aten.randn_like.default': normals,
};
