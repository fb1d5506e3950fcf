/** Products, reductions and batch norms of StableHLO. */

import { flat, fromFlat, full, type NDArray, sizeOf } from '../../../ndarray/array.ts';
import { toSmall } from '../../../ndarray/convolution.ts';
import { add, map, map2, multiply, subtract } from '../../../ndarray/elementwise.ts';
import { einsum, matmul } from '../../../ndarray/matmul.ts';
import { meanOf, reduce, sum, varianceOf } from '../../../ndarray/reduce.ts';
import { concat, flip, overwrite, permute, reshape, rows } from '../../../ndarray/views.ts';
import {
  advance,
  body,
  type Kernel,
  type KernelCall,
  type Kernels,
  one,
  resultShape,
  tensor,
  tensors,
} from '../../record/kernel.ts';
import { bitwise } from '../elementwise/binary.ts';
import { joinOf, reduceJoined } from './bodies.ts';

/** Batch dims, then what is left of the left operand, then of the right one. */
function dotGeneral(
  a: NDArray,
  b: NDArray,
  batch: readonly (readonly number[])[],
  contract: readonly (readonly number[])[],
): NDArray {
  const left = a.shape
    .map((_, d) => d)
    .filter((d) => !batch[0].includes(d) && !contract[0].includes(d));
  const right = b.shape
    .map((_, d) => d)
    .filter((d) => !batch[1].includes(d) && !contract[1].includes(d));
  const sizes = (x: NDArray, dims: readonly number[]): number[] => dims.map((d) => x.shape[d]);
  const grouped = (x: NDArray, groups: readonly (readonly number[])[]): NDArray =>
    reshape(
      permute(x, groups.flat()),
      groups.map((dims) => sizeOf(sizes(x, dims))),
    );
  const product = matmul(
    grouped(a, [batch[0], left, contract[0]]),
    grouped(b, [batch[1], contract[1], right]),
  );
  return reshape(product, [...sizes(a, batch[0]), ...sizes(a, left), ...sizes(b, right)]);
}

const operands = (call: KernelCall): [NDArray, NDArray] => [
  tensor(call, 'lhs'),
  tensor(call, 'rhs'),
];

/** The image with zeros between rows and around, negative padding cut off. */
function spread(x: NDArray, dim: number, step: number, low: number, high: number): NDArray {
  let out = x;
  const size = x.shape[dim];
  if (step > 1 && size > 1) {
    const shape = x.shape.map((n, d) => (d === dim ? (n - 1) * step + 1 : n));
    out = overwrite(full(shape, 0), (whole) => rows(whole, dim, 0, size, step), x);
  }
  const zeros = (n: number): NDArray =>
    full(
      out.shape.map((m, d) => (d === dim ? n : m)),
      0,
    );
  if (low > 0) out = concat([zeros(low), out], dim);
  if (high > 0) out = concat([out, zeros(high)], dim);
  const [before, after] = [Math.max(0, -low), Math.max(0, -high)];
  return rows(out, dim, before, Math.max(0, out.shape[dim] - before - after));
}

