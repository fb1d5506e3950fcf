import type { Arg, DType } from '../../graph/types.ts';
import { tensorType } from '../../graph/value.ts';
import { dtypeArg, numbers, type GraphOfJaxpr } from './builder.ts';
import { intsOf, type Literal } from './literal.ts';
import type { Equation } from './syntax.ts';

/** How first-order primitives of JAX read in StableHLO. One entry a primitive; absent ones import as opaque calls. */

export type Lower = (b: GraphOfJaxpr, e: Equation) => void;

/** Shape of the first result. */
function shapeOf(e: Equation): number[] {
  return e.results.length === 0 ? [] : numbers(e.results[0].type);
}
function dtypeOf(e: Equation): DType {
  return e.results[0]?.type.dtype ?? 'f32';
}
function operand(b: GraphOfJaxpr, e: Equation, i = 0) {
  const atom = e.operands[i];
  if (atom === undefined) throw b.error('E_TYPE', `${e.primitive} needs an operand ${i}`, e.at);
  return atom;
}

// ---- element-wise ---------------------------------------------------------------------------------------------------------

/** Operands in the shape of the result. */
const elementwise =
  (target: string, kwargs: Readonly<Record<string, Arg>> = {}): Lower =>
  (b, e) => {
    b.emit(e, target, e.operands.map((atom) => b.stretched(atom, shapeOf(e))), kwargs); // prettier-ignore
  };

const UNARY: Readonly<Record<string, string>> = {
  neg: 'negate', sin: 'sine', cos: 'cosine', tan: 'tan', tanh: 'tanh', logistic: 'logistic', exp: 'exponential',
  expm1: 'exponential_minus_one', log: 'log', log1p: 'log_plus_one', sqrt: 'sqrt', rsqrt: 'rsqrt', cbrt: 'cbrt', abs: 'abs',
  sign: 'sign', floor: 'floor', ceil: 'ceil', is_finite: 'is_finite', not: 'not', real: 'real', imag: 'imag',
  population_count: 'popcnt', clz: 'count_leading_zeros',
}; // prettier-ignore
const CHLO = 'erf erfc erf_inv lgamma digamma asin acos sinh cosh asinh acosh atanh square conj bessel_i1e'.split(' ');
const BINARY: Readonly<Record<string, string>> = {
  add: 'add', add_any: 'add', sub: 'subtract', mul: 'multiply', div: 'divide', rem: 'remainder', max: 'maximum', min: 'minimum',
  and: 'and', or: 'or', xor: 'xor', shift_left: 'shift_left', shift_right_arithmetic: 'shift_right_arithmetic',
  shift_right_logical: 'shift_right_logical', atan2: 'atan2', complex: 'complex',
}; // prettier-ignore
const COMPARISONS = 'eq ne lt le gt ge'.split(' ');

/** Another name of the value: a marker for differentiation, layout or memory. */
const identity: Lower = (b, e) => {
  b.emit(e, 'stablehlo.convert', [b.value(operand(b, e)), dtypeArg(dtypeOf(e))]);
};

/** The base's powers; an exponent of another type is converted, as the lowering of JAX does. */
const power: Lower = (b, e) => {
  const [x, y] = [operand(b, e, 0), operand(b, e, 1)];
  const exponent = b.stretched(y, shapeOf(e));
  const { dtype } = b.tensor(y);
  const same = dtype === dtypeOf(e);
  const converted = same
    ? exponent
    : b.helper('stablehlo.convert', [exponent, dtypeArg(dtypeOf(e))], {}, tensorType(dtypeOf(e), shapeOf(e)));
  b.emit(e, 'stablehlo.power', [b.stretched(x, shapeOf(e)), converted]);
};

const integerPower: Lower = (b, e) => {
  const y = b.int(e, 'y');
  const x = b.stretched(operand(b, e), shapeOf(e));
  if (y === 2) b.emit(e, 'stablehlo.multiply', [x, x]);
  else b.emit(e, 'stablehlo.power', [x, b.constant(y, dtypeOf(e), shapeOf(e))]);
};

