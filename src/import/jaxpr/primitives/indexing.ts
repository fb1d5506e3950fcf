/**
 * Writes JAX's gathers and scatters as calls of StableHLO. Their `mode` says what indices outside
 * of the operand mean; StableHLO moves the windows of a gather inside and drops those of a scatter,
 * so the other meanings are written out, as JAX's own lowering does (`jax/_src/lax/slicing.py`).
 */

import type { Arg, DType, ValueRef } from '../../../graph/types.ts';
import { tensorType } from '../../../graph/value.ts';
import { firstItems, itemAt } from '../../../item-at.ts';
import { dtypeArg, type GraphOfJaxpr, numbers } from '../builder.ts';
import { dtypeOf, type Lower, operand, shapeOf } from '../equation.ts';
import { intsOf } from '../text/literal.ts';
import type { Equation, LiteralValue } from '../text/syntax.ts';
import { neutral } from './reductions.ts';

/** Meanings of indices outside of the operand; `PROMISE_IN_BOUNDS` leaves it to the device. */
const MODES = ['FILL_OR_DROP', 'CLIP', 'PROMISE_IN_BOUNDS'] as const;
type Mode = (typeof MODES)[number];

/** The mode of an equation, printed with or without the name of its class. */
function modeOf(b: GraphOfJaxpr, e: Equation): Mode {
  const text = b.parameter(e, 'mode').text.split('.').at(-1);
  const mode = MODES.find((name, i) => name === text || text === String([2, 1, 3][i]));
  if (mode === undefined)
    throw b.error(
      'E_UNSUPPORTED',
      `${e.primitive} of mode ${text}`,
      b.at(e, 'mode'),
      `the modes ${MODES.join(', ')} are read`,
    );
  return mode;
}

function dimensionNumbers(b: GraphOfJaxpr, e: Equation): (key: string) => number[] {
  const dims = b.literal(e, 'dimension_numbers');
  return (key) => {
    const named =
      dims !== undefined && dims !== null && typeof dims === 'object' && dims.kind === 'call'
        ? dims.named
        : undefined;
    const list = intsOf(named?.get(key));
    // Batching dims came later than the others.
    if (list === undefined && named !== undefined && /batching/.test(key)) return [];
    if (list === undefined)
      throw b.error(
        'E_TYPE',
        `dimension_numbers of ${e.primitive} lack ${key}`,
        b.at(e, 'dimension_numbers'),
      );
    return list;
  };
}

// ---- index vectors
// -----------------------------------------------------------------------------

/** The index vectors of an equation: its operand 1, whose last dim goes over operand dims. */
interface Indices {
  readonly value: ValueRef;
  readonly dtype: DType;
  /** Shape without the last dim. */
  readonly rows: readonly number[];
  /** By entry of a vector: the last start at which the window lies in the operand. */
  readonly most: readonly number[];
}

/**
 * @param map operand dim of each entry
 * @param sizes of the window in every operand dim
 */
function indicesOf(
  b: GraphOfJaxpr,
  e: Equation,
  map: readonly number[],
  sizes: readonly number[],
): Indices {
  const of = numbers(b.tensor(operand(b, e)));
  const type = b.tensor(operand(b, e, 1));
  const shape = numbers(type);
  const most = map.map((dim) => itemAt(of, dim) - itemAt(sizes, dim));
  const given = { value: b.value(operand(b, e, 1)), dtype: type.dtype };
  // Bounds need not fit into a narrow integer.
  const wide = ['i8', 'i16', 'u8', 'u16'].includes(type.dtype)
    ? {
        value: b.helper(
          'stablehlo.convert',
          [given.value, dtypeArg('i32')],
          {},
          tensorType('i32', shape),
        ),
        dtype: 'i32' as const,
      }
    : given;
  return { ...wide, rows: shape.slice(0, -1), most };
}

/** Entry i of every index vector, in the shape of the rows with a last dim of one. */
function entry(b: GraphOfJaxpr, { value, dtype, rows, most }: Indices, i: number): ValueRef {
  if (most.length === 1) return value;
  return b.helper(
    'stablehlo.slice',
    [value],
    {
      start_indices: [...rows.map(() => 0), i],
      limit_indices: [...rows, i + 1],
      strides: [...rows.map(() => 1), 1],
    },
    tensorType(dtype, [...rows, 1]),
  );
}

/** Tells for each index vector whether the window at it lies in the operand. */
function insideOf(b: GraphOfJaxpr, indices: Indices): ValueRef {
  const { dtype, rows, most } = indices;
  const one = [...rows, 1];
  const type = tensorType('b8', one);
  const both = (left: ValueRef, right: ValueRef): ValueRef =>
    b.helper('stablehlo.and', [left, right], {}, type);
  const is = (value: ValueRef, direction: string, n: number): ValueRef =>
    b.helper(
      'stablehlo.compare',
      [value, b.constant(n, dtype, one)],
      { comparison_direction: direction },
      type,
    );
  const inside = most.map((last, i) => {
    const value = entry(b, indices, i);
    return both(is(value, 'GE', 0), is(value, 'LE', last));
  });
  const [first, ...others] = inside;
  if (first === undefined) return b.constant(true, 'b8', rows);
  return b.helper(
    'stablehlo.reshape',
    [others.reduce(both, first)],
    { shape: [...rows] },
    tensorType('b8', rows),
  );
}

