import {
  build,
  concat,
  flatIndex,
  get,
  getBroadcast,
  type NDArray,
  reshape,
  take,
  zeros,
} from './arrays.ts';
import type { Kernel, LocalCall } from './ranks.ts';

/**
 * Float64 kernels for the validator, written from the definitions of the operators. A kernel runs
 * on local data; where a rule needs a rewritten call it uses the local result shape (`local-shape`)
 * or the global start of the shard (`mask`, `offset`), as the lowered program would.
 */

const dimOf = (dim: number, rank: number): number => (dim < 0 ? dim + rank : dim);
const outShape = (call: LocalCall, k = 0): readonly number[] => call.ctx.outputs[k]?.shape ?? [];

/** Same data under the local result shape. */
const asView: Kernel = (call) => [reshape(call.inputs[0], outShape(call))];

function permute(x: NDArray, order: readonly number[]): NDArray {
  return build(
    order.map((d) => x.shape[d]),
    (at) =>
      get(
        x,
        x.shape.map((_, d) => at[order.indexOf(d)]),
      ),
  );
}

/** Broadcast to the local result shape. */
const expand: Kernel = (call) => [build(outShape(call), (at) => getBroadcast(call.inputs[0], at))];

/** Global rows that a slice with this call's arguments takes, of a dim of `size` rows. */
function sliceRows(call: LocalCall, size: number): number[] {
  const { ctx } = call;
  const bound = (v: number | undefined, other: number): number => {
    const at = v ?? other;
    return Math.max(0, Math.min(size, at < 0 ? at + size : at));
  };
  const rows: number[] = [];
  for (
    let i = bound(ctx.optionalInt('start'), 0);
    i < bound(ctx.optionalInt('end'), size);
    i += ctx.int('step')
  )
    rows.push(i);
  return rows;
}

function pick(x: NDArray, dim: number, rows: readonly number[]): NDArray {
  return build(
    x.shape.map((n, d) => (d === dim ? rows.length : n)),
    (at) =>
      get(
        x,
        at.map((i, d) => (d === dim ? rows[i] : i)),
      ),
  );
}

/** Writes `part` into the rows of a copy of `x`. */
function put(x: NDArray, part: NDArray, dim: number, rows: readonly number[]): NDArray {
  return build(x.shape, (at) => {
    const k = rows.indexOf(at[dim]);
    return k < 0
      ? get(x, at)
      : get(
          part,
          at.map((i, d) => (d === dim ? k : i)),
        );
  });
}

function without<T>(list: readonly T[], dim: number): T[] {
  return list.filter((_, d) => d !== dim);
}

const triangle =
  (keep: (row: number, column: number, k: number) => boolean): Kernel =>
  ({ ctx, inputs: [x], inputStarts: [start] }) => {
    const [r, c] = [x.shape.length - 2, x.shape.length - 1];
    return [
      build(x.shape, (at) =>
        keep(at[r] + start[r], at[c] + start[c], ctx.int('diagonal')) ? get(x, at) : 0,
      ),
    ];
  };