/** `select_n which a b`: the first case stands for false. */
const selectN: Lower = (b, e) => {
  const which = operand(b, e);
  const cases = e.operands.slice(1).map((atom) => b.stretched(atom, shapeOf(e)));
  if (cases.length === 2 && b.tensor(which).dtype === 'b8')
    b.emit(e, 'stablehlo.select', [b.value(which), cases[1], cases[0]]);
  else b.emit(e, 'jax.select_n', [b.value(which), ...cases]);
};

const exp2: Lower = (b, e) => {
  const x = b.stretched(operand(b, e), shapeOf(e));
  const scaled = b.helper(
    'stablehlo.multiply',
    [x, b.constant(Math.LN2, dtypeOf(e), shapeOf(e))],
    {},
    e.results[0].type,
  );
  b.emit(e, 'stablehlo.exponential', [scaled]);
};

const round: Lower = (b, e) => {
  const even = b.literal(e, 'rounding_method') === 1 || /EVEN/.test(e.parameters.get('rounding_method')?.text ?? '');
  b.emit(e, even ? 'stablehlo.round_nearest_even' : 'stablehlo.round_nearest_afz', [b.value(operand(b, e))]);
};

// ---- shapes ---------------------------------------------------------------------------------------------------------------

const broadcast: Lower = (b, e) => {
  const kwargs = { broadcast_dimensions: [...b.ints(e, 'broadcast_dimensions', [])], shape: shapeOf(e) };
  b.emit(e, 'stablehlo.broadcast_in_dim', [b.value(operand(b, e))], kwargs);
};

const reshape: Lower = (b, e) => {
  b.emit(e, 'stablehlo.reshape', [b.value(operand(b, e))], { shape: shapeOf(e) });
};

const slice: Lower = (b, e) => {
  const start = b.ints(e, 'start_indices');
  b.emit(e, 'stablehlo.slice', [b.value(operand(b, e))], {
    start_indices: [...start],
    limit_indices: [...b.ints(e, 'limit_indices')],
    strides: [...b.ints(e, 'strides', start.map(() => 1))], // prettier-ignore
  });
};

const pad: Lower = (b, e) => {
  const config = b.ints(e, 'padding_config', []);
  const column = (k: number): number[] => config.filter((_, i) => i % 3 === k);
  b.emit(e, 'stablehlo.pad', [b.value(operand(b, e)), b.value(operand(b, e, 1))], {
    edge_padding_low: column(0),
    edge_padding_high: column(1),
    interior_padding: column(2),
  });
};

/** One slice a result; the last carries the equation. */
const split: Lower = (b, e) => {
  const sizes = b.ints(e, 'sizes');
  const axis = b.int(e, 'axis');
  const from = numbers(b.tensor(operand(b, e)));
  if (sizes.length !== e.results.length || sizes.length === 0)
    throw b.error('E_TYPE', `split has ${sizes.length} sizes and ${e.results.length} results`, e.at);
  let start = 0;
  sizes.forEach((rows, i) => {
    const kwargs = {
      start_indices: from.map((_, d) => (d === axis ? start : 0)),
      limit_indices: from.map((n, d) => (d === axis ? start + rows : n)),
      strides: from.map(() => 1),
    };
    start += rows;
    const args = [b.value(operand(b, e))];
    if (i === sizes.length - 1) b.emit({ ...e, results: [e.results[i]] }, 'stablehlo.slice', args, kwargs);
    else b.define(e.results[i], b.helper('stablehlo.slice', args, kwargs, e.results[i].type, e.results[i].name).name);
  });
};

// ---- reductions -------------------------------------------------------------------------------------------------------------

/** The value that leaves every other as it is. */
function neutral(reducer: string, dtype: DType): number | bigint | boolean {
  const float = /^(f|bf|c)/.test(dtype);
  const bits = BigInt(/\d+/.exec(dtype)?.[0] ?? 64);
  const unsigned = dtype.startsWith('u');
  switch (reducer) {
    case 'multiply':
      return 1;
    case 'maximum':
      return dtype === 'b8' ? false : float ? -Infinity : unsigned ? 0 : exact(-(2n ** (bits - 1n)));
    case 'minimum':
      return dtype === 'b8' ? true : float ? Infinity : exact(unsigned ? 2n ** bits - 1n : 2n ** (bits - 1n) - 1n);
    case 'and':
      return dtype === 'b8' ? true : unsigned ? exact(2n ** bits - 1n) : -1;
    default:
      return dtype === 'b8' ? false : 0;
  }
}

