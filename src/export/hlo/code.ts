/**
 * Builds programs as lists of HLO instructions, one for each call of a method of `HloCode`. The
 * instructions are plain records with static shapes that a printer turns into JAX or into StableHLO
 * text. Names and meaning of the operations are those of the StableHLO specification; only
 * `rank_value` and the collectives depend on the device that runs them.
 */
import { defined } from '../../defined.ts';
import { internalError } from '../../errors.ts';
import type { DType } from '../../graph/types.ts';

/** A tensor of the program. */
export interface Val {
  readonly id: number;
  readonly dtype: DType;
  readonly shape: readonly number[];
}

export type AttributeValue =
  | number
  | bigint
  | boolean
  | string
  | readonly number[]
  | readonly bigint[]
  | readonly (readonly number[])[];

/** One operation; its attributes have StableHLO's names. */
export interface Instruction {
  readonly op: string;
  readonly inputs: readonly Val[];
  readonly attributes: Readonly<Record<string, AttributeValue>>;
  readonly outputs: readonly Val[];
  /** Regions: branches, condition and step of a loop, a reducer. */
  readonly bodies: readonly HloBody[];
  /** The name in the plan, for readers. */
  readonly note?: string;
}

/** A region: its own inputs; values of the code around it are in sight. */
export interface HloBody {
  readonly inputs: readonly Val[];
  readonly code: readonly Instruction[];
  readonly returns: readonly Val[];
}

interface DotDims {
  readonly batch: readonly [left: readonly number[], right: readonly number[]];
  readonly contract: readonly [left: readonly number[], right: readonly number[]];
}

export type Reducer = 'add' | 'multiply' | 'maximum' | 'minimum' | 'and' | 'or';
export type Direction = 'EQ' | 'NE' | 'GE' | 'GT' | 'LE' | 'LT';
export type Number_ = number | bigint | boolean;

const FLOATS: ReadonlySet<DType> = new Set<DType>([
  'f64',
  'f32',
  'bf16',
  'f16',
  'f8e4m3fn',
  'f8e5m2',
  'f8e8m0fnu',
]);

export function isFloat(dtype: DType): boolean {
  return FLOATS.has(dtype);
}

/** Writes instructions; every method adds at most one and returns its result. */
export class HloCode {
  private instructions: Instruction[] = [];
  private splats = new Map<string, Val>();
  private count = 0;
  /** The note of the instructions that are written from here on. */
  note: string | undefined;

  get code(): readonly Instruction[] {
    return this.instructions;
  }

  /** A value of the code's own, such as an input. */
  value(dtype: DType, shape: readonly number[]): Val {
    return { id: this.count++, dtype, shape };
  }

  /** An operation with any number of results. */
  emit(
    op: string,
    inputs: readonly Val[],
    types: readonly { readonly dtype: DType; readonly shape: readonly number[] }[],
    attributes: Instruction['attributes'] = {},
    bodies: readonly HloBody[] = [],
  ): Val[] {
    const outputs = types.map(({ dtype, shape }) => this.value(dtype, shape));
    const note = this.note === undefined ? {} : { note: this.note };
    this.instructions.push({ op, inputs, attributes, outputs, bodies, ...note });
    return outputs;
  }

  /** A region: what `write` adds, apart from the code around it. */
  body(
    types: readonly Pick<Val, 'dtype' | 'shape'>[],
    write: (inputs: Val[]) => readonly Val[],
  ): HloBody {
    const [around, splats] = [this.instructions, this.splats];
    this.instructions = [];
    this.splats = new Map();
    const inputs = types.map(({ dtype, shape }) => this.value(dtype, shape));
    const returns = write(inputs);
    const code = this.instructions;
    [this.instructions, this.splats] = [around, splats];
    return { inputs, code, returns };
  }

  private one(
    op: string,
    inputs: readonly Val[],
    dtype: DType,
    shape: readonly number[],
    attributes: Instruction['attributes'] = {},
    bodies: readonly HloBody[] = [],
  ): Val {
    return this.emit(op, inputs, [{ dtype, shape }], attributes, bodies)[0];
  }

  // ---- constants
  // ---------------------------------------------------------------------------

  /** One number everywhere; equal constants of one region are one value. */
  constant(value: Number_, dtype: DType, shape: readonly number[] = []): Val {
    const number = Object.is(value, -0) ? '-0' : String(value);
    const key = `${dtype}[${shape.join()}] ${typeof value} ${number}`;
    let made = this.splats.get(key);
    if (made === undefined)
      this.splats.set(key, (made = this.one('constant', [], dtype, shape, { value })));
    return made;
  }

  /** A constant of the shape and type of another value. */
  like(x: Val, value: Number_): Val {
    return this.constant(value, x.dtype, x.shape);
  }

  /** All elements in row-major order. */
  list(values: readonly number[] | readonly bigint[], dtype: DType, shape: readonly number[]): Val {
    return this.one('constant_list', [], dtype, shape, { values });
  }