const manipulation: Record<string, Kernel> = {
  'aten.cat.default': ({ ctx, inputs }) => {
    const real = inputs.filter((x) => !(x.shape.length === 1 && x.shape[0] === 0));
    return [concat(real, dimOf(ctx.int('dim'), real[0].shape.length))];
  },
  'aten.stack.default': ({ ctx, inputs }) => {
    const rank = inputs[0].shape.length + 1;
    const dim = dimOf(ctx.int('dim'), rank);
    const lifted = inputs.map((x) =>
      reshape(x, [...x.shape.slice(0, dim), 1, ...x.shape.slice(dim)]),
    );
    return [concat(lifted, dim)];
  },
  'aten.split.Tensor': (call) => splitBy(call, (n) => chunks(n, call.ctx.int('split_size'))),
  'aten.split.sizes': (call) => splitBy(call, () => call.ctx.ints('split_size')),
  'aten.split_with_sizes.default': (call) => splitBy(call, () => call.ctx.ints('split_sizes')),
  'aten.chunk.default': (call) =>
    splitBy(call, (n) => chunks(n, Math.ceil(n / call.ctx.int('chunks')))),
  'aten.unbind.int': ({ ctx, inputs: [x] }) => {
    const dim = dimOf(ctx.int('dim'), x.shape.length);
    return Array.from({ length: x.shape[dim] }, (_, i) =>
      reshape(take(x, dim, i, 1), without(x.shape, dim)),
    );
  },
  'aten.slice.Tensor': (call) => {
    const dim = dimOf(call.ctx.int('dim'), call.inputs[0].shape.length);
    return [pick(call.inputs[0], dim, sliceRows(call, call.inputs[0].shape[dim]))];
  },
  'aten.narrow.default': ({ ctx, inputs: [x] }) => {
    const dim = dimOf(ctx.int('dim'), x.shape.length);
    return [take(x, dim, dimOf(ctx.int('start'), x.shape[dim]), ctx.int('length'))];
  },
  'aten.slice_backward.default': (call) => {
    const shape = outShape(call);
    const dim = dimOf(call.ctx.int('dim'), shape.length);
    return [put(zeros(shape), call.inputs[0], dim, sliceRows(call, shape[dim]))];
  },
  'aten.slice_scatter.default': (call) => {
    const [x, src] = call.inputs;
    const dim = dimOf(call.ctx.int('dim'), x.shape.length);
    return [put(x, src, dim, sliceRows(call, x.shape[dim]))];
  },
  'aten.select.int': ({ ctx, inputs: [x] }) => {
    const dim = dimOf(ctx.int('dim'), x.shape.length);
    return [reshape(take(x, dim, dimOf(ctx.int('index'), x.shape[dim]), 1), without(x.shape, dim))];
  },
  'aten.select_backward.default': (call) => {
    const shape = outShape(call);
    const dim = dimOf(call.ctx.int('dim'), shape.length);
    const part = reshape(
      call.inputs[0],
      shape.map((n, d) => (d === dim ? 1 : n)),
    );
    return [put(zeros(shape), part, dim, [dimOf(call.ctx.int('index'), shape[dim])])];
  },
  'aten.select_scatter.default': ({ ctx, inputs: [x, src] }) => {
    const dim = dimOf(ctx.int('dim'), x.shape.length);
    const part = reshape(
      src,
      x.shape.map((n, d) => (d === dim ? 1 : n)),
    );
    return [put(x, part, dim, [dimOf(ctx.int('index'), x.shape[dim])])];
  },
  'aten.flip.default': ({ ctx, inputs: [x] }) => {
    const dims = ctx.ints('dims').map((d) => dimOf(d, x.shape.length));
    return [
      build(x.shape, (at) =>
        get(
          x,
          at.map((i, d) => (dims.includes(d) ? x.shape[d] - 1 - i : i)),
        ),
      ),
    ];
  },
  'aten.roll.default': ({ ctx, inputs: [x] }) => {
    const shifts = ctx.ints('shifts');
    const dims = ctx.ints('dims').map((d) => dimOf(d, x.shape.length));
    const back = (i: number, n: number, by: number): number => (((i - by) % n) + n) % n;
    if (dims.length === 0)
      return [build(x.shape, (_, flat) => x.data[back(flat, x.data.length, shifts[0])])];
    return [
      build(x.shape, (at) =>
        get(
          x,
          at.map((i, d) => (dims.includes(d) ? back(i, x.shape[d], shifts[dims.indexOf(d)]) : i)),
        ),
      ),
    ];
  },
  'aten.tril.default': triangle((r, c, k) => c - r <= k),
  'aten.triu.default': triangle((r, c, k) => c - r >= k),
  'aten.constant_pad_nd.default': ({ ctx, inputs: [x] }) => {
    const pad = ctx.ints('pad');
    const rank = x.shape.length;
    const before = x.shape.map((_, d) => pad[2 * (rank - 1 - d)] ?? 0);
    const after = x.shape.map((_, d) => pad[2 * (rank - 1 - d) + 1] ?? 0);
    return [
      build(
        x.shape.map((n, d) => n + before[d] + after[d]),
        (at) => {
          const from = at.map((i, d) => i - before[d]);
          return from.every((i, d) => i >= 0 && i < x.shape[d])
            ? get(x, from)
            : ctx.number('value');
        },
      ),
    ];
  },
  'aten.repeat.default': (call) => {
    const [x] = call.inputs;
    const shape = outShape(call);
    const shift = shape.length - x.shape.length;
    return [
      build(shape, (at) =>
        get(
          x,
          x.shape.map((n, d) => at[d + shift] % n),
        ),
      ),
    ];
  },
  'aten.repeat_interleave.self_int': ({ ctx, inputs: [x] }) => {
    const times = ctx.int('repeats');
    const dim = ctx.optionalInt('dim');
    const from = dim === undefined ? reshape(x, [x.data.length]) : x;
    const at = dim === undefined ? 0 : dimOf(dim, x.shape.length);
    return [
      pick(
        from,
        at,
        Array.from({ length: from.shape[at] * times }, (_, i) => Math.floor(i / times)),
      ),
    ];
  },
  'aten.sort.default': ({ ctx, inputs: [x] }) =>
    rank(x, dimOf(ctx.int('dim'), x.shape.length), ctx.bool('descending')),
  'aten.sort.stable': ({ ctx, inputs: [x] }) =>
    rank(x, dimOf(ctx.int('dim'), x.shape.length), ctx.bool('descending')),
  'aten.argsort.default': ({ ctx, inputs: [x] }) => [
    rank(x, dimOf(ctx.int('dim'), x.shape.length), false)[1],
  ],
  'aten.topk.default': ({ ctx, inputs: [x] }) => {
    const dim = dimOf(ctx.int('dim'), x.shape.length);
    return rank(x, dim, true).map((r) => take(r, dim, 0, ctx.int('k')));
  },
};

