/**
 * How first-order primitives of JAX read in StableHLO. One entry a primitive; absent ones import as
 * opaque calls.
 */

import type { Arg, ValueRef } from '../../../graph/types.ts';
import { tensorType } from '../../../graph/value.ts';
import { itemAt } from '../../../item-at.ts';
import { dtypeArg, type GraphOfJaxpr, literalArg, numbers } from '../builder.ts';
import { dtypeOf, type Lower, opaque, operand, shapeOf, wordsBehind } from '../equation.ts';
import { intsOf, type Literal } from '../text/literal.ts';
import type { Equation } from '../text/syntax.ts';
import { COLLECTIVES } from './collectives.ts';
import { INDEXING } from './indexing.ts';
import { MATRICES } from './linalg.ts';
import { raggedProduct } from './ragged-product.ts';
import { RANDOM } from './random.ts';
import { REDUCTIONS } from './reductions.ts';
import { WINDOWS } from './windows.ts';

// ---- element-wise
// -----------------------------------------------------------------------------

/** Operands in the shape of the result. */
const elementwise =
  (target: string, kwargs: Readonly<Record<string, Arg>> = {}): Lower =>
  (b, e) => {
    b.emit(
      e,
      target,
      e.operands.map((atom) => b.stretched(atom, shapeOf(e))),
      kwargs,
    );
  };

const UNARY: Readonly<Record<string, string>> = {
  neg: 'negate',
  sin: 'sine',
  cos: 'cosine',
  tan: 'tan',
  tanh: 'tanh',
  exp: 'exponential',
  expm1: 'exponential_minus_one',
  log: 'log',
  log1p: 'log_plus_one',
  sqrt: 'sqrt',
  rsqrt: 'rsqrt',
  cbrt: 'cbrt',
  abs: 'abs',
  sign: 'sign',
  floor: 'floor',
  ceil: 'ceil',
  is_finite: 'is_finite',
  not: 'not',
  real: 'real',
  imag: 'imag',
  population_count: 'popcnt',
  clz: 'count_leading_zeros',
};
const CHLO =
  'erf erfc erf_inv lgamma digamma asin acos sinh cosh asinh acosh atanh conj bessel_i1e'.split(
    ' ',
  );
const BINARY: Readonly<Record<string, string>> = {
  add: 'add',
  add_any: 'add',
  sub: 'subtract',
  mul: 'multiply',
  div: 'divide',
  rem: 'remainder',
  max: 'maximum',
  min: 'minimum',
  and: 'and',
  or: 'or',
  xor: 'xor',
  shift_left: 'shift_left',
  shift_right_arithmetic: 'shift_right_arithmetic',
  shift_right_logical: 'shift_right_logical',
  atan2: 'atan2',
  complex: 'complex',
};
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
    : b.helper(
        'stablehlo.convert',
        [exponent, dtypeArg(dtypeOf(e))],
        {},
        tensorType(dtypeOf(e), shapeOf(e)),
      );
  b.emit(e, 'stablehlo.power', [b.stretched(x, shapeOf(e)), converted]);
};

/**
 * Pairs of values that are multiplied for a power: value 0 is the base, value `i` the product of
 * pair `i - 1`, and the last one the power.
 */
function productsOf(exponent: number): [number, number][] {
  const pairs: [number, number][] = [];
  let [square, power] = [0, -1];
  for (let rest = exponent; rest > 0;) {
    if (rest % 2 === 1) power = power < 0 ? square : pairs.push([power, square]);
    rest = Math.floor(rest / 2);
    if (rest > 0) square = pairs.push([square, square]);
  }
  return pairs;
}

/**
 * Products of squares, as JAX writes a power of a whole number (`_integer_pow` of
 * `jax/_src/lax/lax.py`, JAX 0.10.2); a negative power is the reciprocal.
 */
const integerPower: Lower = (b, e) => {
  const y = b.int(e, 'y');
  const type = tensorType(dtypeOf(e), shapeOf(e));
  const values = [b.stretched(operand(b, e), shapeOf(e))];
  const pairs = productsOf(Math.abs(y)).map(([i, j]) => (): [ValueRef, ValueRef] => [
    itemAt(values, i),
    itemAt(values, j),
  ]);
  const last = y > 0 ? pairs.pop() : undefined;
  for (const pair of pairs) values.push(b.helper('stablehlo.multiply', pair(), {}, type));
  const made = itemAt(values, values.length - 1);
  const one = (): ValueRef => b.constant(1, dtypeOf(e), shapeOf(e));
  if (last !== undefined) b.emit(e, 'stablehlo.multiply', last());
  else if (y < 0) b.emit(e, 'stablehlo.divide', [one(), made]);
  else b.emit(e, 'stablehlo.convert', [y === 0 ? one() : made, dtypeArg(dtypeOf(e))]);
};

