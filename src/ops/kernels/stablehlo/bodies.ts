/**
 * Kernels of StableHLO operations that take a body: `sort` by a comparator, `map`,
 * `select_and_scatter`, and reductions over several inputs at once. The body is called on single
 * numbers. Reductions whose body is a known operation are in `products.ts`.
 */

import { flat, fromFlat, type NDArray, sizeOf, stridesOf } from '../../../ndarray/array.ts';
import { moveDim } from '../../../ndarray/views.ts';
import {
  advance,
  body,
  type Kernel,
  type KernelCall,
  type Kernels,
  resultShape,
  tensor,
  tensors,
} from '../../record/kernel.ts';

/** The array with a dim last, as numbers in one run a row. */
function rowsAlong(x: NDArray, dim: number): Float64Array {
  return flat(moveDim(x, dim, x.rank - 1));
}

/** The way back from rows along a dim. */
function fromRows(
  shape: readonly number[],
  dim: number,
  data: Float64Array,
  dtype: NDArray['dtype'],
): NDArray {
  const moved = [...shape.filter((_, d) => d !== dim), shape[dim]];
  return moveDim(fromFlat(moved, data, dtype), shape.length - 1, dim);
}

/** NaN after every number; zeros of both signs are equal, as JAX compares. */
function ascending(a: number, b: number): number {
  if (Number.isNaN(a) || Number.isNaN(b)) return Number(Number.isNaN(a)) - Number(Number.isNaN(b));
  return a < b ? -1 : a > b ? 1 : 0;
}

/**
 * Positions of a row in order: by the comparator of the call, else by its first operands ascending.
 */
const sort: Kernel = (call) => {
  const operands = call.inputs;
  const [first] = operands;
  const rank = first.rank;
  const dim =
    call.ctx.int('dimension') < 0 ? call.ctx.int('dimension') + rank : call.ctx.int('dimension');
  if (rank === 0) return operands;
  const less = body(
    call,
    'comparator',
    operands.flatMap(({ dtype }) => [dtype, dtype]),
  );
  const keys = call.ctx.int('num_keys');
  const data = operands.map((x) => rowsAlong(x, dim));
  const length = first.shape[dim];
  const out = data.map((x) => new Float64Array(x.length));
  for (let row = 0; row < first.size; row += Math.max(1, length)) {
    const before = (i: number, j: number): boolean =>
      less === undefined ? false : less(data.flatMap((x) => [x[row + i], x[row + j]]))[0] !== 0;
    const compare = (i: number, j: number): number => {
      if (less !== undefined) return before(i, j) ? -1 : before(j, i) ? 1 : 0;
      for (const x of data.slice(0, keys)) {
        const order = ascending(x[row + i], x[row + j]);
        if (order !== 0) return order;
      }
      return 0;
    };
    const order = Array.from({ length }, (_, i) => i).sort(compare);
    out.forEach((x, k) => order.forEach((from, to) => (x[row + to] = data[k][row + from])));
  }
  return operands.map((x, k) => fromRows(x.shape, dim, out[k], x.dtype));
};

/** The results of a body on each place of the operands. */
const mapped: Kernel = (call) => {
  const f = body(
    call,
    'computation',
    call.inputs.map((x) => x.dtype),
  );
  if (f === undefined) return call.ctx.fail('has no body to map');
  const data = call.inputs.map(flat);
  const out = new Float64Array(sizeOf(resultShape(call)));
  for (let i = 0; i < out.length; i++) [out[i]] = f(data.map((x) => x[i]));
  return [fromFlat(resultShape(call), out, call.inputs[0].dtype)];
};

/**
 * Reducers of pairs of a value and a position: `argmax` and `argmin` take the first of the best,
 * and NaN before all.
 */
const NAMED: Readonly<Record<string, (values: readonly number[]) => number[]>> = {
  argmax: ([a, i, b, j]) => (a > b || Number.isNaN(a) || (a === b && i < j) ? [a, i] : [b, j]),
  argmin: ([a, i, b, j]) => (a < b || Number.isNaN(a) || (a === b && i < j) ? [a, i] : [b, j]),
};