function chunks(n: number, size: number): number[] {
  const out: number[] = [];
  for (let left = n; left > 0; left -= size) out.push(Math.min(left, size));
  return out;
}

function splitBy(call: LocalCall, sizes: (n: number) => readonly number[]): NDArray[] {
  const [x] = call.inputs;
  const dim = dimOf(call.ctx.int('dim'), x.shape.length);
  let start = 0;
  return sizes(x.shape[dim]).map((rows) => take(x, dim, (start += rows) - rows, rows));
}

/** Values along a dim in order, and where they were. */
function rank(x: NDArray, dim: number, descending: boolean): [NDArray, NDArray] {
  const values = zeros(x.shape);
  const places = zeros(x.shape);
  build(
    x.shape.map((n, d) => (d === dim ? 1 : n)),
    (base) => {
      const row = Array.from({ length: x.shape[dim] }, (_, i) => i);
      const at = (i: number): number =>
        flatIndex(
          x.shape,
          base.map((b, d) => (d === dim ? i : b)),
        );
      row.sort((a, b) => (descending ? -1 : 1) * (x.data[at(a)] - x.data[at(b)]) || a - b);
      row.forEach((from, to) => {
        values.data[at(to)] = x.data[at(from)];
        places.data[at(to)] = from;
      });
      return 0;
    },
  );
  return [values, places];
}

const views: Record<string, Kernel> = Object.fromEntries(
  [
    'view.default',
    '_unsafe_view.default',
    'reshape.default',
    'flatten.using_ints',
    'unflatten.int',
    'unsqueeze.default',
    'squeeze.default',
    'squeeze.dim',
    'squeeze.dims',
  ].map((name) => [`aten.${name}`, asView]),
);

