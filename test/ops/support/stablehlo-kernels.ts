import { build, concat, count, flatIndex, get, type NDArray } from './arrays.ts';
import type { Kernel, LocalCall } from './ranks.ts';

/**
 * Float64 kernels of StableHLO operations for the validator, from the definitions of the
 * specification. They run on local data; rewritten calls take their shape from the local result,
 * and masked ones their rows from the global start.
 */

const outShape = (call: LocalCall, k = 0): readonly number[] => call.ctx.outputs[k]?.shape ?? [];

const map1 =
  (f: (x: number) => number): Kernel =>
  ({ inputs: [x] }) => [{ shape: x.shape, data: x.data.map((v) => f(v)) }];
const map2 =
  (f: (x: number, y: number) => number): Kernel =>
  ({ inputs: [a, b] }) => [{ shape: a.shape, data: a.data.map((v, i) => f(v, b.data[i])) }];

/** Value of a scalar or of the place itself. */
const at = (x: NDArray, i: number): number => (x.shape.length === 0 ? x.data[0] : x.data[i]);

const COMPARE: Readonly<Record<string, (a: number, b: number) => boolean>> = {
  EQ: (a, b) => a === b,
  NE: (a, b) => a !== b,
  LT: (a, b) => a < b,
  LE: (a, b) => a <= b,
  GT: (a, b) => a > b,
  GE: (a, b) => a >= b,
};

const JOIN: Readonly<Record<string, (a: number, b: number) => number>> = {
  add: (a, b) => a + b,
  multiply: (a, b) => a * b,
  maximum: Math.max,
  minimum: Math.min,
  and: Math.min,
  or: Math.max,
  second: (_, b) => b,
};

/** Sums of bools are `or`. */
const joinOf = (call: LocalCall): ((a: number, b: number) => number) => {
  const name = call.ctx.text('reducer');
  return call.ctx.inputs[0].dtype === 'b8' && name === 'add' ? Math.max : JOIN[name];
};

function* places(shape: readonly number[]): Generator<number[]> {
  const total = count(shape);
  for (let flat = 0; flat < total; flat++) {
    let rest = flat;
    const out = shape.map(() => 0);
    for (let d = shape.length - 1; d >= 0; d--) {
      out[d] = rest % shape[d];
      rest = Math.floor(rest / shape[d]);
    }
    yield out;
  }
}

const einsum: Kernel = (call) => {
  const [a, b] = call.inputs;
  const [lb, rb] = [
    call.ctx.ints('lhs_batching_dimensions'),
    call.ctx.ints('rhs_batching_dimensions'),
  ];
  const [lc, rc] = [
    call.ctx.ints('lhs_contracting_dimensions'),
    call.ctx.ints('rhs_contracting_dimensions'),
  ];
  const free = (x: NDArray, used: readonly number[]): number[] =>
    x.shape.flatMap((_, d) => (used.includes(d) ? [] : [d]));
  const [lf, rf] = [free(a, [...lb, ...lc]), free(b, [...rb, ...rc])];
  const shape = [
    ...lb.map((d) => a.shape[d]),
    ...lf.map((d) => a.shape[d]),
    ...rf.map((d) => b.shape[d]),
  ];
  const inner = lc.map((d) => a.shape[d]);
  return [
    build(shape, (o) => {
      let sum = 0;
      for (const k of places(inner)) {
        const ia = a.shape.map(() => 0);
        const ib = b.shape.map(() => 0);
        lb.forEach((d, i) => (ia[d] = o[i]));
        rb.forEach((d, i) => (ib[d] = o[i]));
        lf.forEach((d, i) => (ia[d] = o[lb.length + i]));
        rf.forEach((d, i) => (ib[d] = o[lb.length + lf.length + i]));
        lc.forEach((d, i) => (ia[d] = k[i]));
        rc.forEach((d, i) => (ib[d] = k[i]));
        sum += get(a, ia) * get(b, ib);
      }
      return sum;
    }),
  ];
};

/** No dilation; group counts follow the local sizes. */
const convolution: Kernel = (call) => {
  const [x, w] = call.inputs;
  const [[xb, xf, ...xs], [wi, wo, ...ws], [ob, of, ...os]] = ['input', 'kernel', 'output'].map(
    (n) => call.ctx.ints(`${n}_dimensions`),
  );
  const stride = call.ctx.ints('window_strides');
  const padding = call.ctx.ints('padding');
  const features = w.shape[wi];
  const groups = x.shape[xf] / features;
  const perGroup = w.shape[wo] / groups;
  return [
    build(outShape(call), (o) => {
      let sum = 0;
      for (const k of places([features, ...ws.map((d) => w.shape[d])])) {
        const ix = x.shape.map(() => 0);
        const iw = w.shape.map(() => 0);
        ix[xb] = o[ob];
        ix[xf] = Math.floor(o[of] / perGroup) * features + k[0];
        iw[wi] = k[0];
        iw[wo] = o[of];
        ws.forEach((d, i) => (iw[d] = k[i + 1]));
        xs.forEach((d, i) => (ix[d] = o[os[i]] * stride[i] - padding[2 * i] + k[i + 1]));
        if (ix.every((v, d) => v >= 0 && v < x.shape[d])) sum += get(x, ix) * get(w, iw);
      }
      return sum;
    }),
  ];
};