/** A square, written as JAX lowers it. */
const square: Lower = (b, e) => {
  const x = b.stretched(operand(b, e), shapeOf(e));
  b.emit(e, 'stablehlo.multiply', [x, x]);
};

/**
 * `1 / (1 + exp(-x))`, as JAX lowers it (`logistic_impl` of `jax/_src/lax/lax.py`, JAX 0.10.2), so
 * that both texts of a program have the same calls.
 */
const logistic: Lower = (b, e) => {
  const type = tensorType(dtypeOf(e), shapeOf(e));
  const x = b.stretched(operand(b, e), shapeOf(e));
  const one = b.constant(1, dtypeOf(e), shapeOf(e));
  const negative = b.helper('stablehlo.negate', [x], {}, type);
  const power = b.helper('stablehlo.exponential', [negative], {}, type);
  const sum = b.helper('stablehlo.add', [one, power], {}, type);
  b.emit(e, 'stablehlo.divide', [one, sum]);
};

/** `select_n which a b`: the first case means false. */
const selectN: Lower = (b, e) => {
  const which = operand(b, e);
  const cases = e.operands.slice(1).map((atom) => b.stretched(atom, shapeOf(e)));
  if (cases.length === 2 && b.tensor(which).dtype === 'b8') {
    b.emit(e, 'stablehlo.select', [b.value(which), itemAt(cases, 1), itemAt(cases, 0)]);
    return;
  }
  // By number: those up to a number take its case, the last one first.
  const { dtype, shape } = b.tensor(which);
  const isAtMost = (n: number): ValueRef =>
    b.helper(
      'stablehlo.compare',
      [b.value(which), b.constant(n, dtype, numbers(b.tensor(which)))],
      { comparison_direction: 'LE' },
      tensorType('b8', shape),
    );
  let chosen = itemAt(cases, cases.length - 1);
  for (let n = cases.length - 2; n > 0; n--)
    chosen = b.helper(
      'stablehlo.select',
      [isAtMost(n), itemAt(cases, n), chosen],
      {},
      itemAt(e.results, 0).type,
    );
  b.emit(e, 'stablehlo.select', [isAtMost(0), itemAt(cases, 0), chosen]);
};

const exp2: Lower = (b, e) => {
  const x = b.stretched(operand(b, e), shapeOf(e));
  const scaled = b.helper(
    'stablehlo.multiply',
    [x, b.constant(Math.LN2, dtypeOf(e), shapeOf(e))],
    {},
    itemAt(e.results, 0).type,
  );
  b.emit(e, 'stablehlo.exponential', [scaled]);
};

const round: Lower = (b, e) => {
  const even =
    b.literal(e, 'rounding_method') === 1 ||
    /EVEN/.test(e.parameters.get('rounding_method')?.text ?? '');
  b.emit(e, even ? 'stablehlo.round_nearest_even' : 'stablehlo.round_nearest_afz', [
    b.value(operand(b, e)),
  ]);
};

// ---- shapes
// -----------------------------------------------------------------------------

const broadcast: Lower = (b, e) => {
  const shape = shapeOf(e);
  const dims = b.ints(e, 'broadcast_dimensions', []);
  const words = wordsBehind(b, operand(b, e), dims.length);
  const kwargs = { broadcast_dimensions: [...dims, ...words.map(() => shape.length - 1)], shape };
  b.emit(e, 'stablehlo.broadcast_in_dim', [b.value(operand(b, e))], kwargs);
};

/** Dims of size 1 come or go. */
const resized: Lower = (b, e) => {
  b.emit(e, 'stablehlo.reshape', [b.value(operand(b, e))], { shape: shapeOf(e) });
};

const reshape: Lower = (b, e) => {
  const x = operand(b, e);
  // The order in which the dims are read, where it is not theirs.
  const order = b.ints(e, 'dimensions', []);
  const { dtype, shape } = b.tensor(x);
  const isTurned = order.some((dim, i) => dim !== i);
  const read = isTurned
    ? b.helper(
        'stablehlo.transpose',
        [b.value(x)],
        { permutation: [...order] },
        tensorType(
          dtype,
          order.map((dim) => itemAt(shape, dim)),
        ),
      )
    : b.value(x);
  b.emit(e, 'stablehlo.reshape', [read], { shape: shapeOf(e) });
};