const dimMoves: Record<string, Kernel> = {
  'aten.t.default': ({ inputs: [x] }) => [x.shape.length < 2 ? x : permute(x, [1, 0])],
  'aten.permute.default': ({ ctx, inputs: [x] }) => [
    permute(
      x,
      ctx.ints('dims').map((d) => dimOf(d, x.shape.length)),
    ),
  ],
  'aten.transpose.int': ({ ctx, inputs: [x] }) => {
    const [a, b] = [dimOf(ctx.int('dim0'), x.shape.length), dimOf(ctx.int('dim1'), x.shape.length)];
    return [
      permute(
        x,
        x.shape.map((_, d) => (d === a ? b : d === b ? a : d)),
      ),
    ];
  },
  'aten.diagonal.default': (call) => {
    const [x] = call.inputs;
    const [a, b] = [
      dimOf(call.ctx.int('dim1'), x.shape.length),
      dimOf(call.ctx.int('dim2'), x.shape.length),
    ];
    const offset = call.ctx.int('offset');
    return [
      build(outShape(call), (at) => {
        const i = at[at.length - 1];
        const others = at.slice(0, -1);
        const from = x.shape.map((_, d) =>
          d === a
            ? i - Math.min(offset, 0)
            : d === b
              ? i + Math.max(offset, 0)
              : (others.shift() ?? 0),
        );
        return get(x, from);
      }),
    ];
  },
  'aten.diagonal_scatter.default': (call) => {
    const [x, src] = call.inputs;
    const [a, b] = [
      dimOf(call.ctx.int('dim1'), x.shape.length),
      dimOf(call.ctx.int('dim2'), x.shape.length),
    ];
    const offset = call.ctx.int('offset');
    return [
      build(x.shape, (at) => {
        if (at[b] - at[a] !== offset) return get(x, at);
        return get(src, [...at.filter((_, d) => d !== a && d !== b), at[a] + Math.min(offset, 0)]);
      }),
    ];
  },
  'aten.mT.default': ({ inputs: [x] }) => {
    const n = x.shape.length;
    return [permute(x, [...x.shape.slice(2).map((_, d) => d), n - 1, n - 2])];
  },
  'aten.numpy_T.default': ({ inputs: [x] }) => [
    permute(
      x,
      x.shape.map((_, d) => x.shape.length - 1 - d),
    ),
  ],
  'aten.movedim.int': ({ ctx, inputs: [x] }) => [
    move(x, ctx.ints('source'), ctx.ints('destination')),
  ],
  'aten.movedim.intlist': ({ ctx, inputs: [x] }) => [
    move(x, ctx.ints('source'), ctx.ints('destination')),
  ],
  'aten.expand.default': expand,
  'aten.expand_as.default': (call) => [
    build(outShape(call), (at) => getBroadcast(call.inputs[0], at)),
  ],
  'aten.broadcast_tensors.default': (call) =>
    call.inputs.map((x, k) => build(outShape(call, k), (at) => getBroadcast(x, at))),
};

/** The named dims at their destinations, the others in their order. */
function move(x: NDArray, source: readonly number[], destination: readonly number[]): NDArray {
  const rank = x.shape.length;
  const order = new Array<number>(rank).fill(-1);
  source.forEach((d, i) => (order[dimOf(destination[i], rank)] = dimOf(d, rank)));
  for (let d = 0; d < rank; d++) if (!order.includes(d)) order[order.indexOf(-1)] = d;
  return permute(x, order);
}

// ---- indexing
// -----------------------------------------------------------------------------

/** A global row as a local one, or -1 when another rank holds it. */
function localRow(call: LocalCall, input: number, dim: number, global: number): number {
  const size = call.global.inputs[input].shape[dim];
  const row = (global < 0 ? global + size : global) - call.inputStarts[input][dim];
  return row >= 0 && row < call.inputs[input].shape[dim] ? row : -1;
}

interface Indexing {
  readonly shape: readonly number[];
  /**
   * Local coordinates in self of an element of `self[indices]`, or undefined when another rank
   * holds it.
   */
  readonly source: (at: readonly number[]) => number[] | undefined;
}

