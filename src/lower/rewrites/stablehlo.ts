/**
 * Rewrites StableHLO calls with cut operands or results to calls with the sizes of the rank. Shapes
 * are written out in StableHLO, so most calls need the local one. Positions in a cut dim are
 * counted from the rank's first row; another rank's rows read as zero and are not written.
 */
import type { Arg } from '../../graph/types.ts';
import { isList, ref } from '../../graph/value.ts';
import type { LocalCall, Rewrite, Rewrites } from '../local-call.ts';
import type { RankInt } from '../program/rank-int.ts';
import { firstRows, notEmpty, ownRows, padEnd, zeroed } from './masked.ts';
import { localShape } from './shape.ts';

const i64: Arg = { kind: 'dtype', dtype: 'i64' };

/**
 * One number everywhere is made in the local shape; a list of elements is made whole, and each rank
 * takes its part.
 */
const constant: Rewrite = (call) => {
  const [value = null] = call.args;
  if (!isList(value) && typeof value !== 'string') return localShape('shape')(call);
  const { emit } = call;
  const whole = call.globalShape();
  let part = call.runOne({}, false);
  whole.forEach((size, d) => {
    const { start, rows } = call.outputPiece(d);
    if (rows === size) return;
    const from = emit.call('aten.slice.Tensor', [ref(part), d, emit.int(start), size]);
    part = emit.call('aten.slice.Tensor', [ref(from), d, 0, emit.int(rows)]);
  });
  return [part];
};

/** A counter of the rank's rows goes on from its first row. */
const iota: Rewrite = (call) => {
  const { emit } = call;
  const shape = { shape: emit.ints(call.localShape()) };
  const { start } = call.outputPiece(call.global.int('iota_dimension'));
  if (start === 0) return call.run(shape);
  return [
    emit.call('aten.add.Tensor', [ref(call.runOne(shape, false)), emit.int(start)], {
      name: call.node.name,
    }),
  ];
};

/** A cut dim is taken whole: from the rank's first row to its last, in the same steps. */
const slice: Rewrite = (call) => {
  const local = call.emit.type(call.tensor('operand')).shape;
  const limits = call.global.ints('limit_indices').map((limit, d): RankInt => {
    const size = call.global.inputs[0].shape[d];
    return isCut(call, 'operand', d) && limit === size ? local[d] : limit;
  });
  return call.run({ limit_indices: call.emit.ints(limits) });
};

function isCut(call: LocalCall, name: string, dim: number): boolean {
  return call.piecesOf(name, dim) > 1;
}

/** A position of one row, moved to where that row is: StableHLO moves a start inside of the dim. */
function clamped(call: LocalCall, position: string, size: number): string {
  const wide = call.emit.call('prims.convert_element_type.default', [ref(position), i64]);
  return call.emit.call('aten.clamp.default', [ref(wide), 0, size - 1]);
}

/** Names of the start indices, one a dim. */
function starts(call: LocalCall): string[] {
  return call.global
    .list('start_indices')
    .flatMap((member) => (member === null ? [] : [call.inputs[member.index]]));
}

/**
 * Dims in which a single row is read or written at a runtime position, and whose rows lie on
 * several ranks.
 */
function rowDims(call: LocalCall, taken: readonly number[]): number[] {
  const { shape } = call.global.inputs[0];
  return shape.flatMap((size, d) =>
    isCut(call, 'operand', d) && taken[d] === 1 && size > 1 ? [d] : [],
  );
}

const dynamicSlice: Rewrite = (call) => {
  const { emit, global } = call;
  const own = starts(call);
  const sizes = global.ints('slice_sizes');
  const local = emit.type(call.tensor('operand')).shape;
  let operand = call.tensor('operand');
  const masks: string[] = [];
  const taken = sizes.map((n, d): RankInt => (isCut(call, 'operand', d) && n !== 1 ? local[d] : n));
  for (const d of rowDims(call, sizes)) {
    const at = clamped(call, own[d], global.inputs[0].shape[d]);
    const { rows, outside } = ownRows(emit, at, call.inputPiece('operand', d), 0);
    own[d] = rows;
    operand = notEmpty(emit, operand, d);
    masks.push(outside);
  }
  const replaced = {
    operand: ref(operand),
    start_indices: own.map(ref),
    slice_sizes: emit.ints(taken),
  };
  if (masks.length === 0) return call.run(replaced);
  const read = call.runOne(replaced, false);
  return [masks.reduce((value, mask) => zeroed(emit, value, mask, call.node.name), read)];
};

/** A row of another rank goes to a row after the last one, which is dropped. */
const dynamicUpdateSlice: Rewrite = (call) => {
  const { emit, global } = call;
  const own = starts(call);
  const update = global.inputs[global.indexOf('update')].shape;
  const dims = rowDims(call, update);
  let operand = call.tensor('operand');
  for (const d of dims) {
    const at = clamped(call, own[d], global.inputs[0].shape[d]);
    const piece = call.inputPiece('operand', d);
    own[d] = ownRows(emit, at, piece, piece.rows).rows;
    operand = padEnd(emit, operand, d, 1);
  }
  const wide = call.runOne({ operand: ref(operand), start_indices: own.map(ref) }, false);
  return [
    dims.reduce(
      (value, d) => firstRows(emit, value, d, call.inputPiece('operand', d).rows, call.node.name),
      wide,
    ),
  ];
};