const convolution: Kernel = one((call) => {
  const { ctx } = call;
  const [image, kernel, result] = ['input', 'kernel', 'output'].map((n) =>
    ctx.ints(`${n}_dimensions`),
  );
  const spatial = image.length - 2;
  const list = (name: string, n: number, fill: number): readonly number[] => {
    const given = ctx.ints(name);
    return given.length === 0 ? new Array<number>(n).fill(fill) : given;
  };
  const padding = list('padding', 2 * spatial, 0);
  const between = list('lhs_dilation', spatial, 1);
  let x = permute(tensor(call, 'lhs'), image);
  // Kernel dims are [input feature, output feature, ..]; the convolution wants outputs first.
  let w = permute(tensor(call, 'rhs'), [kernel[1], kernel[0], ...kernel.slice(2)]);
  const reversed = call.argument('window_reversal');
  for (let d = 0; d < spatial; d++) {
    x = spread(x, d + 2, between[d], padding[2 * d], padding[2 * d + 1]);
    if (Array.isArray(reversed) && reversed[d] === true) w = flip(w, [d + 2]);
  }
  const shape = resultShape(call);
  // Each group of the batch meets its own part of the output features.
  const batches = ctx.int('batch_group_count');
  const part = (y: NDArray, g: number): NDArray =>
    rows(y, 0, (g * y.shape[0]) / batches, y.shape[0] / batches);
  const made = Array.from({ length: batches }, (_, g) =>
    toSmall(
      part(x, g),
      part(w, g),
      result.slice(2).map((d) => shape[d]),
      {
        stride: list('window_strides', spatial, 1),
        padding: new Array<number>(spatial).fill(0),
        dilation: list('rhs_dilation', spatial, 1),
        groups: ctx.int('feature_group_count'),
      },
    ),
  );
  const out = concat(made, 1);
  return permute(
    out,
    shape.map((_, d) => result.indexOf(d)),
  );
});

// ---- reductions
// -----------------------------------------------------------------------------

type Pair = (a: number, b: number) => number;

/**
 * The function of two numbers that the reducer of a call is: by its name, or by the body of the
 * call.
 */
export function reducerOf(call: KernelCall, bool: boolean): Pair {
  const name = call.ctx.has('reducer') ? call.ctx.text('reducer') : 'a body of its own';
  const own = body(call, 'body', [call.inputs[0].dtype, call.inputs[0].dtype]);
  if (own !== undefined) return (a, b) => own([a, b])[0];
  const known: Readonly<Record<string, Pair>> = {
    add: bool ? bitwise.or : (a, b) => a + b,
    multiply: (a, b) => a * b,
    maximum: Math.max,
    minimum: Math.min,
    and: bitwise.and,
    or: bitwise.or,
    xor: bitwise.xor,
    second: (_, b) => b,
  };
  return Object.hasOwn(known, name)
    ? known[name]
    : call.ctx.fail(`is not evaluated with ${name} for a reducer`);
}

/** One input and its initial value. */
function single(call: KernelCall): [NDArray, number] {
  const [inputs, inits] = [tensors(call, 'inputs'), tensors(call, 'init_values')];
  const [x, init] = [inputs[0], inits[0]];
  if (inputs.length !== 1 || x === null || init === null)
    return call.ctx.fail('is evaluated with one input only');
  return [x, init.item()];
}

const reduceWith: Kernel = (call) => {
  const join = joinOf(call);
  return join === undefined ? [reduceByName(call)] : reduceJoined(call, join);
};

function reduceByName(call: KernelCall): NDArray {
  const [x, init] = single(call);
  const f = reducerOf(call, x.kind === 'bool');
  const dims = [...call.ctx.ints('dimensions')].sort((a, b) => a - b);
  return reduce(x, dims, false, (data, start, end) => {
    let total = init;
    for (let i = start; i < end; i++) total = f(total, data[i]);
    return total;
  });
}

/** Each dim in turn has its windows joined: the reducers that are known join in any order. */
const reduceWindow: Kernel = one((call) => {
  const { ctx } = call;
  const [input, init] = single(call);
  const f = reducerOf(call, input.kind === 'bool');
  const rank = input.rank;
  const list = (name: string, n: number, fill: number): readonly number[] => {
    const given = ctx.ints(name);
    return given.length === 0 ? new Array<number>(n).fill(fill) : given;
  };
  const [size, stride, base, gap] = [
    'window_dimensions',
    'window_strides',
    'base_dilations',
    'window_dilations',
  ].map((n) => list(n, rank, 1));
  const padding = list('padding', 2 * rank, 0);
  const shape = resultShape(call);
  const data = flat(input);
  const out = new Float64Array(sizeOf(shape)).fill(init);
  const at = new Array<number>(rank).fill(0);
  for (let k = 0; k < out.length; k++) {
    const tap = new Array<number>(rank).fill(0);
    for (let more = true; more;) {
      let position = 0;
      for (let d = 0; d < rank && position >= 0; d++) {
        const row = at[d] * stride[d] + tap[d] * gap[d] - padding[2 * d];
        const inside = row >= 0 && row % base[d] === 0 && row / base[d] < input.shape[d];
        position = inside ? position * input.shape[d] + row / base[d] : -1;
      }
      if (position >= 0) out[k] = f(out[k], data[position]);
      more = advance(tap, size);
    }
    advance(at, shape);
  }
  return fromFlat(shape, out, input.dtype);
});

