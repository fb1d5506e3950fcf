/**
 * Lowers ATen operators that rename, move, join and make elements to HLO. Shapes are those of the
 * operator's own inference, so that a view needs no arithmetic here.
 */
import { internalError } from '../../../errors.ts';
import type { HloCall, Lowering, Lowerings } from '../call.ts';
import { isFloat, type Val } from '../code.ts';

/** Row-major order is kept. */
const reshaped: Lowering = (call) => call.hlo.reshape(call.first, call.out().shape);

const permuted =
  (order: (call: HloCall, rank: number) => readonly number[]): Lowering =>
  (call) =>
    call.hlo.transpose(call.first, order(call, call.first.shape.length));

const swapped = (rank: number, a: number, b: number): number[] => {
  const dims = Array.from({ length: rank }, (_, d) => d);
  if (rank > 0) [dims[a], dims[b]] = [b, a];
  return dims;
};

const expanded: Lowering = (call) => call.hlo.broadcast(call.first, call.out().shape);

/**
 * First row and number of rows of a slice; the first row may differ between ranks, the number may
 * not.
 */
function sliced(call: HloCall, dim: number): Val {
  const { hlo, first } = call;
  const size = first.shape[dim];
  const rows = call.out().shape[dim];
  const ranks = call.byRank('start');
  const step = call.ctx.has('step') ? call.ctx.int('step') : 1;
  if (ranks !== undefined) {
    if (step !== 1) call.unsupported('starts elsewhere on each device, with a step');
    return rowsFrom(call, first, dim, ranks, rows);
  }
  const given = call.ctx.optionalInt('start') ?? 0;
  const start = Math.min(size, Math.max(0, given < 0 ? given + size : given));
  const limit = rows === 0 ? start : Math.min(size, start + (rows - 1) * step + 1);
  return hlo.sliceDim(first, dim, start, limit, step);
}

/** Rows of a dim from a place that is each rank's own. */
function rowsFrom(
  call: HloCall,
  x: Val,
  dim: number,
  starts: readonly number[],
  rows: number,
): Val {
  const { hlo } = call;
  const zero = hlo.constant(0, 'i32');
  const at = x.shape.map((_, d) => (d === dim ? hlo.rankValue(starts, 'i32') : zero));
  return hlo.dynamicSlice(
    x,
    at,
    x.shape.map((n, d) => (d === dim ? rows : n)),
  );
}

/** Zeros around a gradient, in the shape of what was sliced. */
const sliceBackward: Lowering = (call) => {
  const { hlo, first } = call;
  const { dtype, shape } = call.out();
  if (call.byRank('start') !== undefined)
    return call.unsupported('starts elsewhere on each device');
  const dim = call.dim('dim', shape.length);
  const size = shape[dim];
  const given = call.ctx.int('start');
  const start = Math.min(size, Math.max(0, given < 0 ? given + size : given));
  return padded(call, hlo.convert(first, dtype), dim, start, size, call.ctx.int('step'));
};

function padded(call: HloCall, x: Val, dim: number, start: number, size: number, step = 1): Val {
  const none = x.shape.map(() => 0);
  const at = (n: number): number[] => none.map((_, d) => (d === dim ? n : 0));
  const used = x.shape[dim] === 0 ? 0 : (x.shape[dim] - 1) * step + 1;
  return call.hlo.pad(
    x,
    call.hlo.constant(0, x.dtype),
    at(start),
    at(size - start - used),
    at(step - 1),
  );
}

const selectBackward: Lowering = (call) => {
  const { dtype, shape } = call.out();
  const dim = call.dim('dim', shape.length);
  const index = call.ctx.int('index');
  const kept = shape.map((n, d) => (d === dim ? 1 : n));
  const x = call.hlo.reshape(call.hlo.convert(call.first, dtype), kept);
  return padded(call, x, dim, index < 0 ? index + shape[dim] : index, shape[dim]);
};

/** One row; negative indices count from the end. */
const selected: Lowering = (call) => {
  const { hlo, first } = call;
  const dim = call.dim('dim', first.shape.length);
  const ranks = call.byRank('index');
  const index = ranks === undefined ? call.ctx.int('index') : 0;
  const row = index < 0 ? index + first.shape[dim] : index;
  const one =
    ranks === undefined
      ? hlo.sliceDim(first, dim, row, row + 1)
      : rowsFrom(call, first, dim, ranks, 1);
  return hlo.reshape(one, call.out().shape);
};