/**
 * The entries of the index vectors that name a dim of the operand; all of them where vectors have
 * no dim of their own.
 */
function component(call: LocalCall, indices: string, k: number): string {
  const vector = call.global.int('index_vector_dim');
  if (vector >= call.emit.type(indices).shape.length) return indices;
  return call.emit.call('aten.select.int', [ref(indices), vector, k]);
}

/** The same index vectors with other entries for one dim of the operand. */
function withComponent(call: LocalCall, indices: string, k: number, entries: string): string {
  const { emit, global } = call;
  const vector = global.int('index_vector_dim');
  const { shape, dtype } = emit.type(indices);
  const cast = emit.call('prims.convert_element_type.default', [
    ref(entries),
    { kind: 'dtype', dtype },
  ]);
  if (vector >= shape.length) return cast;
  const row = emit.call('aten.unsqueeze.default', [ref(cast), vector]);
  const before = emit.call('aten.slice.Tensor', [ref(indices), vector, 0, k]);
  const after = emit.call('aten.slice.Tensor', [
    ref(indices),
    vector,
    k + 1,
    emit.int(shape[vector]),
  ]);
  return emit.call('aten.cat.default', [[ref(before), ref(row), ref(after)], vector]);
}

const gather: Rewrite = (call) => {
  const { emit, global } = call;
  const { shape } = global.inputs[global.indexOf('operand')];
  const sizes = global.ints('slice_sizes');
  const indexed = global.ints('start_index_map');
  let operand = call.tensor('operand');
  let indices = call.tensor('start_indices');
  const local = emit.type(operand).shape;
  const batching = global.ints('operand_batching_dims');
  const masks: string[] = [];
  const taken = sizes.map((n, d): RankInt => {
    return isCut(call, 'operand', d) && n === shape[d] && !batching.includes(d) && n > 1
      ? local[d]
      : n;
  });
  indexed.forEach((d, k) => {
    if (!isCut(call, 'operand', d) || sizes[d] !== 1 || shape[d] === 1) return;
    const at = clamped(call, component(call, indices, k), shape[d]);
    const { rows, outside } = ownRows(emit, at, call.inputPiece('operand', d), 0);
    indices = withComponent(call, indices, k, rows);
    operand = notEmpty(emit, operand, d);
    masks.push(outside);
  });
  const replaced = {
    operand: ref(operand),
    start_indices: ref(indices),
    slice_sizes: emit.ints(taken),
  };
  if (masks.length === 0) return call.run(replaced);
  // A mask has the dims of the indices but the vector; the dims of the window are new to it.
  const offsets = new Set(global.ints('offset_dims'));
  const read = call.runOne(replaced, false);
  const rank = emit.type(read).shape.length;
  const spread = (mask: string): string => {
    const batch = emit.type(mask).shape;
    let next = 0;
    const dims = Array.from({ length: rank }, (_, d): RankInt =>
      offsets.has(d) ? 1 : batch[next++],
    );
    return emit.call('aten.reshape.default', [ref(mask), emit.ints(dims)]);
  };
  return [masks.reduce((value, mask) => zeroed(emit, value, spread(mask), call.node.name), read)];
};

/**
 * StableHLO drops writes outside of the operand: with positions counted from the rank's first row,
 * those of other ranks.
 */
const scatter: Rewrite = (call) => {
  const { emit, global } = call;
  let indices = call.tensor('scatter_indices');
  const inserted = global.ints('inserted_window_dims');
  global.ints('scatter_dims_to_operand_dims').forEach((d, k) => {
    const { start, rows } = call.pieces.of(call.inputSpecs[0], d, global.inputs[0].shape[d]);
    if (!inserted.includes(d) || rows === global.inputs[0].shape[d]) return;
    const wide = emit.call('prims.convert_element_type.default', [
      ref(component(call, indices, k)),
      i64,
    ]);
    const shifted = emit.call('aten.sub.Tensor', [ref(wide), emit.int(start)]);
    indices = withComponent(call, indices, k, shifted);
  });
  return call.run({ scatter_indices: ref(indices) });
};

/** The size of the whole dim, which is known. */
const dimensionSize: Rewrite = (call) => {
  const size = call.global.inputs[0].shape[call.global.int('dimension')];
  const kwargs = { dtype: { kind: 'dtype', dtype: 'i32' } as const, shape: [] };
  return [call.emit.call('stablehlo.constant', [size], { kwargs, name: call.node.name })];
};

export const stablehloRewrites: Rewrites = {
  'stablehlo.constant': constant,
  'stablehlo.iota': iota,
  'stablehlo.broadcast_in_dim': localShape('shape'),
  'stablehlo.reshape': localShape('shape'),
  'stablehlo.slice': slice,
  'stablehlo.dynamic_slice': dynamicSlice,
  'stablehlo.dynamic_update_slice': dynamicUpdateSlice,
  'stablehlo.gather': gather,
  'stablehlo.scatter': scatter,
  'stablehlo.get_dimension_size': dimensionSize,
};