function indexing(call: LocalCall): Indexing {
  const x = call.inputs[0];
  const members = call.ctx.list('indices');
  const indexed = members.flatMap((m, d) =>
    m === null ? [] : [{ dim: d, array: call.inputs[m.index] }],
  );
  const blockRank = Math.max(...indexed.map((i) => i.array.shape.length));
  const block = Array.from({ length: blockRank }, (_, d) =>
    Math.max(...indexed.map(({ array }) => array.shape[d - (blockRank - array.shape.length)] ?? 1)),
  );
  // An empty local index has size 0, which a maximum with 1 would hide.
  for (const { array } of indexed)
    array.shape.forEach((n, d) => {
      if (n === 0) block[d + blockRank - array.shape.length] = 0;
    });
  const dims = indexed.map((i) => i.dim);
  const adjacent = dims.every((d, i) => i === 0 || d === dims[i - 1] + 1);
  const insert = adjacent ? dims[0] : 0;
  const rest = x.shape.map((_, d) => d).filter((d) => !dims.includes(d));
  const restShape = rest.map((d) => x.shape[d]);
  return {
    shape: [...restShape.slice(0, insert), ...block, ...restShape.slice(insert)],
    source: (at) => {
      const inBlock = at.slice(insert, insert + blockRank);
      const others = [...at.slice(0, insert), ...at.slice(insert + blockRank)];
      const out = new Array<number>(x.shape.length).fill(0);
      rest.forEach((d, i) => (out[d] = others[i]));
      for (const { dim, array } of indexed) {
        const row = localRow(call, 0, dim, getBroadcast(array, inBlock));
        if (row < 0) return undefined;
        out[dim] = row;
      }
      return out;
    },
  };
}

function indexPut(call: LocalCall, accumulate: boolean, mask?: NDArray): NDArray {
  const { shape, source } = indexing(call);
  const values = call.inputs[call.ctx.indexOf('values')];
  const out = { shape: call.inputs[0].shape, data: call.inputs[0].data.slice() };
  build(shape, (at) => {
    const to = source(at);
    if (to === undefined || (mask !== undefined && getBroadcast(mask, at) === 0)) return 0;
    const flat = flatIndex(out.shape, to);
    out.data[flat] = (accumulate ? out.data[flat] : 0) + getBroadcast(values, at);
    return 0;
  });
  return out;
}

/** Element-wise write along `dim`: `out[.., index[at], ..] (+)= value(at)`. */
function scatter(
  call: LocalCall,
  accumulate: boolean,
  value: (at: readonly number[]) => number,
): NDArray {
  const [x, index] = call.inputs;
  const dim = dimOf(call.ctx.int('dim'), x.shape.length);
  const out = { shape: x.shape, data: x.data.slice() };
  build(index.shape, (at) => {
    const row = localRow(call, 0, dim, get(index, at));
    if (row < 0) return 0;
    const flat = flatIndex(
      out.shape,
      at.map((i, d) => (d === dim ? row : i)),
    );
    out.data[flat] = (accumulate ? out.data[flat] : 0) + value(at);
    return 0;
  });
  return out;
}

/** Whole rows of `source` written along `dim`. */
function writeRows(
  call: LocalCall,
  accumulate: boolean,
  value: (at: readonly number[]) => number,
): NDArray {
  const [x, index] = call.inputs;
  const dim = dimOf(call.ctx.int('dim'), x.shape.length);
  const out = { shape: x.shape, data: x.data.slice() };
  build(
    x.shape.map((n, d) => (d === dim ? index.data.length : n)),
    (at) => {
      const row = localRow(call, 0, dim, index.data[at[dim]]);
      if (row < 0) return 0;
      const flat = flatIndex(
        out.shape,
        at.map((i, d) => (d === dim ? row : i)),
      );
      out.data[flat] = (accumulate ? out.data[flat] : 0) + value(at);
      return 0;
    },
  );
  return out;
}

