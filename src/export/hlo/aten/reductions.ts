/**
 * Lowers ATen reductions, softmax, scans and searches to HLO. Sums of 16-bit numbers are added up
 * in f32, as PyTorch does.
 */
import type { DType } from '../../../graph/types.ts';
import { elements } from '../../../ops/record/record.ts';
import { product } from '../../../product.ts';
import type { HloCall, Lowering, Lowerings } from '../call.ts';
import { extreme, type HloCode, type Reducer, type Val } from '../code.ts';

/** Type in which sums are added up. */
export function wide(dtype: DType): DType {
  return dtype === 'bf16' || dtype === 'f16' ? 'f32' : dtype;
}

/** The sum over the number of elements, dims kept. */
export function meanOf(hlo: HloCode, x: Val, dims: readonly number[]): Val {
  const count = product(dims.map((d) => x.shape[d]));
  const total = hlo.reduceKept(x, 'add', dims);
  return hlo.divide(total, hlo.like(total, count));
}

export function allDims(x: Val): number[] {
  return x.shape.map((_, d) => d);
}

/** Dims that a call reduces: all where it names none. */
function reducedDims(call: HloCall, x: Val): number[] {
  if (!call.takes('dim')) return allDims(x);
  const dims = call.dims('dim', x.shape.length);
  return dims.length === 0 ? allDims(x) : dims;
}

/** In the type of the result, which has its kept dims by inference. */
const reduction =
  (reducer: Reducer, from?: DType): Lowering =>
  (call) => {
    const { hlo } = call;
    const { dtype, shape } = call.out();
    const x = hlo.convert(call.first, from ?? wide(dtype));
    const dims = reducedDims(call, x);
    const out = x.shape.length === 0 ? x : hlo.reduce(x, reducer, dims);
    return hlo.reshape(hlo.convert(out, dtype), shape);
  };

const mean: Lowering = (call) => {
  const { hlo } = call;
  const { dtype, shape } = call.out();
  const x = hlo.convert(call.first, wide(dtype));
  return hlo.reshape(hlo.convert(meanOf(hlo, x, reducedDims(call, x)), dtype), shape);
};

/** Squares of distances from the mean, over the count less the correction. */
function variance(call: HloCall): { readonly variance: Val; readonly mean: Val } {
  const { hlo } = call;
  const x = hlo.convert(call.first, wide(call.out().dtype));
  const dims = reducedDims(call, x);
  const centre = meanOf(hlo, x, dims);
  const away = hlo.subtract(x, hlo.broadcast(centre, x.shape));
  const total = hlo.reduceKept(hlo.multiply(away, away), 'add', dims);
  const count = product(dims.map((d) => x.shape[d]));
  const divisor = Math.max(0, count - (call.ctx.scalar('correction')?.value ?? 1));
  return { variance: hlo.divide(total, hlo.like(total, divisor)), mean: centre };
}

const extremeAlong =
  (reducer: 'maximum' | 'minimum'): Lowering =>
  (call) => {
    const { hlo, first } = call;
    const dim = call.dim('dim', first.shape.length);
    return call.ctx.outputs.map((meta, k) => {
      if (meta === null) return null;
      const found =
        k === 0
          ? hlo.reduce(first, reducer, [dim])
          : firstPlace(hlo, first, reducer, dim, meta.dtype);
      return hlo.reshape(found, meta.shape);
    });
  };

/** Number of the first row that holds the extreme. */
function firstPlace(
  hlo: HloCode,
  x: Val,
  reducer: 'maximum' | 'minimum',
  dim: number,
  dtype: DType,
): Val {
  const best = hlo.broadcast(hlo.reduceKept(x, reducer, [dim]), x.shape);
  const rows = hlo.iota(dtype, x.shape, dim);
  const last = hlo.constant(extreme(dtype, false), dtype, x.shape);
  return hlo.reduce(hlo.select(hlo.compare('EQ', x, best), rows, last), 'minimum', [dim]);
}

const argument =
  (reducer: 'maximum' | 'minimum'): Lowering =>
  (call) => {
    const { hlo, first } = call;
    const { dtype, shape } = call.out();
    const given = call.ctx.optionalInt('dim');
    const x = given === undefined ? hlo.reshape(first, [elements(first.shape)]) : first;
    const dim = given === undefined ? 0 : given < 0 ? given + x.shape.length : given;
    return hlo.reshape(firstPlace(hlo, x, reducer, dim, dtype), shape);
  };

