/**
 * Turns calls of the StableHLO vocabulary, whose arguments have the names of the records in
 * `src/ops/stablehlo`, into HLO instructions of the same names. The table has one line for each
 * operation: its attributes.
 */
import { internalError } from '../../errors.ts';
import type { Arg, DType } from '../../graph/types.ts';
import { isGraphRef, isList } from '../../graph/value.ts';
import type { TensorMeta } from '../../ops/record/call.ts';
import type { HloCall } from './call.ts';
import {
  type AttributeValue,
  type Direction,
  type HloBody,
  type Instruction,
  isFloat,
  type Number_,
  type Val,
} from './code.ts';

type Kind = 'int' | 'ints' | 'bool' | 'text' | 'transposition';

const WINDOW = {
  window_dimensions: 'ints',
  window_strides: 'ints',
  base_dilations: 'ints',
  window_dilations: 'ints',
  padding: 'ints',
} as const;

const ATTRIBUTES: Readonly<Record<string, Readonly<Record<string, Kind>>>> = {
  dot_general: {
    lhs_batching_dimensions: 'ints',
    rhs_batching_dimensions: 'ints',
    lhs_contracting_dimensions: 'ints',
    rhs_contracting_dimensions: 'ints',
  },
  convolution: {
    input_dimensions: 'ints',
    kernel_dimensions: 'ints',
    output_dimensions: 'ints',
    window_strides: 'ints',
    padding: 'ints',
    lhs_dilation: 'ints',
    rhs_dilation: 'ints',
    feature_group_count: 'int',
    batch_group_count: 'int',
  },
  iota: { iota_dimension: 'int' },
  broadcast_in_dim: { broadcast_dimensions: 'ints' },
  transpose: { permutation: 'ints' },
  slice: { start_indices: 'ints', limit_indices: 'ints', strides: 'ints' },
  pad: { edge_padding_low: 'ints', edge_padding_high: 'ints', interior_padding: 'ints' },
  concatenate: { dimension: 'int' },
  reverse: { dimensions: 'ints' },
  dynamic_slice: { slice_sizes: 'ints' },
  reduce_precision: { exponent_bits: 'int', mantissa_bits: 'int' },
  reduce: { dimensions: 'ints' },
  reduce_window: WINDOW,
  select_and_scatter: {
    window_dimensions: 'ints',
    window_strides: 'ints',
    padding: 'ints',
  },
  fft: { fft_type: 'text', fft_length: 'ints' },
  rng_bit_generator: { rng_algorithm: 'text' },
  'jax.random_bits': { impl: 'text', shape: 'ints' },
  'jax.random_split': { impl: 'text', shape: 'ints' },
  'jax.random_fold_in': { impl: 'text' },
  cholesky: { lower: 'bool' },
  triangular_solve: {
    left_side: 'bool',
    lower: 'bool',
    unit_diagonal: 'bool',
    transpose_a: 'transposition',
  },
  sort: { dimension: 'int', is_stable: 'bool', num_keys: 'int' },
  gather: {
    offset_dims: 'ints',
    collapsed_slice_dims: 'ints',
    operand_batching_dims: 'ints',
    start_indices_batching_dims: 'ints',
    start_index_map: 'ints',
    index_vector_dim: 'int',
    slice_sizes: 'ints',
  },
  scatter: {
    update_window_dims: 'ints',
    inserted_window_dims: 'ints',
    input_batching_dims: 'ints',
    scatter_indices_batching_dims: 'ints',
    scatter_dims_to_operand_dims: 'ints',
    index_vector_dim: 'int',
  },
  'chlo.top_k': { k: 'int' },
};

/** Operations that have operands and nothing else. */
const PLAIN = new Set(
  (
    'add subtract multiply divide maximum minimum power remainder atan2 and or xor ' +
    'shift_left shift_right_arithmetic ' +
    'shift_right_logical negate exponential exponential_minus_one log log_plus_one logistic ' +
    'tanh sqrt rsqrt cbrt abs sign ' +
    'sine cosine tan floor ceil round_nearest_even round_nearest_afz not is_finite popcnt ' +
    'count_leading_zeros real imag ' +
    'complex select clamp reshape convert bitcast_convert dynamic_update_slice ' +
    'optimization_barrier chlo.erf chlo.erfc ' +
    'chlo.erf_inv chlo.square chlo.lgamma chlo.digamma chlo.asin chlo.acos chlo.atan ' +
    'chlo.sinh chlo.cosh chlo.asinh ' +
    'chlo.acosh chlo.atanh chlo.is_inf chlo.next_after chlo.conj'
  ).split(' '),
);

/** Values that only carry a mark. */
const IDENTITIES = new Set(['sdy.sharding_constraint', 'sdy.reshard']);

/** Makes the region of a body that a call names. */
type BodyWriter = (name: string) => HloBody;