function exact(value: bigint): number | bigint {
  return Number.isSafeInteger(Number(value)) ? Number(value) : value;
}

const reduction =
  (reducer: string): Lower =>
  (b, e) => {
    const { dtype } = b.tensor(operand(b, e));
    b.emit(e, 'stablehlo.reduce', [[b.value(operand(b, e))], [b.constant(neutral(reducer, dtype), dtype, [])]], {
      dimensions: [...b.ints(e, 'axes')],
      reducer,
    });
  };

/** Position of the largest: a reduction of values and positions together, of which the second result counts. */
const argument =
  (reducer: string): Lower =>
  (b, e) => {
    const type = b.tensor(operand(b, e));
    const [axis] = b.ints(e, 'axes');
    const index = dtypeOf(e);
    const shape = numbers(type);
    const positions = b.helper(
      'stablehlo.iota',
      [axis ?? 0],
      { dtype: dtypeArg(index), shape },
      tensorType(index, shape),
    );
    const value = reducer === 'argmax' ? 'maximum' : 'minimum';
    const inits = [b.constant(neutral(value, type.dtype), type.dtype, []), b.constant(0, index, [])];
    const values = { name: '_', at: e.at, type: tensorType(type.dtype, shapeOf(e)) };
    b.emit(
      { ...e, results: [values, ...e.results] },
      'stablehlo.reduce',
      [[b.value(operand(b, e)), positions], inits],
      {
        dimensions: [axis ?? 0],
        reducer,
      },
    );
  };

/** A running reduction is a window that reaches back to the start. */
const cumulative =
  (reducer: string): Lower =>
  (b, e) => {
    const type = b.tensor(operand(b, e));
    const shape = numbers(type);
    const axis = b.int(e, 'axis');
    const rows = shape[axis] ?? 1;
    const back = b.bool(e, 'reverse');
    b.emit(e, 'stablehlo.reduce_window', [[b.value(operand(b, e))], [b.constant(neutral(reducer, type.dtype), type.dtype, [])]], {
      window_dimensions: shape.map((_, d) => (d === axis ? rows : 1)),
      padding: shape.flatMap((_, d) => (d !== axis ? [0, 0] : back ? [0, rows - 1] : [rows - 1, 0])),
      reducer,
    }); // prettier-ignore
  };

// ---- products ---------------------------------------------------------------------------------------------------------------

const dotGeneral: Lower = (b, e) => {
  const lists = pairsOf(b.literal(e, 'dimension_numbers'));
  if (lists === undefined)
    throw b.error('E_TYPE', 'dimension_numbers of dot_general are not understood', b.at(e, 'dimension_numbers'));
  const [[lhsContract, rhsContract], [lhsBatch, rhsBatch]] = lists;
  const { dtype } = b.tensor(operand(b, e));
  b.emit(e, 'stablehlo.dot_general', [b.value(operand(b, e)), b.value(operand(b, e, 1))], {
    lhs_batching_dimensions: lhsBatch,
    rhs_batching_dimensions: rhsBatch,
    lhs_contracting_dimensions: lhsContract,
    rhs_contracting_dimensions: rhsContract,
    ...(dtype === dtypeOf(e) ? {} : { dtype: dtypeArg(dtypeOf(e)) }),
  });
};

type Pair = readonly [number[], number[]];

/** `((lhs_contract, rhs_contract), (lhs_batch, rhs_batch))`. */
function pairsOf(value: Literal | undefined): readonly [Pair, Pair] | undefined {
  const members = (item: Literal | undefined): readonly Literal[] =>
    item !== undefined && item !== null && typeof item === 'object' && item.kind === 'list' ? item.items : [];
  const pair = (item: Literal | undefined): Pair | undefined => {
    const [a, b] = members(item).map(intsOf);
    return a === undefined || b === undefined ? undefined : [a, b];
  };
  const [first, second] = members(value).map(pair);
  return first === undefined || second === undefined ? undefined : [first, second];
}