/**
 * How a call joins what it has with the next values, all inputs at once; undefined where one named
 * reducer does it.
 */
export function joinOf(call: KernelCall): ((values: readonly number[]) => number[]) | undefined {
  const types = tensors(call, 'inputs').flatMap((x) => (x === null ? [] : [x.dtype]));
  const given = body(call, 'body', [...types, ...types]);
  if (given !== undefined) return given;
  const name = call.ctx.has('reducer') ? call.ctx.text('reducer') : '';
  return Object.hasOwn(NAMED, name) ? NAMED[name] : undefined;
}

/** A reduction by a join of all inputs: from the initial values over the rows in order. */
export function reduceJoined(
  call: KernelCall,
  join: (values: readonly number[]) => number[],
): NDArray[] {
  const inputs = tensors(call, 'inputs').flatMap((x) => (x === null ? [] : [x]));
  const inits = tensors(call, 'init_values').map((x) => x?.item() ?? 0);
  const { shape } = inputs[0];
  const gone = new Set(call.ctx.ints('dimensions'));
  const to = stridesOf(resultShape(call));
  const out = inputs.map((_, k) => new Float64Array(sizeOf(resultShape(call))).fill(inits[k]));
  const data = inputs.map(flat);
  const at = new Array<number>(shape.length).fill(0);
  for (let i = 0; i < inputs[0].size; i++) {
    let place = 0;
    let k = 0;
    for (let d = 0; d < shape.length; d++) if (!gone.has(d)) place += at[d] * to[k++];
    const joined = join([...out.map((x) => x[place]), ...data.map((x) => x[i])]);
    out.forEach((x, n) => (x[place] = joined[n]));
    advance(at, shape);
  }
  return inputs.map((x, k) => fromFlat(resultShape(call), out[k], x.dtype));
}

/**
 * Each value of the source goes to the place of its window that `select` picks, and joins what is
 * there by `scatter`.
 */
const selectAndScatter: Kernel = (call) => {
  const { ctx } = call;
  const [x, source] = [tensor(call, 'operand'), tensor(call, 'source')];
  const keeps = body(call, 'select', [x.dtype, x.dtype]);
  const joins = body(call, 'scatter', [x.dtype, x.dtype]);
  if (keeps === undefined || joins === undefined)
    return ctx.fail('needs a body to select and one to scatter');
  const list = (name: string, n: number, fill: number): readonly number[] => {
    const given = ctx.ints(name);
    return given.length === 0 ? new Array<number>(n).fill(fill) : given;
  };
  const [size, stride] = [list('window_dimensions', x.rank, 1), list('window_strides', x.rank, 1)];
  const padding = list('padding', 2 * x.rank, 0);
  const [data, values, strides] = [flat(x), flat(source), stridesOf(x.shape)];
  const out = new Float64Array(x.size).fill(tensor(call, 'init_value').item());
  const at = new Array<number>(x.rank).fill(0);
  for (const value of values) {
    let picked = -1;
    const tap = new Array<number>(x.rank).fill(0);
    for (let more = true; more; more = advance(tap, size)) {
      const place = at.map((i, d) => i * stride[d] + tap[d] - padding[2 * d]);
      if (place.some((i, d) => i < 0 || i >= x.shape[d])) continue;
      const position = place.reduce((sum, i, d) => sum + i * strides[d], 0);
      if (picked < 0 || keeps([data[picked], data[position]])[0] === 0) picked = position;
    }
    if (picked >= 0) [out[picked]] = joins([out[picked], value]);
    advance(at, source.shape);
  }
  return [fromFlat(x.shape, out, x.dtype)];
};

export const stablehloBodyKernels: Kernels = {
  'stablehlo.sort': sort,
  'stablehlo.map': mapped,
  'stablehlo.select_and_scatter': selectAndScatter,
};