/** Each dim as often as it says: copies beside a dim of their number, which then are one. */
const tile: Lower = (b, e) => {
  const own = numbers(b.tensor(operand(b, e)));
  const parts = b.ints(e, 'reps').flatMap((count, d) => [count, itemAt(own, d)]);
  const copies = b.helper(
    'stablehlo.broadcast_in_dim',
    [b.value(operand(b, e))],
    { broadcast_dimensions: own.map((_, d) => 2 * d + 1), shape: parts },
    tensorType(dtypeOf(e), parts),
  );
  b.emit(e, 'stablehlo.reshape', [copies], { shape: shapeOf(e) });
};

/** Operands of one shape beside each other along a new dim. */
const stack: Lower = (b, e) => {
  const dimension = b.int(e, 'axis');
  const shape = shapeOf(e).map((size, d) => (d === dimension ? 1 : size));
  const parts = e.operands.map((atom) =>
    b.helper('stablehlo.reshape', [b.value(atom)], { shape }, tensorType(dtypeOf(e), shape)),
  );
  b.emit(e, 'stablehlo.concatenate', [parts], { dimension });
};

const slice: Lower = (b, e) => {
  const start = b.ints(e, 'start_indices');
  const words = wordsBehind(b, operand(b, e), start.length);
  b.emit(e, 'stablehlo.slice', [b.value(operand(b, e))], {
    start_indices: [...start, ...words.map(() => 0)],
    limit_indices: [...b.ints(e, 'limit_indices'), ...words],
    strides: [
      ...b.ints(
        e,
        'strides',
        start.map(() => 1),
      ),
      ...words.map(() => 1),
    ],
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

const transpose: Lower = (b, e) => {
  const dims = b.ints(e, 'permutation');
  const words = wordsBehind(b, operand(b, e), dims.length);
  b.emit(e, 'stablehlo.transpose', [b.value(operand(b, e))], {
    permutation: [...dims, ...words.map(() => dims.length)],
  });
};

/** New memory, whose content nothing may depend on. JAX lowers it to zeros. */
const zeros: Lower = (b, e) => {
  b.emit(e, 'stablehlo.constant', [literalArg(0, dtypeOf(e))], {
    dtype: dtypeArg(dtypeOf(e)),
    shape: shapeOf(e),
  });
};

/** One slice a result; the last carries the equation. */
const split: Lower = (b, e) => {
  const sizes = b.ints(e, 'sizes');
  const axis = b.int(e, 'axis');
  const from = numbers(b.tensor(operand(b, e)));
  if (sizes.length !== e.results.length || sizes.length === 0)
    throw b.error(
      'E_TYPE',
      `split has ${sizes.length} sizes and ${e.results.length} results`,
      e.at,
    );
  let start = 0;
  sizes.forEach((rows, i) => {
    const kwargs = {
      start_indices: from.map((_, d) => (d === axis ? start : 0)),
      limit_indices: from.map((n, d) => (d === axis ? start + rows : n)),
      strides: from.map(() => 1),
    };
    start += rows;
    const args = [b.value(operand(b, e))];
    const result = itemAt(e.results, i);
    if (i === sizes.length - 1)
      b.emit({ ...e, results: [result] }, 'stablehlo.slice', args, kwargs);
    else b.define(result, b.helper('stablehlo.slice', args, kwargs, result.type, result.name).name);
  });
};

// ---- products
// -----------------------------------------------------------------------------

const dotGeneral: Lower = (b, e) => {
  const lists = pairsOf(b.literal(e, 'dimension_numbers'));
  if (lists === undefined)
    throw b.error(
      'E_TYPE',
      'dimension_numbers of dot_general are not understood',
      b.at(e, 'dimension_numbers'),
    );
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
    item !== undefined && item !== null && typeof item === 'object' && item.kind === 'list'
      ? item.items
      : [];
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
    const list =
      dims !== undefined && dims !== null && typeof dims === 'object' && dims.kind === 'call'
        ? intsOf(dims.named.get(key))
        : undefined;
    return list ?? b.ints({ ...e, parameters: new Map() }, key).slice();
  };
  const [out, into, ...spatial] = spec('rhs_spec');
  if (out === undefined || into === undefined) return opaque(b, e);
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
};

// ---- slices at indices
// -----------------------------------------------------------------------------

/** Start indices of one dtype, all scalars. */
const starts = (b: GraphOfJaxpr, e: Equation, from: number): Arg[] =>
  e.operands.slice(from).map((atom) => b.value(atom));

const dynamicSlice: Lower = (b, e) => {
  const sizes = b.ints(e, 'slice_sizes');
  const words = wordsBehind(b, operand(b, e), sizes.length);
  const first = words.map(() => b.constant(0, b.tensor(operand(b, e, 1)).dtype, []));
  b.emit(e, 'stablehlo.dynamic_slice', [b.value(operand(b, e)), [...starts(b, e, 1), ...first]], {
    slice_sizes: [...sizes, ...words],
  });
};

const table = new Map<string, Lower>([
  ...Object.entries(UNARY).map(([jax, hlo]): [string, Lower] => [
    jax,
    elementwise(`stablehlo.${hlo}`),
  ]),
  ...CHLO.map((name): [string, Lower] => [name, elementwise(`chlo.${name}`)]),
  ...Object.entries(BINARY).map(([jax, hlo]): [string, Lower] => [
    jax,
    elementwise(`stablehlo.${hlo}`),
  ]),
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
  [
    'clamp',
    (b, e) =>
      void b.emit(
        e,
        'stablehlo.clamp',
        e.operands.map((atom) => b.value(atom)),
      ),
  ],
  ['convert_element_type', identity],
  ['pow', power],
  ['integer_pow', integerPower],
  ['square', square],
  ['logistic', logistic],
  ['select_n', selectN],
  ['exp2', exp2],
  ['round', round],
  ['broadcast_in_dim', broadcast],
  ['reshape', reshape],
  ['squeeze', resized],
  ['expand_dims', resized],
  ['tile', tile],
  ['stack', stack],
  ['transpose', transpose],
  [
    'rev',
    (b, e) =>
      void b.emit(e, 'stablehlo.reverse', [b.value(operand(b, e))], {
        dimensions: [...b.ints(e, 'dimensions')],
      }),
  ],
  [
    'concatenate',
    (b, e) =>
      void b.emit(e, 'stablehlo.concatenate', [e.operands.map((atom) => b.value(atom))], {
        dimension: b.int(e, 'dimension'),
      }),
  ],
  ['pad', pad],
  ['slice', slice],
  ['split', split],
  ['dynamic_slice', dynamicSlice],
  [
    'dynamic_update_slice',
    (b, e) =>
      void b.emit(e, 'stablehlo.dynamic_update_slice', [
        b.value(operand(b, e)),
        b.value(operand(b, e, 1)),
        starts(b, e, 2),
      ]),
  ],
  [
    'iota',
    (b, e) =>
      void b.emit(e, 'stablehlo.iota', [b.int(e, 'dimension')], {
        dtype: dtypeArg(dtypeOf(e)),
        shape: shapeOf(e),
      }),
  ],
  [
    'bitcast_convert_type',
    (b, e) =>
      void b.emit(e, 'stablehlo.bitcast_convert', [b.value(operand(b, e))], {
        dtype: dtypeArg(dtypeOf(e)),
        shape: shapeOf(e),
      }),
  ],
  [
    'reduce_precision',
    (b, e) =>
      void b.emit(e, 'stablehlo.reduce_precision', [b.value(operand(b, e))], {
        exponent_bits: b.int(e, 'exponent_bits'),
        mantissa_bits: b.int(e, 'mantissa_bits'),
      }),
  ],
  [
    'optimization_barrier',
    (b, e) =>
      void b.emit(e, 'stablehlo.optimization_barrier', [e.operands.map((atom) => b.value(atom))]),
  ],
  ...REDUCTIONS,
  ...WINDOWS,
  ...MATRICES,
  ...RANDOM,
  ['empty', zeros],
  ['empty2', zeros],
  [
    'sort',
    (b, e) =>
      void b.emit(e, 'stablehlo.sort', [e.operands.map((atom) => b.value(atom))], {
        dimension: b.int(e, 'dimension'),
        is_stable: b.bool(e, 'is_stable'),
        ...(b.int(e, 'num_keys') === 1 ? {} : { num_keys: b.int(e, 'num_keys') }),
      }),
  ],
  ['top_k', (b, e) => void b.emit(e, 'chlo.top_k', [b.value(operand(b, e))], { k: b.int(e, 'k') })],
  ['dot_general', dotGeneral],
  ['ragged_dot_general', raggedProduct],
  ['conv_general_dilated', convolution],
  ...INDEXING,
  ...COLLECTIVES,
]);

/** The entry of a primitive; undefined where there is none. */
export function loweringOf(primitive: string): Lower | undefined {
  return table.get(primitive);
}