const convolution: Lower = (b, e) => {
  const dims = b.literal(e, 'dimension_numbers');
  const spec = (key: string): number[] => {
    const list = dims !== undefined && dims !== null && typeof dims === 'object' && dims.kind === 'call' ? intsOf(dims.named.get(key)) : undefined;
    return list ?? b.ints({ ...e, parameters: new Map() }, key).slice();
  };
  const [out, into, ...spatial] = spec('rhs_spec');
  const { dtype } = b.tensor(operand(b, e));
  b.emit(e, 'stablehlo.convolution', [b.value(operand(b, e)), b.value(operand(b, e, 1))], {
    input_dimensions: spec('lhs_spec'),
    kernel_dimensions: [into, out, ...spatial],
    output_dimensions: spec('out_spec'),
    window_strides: [...b.ints(e, 'window_strides')],
    padding: [...b.ints(e, 'padding')],
    lhs_dilation: [...b.ints(e, 'lhs_dilation', [])],
    rhs_dilation: [...b.ints(e, 'rhs_dilation', [])],
    feature_group_count: b.int(e, 'feature_group_count', 1),
    batch_group_count: b.int(e, 'batch_group_count', 1),
    ...(dtype === dtypeOf(e) ? {} : { dtype: dtypeArg(dtypeOf(e)) }),
  });
}; // prettier-ignore

// ---- indexing ---------------------------------------------------------------------------------------------------------------

function dimensionNumbers(b: GraphOfJaxpr, e: Equation): (key: string) => number[] {
  const dims = b.literal(e, 'dimension_numbers');
  return (key) => {
    const named =
      dims !== undefined && dims !== null && typeof dims === 'object' && dims.kind === 'call' ? dims.named : undefined;
    const list = intsOf(named?.get(key));
    // Batching dims came later than the others.
    if (list === undefined && named !== undefined && /batching/.test(key)) return [];
    if (list === undefined)
      throw b.error('E_TYPE', `dimension_numbers of ${e.primitive} lack ${key}`, b.at(e, 'dimension_numbers'));
    return list;
  };
}

const gather: Lower = (b, e) => {
  const of = dimensionNumbers(b, e);
  b.emit(e, 'stablehlo.gather', [b.value(operand(b, e)), b.value(operand(b, e, 1))], {
    offset_dims: of('offset_dims'),
    collapsed_slice_dims: of('collapsed_slice_dims'),
    operand_batching_dims: of('operand_batching_dims'),
    start_indices_batching_dims: of('start_indices_batching_dims'),
    start_index_map: of('start_index_map'),
    index_vector_dim: b.tensor(operand(b, e, 1)).shape.length - 1,
    slice_sizes: [...b.ints(e, 'slice_sizes')],
  });
};

const scatter =
  (reducer: string): Lower =>
  (b, e) => {
    const of = dimensionNumbers(b, e);
    const [x, indices, updates] = [0, 1, 2].map((i) => b.value(operand(b, e, i)));
    b.emit(e, 'stablehlo.scatter', [[x], indices, [updates]], {
      update_window_dims: of('update_window_dims'),
      inserted_window_dims: of('inserted_window_dims'),
      input_batching_dims: of('operand_batching_dims'),
      scatter_indices_batching_dims: of('scatter_indices_batching_dims'),
      scatter_dims_to_operand_dims: of('scatter_dims_to_operand_dims'),
      index_vector_dim: b.tensor(operand(b, e, 1)).shape.length - 1,
      reducer,
    });
  };

/** Start indices of one dtype, all scalars. */
const starts = (b: GraphOfJaxpr, e: Equation, from: number): Arg => e.operands.slice(from).map((atom) => b.value(atom));

// ---- collectives inside shard_map -------------------------------------------------------------------------------------------

/** Names of mesh axes in a parameter: `('model',)`, `'model'` or `model`. */
export function axisNames(value: Literal | undefined): string[] {
  if (value === undefined || value === null || typeof value !== 'object') return [];
  if (value.kind === 'string') return [value.value];
  if (value.kind === 'name') return [value.name];
  return value.kind === 'list' ? value.items.flatMap(axisNames) : [];
}