/** The index vectors, moved so that their windows lie in the operand. */
function clipped(b: GraphOfJaxpr, indices: Indices): ValueRef {
  const { value, dtype, rows, most } = indices;
  const one = [...rows, 1];
  const parts = most.map((last, i) =>
    b.helper(
      'stablehlo.clamp',
      [b.constant(0, dtype, one), entry(b, indices, i), b.constant(last, dtype, one)],
      {},
      tensorType(dtype, one),
    ),
  );
  const [first, ...others] = parts;
  if (first === undefined) return value;
  if (others.length === 0) return first;
  return b.helper(
    'stablehlo.concatenate',
    [parts],
    { dimension: rows.length },
    tensorType(dtype, [...rows, most.length]),
  );
}

// ---- gather
// -----------------------------------------------------------------------------

/** The value that JAX fills with where none is stated: NaN, or the integer farthest from zero. */
function usualFill(dtype: DType): LiteralValue {
  if (dtype === 'b8') return true;
  if (/^(f|bf|c)/.test(dtype)) return NaN;
  return neutral(dtype.startsWith('u') ? 'minimum' : 'maximum', dtype);
}

/** The value that a gather fills with. */
function fillOf(b: GraphOfJaxpr, e: Equation): LiteralValue {
  const fill = b.literal(e, 'fill_value');
  if (fill === undefined || fill === null) return usualFill(dtypeOf(e));
  if (typeof fill !== 'object') return fill;
  throw b.error(
    'E_TYPE',
    `fill_value of ${e.primitive} must be a number or None`,
    b.at(e, 'fill_value'),
  );
}

const gather: Lower = (b, e) => {
  const of = dimensionNumbers(b, e);
  const kwargs = {
    offset_dims: of('offset_dims'),
    collapsed_slice_dims: of('collapsed_slice_dims'),
    operand_batching_dims: of('operand_batching_dims'),
    start_indices_batching_dims: of('start_indices_batching_dims'),
    start_index_map: of('start_index_map'),
    index_vector_dim: b.tensor(operand(b, e, 1)).shape.length - 1,
    slice_sizes: [...b.ints(e, 'slice_sizes')],
  };
  const args = [b.value(operand(b, e)), b.value(operand(b, e, 1))];
  if (modeOf(b, e) !== 'FILL_OR_DROP') {
    b.emit(e, 'stablehlo.gather', args, kwargs);
    return;
  }
  const { type } = itemAt(e.results, 0);
  const read = b.helper('stablehlo.gather', args, kwargs, type);
  const shape = shapeOf(e);
  const rows = shape.flatMap((_, dim) => (kwargs.offset_dims.includes(dim) ? [] : [dim]));
  const indices = indicesOf(b, e, kwargs.start_index_map, kwargs.slice_sizes);
  const isInside = b.helper(
    'stablehlo.broadcast_in_dim',
    [insideOf(b, indices)],
    { broadcast_dimensions: rows, shape },
    tensorType('b8', shape),
  );
  const fill = b.constant(fillOf(b, e), dtypeOf(e), shape);
  b.emit(e, 'stablehlo.select', [isInside, read, fill]);
};

// ---- scatter
// -----------------------------------------------------------------------------

/** Sizes of the window that one index vector writes, in every dim of the operand. */
function windowSizes(
  operandRank: number,
  update: readonly number[],
  of: (key: string) => number[],
): number[] {
  const gone = [...of('inserted_window_dims'), ...of('operand_batching_dims')];
  const windows = [...of('update_window_dims')];
  return Array.from({ length: operandRank }, (_, dim) =>
    gone.includes(dim) ? 1 : (update[windows.shift() ?? -1] ?? 1),
  );
}

/** The function of an old and a new value: by name, or by a body of its own. */
function joining(b: GraphOfJaxpr, e: Equation, reducer: string): Readonly<Record<string, Arg>> {
  // `x.at[i].apply(f)` is an overwriting scatter by name, with a body that reads the old value.
  const [body] = e.parameters.get('update_jaxpr')?.bodies ?? [];
  return reducer === 'second' && body !== undefined
    ? { body: b.keep('update', b.context.body(body), e.at) }
    : { reducer };
}

/** @param negated the updates are subtracted by adding what they are negated */
const scatter =
  (reducer: string, negated = false): Lower =>
  (b, e) => {
    const of = dimensionNumbers(b, e);
    const [x, given, added] = firstItems(
      [0, 1, 2].map((i) => b.value(operand(b, e, i))),
      3,
    );
    const type = b.tensor(operand(b, e, 2));
    const updates = negated ? b.helper('stablehlo.negate', [added], {}, type) : added;
    const map = of('scatter_dims_to_operand_dims');
    const sizes = windowSizes(b.tensor(operand(b, e)).shape.length, numbers(type), of);
    const indices = modeOf(b, e) === 'CLIP' ? clipped(b, indicesOf(b, e, map, sizes)) : given;
    b.emit(e, 'stablehlo.scatter', [[x], indices, [updates]], {
      update_window_dims: of('update_window_dims'),
      inserted_window_dims: of('inserted_window_dims'),
      input_batching_dims: of('operand_batching_dims'),
      scatter_indices_batching_dims: of('scatter_indices_batching_dims'),
      scatter_dims_to_operand_dims: map,
      index_vector_dim: b.tensor(operand(b, e, 1)).shape.length - 1,
      ...joining(b, e, reducer),
    });
  };

/** The primitives by name. */
export const INDEXING: readonly (readonly [string, Lower])[] = [
  ['gather', gather],
  ['scatter', scatter('second')],
  ['scatter-add', scatter('add')],
  ['scatter-sub', scatter('add', true)],
  ['scatter-mul', scatter('multiply')],
  ['scatter-max', scatter('maximum')],
  ['scatter-min', scatter('minimum')],
];