/** Global size of an input's dim, for clamping. */
const globalSize = (call: LocalCall, i: number, d: number): number =>
  call.global.inputs[i].shape[d];
const clamp = (v: number, low: number, high: number): number => Math.max(low, Math.min(high, v));

const dynamicSlice: Kernel = (call) => {
  const [x, ...starts] = call.inputs;
  const whole = call.global.outputs[0]?.shape ?? [];
  return [
    build(outShape(call), (o) => {
      const from = o.map((v, d) => {
        const size = globalSize(call, 0, d);
        return whole[d] === size
          ? v
          : v + clamp(starts[d].data[0], 0, size - whole[d]) - call.inputStarts[0][d];
      });
      return from.every((v, d) => v >= 0 && v < x.shape[d]) ? get(x, from) : 0;
    }),
  ];
};

const dynamicUpdateSlice: Kernel = (call) => {
  const [x, update, ...starts] = call.inputs;
  const whole = call.global.inputs[1].shape;
  return [
    build(x.shape, (o) => {
      const into = o.map((v, d) =>
        whole[d] === globalSize(call, 0, d)
          ? v
          : v +
            call.inputStarts[0][d] -
            clamp(starts[d].data[0], 0, globalSize(call, 0, d) - whole[d]),
      );
      return into.every((v, d) => v >= 0 && v < update.shape[d]) ? get(update, into) : get(x, o);
    }),
  ];
};

const gather: Kernel = (call) => {
  const [x, indices] = call.inputs;
  const { ctx, global } = call;
  const vector = ctx.int('index_vector_dim');
  const offsets = ctx.ints('offset_dims');
  const batching = ctx.ints('operand_batching_dims');
  const gone = [...ctx.ints('collapsed_slice_dims'), ...batching];
  const windows = x.shape.flatMap((_, d) => (gone.includes(d) ? [] : [d]));
  const startMap = ctx.ints('start_index_map');
  const sizes = ctx.ints('slice_sizes');
  const whole = (d: number): boolean => sizes[d] === global.inputs[0].shape[d];
  return [
    build(outShape(call), (o) => {
      const batch = o.filter((_, d) => !offsets.includes(d));
      const readIndex = (k: number): number => {
        const place = indices.shape.map(() => 0);
        let next = 0;
        indices.shape.forEach((_, d) => (place[d] = d === vector ? k : batch[next++]));
        return get(indices, place);
      };
      const from = x.shape.map(() => 0);
      offsets.forEach((out, i) => (from[windows[i]] = o[out]));
      startMap.forEach((d, k) => {
        if (!whole(d))
          from[d] +=
            clamp(readIndex(k), 0, global.inputs[0].shape[d] - sizes[d]) - call.inputStarts[0][d];
      });
      const dims = indices.shape.flatMap((_, d) => (d === vector ? [] : [d]));
      batching.forEach(
        (d, i) => (from[d] = batch[dims.indexOf(ctx.ints('start_indices_batching_dims')[i])]),
      );
      return from.every((v, d) => v >= 0 && v < x.shape[d]) ? get(x, from) : 0;
    }),
  ];
};

const scatter: Kernel = (call) => {
  const [x, indices, update] = call.inputs;
  const { ctx } = call;
  const out = { shape: x.shape, data: Float64Array.from(x.data) };
  const vector = ctx.int('index_vector_dim');
  const windowDims = ctx.ints('update_window_dims');
  const batching = ctx.ints('input_batching_dims');
  const gone = [...ctx.ints('inserted_window_dims'), ...batching];
  const windows = x.shape.flatMap((_, d) => (gone.includes(d) ? [] : [d]));
  const join = joinOf(call);
  for (const u of places(update.shape)) {
    const batch = u.filter((_, d) => !windowDims.includes(d));
    const into = x.shape.map(() => 0);
    windowDims.forEach((d, i) => (into[windows[i]] = u[d]));
    const dims = indices.shape.flatMap((_, d) => (d === vector ? [] : [d]));
    ctx.ints('scatter_dims_to_operand_dims').forEach((d, k) => {
      const place = indices.shape.map(() => 0);
      let next = 0;
      indices.shape.forEach((_, i) => (place[i] = i === vector ? k : batch[next++]));
      into[d] += get(indices, place) - call.inputStarts[0][d];
    });
    batching.forEach(
      (d, i) => (into[d] = batch[dims.indexOf(ctx.ints('scatter_indices_batching_dims')[i])]),
    );
    if (!into.every((v, d) => v >= 0 && v < x.shape[d])) continue;
    const flat = flatIndex(x.shape, into);
    out.data[flat] = join(out.data[flat], get(update, u));
  }
  return [out];
};