  /** The element of a table that belongs to the device that runs the program. */
  rankValue(values: readonly number[], dtype: DType): Val {
    const key = `rank ${dtype} ${values.join()}`;
    let made = this.splats.get(key);
    if (made === undefined)
      this.splats.set(key, (made = this.one('rank_value', [], dtype, [], { values })));
    return made;
  }

  iota(dtype: DType, shape: readonly number[], dimension: number): Val {
    return this.one('iota', [], dtype, shape, { iota_dimension: dimension });
  }

  // ---- elementwise
  // ---------------------------------------------------------------------------

  unary(
    op: string,
    x: Val,
    dtype: DType = x.dtype,
    attributes: Instruction['attributes'] = {},
  ): Val {
    return this.one(op, [x], dtype, x.shape, attributes);
  }

  /** @throws E_INTERNAL where the operands differ in type */
  binary(op: string, x: Val, y: Val, dtype: DType = x.dtype): Val {
    if (x.dtype !== y.dtype || x.shape.join() !== y.shape.join())
      throw internalError(
        `${op} of ${x.dtype}[${x.shape.join()}] and ${y.dtype}[${y.shape.join()}]`,
      );
    return this.one(op, [x, y], dtype, x.shape);
  }

  add = (x: Val, y: Val): Val => this.binary('add', x, y);
  subtract = (x: Val, y: Val): Val => this.binary('subtract', x, y);
  multiply = (x: Val, y: Val): Val => this.binary('multiply', x, y);
  divide = (x: Val, y: Val): Val => this.binary('divide', x, y);
  maximum = (x: Val, y: Val): Val => this.binary('maximum', x, y);
  minimum = (x: Val, y: Val): Val => this.binary('minimum', x, y);

  /** By a number of the operand's type. */
  scaled(x: Val, factor: number): Val {
    return factor === 1 ? x : this.multiply(x, this.like(x, factor));
  }

  /** @param type how floats are compared where that is by the total order */
  compare(direction: Direction, x: Val, y: Val, type?: 'TOTALORDER'): Val {
    if (x.dtype !== y.dtype || x.shape.join() !== y.shape.join())
      throw internalError(
        `compare of ${x.dtype}[${x.shape.join()}] and ${y.dtype}[${y.shape.join()}]`,
      );
    return this.one('compare', [x, y], 'b8', x.shape, {
      comparison_direction: direction,
      ...defined({ compare_type: type }),
    });
  }

  select(where: Val, x: Val, y: Val): Val {
    return this.one('select', [where, x, y], x.dtype, x.shape);
  }

  /** Numbers to bool: whether they are not zero. */
  convert(x: Val, dtype: DType): Val {
    if (x.dtype === dtype) return x;
    return dtype === 'b8'
      ? this.compare('NE', x, this.like(x, 0))
      : this.one('convert', [x], dtype, x.shape);
  }

  // ---- shapes
  // ---------------------------------------------------------------------------

  /** Operand dim i becomes result dim `dims[i]`. */
  broadcastInDim(x: Val, shape: readonly number[], dims: readonly number[]): Val {
    if (x.shape.join() === shape.join() && dims.every((d, i) => d === i)) return x;
    return this.one('broadcast_in_dim', [x], x.dtype, shape, { broadcast_dimensions: dims });
  }

  /** Broadcasts as numpy does: dims are matched from the last one on. */
  broadcast(x: Val, shape: readonly number[]): Val {
    const from = shape.length - x.shape.length;
    return this.broadcastInDim(
      x,
      shape,
      x.shape.map((_, d) => d + from),
    );
  }

  reshape(x: Val, shape: readonly number[]): Val {
    return x.shape.join() === shape.join() ? x : this.one('reshape', [x], x.dtype, shape);
  }

  transpose(x: Val, permutation: readonly number[]): Val {
    if (permutation.every((d, i) => d === i)) return x;
    return this.one(
      'transpose',
      [x],
      x.dtype,
      permutation.map((d) => x.shape[d]),
      { permutation },
    );
  }

  /** The last two dims change places. */
  transposed(x: Val): Val {
    const rank = x.shape.length;
    const order = x.shape.map((_, d) => (d < rank - 2 ? d : d === rank - 2 ? rank - 1 : rank - 2));
    return this.transpose(x, order);
  }

  slice(
    x: Val,
    start: readonly number[],
    limit: readonly number[],
    strides: readonly number[] = x.shape.map(() => 1),
  ): Val {
    if (
      start.every((s) => s === 0) &&
      limit.every((l, d) => l === x.shape[d]) &&
      strides.every((s) => s === 1)
    )
      return x;
    const shape = start.map((s, d) => Math.max(0, Math.ceil((limit[d] - s) / strides[d])));
    return this.one('slice', [x], x.dtype, shape, {
      start_indices: start,
      limit_indices: limit,
      strides,
    });
  }