/** Devices that communicate: those that differ only along the axes. Undefined without a mesh. */
export function groupsOf(b: GraphOfJaxpr, names: readonly string[]): number[][] | undefined {
  const axes = b.context.mesh?.axes;
  if (axes === undefined || names.some((name) => !axes.some((axis) => axis.name === name))) return undefined;
  const total = axes.reduce((n, axis) => n * axis.size, 1);
  if (total > 1 << 16) return undefined;
  const groups = new Map<string, number[]>();
  for (let device = 0; device < total; device++) {
    let rest = device;
    const fixed: number[] = [];
    for (let i = axes.length - 1; i >= 0; i--) {
      if (!names.includes(axes[i].name)) fixed.push(rest % axes[i].size);
      rest = Math.floor(rest / axes[i].size);
    }
    const key = fixed.join();
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [device]);
    else group.push(device);
  }
  return [...groups.values()];
}

function grouped(b: GraphOfJaxpr, e: Equation, keys: readonly string[]): Record<string, Arg> {
  const names = keys.flatMap((key) => axisNames(b.literal(e, key)));
  const groups = groupsOf(b, names);
  return { axes: names, ...(groups === undefined ? {} : { replica_groups: groups }) };
}

const allReduce =
  (reducer: string): Lower =>
  (b, e) => {
    const kwargs = { reducer, ...grouped(b, e, ['axes']) };
    b.emit(e, 'stablehlo.all_reduce', [e.operands.map((atom) => b.value(atom))], kwargs);
  };

/** A collective that changes one dim, tiled (the dim grows or shrinks in place). */
const resizing =
  (target: string, dimKey: string, keyword: string): Lower =>
  (b, e) => {
    const groups = grouped(b, e, ['axis_name']);
    const dim = b.int(e, dimKey, 0);
    const [before, after] = [numbers(b.tensor(operand(b, e))), shapeOf(e)];
    const ratio = after[dim] > before[dim] ? after[dim] / before[dim] : before[dim] / after[dim];
    if (!b.bool(e, 'tiled') || before.length !== after.length || !Number.isInteger(ratio)) return opaque(b, e);
    const kwargs = {
      [keyword]: dim,
      group_size: b.int(e, 'axis_size', ratio),
      ...(target.endsWith('reduce_scatter') ? { reducer: 'add' } : {}),
      ...groups,
    };
    b.emit(e, target, [b.value(operand(b, e))], kwargs);
  };

/** A primitive without a counterpart: typed by its binders, listed as unknown. */
export const opaque: Lower = (b, e) => {
  const kwargs: Record<string, Arg> = {};
  for (const [key, { text }] of e.parameters) if (text.length <= 1000) Object.defineProperty(kwargs, key, { value: text, enumerable: true });
  b.emit(e, `jax.${e.primitive}`, e.operands.map((atom) => b.value(atom)), kwargs);
}; // prettier-ignore