const indexed: Record<string, Kernel> = {
  'aten.index.Tensor': (call) => {
    const { shape, source } = indexing(call);
    return [
      build(shape, (at) => {
        const from = source(at);
        return from === undefined ? 0 : get(call.inputs[0], from);
      }),
    ];
  },
  'aten.index_put.default': (call) => [indexPut(call, call.ctx.bool('accumulate'))],
  'aten._unsafe_masked_index_put_accumulate.default': (call) => [
    indexPut(call, true, call.inputs[call.ctx.indexOf('mask')]),
  ],
  'aten.gather.default': (call) => {
    const [x, index] = call.inputs;
    const dim = dimOf(call.ctx.int('dim'), x.shape.length);
    return [
      build(index.shape, (at) => {
        const row = localRow(call, 0, dim, get(index, at));
        return row < 0
          ? 0
          : get(
              x,
              at.map((i, d) => (d === dim ? row : i)),
            );
      }),
    ];
  },
  'aten.scatter.src': (call) => [scatter(call, false, (at) => get(call.inputs[2], at))],
  'aten.scatter.value': (call) => [scatter(call, false, () => call.ctx.number('value'))],
  'aten.scatter_add.default': (call) => [scatter(call, true, (at) => get(call.inputs[2], at))],
  'aten.index_select.default': (call) => {
    const [x, index] = call.inputs;
    const dim = dimOf(call.ctx.int('dim'), x.shape.length);
    return [
      build(
        x.shape.map((n, d) => (d === dim ? index.data.length : n)),
        (at) => {
          const row = localRow(call, 0, dim, index.data[at[dim]]);
          return row < 0
            ? 0
            : get(
                x,
                at.map((i, d) => (d === dim ? row : i)),
              );
        },
      ),
    ];
  },
  'aten.index_add.default': (call) => [
    writeRows(call, true, (at) => call.ctx.number('alpha') * get(call.inputs[2], at)),
  ],
  'aten.index_copy.default': (call) => [writeRows(call, false, (at) => get(call.inputs[2], at))],
  'aten.index_fill.int_Scalar': (call) => [writeRows(call, false, () => call.ctx.number('value'))],
  'aten.embedding.default': (call) => {
    const [weight, indices] = call.inputs;
    return [
      build([...indices.shape, weight.shape[1]], (at) => {
        const row = localRow(call, 0, 0, get(indices, at.slice(0, -1)));
        return row < 0 ? 0 : get(weight, [row, at[at.length - 1]]);
      }),
    ];
  },
  'aten.embedding_dense_backward.default': (call) => {
    const [grad, indices] = call.inputs;
    const shape = outShape(call);
    const out = zeros(shape);
    const uses = new Map<number, number>();
    for (const i of indices.data) uses.set(i, (uses.get(i) ?? 0) + 1);
    build(grad.shape, (at, flat) => {
      const index = get(indices, at.slice(0, -1));
      const row = index - call.outputStarts[0][0];
      if (index === call.ctx.int('padding_idx') || row < 0 || row >= shape[0]) return 0;
      const scale = call.ctx.bool('scale_grad_by_freq') ? 1 / (uses.get(index) ?? 1) : 1;
      out.data[row * shape[1] + at[at.length - 1]] += grad.data[flat] * scale;
      return 0;
    });
    return [out];
  },
  'aten.one_hot.default': (call) => {
    const shape = outShape(call);
    const last = shape.length - 1;
    return [
      build(shape, (at) =>
        get(call.inputs[0], at.slice(0, last)) === at[last] + call.outputStarts[0][last] ? 1 : 0,
      ),
    ];
  },
};

/** Kernels of shape, manipulation and indexing operators by name. */
export const shapeKernels: Readonly<Record<string, Kernel>> = {
  ...views,
  ...dimMoves,
  ...manipulation,
  ...indexed,
};