const reduce: Kernel = (call) => {
  const n = call.inputs.length / 2;
  const dims = call.ctx.ints('dimensions');
  const [x] = call.inputs;
  const kept = x.shape.flatMap((_, d) => (dims.includes(d) ? [] : [d]));
  const outer = kept.map((d) => x.shape[d]);
  if (n === 2) {
    // Largest value and its position.
    const results = [0, 1].map((k) =>
      build(outer, (o) => {
        let best = [call.inputs[2].data[0], call.inputs[3].data[0]];
        for (const r of places(dims.map((d) => x.shape[d]))) {
          const place = x.shape.map((_, d) =>
            dims.includes(d) ? r[dims.indexOf(d)] : o[kept.indexOf(d)],
          );
          const pair = [get(x, place), get(call.inputs[1], place)];
          if (pair[0] > best[0]) best = pair;
        }
        return best[k];
      }),
    );
    return results;
  }
  const join = joinOf(call);
  return [
    build(outer, (o) => {
      let value = call.inputs[1].data[0];
      for (const r of places(dims.map((d) => x.shape[d]))) {
        const place = x.shape.map((_, d) =>
          dims.includes(d) ? r[dims.indexOf(d)] : o[kept.indexOf(d)],
        );
        value = join(value, get(x, place));
      }
      return value;
    }),
  ];
};

const reduceWindow: Kernel = (call) => {
  const [x, init] = call.inputs;
  const size = call.ctx.ints('window_dimensions');
  const stride = call.ctx.ints('window_strides');
  const padding = call.ctx.ints('padding');
  const join = joinOf(call);
  return [
    build(outShape(call), (o) => {
      let value = init.data[0];
      for (const k of places(size)) {
        const from = x.shape.map((_, d) => o[d] * (stride[d] ?? 1) - (padding[2 * d] ?? 0) + k[d]);
        if (from.every((v, d) => v >= 0 && v < x.shape[d])) value = join(value, get(x, from));
      }
      return value;
    }),
  ];
};

/** Source of each window's largest element. */
const selectAndScatter: Kernel = (call) => {
  const [x, source, init] = call.inputs;
  const size = call.ctx.ints('window_dimensions');
  const stride = call.ctx.ints('window_strides');
  const out = { shape: x.shape, data: new Float64Array(count(x.shape)).fill(init.data[0]) };
  for (const o of places(source.shape)) {
    let best: number[] | undefined;
    for (const k of places(size)) {
      const from = o.map((v, d) => v * stride[d] + k[d]);
      if (
        from.every((v, d) => v < x.shape[d]) &&
        (best === undefined || get(x, from) > get(x, best))
      )
        best = from;
    }
    out.data[flatIndex(x.shape, best!)] += get(source, o);
  }
  return [out];
};

const sort: Kernel = (call) => {
  const [x] = call.inputs;
  const dim = call.ctx.int('dimension');
  return [
    build(x.shape, (o) => {
      const row = Array.from({ length: x.shape[dim] }, (_, i) =>
        get(
          x,
          o.map((v, d) => (d === dim ? i : v)),
        ),
      ).sort((a, b) => a - b);
      return row[o[dim]];
    }),
  ];
};

const topK: Kernel = (call) => {
  const [x] = call.inputs;
  const last = x.shape.length - 1;
  const shape = [...x.shape.slice(0, -1), call.ctx.int('k')];
  return [0, 1].map((which) =>
    build(shape, (o) => {
      const row = Array.from({ length: x.shape[last] }, (_, i) => [
        get(x, [...o.slice(0, -1), i]),
        i,
      ]).sort((a, b) => b[0] - a[0]);
      return row[o[last]][which];
    }),
  );
};

const pad: Kernel = (call) => {
  const [x, value] = call.inputs;
  const low = call.ctx.ints('edge_padding_low');
  const inside = call.ctx.ints('interior_padding');
  return [
    build(outShape(call), (o) => {
      const from = o.map((v, d) => (v - low[d]) / (inside[d] + 1));
      return from.every((v, d) => Number.isInteger(v) && v >= 0 && v < x.shape[d])
        ? get(x, from)
        : value.data[0];
    }),
  ];
};