const table = new Map<string, Lower>([
  ...Object.entries(UNARY).map(([jax, hlo]): [string, Lower] => [jax, elementwise(`stablehlo.${hlo}`)]),
  ...CHLO.map((name): [string, Lower] => [name, elementwise(`chlo.${name}`)]),
  ...Object.entries(BINARY).map(([jax, hlo]): [string, Lower] => [jax, elementwise(`stablehlo.${hlo}`)]),
  ...COMPARISONS.map((name): [string, Lower] => [
    name,
    (b, e) => {
      const args = e.operands.map((atom) => b.stretched(atom, shapeOf(e)));
      b.emit(e, 'stablehlo.compare', args, { comparison_direction: name.toUpperCase() });
    },
  ]),
  ...'stop_gradient copy copy_p pvary pbroadcast name device_put layout_constraint'
    .split(' ')
    .map((name): [string, Lower] => [name, identity]),
  ['nextafter', elementwise('chlo.next_after')],
  ['clamp', (b, e) => void b.emit(e, 'stablehlo.clamp', e.operands.map((atom) => b.value(atom)))],
  ['convert_element_type', identity],
  ['pow', power],
  ['integer_pow', integerPower],
  ['select_n', selectN],
  ['exp2', exp2],
  ['round', round],
  ['broadcast_in_dim', broadcast],
  ['reshape', reshape],
  ['squeeze', reshape],
  ['expand_dims', reshape],
  ['transpose', (b, e) => void b.emit(e, 'stablehlo.transpose', [b.value(operand(b, e))], { permutation: [...b.ints(e, 'permutation')] })],
  ['rev', (b, e) => void b.emit(e, 'stablehlo.reverse', [b.value(operand(b, e))], { dimensions: [...b.ints(e, 'dimensions')] })],
  ['concatenate', (b, e) => void b.emit(e, 'stablehlo.concatenate', [e.operands.map((atom) => b.value(atom))], { dimension: b.int(e, 'dimension') })],
  ['pad', pad],
  ['slice', slice],
  ['split', split],
  ['dynamic_slice', (b, e) => void b.emit(e, 'stablehlo.dynamic_slice', [b.value(operand(b, e)), starts(b, e, 1)], { slice_sizes: [...b.ints(e, 'slice_sizes')] })],
  ['dynamic_update_slice', (b, e) => void b.emit(e, 'stablehlo.dynamic_update_slice', [b.value(operand(b, e)), b.value(operand(b, e, 1)), starts(b, e, 2)])],
  ['iota', (b, e) => void b.emit(e, 'stablehlo.iota', [b.int(e, 'dimension')], { dtype: dtypeArg(dtypeOf(e)), shape: shapeOf(e) })],
  ['bitcast_convert_type', (b, e) => void b.emit(e, 'stablehlo.bitcast_convert', [b.value(operand(b, e))], { dtype: dtypeArg(dtypeOf(e)), shape: shapeOf(e) })],
  ['reduce_precision', (b, e) => void b.emit(e, 'stablehlo.reduce_precision', [b.value(operand(b, e))], { exponent_bits: b.int(e, 'exponent_bits'), mantissa_bits: b.int(e, 'mantissa_bits') })],
  ['optimization_barrier', (b, e) => void b.emit(e, 'stablehlo.optimization_barrier', [e.operands.map((atom) => b.value(atom))])],
  ['reduce_sum', reduction('add')],
  ['reduce_max', reduction('maximum')],
  ['reduce_min', reduction('minimum')],
  ['reduce_prod', reduction('multiply')],
  ['reduce_and', reduction('and')],
  ['reduce_or', reduction('or')],
  ['reduce_xor', reduction('xor')],
  ['argmax', argument('argmax')],
  ['argmin', argument('argmin')],
  ['cumsum', cumulative('add')],
  ['cumprod', cumulative('multiply')],
  ['cummax', cumulative('maximum')],
  ['cummin', cumulative('minimum')],
  ['sort', (b, e) => void b.emit(e, 'stablehlo.sort', [e.operands.map((atom) => b.value(atom))], { dimension: b.int(e, 'dimension'), is_stable: b.bool(e, 'is_stable') })],
  ['top_k', (b, e) => void b.emit(e, 'chlo.top_k', [b.value(operand(b, e))], { k: b.int(e, 'k') })],
  ['dot_general', dotGeneral],
  ['conv_general_dilated', convolution],
  ['gather', gather],
  ['scatter', scatter('second')],
  ['scatter-add', scatter('add')],
  ['scatter-mul', scatter('multiply')],
  ['scatter-max', scatter('maximum')],
  ['scatter-min', scatter('minimum')],
  ...['psum', 'psum2', 'psum_invariant'].map((name): [string, Lower] => [name, allReduce('add')]),
  ['pmax', allReduce('maximum')],
  ['pmin', allReduce('minimum')],
  ['all_gather', resizing('stablehlo.all_gather', 'all_gather_dimension', 'all_gather_dim')],
  ['all_gather_invariant', resizing('stablehlo.all_gather', 'all_gather_dimension', 'all_gather_dim')],
  ['reduce_scatter', resizing('stablehlo.reduce_scatter', 'scatter_dimension', 'scatter_dimension')],
  ['psum_scatter', resizing('stablehlo.reduce_scatter', 'scatter_dimension', 'scatter_dimension')],
  ['ppermute', (b, e) => void b.emit(e, 'stablehlo.collective_permute', [b.value(operand(b, e))], { axes: axisNames(b.literal(e, 'axis_name')) })],
]); // prettier-ignore

/** The entry of a primitive; undefined where there is none. */
export function loweringOf(primitive: string): Lower | undefined {
  return table.get(primitive);
}