/** The parts of a split, one after the other. */
const split: Lowering = (call) => {
  const { hlo, first } = call;
  const dim = call.dim('dim', first.shape.length);
  let start = 0;
  return call.ctx.outputs.map((meta) => {
    if (meta === null) throw internalError(`${call.record.name} has a part of no size`);
    const rows = meta.shape[dim];
    start += rows;
    return hlo.sliceDim(first, dim, start - rows, start);
  });
};

const unbound: Lowering = (call) => {
  const { hlo, first } = call;
  const dim = call.dim('dim', first.shape.length);
  return call.ctx.outputs.map((meta, i) =>
    hlo.reshape(hlo.sliceDim(first, dim, i, i + 1), meta?.shape ?? []),
  );
};

/** Empty one-dim members are skipped, as PyTorch does. */
const joined: Lowering = (call) => {
  const { dtype, shape } = call.out();
  const parts = call
    .tensors('tensors')
    .flatMap((x) => (x === null || (x.shape.length === 1 && shape.length !== 1) ? [] : [x]));
  const dim = call.dim('dim', shape.length);
  return call.hlo.concatenate(
    parts.map((x) => call.hlo.convert(x, dtype)),
    dim,
  );
};

const stacked: Lowering = (call) => {
  const { dtype, shape } = call.out();
  const dim = call.dim('dim', shape.length);
  const one = shape.map((n, d) => (d === dim ? 1 : n));
  const parts = call
    .tensors('tensors')
    .flatMap((x) => (x === null ? [] : [call.hlo.reshape(call.hlo.convert(x, dtype), one)]));
  return call.hlo.concatenate(parts, dim);
};

/** Pairs of rows before and after, the last dim first; negative numbers take rows away. */
const constantPad: Lowering = (call) => {
  const { hlo, first } = call;
  const pad = call.ctx.ints('pad');
  const rank = first.shape.length;
  const side = (k: 0 | 1): number[] => first.shape.map((_, d) => pad[2 * (rank - 1 - d) + k] ?? 0);
  return hlo.pad(first, call.number('value', first.dtype), side(0), side(1));
};

const flipped: Lowering = (call) =>
  call.hlo.reverse(call.first, call.dims('dims', call.first.shape.length));

const rolled: Lowering = (call) => {
  const { hlo } = call;
  const shifts = call.ctx.ints('shifts');
  const dims = call.dims('dims', call.first.shape.length);
  if (dims.length === 0) return call.unsupported('over the flattened tensor is not written');
  return dims.reduce((x, dim, i) => {
    const size = x.shape[dim];
    const by = size === 0 ? 0 : ((shifts[i] % size) + size) % size;
    if (by === 0) return x;
    return hlo.concatenate(
      [hlo.sliceDim(x, dim, size - by, size), hlo.sliceDim(x, dim, 0, size - by)],
      dim,
    );
  }, call.first);
};

const repeated: Lowering = (call) => {
  const { hlo, first } = call;
  const times = call.ctx.ints('repeats');
  const own = [...times.slice(0, times.length - first.shape.length).map(() => 1), ...first.shape];
  const wide = hlo.reshape(
    first,
    own.flatMap((n) => [1, n]),
  );
  const to = own.flatMap((n, d) => [times[d], n]);
  return hlo.reshape(hlo.broadcast(wide, to), call.out().shape);
};

const triangle =
  (direction: 'GE' | 'LE'): Lowering =>
  (call) => {
    const { hlo, first } = call;
    const rank = first.shape.length;
    const [row, column] = [rank - 2, rank - 1].map((d) => hlo.iota('i32', first.shape, d));
    const shifted = hlo.add(row, hlo.like(row, call.ctx.int('diagonal')));
    return hlo.select(hlo.compare(direction, shifted, column), first, hlo.like(first, 0));
  };

// ---- factories
// -----------------------------------------------------------------------------

const filled =
  (value: number): Lowering =>
  (call) => {
    const { dtype, shape } = call.out();
    return call.hlo.constant(dtype === 'b8' ? value !== 0 : value, dtype, shape);
  };

const full: Lowering = (call) => {
  const { dtype, shape } = call.out();
  const name = call.takes('fill_value') ? 'fill_value' : call.takes('value') ? 'value' : 's';
  return call.filled(name, dtype, shape);
};

/** start + i * step, in the type of the result. */
const arange: Lowering = (call) => {
  const { hlo } = call;
  const { dtype, shape } = call.out();
  const has = (name: string): boolean => call.takes(name);
  const count = hlo.iota(dtype, shape, 0);
  const step = has('step') ? (call.ctx.scalar('step')?.value ?? 1) : 1;
  if (step !== 1 && !Number.isInteger(step) && !isFloat(dtype))
    return call.unsupported('steps by a fraction over integers');
  const scaled = hlo.scaled(count, step);
  if (!has('start')) return scaled;
  if (call.byRank('start') === undefined && call.ctx.scalar('start')?.value === 0) return scaled;
  return hlo.add(scaled, call.filled('start', dtype, shape));
};