const logSumExp: Lowering = (call) => {
  const { hlo, first } = call;
  const { shape } = call.out();
  const dims = reducedDims(call, first);
  const peak = hlo.reduceKept(first, 'maximum', dims);
  const raised = hlo.unary('exponential', hlo.subtract(first, hlo.broadcast(peak, first.shape)));
  const total = hlo.reduceKept(raised, 'add', dims);
  return hlo.reshape(hlo.add(hlo.unary('log', total), peak), shape);
};

const vectorNorm: Lowering = (call) => {
  const { hlo } = call;
  const { dtype, shape } = call.out();
  const order = call.ctx.scalar('ord')?.value ?? 2;
  const x = hlo.unary('abs', hlo.convert(call.first, wide(dtype)));
  const dims = reducedDims(call, x);
  const done = (y: Val): Val => hlo.reshape(hlo.convert(y, dtype), shape);
  if (order === Infinity) return done(hlo.reduce(x, 'maximum', dims));
  if (order === -Infinity) return done(hlo.reduce(x, 'minimum', dims));
  if (order === 1) return done(hlo.reduce(x, 'add', dims));
  if (order === 2) return done(hlo.unary('sqrt', hlo.reduce(hlo.multiply(x, x), 'add', dims)));
  const powers = hlo.reduce(hlo.binary('power', x, hlo.like(x, order)), 'add', dims);
  return done(hlo.binary('power', powers, hlo.like(powers, 1 / order)));
};

// ---- softmax
// -----------------------------------------------------------------------------

/** x less its maximum, and the exponentials of that. */
function shifted(
  hlo: HloCode,
  x: Val,
  dim: number,
): { readonly away: Val; readonly raised: Val; readonly total: Val } {
  const peak = hlo.reduceKept(x, 'maximum', [dim]);
  const away = hlo.subtract(x, hlo.broadcast(peak, x.shape));
  const raised = hlo.unary('exponential', away);
  return { away, raised, total: hlo.broadcast(hlo.reduceKept(raised, 'add', [dim]), x.shape) };
}

function softmaxOf(hlo: HloCode, x: Val, dim: number): Val {
  const { raised, total } = shifted(hlo, x, dim);
  return hlo.divide(raised, total);
}

export function logSoftmaxOf(hlo: HloCode, x: Val, dim: number): Val {
  const { away, total } = shifted(hlo, x, dim);
  return hlo.subtract(away, hlo.unary('log', total));
}

const alongDim =
  (f: (hlo: HloCode, x: Val, dim: number) => Val): Lowering =>
  (call) => {
    const { hlo } = call;
    const { dtype } = call.out();
    const x = hlo.convert(call.first, wide(dtype));
    if (x.shape.length === 0)
      return hlo.reshape(hlo.convert(f(hlo, hlo.reshape(x, [1]), 0), dtype), []);
    return hlo.convert(f(hlo, x, call.dim('dim', x.shape.length)), dtype);
  };

const softmaxBackward =
  (log: boolean): Lowering =>
  (call) => {
    const { hlo } = call;
    const { dtype } = call.out();
    const [grad, y] = ['grad_output', 'output'].map((name) =>
      hlo.convert(call.tensor(name), wide(dtype)),
    );
    const dim = call.dim('dim', y.shape.length);
    const total = (x: Val): Val => hlo.broadcast(hlo.reduceKept(x, 'add', [dim]), x.shape);
    const out = log
      ? hlo.subtract(grad, hlo.multiply(hlo.unary('exponential', y), total(grad)))
      : hlo.multiply(y, hlo.subtract(grad, total(hlo.multiply(grad, y))));
    return hlo.convert(out, dtype);
  };

// ---- scans and searches
// -----------------------------------------------------------------------------

/** Each row with all before it: a window that reaches to the first row. */
const cumulative =
  (reducer: 'add' | 'multiply'): Lowering =>
  (call) => {
    const { hlo } = call;
    const { dtype, shape } = call.out();
    const x = hlo.convert(call.first, wide(dtype));
    if (shape.length === 0) return hlo.convert(x, dtype);
    const dim = call.dim('dim', shape.length);
    const ones = shape.map(() => 1);
    const [out] = hlo.emit(
      'reduce_window',
      [x, hlo.unit(reducer, x.dtype)],
      [{ dtype: x.dtype, shape }],
      {
        reducer,
        window_dimensions: ones.map((_, d) => (d === dim ? Math.max(1, shape[dim]) : 1)),
        window_strides: ones,
        base_dilations: ones,
        window_dilations: ones,
        padding: shape.flatMap((_, d) => [d === dim ? Math.max(0, shape[dim] - 1) : 0, 0]),
      },
    );
    return hlo.convert(out, dtype);
  };

