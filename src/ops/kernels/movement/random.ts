/**
 * Random operators. Element i of a result is a function of the seed, the stream of the call and i
 * alone; the numbers are not those of PyTorch, their distributions are.
 */

import { build, flat, fromFlat, full, type NDArray, sizeOf } from '../../../ndarray/array.ts';
import { map3, multiply } from '../../../ndarray/elementwise.ts';
import { exponential, normal, uniform } from '../../../ndarray/random.ts';
import { lgamma } from '../../../ndarray/special.ts';
import {
  type Kernel,
  type KernelCall,
  type Kernels,
  named,
  one,
  operand,
  resultShape,
  tensor,
  valueError,
} from '../../record/kernel.ts';

/** 1 where an element is kept, with probability 1 - p. */
function keepMask(call: KernelCall, shape: readonly number[], p: number): NDArray {
  return build(shape, (i) => (uniform(call.random, i) >= p ? 1 : 0), 'b8');
}

/** Kept elements over the probability of being kept; the others times zero. */
function dropped(x: NDArray, mask: NDArray, p: number): NDArray {
  return map3(x, mask, full([], p === 1 ? 0 : 1 / (1 - p)), (v, kept, factor) =>
    kept !== 0 ? v * factor : 0 * v,
  );
}

const dropout: Kernel = one((call) => {
  const x = tensor(call, 'input');
  const p = call.ctx.number('p');
  return p === 0 || !call.ctx.bool('train') ? x : dropped(x, keepMask(call, x.shape, p), p);
});

/** Drops unless told that this is not training. */
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

/** Rows in the order of a number drawn for each. */
const randperm: Kernel = one((call) => {
  const [n] = resultShape(call);
  const keys = Array.from({ length: n }, (_, i) => uniform(call.random, i));
  return fromFlat(
    [n],
    Float64Array.from(keys.keys()).sort((i, j) => keys[i] - keys[j] || i - j),
    'i64',
  );
});

/**
 * The place where the running sum of the weights passes a drawn share of their total; a place taken
 * weighs nothing.
 */
const multinomial: Kernel = one((call) => {
  const x = tensor(call, 'self');
  const shape = resultShape(call);
  const [width, count] = [x.shape[x.rank - 1], shape[shape.length - 1]];
  const [weights, out] = [flat(x).slice(), new Float64Array(sizeOf(shape))];
  out.forEach((_, i) => {
    const start = Math.floor(i / count) * width;
    const row = weights.subarray(start, start + width);
    const total = row.reduce((sum, w) => (w >= 0 ? sum + w : NaN), 0);
    if (!(total > 0 && total < Infinity))
      valueError(call, 'weights must not be negative, and enough of them not zero');
    const wanted = uniform(call.random, i) * total;
    let [sum, at, last] = [0, 0, 0];
    for (; at < width; at++) {
      if (row[at] > 0) last = at;
      sum += row[at];
      if (sum > wanted) break;
    }
    out[i] = Math.min(at, last);
    if (!call.ctx.bool('replacement')) row[out[i]] = 0;
  });
  return fromFlat(shape, out, 'i64');
});

/**
 * A count with a rate, from one uniform number: outcomes in rising distance from the most probable
 * one take each its share of the unit interval, so that about the root of the rate are tried.
 */
function poissonCount(rate: number, share: number): number {
  if (rate === 0) return 0;
  const mode = Math.floor(rate);
  const probable = Math.exp(mode * Math.log(rate) - rate - lgamma(mode + 1));
  let [low, high, below, above] = [mode, mode, probable, probable];
  let passed = probable;
  // Shares that rounding leaves over fall to the last outcome that has one.
  while (passed <= share && (below > 0 || above > 0)) {
    const [next, previous] = [(above * rate) / (high + 1), low === 0 ? 0 : (below * low) / rate];
    if (next >= previous) {
      [high, above] = [high + 1, next];
      passed += next;
      if (passed > share) return high;
      if (next === 0) break;
    } else {
      [low, below] = [low - 1, previous];
      passed += previous;
      if (passed > share) return low;
    }
  }
  return mode;
}

const poisson: Kernel = drawn((call) => {
  const rates = flat(tensor(call, 'self'));
  return (i) => {
    if (!(rates[i] >= 0 && rates[i] < Infinity))
      valueError(call, `the rate ${rates[i]} is negative or no number`);
    return poissonCount(rates[i], uniform(call.random, i));
  };
});

/** Means and deviations, numbers or tensors, spread over the result. */
const normalOf: Kernel = one((call) => {
  const shape = resultShape(call);
  const noise = build(shape, (i) => normal(call.random, i));
  return map3(operand(call, 'mean'), operand(call, 'std'), noise, (mean, std, z) => {
    if (std < 0) valueError(call, `std = ${std} is negative`);
    return mean + std * z;
  });
});

const uniforms: Kernel = drawn((call) => (i) => uniform(call.random, i));
const normals: Kernel = drawn((call) => (i) => normal(call.random, i));

/** Whole numbers from `low` up to `high`, which is left out. */
const integers = (low: (call: KernelCall) => number): Kernel =>
  drawn((call) => {
    const [from, to] = [low(call), number(call, 'high')];
    return (i) => from + Math.floor((to - from) * uniform(call.random, i));
  });

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
  ...named(
    'normal_.default normal_functional.default',
    drawn((call) => {
      const [mean, std] = [number(call, 'mean'), number(call, 'std')];
      return (i) => mean + std * normal(call.random, i);
    }),
  ),
  ...named(
    'uniform_.default uniform.default',
    drawn((call) => {
      const [from, to] = [number(call, 'from'), number(call, 'to')];
      return (i) => from + (to - from) * uniform(call.random, i);
    }),
  ),
  ...named(
    'exponential_.default exponential.default',
    drawn((call) => {
      const rate = number(call, 'lambd');
      return (i) => exponential(call.random, i) / rate;
    }),
  ),
  ...named(
    'log_normal_.default log_normal.default',
    drawn((call) => {
      const [mean, std] = [number(call, 'mean'), number(call, 'std')];
      return (i) => Math.exp(mean + std * normal(call.random, i));
    }),
  ),
  // Trials up to the first success.
  ...named(
    'geometric_.default geometric.default',
    drawn((call) => {
      const p = number(call, 'p');
      if (!(p > 0 && p < 1)) valueError(call, `p = ${p} is not between 0 and 1`);
      return (i) => Math.max(1, Math.ceil(Math.log1p(-uniform(call.random, i)) / Math.log1p(-p)));
    }),
  ),
  ...named(
    'cauchy_.default cauchy.default',
    drawn((call) => {
      const [median, sigma] = [number(call, 'median'), number(call, 'sigma')];
      return (i) => median + sigma * Math.tan(Math.PI * (uniform(call.random, i) - 0.5));
    }),
  ),
  'aten.normal.float_float': drawn((call) => {
    const [mean, std] = [number(call, 'mean'), number(call, 'std')];
    return (i) => mean + std * normal(call.random, i);
  }),
  ...named(
    'randint.default randint_like.default',
    integers(() => 0),
  ),
  ...named(
    'randint.low randint_like.low_dtype',
    integers((call) => number(call, 'low')),
  ),
  'aten.randperm.default': randperm,
  'aten.multinomial.default': multinomial,
  'aten.poisson.default': poisson,
  ...named('normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor', normalOf),
  'aten.rand.default': uniforms,
  'aten.rand_like.default': uniforms,
  'aten.randn.default': normals,
  'aten.randn_like.default': normals,
};