const oneHot: Lowering = (call) => {
  const { hlo, first } = call;
  const { dtype, shape } = call.out();
  const classes = hlo.iota(first.dtype, shape, shape.length - 1);
  const wide = hlo.broadcastInDim(
    first,
    shape,
    first.shape.map((_, d) => d),
  );
  return hlo.convert(hlo.compare('EQ', wide, classes), dtype);
};

/** One dim becomes windows of `size` rows, `step` apart, in a new last dim. */
const unfolded: Lowering = (call) => {
  const { hlo, first } = call;
  const dim = call.dim('dimension', first.shape.length);
  const { shape } = call.out();
  const [size, step] = [shape[shape.length - 1], call.ctx.int('step')];
  const windows = Array.from({ length: shape[dim] }, (_, i) =>
    hlo.sliceDim(first, dim, i * step, i * step + size),
  );
  const order = [...first.shape.map((_, d) => d)];
  const parts = windows.map((x) => {
    const moved = hlo.transpose(x, [...order.filter((d) => d !== dim), dim]);
    return hlo.reshape(
      moved,
      shape.map((n, d) => (d === dim ? 1 : n)),
    );
  });
  return hlo.concatenate(parts, dim);
};

export const shapeLowerings: Lowerings = {
  ...Object.fromEntries(
    [
      'view.default',
      'reshape.default',
      '_unsafe_view.default',
      'unsqueeze.default',
      'squeeze.default',
      'squeeze.dim',
      'squeeze.dims',
      'flatten.using_ints',
      'unflatten.int',
      '_reshape_copy.default',
    ].map((name) => [`aten.${name}`, reshaped]),
  ),
  'aten.t.default': permuted((_, rank) => (rank < 2 ? [0].slice(0, rank) : [1, 0])),
  'aten.numpy_T.default': permuted((_, rank) =>
    Array.from({ length: rank }, (__, d) => rank - 1 - d),
  ),
  'aten.mT.default': permuted((_, rank) => swapped(rank, rank - 2, rank - 1)),
  'aten.transpose.int': permuted((call, rank) =>
    swapped(rank, call.dim('dim0', rank), call.dim('dim1', rank)),
  ),
  'aten.permute.default': permuted((call, rank) => call.dims('dims', rank)),
  'aten.movedim.int': permuted((call, rank) => {
    const [from, to] = [call.dim('source', rank), call.dim('destination', rank)];
    const rest = Array.from({ length: rank }, (_, d) => d).filter((d) => d !== from);
    return [...rest.slice(0, to), from, ...rest.slice(to)];
  }),
  'aten.expand.default': expanded,
  'aten.expand_as.default': expanded,
  'aten.broadcast_to.default': expanded,
  'aten.slice.Tensor': (call) => sliced(call, call.dim('dim', call.first.shape.length)),
  'aten.narrow.default': (call) => sliced(call, call.dim('dim', call.first.shape.length)),
  'aten.slice_backward.default': sliceBackward,
  'aten.select.int': selected,
  'aten.select_backward.default': selectBackward,
  'aten.split.Tensor': split,
  'aten.split.sizes': split,
  'aten.split_with_sizes.default': split,
  'aten.chunk.default': split,
  'aten.unbind.int': unbound,
  'aten.cat.default': joined,
  'aten.stack.default': stacked,
  'aten.constant_pad_nd.default': constantPad,
  'aten.flip.default': flipped,
  'aten.roll.default': rolled,
  'aten.repeat.default': repeated,
  'aten.tril.default': triangle('GE'),
  'aten.triu.default': triangle('LE'),
  'aten.unfold.default': unfolded,
  'aten.zeros.default': filled(0),
  'aten.zeros_like.default': filled(0),
  'aten.new_zeros.default': filled(0),
  'aten.empty.memory_format': filled(0),
  'aten.empty_like.default': filled(0),
  'aten.new_empty.default': filled(0),
  'aten.ones.default': filled(1),
  'aten.ones_like.default': filled(1),
  'aten.new_ones.default': filled(1),
  'aten.full.default': full,
  'aten.full_like.default': full,
  'aten.new_full.default': full,
  'aten.fill.Scalar': full,
  'aten.scalar_tensor.default': full,
  'aten.arange.default': arange,
  'aten.arange.start': arange,
  'aten.arange.start_step': arange,
  'prims.iota.default': arange,
  'aten.one_hot.default': oneHot,
};