/** A dim brought to the end for `f`, and back. */
function withLast(hlo: HloCode, x: Val, dim: number, f: (y: Val) => Val[]): Val[] {
  const dims = allDims(x);
  const there = [...dims.filter((d) => d !== dim), dim];
  return f(hlo.transpose(x, there)).map((y) =>
    hlo.transpose(
      y,
      dims.map((d) => there.indexOf(d)),
    ),
  );
}

const topK: Lowering = (call) => {
  const { hlo, first } = call;
  const k = call.ctx.int('k');
  const dim = call.dim('dim', first.shape.length);
  const largest = call.ctx.bool('largest');
  const found = withLast(hlo, largest ? first : hlo.unary('negate', first), dim, (x) => {
    const shape = [...x.shape.slice(0, -1), k];
    return hlo.emit(
      'chlo.top_k',
      [x],
      [
        { dtype: x.dtype, shape },
        { dtype: 'i32', shape },
      ],
      { k },
    );
  });
  return call.ctx.outputs.map((meta, i) => {
    if (meta === null) return null;
    return i === 0 && !largest ? hlo.unary('negate', found[0]) : hlo.convert(found[i], meta.dtype);
  });
};

/** Values and places in order; equal values keep theirs. */
const sorted: Lowering = (call) => {
  const { hlo, first } = call;
  const dim = call.dim('dim', first.shape.length);
  const descending = call.ctx.bool('descending');
  const key = descending ? hlo.unary('negate', first) : first;
  const places = hlo.iota('i32', first.shape, dim);
  const [keys, order] = hlo.emit('sort', [key, places], [key, places], {
    dimension: dim,
    num_keys: 1,
    is_stable: true,
  });
  return call.ctx.outputs.map((meta, i) => {
    if (meta === null) return null;
    const value =
      i === 0 && call.ctx.outputs.length > 1
        ? descending
          ? hlo.unary('negate', keys)
          : keys
        : order;
    return hlo.convert(value, meta.dtype);
  });
};

export const reductionLowerings: Lowerings = {
  'aten.sum.default': reduction('add'),
  'aten.sum.dim_IntList': reduction('add'),
  'aten.mean.default': mean,
  'aten.mean.dim': mean,
  'aten.prod.default': reduction('multiply'),
  'aten.prod.dim_int': reduction('multiply'),
  'aten.max.default': reduction('maximum'),
  'aten.min.default': reduction('minimum'),
  'aten.amax.default': reduction('maximum'),
  'aten.amin.default': reduction('minimum'),
  ...Object.fromEntries(
    ['default', 'dim', 'dims'].flatMap((form) => [
      [`aten.any.${form}`, reduction('or', 'b8')],
      [`aten.all.${form}`, reduction('and', 'b8')],
    ]),
  ),
  'aten.max.dim': extremeAlong('maximum'),
  'aten.min.dim': extremeAlong('minimum'),
  'aten.argmax.default': argument('maximum'),
  'aten.argmin.default': argument('minimum'),
  'aten.var.correction': (call) =>
    call.hlo.reshape(call.hlo.convert(variance(call).variance, call.out().dtype), call.out().shape),
  'aten.std.correction': (call) =>
    call.hlo.reshape(
      call.hlo.convert(call.hlo.unary('sqrt', variance(call).variance), call.out().dtype),
      call.out().shape,
    ),
  'aten.var_mean.correction': (call) => {
    const { variance: v, mean: m } = variance(call);
    return [v, m].map((x, k) =>
      call.hlo.reshape(call.hlo.convert(x, call.out(k).dtype), call.out(k).shape),
    );
  },
  'aten.logsumexp.default': logSumExp,
  'aten.linalg_vector_norm.default': vectorNorm,
  'aten.softmax.int': alongDim(softmaxOf),
  'aten._softmax.default': alongDim(softmaxOf),
  'aten.log_softmax.int': alongDim(logSoftmaxOf),
  'aten._log_softmax.default': alongDim(logSoftmaxOf),
  'aten._softmax_backward_data.default': softmaxBackward(false),
  'aten._log_softmax_backward_data.default': softmaxBackward(true),
  'aten.cumsum.default': cumulative('add'),
  'aten.cumprod.default': cumulative('multiply'),
  'aten.topk.default': topK,
  'aten.sort.default': sorted,
  'aten.sort.stable': sorted,
  'aten.argsort.default': sorted,
};