// ---- batch norm
// -----------------------------------------------------------------------------

interface Features {
  readonly x: NDArray;
  readonly others: readonly number[];
  /** A vector over the features, shaped to broadcast. */
  readonly spread: (vector: NDArray) => NDArray;
  readonly inverse: (variance: NDArray) => NDArray;
}

function features(call: KernelCall): Features {
  const x = tensor(call, 'operand');
  const dim = call.ctx.int('feature_index');
  const eps = call.ctx.number('epsilon');
  return {
    x,
    others: x.shape.map((_, d) => d).filter((d) => d !== dim),
    spread: (vector) =>
      reshape(
        vector,
        x.shape.map((n, d) => (d === dim ? n : 1)),
      ),
    inverse: (variance) => map(variance, (v) => 1 / Math.sqrt(v + eps)),
  };
}

function normalised(call: KernelCall, f: Features, mean: NDArray, variance: NDArray): NDArray {
  const y = multiply(subtract(f.x, f.spread(mean)), f.spread(f.inverse(variance)));
  return add(multiply(y, f.spread(tensor(call, 'scale'))), f.spread(tensor(call, 'offset')));
}

const batchNormGrad: Kernel = (call) => {
  const f = features(call);
  const [grad, scale] = [tensor(call, 'grad_output'), tensor(call, 'scale')];
  const inverse = f.spread(f.inverse(tensor(call, 'variance')));
  const y = multiply(subtract(f.x, f.spread(tensor(call, 'mean'))), inverse);
  const along = reduce(multiply(grad, y), f.others, true, meanOf);
  const centred = subtract(
    subtract(grad, reduce(grad, f.others, true, meanOf)),
    multiply(y, along),
  );
  const factor = map2(f.spread(scale), inverse, (s, i) => s * i);
  return [multiply(centred, factor), sum(multiply(grad, y), f.others), sum(grad, f.others)];
};

export const stablehloProductKernels: Kernels = {
  'stablehlo.dot_general': one((call) => {
    const dims = (side: string, what: string): readonly number[] =>
      call.ctx.ints(`${side}_${what}_dimensions`);
    const [a, b] = operands(call);
    return dotGeneral(
      a,
      b,
      [dims('lhs', 'batching'), dims('rhs', 'batching')],
      [dims('lhs', 'contracting'), dims('rhs', 'contracting')],
    );
  }),
  'stablehlo.dot': one((call) => {
    const [a, b] = operands(call);
    return dotGeneral(a, b, [[], []], [[Math.max(0, a.rank - 1)], [0]]);
  }),
  'stablehlo.einsum': one((call) => {
    const [a, b] = operands(call);
    return einsum(call.ctx.text('einsum_config').replaceAll(' ', ''), a, b);
  }),
  'stablehlo.convolution': convolution,
  'stablehlo.reduce': reduceWith,
  'stablehlo.reduce_window': reduceWindow,
  'stablehlo.batch_norm_training': (call) => {
    const f = features(call);
    const [mean, variance] = [
      reduce(f.x, f.others, false, meanOf),
      reduce(f.x, f.others, false, varianceOf(0)),
    ];
    return [normalised(call, f, mean, variance), mean, variance];
  },
  'stablehlo.batch_norm_inference': one((call) =>
    normalised(call, features(call), tensor(call, 'mean'), tensor(call, 'variance')),
  ),
  'stablehlo.batch_norm_grad': batchNormGrad,
};