  /** Rows `start` to `limit` of one dim. */
  sliceDim(x: Val, dim: number, start: number, limit: number, stride = 1): Val {
    const all = x.shape.map(() => 0);
    return this.slice(
      x,
      all.map((_, d) => (d === dim ? start : 0)),
      x.shape.map((size, d) => (d === dim ? limit : size)),
      all.map((_, d) => (d === dim ? stride : 1)),
    );
  }

  /** The first rows of every dim. */
  sliceTo(x: Val, shape: readonly number[]): Val {
    return this.slice(
      x,
      shape.map(() => 0),
      shape,
    );
  }

  pad(
    x: Val,
    value: Val,
    low: readonly number[],
    high: readonly number[],
    interior: readonly number[] = low.map(() => 0),
  ): Val {
    if ([...low, ...high, ...interior].every((n) => n === 0)) return x;
    const shape = x.shape.map((n, d) => low[d] + n + Math.max(0, n - 1) * interior[d] + high[d]);
    return this.one('pad', [x, value], x.dtype, shape, {
      edge_padding_low: low,
      edge_padding_high: high,
      interior_padding: interior,
    });
  }

  concatenate(parts: readonly Val[], dimension: number): Val {
    if (parts.length === 1) return parts[0];
    const [first] = parts;
    const rows = parts.reduce((n, part) => n + part.shape[dimension], 0);
    const shape = first.shape.map((n, d) => (d === dimension ? rows : n));
    return this.one('concatenate', parts, first.dtype, shape, { dimension });
  }

  reverse(x: Val, dimensions: readonly number[]): Val {
    return dimensions.length === 0 ? x : this.one('reverse', [x], x.dtype, x.shape, { dimensions });
  }

  /** @param starts one scalar a dim */
  dynamicSlice(x: Val, starts: readonly Val[], sizes: readonly number[]): Val {
    return this.one('dynamic_slice', [x, ...starts], x.dtype, sizes, { slice_sizes: sizes });
  }

  dynamicUpdateSlice(x: Val, update: Val, starts: readonly Val[]): Val {
    return this.one('dynamic_update_slice', [x, update, ...starts], x.dtype, x.shape);
  }

  // ---- products and reductions
  // ---------------------------------------------------------------------------

  dot(x: Val, y: Val, { batch, contract }: DotDims, dtype: DType = x.dtype): Val {
    const own = (v: Val, k: 0 | 1): number[] =>
      v.shape.filter((_, d) => !batch[k].includes(d) && !contract[k].includes(d));
    const shape = [...batch[0].map((d) => x.shape[d]), ...own(x, 0), ...own(y, 1)];
    return this.one('dot_general', [x, y], dtype, shape, {
      lhs_batching_dimensions: batch[0],
      rhs_batching_dimensions: batch[1],
      lhs_contracting_dimensions: contract[0],
      rhs_contracting_dimensions: contract[1],
    });
  }

  /** Product of the last two dims; the dims before them are equal. */
  matmul(x: Val, y: Val): Val {
    const rank = x.shape.length;
    const batch = x.shape.slice(0, -2).map((_, d) => d);
    return this.dot(x, y, { batch: [batch, batch], contract: [[rank - 1], [rank - 2]] });
  }

  reduce(
    x: Val,
    reducer: Reducer,
    dimensions: readonly number[],
    init: Val = this.unit(reducer, x.dtype),
  ): Val {
    if (dimensions.length === 0) return x;
    const shape = x.shape.filter((_, d) => !dimensions.includes(d));
    return this.one('reduce', [x, init], x.dtype, shape, { dimensions, reducer });
  }

  /** Reduced dims stay, with size 1. */
  reduceKept(x: Val, reducer: Reducer, dimensions: readonly number[]): Val {
    const kept = x.shape.map((n, d) => (dimensions.includes(d) ? 1 : n));
    return this.reshape(this.reduce(x, reducer, dimensions), kept);
  }

  /** The value that a reduction starts from. */
  unit(reducer: Reducer, dtype: DType): Val {
    switch (reducer) {
      case 'add':
        return this.constant(dtype === 'b8' ? false : 0, dtype);
      case 'multiply':
        return this.constant(1, dtype);
      case 'or':
        return this.constant(dtype === 'b8' ? false : 0, dtype);
      case 'and':
        return this.constant(dtype === 'b8' ? true : -1, dtype);
      default:
        return this.constant(extreme(dtype, reducer === 'maximum'), dtype);
    }
  }
}

/** The least value of a type, or the greatest. */
export function extreme(dtype: DType, least: boolean): Number_ {
  if (dtype === 'b8') return !least;
  if (dtype.startsWith('f') || dtype === 'bf16') return least ? -Infinity : Infinity;
  const bits = BigInt(dtype.slice(1));
  if (dtype.startsWith('u')) return least ? 0 : (1n << bits) - 1n;
  const value = least ? -(1n << (bits - 1n)) : (1n << (bits - 1n)) - 1n;
  return bits === 64n ? value : Number(value);
}