/** @throws E_UNSUPPORTED naming the operation and its node */
export function writeStablehlo(call: HloCall, bodyOf: BodyWriter): Val | readonly (Val | null)[] {
  const op = call.record.name.replace(/^stablehlo\./, '');
  const { hlo, ctx } = call;
  const inputs = ctx.inputs.map((_, i) => call.at(i));
  const types = ctx.outputs.map((meta): TensorMeta => meta ?? { dtype: 'f32', shape: [] });
  const tuple = call.record.results === 'tuple';
  if (IDENTITIES.has(op)) return inputs[0];
  if (op === 'constant') return constant(call);
  if (op === 'iota') return hlo.iota(types[0].dtype, types[0].shape, ctx.int('iota_dimension'));
  if (op === 'convert') return hlo.convert(inputs[0], types[0].dtype);
  if (op === 'compare')
    return hlo.compare(
      ctx.text('comparison_direction') as Direction,
      inputs[0],
      inputs[1],
      ctx.has('compare_type') && ctx.text('compare_type') === 'TOTALORDER'
        ? 'TOTALORDER'
        : undefined,
    );
  if (op === 'select') return selected(call, inputs);
  if (op === 'get_dimension_size')
    return hlo.constant(ctx.inputs[0].shape[ctx.int('dimension')], 'i32');
  const known = ATTRIBUTES[op];
  if (known === undefined && !PLAIN.has(op)) return call.unsupported('has no text in HLO');
  const attributes: Record<string, AttributeValue> = {};
  for (const [name, kind] of Object.entries(known ?? {}))
    attributes[name] = attribute(call, name, kind);
  const bodies: HloBody[] = [];
  for (const name of ['body', 'comparator', 'select', 'scatter']) {
    if (!call.takes(name)) continue;
    const arg = call.raw(name);
    if (arg !== undefined && arg !== null && isGraphRef(arg)) bodies.push(bodyOf(arg.name));
  }
  if (call.takes('reducer') && ctx.has('reducer')) attributes['reducer'] = ctx.text('reducer');
  if (call.rankVaries()) return call.unsupported('has a size that differs from device to device');
  if (op === 'dynamic_slice' || op === 'dynamic_update_slice')
    sameStarts(call, inputs, op === 'dynamic_slice' ? 1 : 2);
  const filled = defaults(op, attributes, ctx.inputs[0]?.shape.length ?? 0);
  const outputs = hlo.emit(op, inputs, types, filled, bodies);
  return tuple ? outputs.map((v, k) => (ctx.outputs[k] === null ? null : v)) : outputs[0];
}

/** A predicate of one element chooses whole operands. */
function selected(call: HloCall, [where, x, y]: readonly Val[]): Val {
  const wide = where.shape.length === 0 ? call.hlo.broadcastInDim(where, x.shape, []) : where;
  return call.hlo.select(wide, x, y);
}

function attribute(call: HloCall, name: string, kind: Kind): AttributeValue {
  switch (kind) {
    case 'int':
      return call.ctx.int(name);
    case 'ints':
      return call.ctx.ints(name);
    case 'bool':
      return call.ctx.bool(name);
    case 'text':
      return call.ctx.text(name);
    case 'transposition': {
      const how = call.raw(name);
      return typeof how === 'string' ? how : 'NO_TRANSPOSE';
    }
  }
}

/** Positions have one type; what a lowering changed among them is wider. */
function sameStarts({ hlo }: HloCall, inputs: Val[], first: number): void {
  const types = new Set(inputs.slice(first).map((v) => v.dtype));
  if (types.size < 2) return;
  for (let i = first; i < inputs.length; i++) inputs[i] = hlo.convert(inputs[i], 'i64');
}

/** A list that was left out means ones, or zeros for padding. */
function defaults(
  op: string,
  attributes: Record<string, AttributeValue>,
  rank: number,
): Instruction['attributes'] {
  const fill = (name: string, length: number, value: number): void => {
    const given = attributes[name];
    if (given !== undefined && Array.isArray(given) && given.length === 0 && length > 0)
      attributes[name] = new Array<number>(length).fill(value);
  };
  if (op === 'slice') fill('strides', rank, 1);
  if (op === 'reduce_window' || op === 'select_and_scatter') {
    for (const name of ['window_strides', 'base_dilations', 'window_dilations'])
      fill(name, rank, 1);
    fill('padding', 2 * rank, 0);
  }
  if (op === 'convolution') {
    for (const name of ['window_strides', 'lhs_dilation', 'rhs_dilation']) fill(name, rank - 2, 1);
    fill('padding', 2 * (rank - 2), 0);
  }
  return attributes;
}

/** One literal, all elements, or the payload as the file wrote it. */
function constant(call: HloCall): Val {
  const { hlo } = call;
  const { dtype, shape } = call.out();
  const value = call.node.args[0] ?? call.raw('value') ?? null;
  if (typeof value === 'string')
    return hlo.emit('constant_text', [], [{ dtype, shape }], { payload: value })[0];
  if (isList(value)) {
    const members = value.map((member) => literal(member, dtype));
    const exact = members.some((m) => typeof m === 'bigint');
    return exact
      ? hlo.list(members.map(BigInt), dtype, shape)
      : hlo.list(members.map(Number), dtype, shape);
  }
  if (value !== null && typeof value === 'object' && value.kind === 'size')
    return call.filled('value', dtype, shape);
  return hlo.constant(literal(value, dtype), dtype, shape);
}

/** Bit patterns such as `0xFF800000` arrive as numbers already. */
function literal(value: Arg, dtype: DType): Number_ {
  if (typeof value === 'boolean') return dtype === 'b8' ? value : Number(value);
  if (typeof value === 'number') return dtype === 'b8' ? value !== 0 : value;
  if (typeof value === 'bigint') return isFloat(dtype) ? Number(value) : value;
  if (value !== null && typeof value === 'object' && !isList(value) && value.kind === 'float')
    return value.value;
  throw internalError(`a constant of ${dtype} without a number`);
}