const slice: Kernel = (call) => {
  const [x] = call.inputs;
  const whole = (d: number): boolean => x.shape[d] !== call.global.inputs[0].shape[d];
  const start = call.ctx.ints('start_indices');
  const step = call.ctx.ints('strides');
  return [
    build(outShape(call), (o) =>
      get(
        x,
        o.map((v, d) => (whole(d) ? 0 : start[d]) + v * (step[d] ?? 1)),
      ),
    ),
  ];
};

const same: Kernel = (call) => [...call.inputs];

export const stablehloKernels: Readonly<Record<string, Kernel>> = {
  'stablehlo.negate': map1((v) => -v),
  'stablehlo.abs': map1(Math.abs),
  'stablehlo.ceil': map1(Math.ceil),
  'stablehlo.sign': map1(Math.sign),
  'stablehlo.exponential': map1(Math.exp),
  'stablehlo.tanh': map1(Math.tanh),
  'stablehlo.logistic': map1((v) => 1 / (1 + Math.exp(-v))),
  'stablehlo.rsqrt': map1((v) => 1 / Math.sqrt(v)),
  'stablehlo.sine': map1(Math.sin),
  'stablehlo.not': map1((v) => 1 - v),
  'stablehlo.is_finite': map1((v) => Number(Number.isFinite(v))),
  'chlo.erfc': map1((v) => 2 / (1 + Math.exp(2.4 * v))), // Decreasing like it, which is all that the rule says.
  'chlo.square': map1((v) => v * v),
  'stablehlo.add': map2((a, b) => a + b),
  'stablehlo.subtract': map2((a, b) => a - b),
  'stablehlo.multiply': map2((a, b) => a * b),
  'stablehlo.divide': map2((a, b) => a / b),
  'stablehlo.maximum': map2(Math.max),
  'stablehlo.minimum': map2(Math.min),
  'stablehlo.and': map2(Math.min),
  'stablehlo.or': map2(Math.max),
  'stablehlo.power': map2(Math.pow),
  'stablehlo.compare': ({ ctx, inputs: [a, b] }) => [
    {
      shape: a.shape,
      data: a.data.map((v, i) => Number(COMPARE[ctx.text('comparison_direction')](v, b.data[i]))),
    },
  ],
  'stablehlo.select': ({ inputs: [p, a, b] }) => [
    { shape: a.shape, data: a.data.map((v, i) => (at(p, i) ? v : b.data[i])) },
  ],
  'stablehlo.clamp': ({ inputs: [low, x, high] }) => [
    { shape: x.shape, data: x.data.map((v, i) => Math.min(Math.max(v, at(low, i)), at(high, i))) },
  ],
  'stablehlo.convert': map1((v) => v),
  'stablehlo.dot_general': einsum,
  'stablehlo.convolution': convolution,
  'stablehlo.broadcast_in_dim': (call) => [
    build(outShape(call), (o) =>
      get(
        call.inputs[0],
        call.inputs[0].shape.map((n, i) =>
          n === 1 ? 0 : o[call.ctx.ints('broadcast_dimensions')[i]],
        ),
      ),
    ),
  ],
  'stablehlo.reshape': (call) => [{ shape: outShape(call), data: call.inputs[0].data }],
  'stablehlo.transpose': ({ ctx, inputs: [x] }) => {
    const order = ctx.ints('permutation');
    return [
      build(
        order.map((d) => x.shape[d]),
        (o) =>
          get(
            x,
            x.shape.map((_, d) => o[order.indexOf(d)]),
          ),
      ),
    ];
  },
  'stablehlo.iota': (call) => {
    const dim = call.ctx.int('iota_dimension');
    return [build(outShape(call), (o) => o[dim] + call.outputStarts[0][dim])];
  },
  'stablehlo.constant': (call) => [build(outShape(call), () => 3.5)],
  'stablehlo.slice': slice,
  'stablehlo.pad': pad,
  'stablehlo.concatenate': ({ ctx, inputs }) => [concat(inputs, ctx.int('dimension'))],
  'stablehlo.reverse': ({ ctx, inputs: [x] }) => [
    build(x.shape, (o) =>
      get(
        x,
        o.map((v, d) => (ctx.ints('dimensions').includes(d) ? x.shape[d] - 1 - v : v)),
      ),
    ),
  ],
  'stablehlo.dynamic_slice': dynamicSlice,
  'stablehlo.dynamic_update_slice': dynamicUpdateSlice,
  'stablehlo.gather': gather,
  'stablehlo.scatter': scatter,
  'stablehlo.reduce': reduce,
  'stablehlo.reduce_window': reduceWindow,
  'stablehlo.select_and_scatter': selectAndScatter,
  'stablehlo.sort': sort,
  'chlo.top_k': topK,
  'stablehlo.optimization_barrier': same,
  'sdy.sharding_constraint': same,
};
