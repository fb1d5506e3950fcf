/**
 * Writes an HLO instruction as a Python expression of `jax.lax`. Constants are written inside the
 * expressions that read them. Source: the reference of jax.lax in JAX 0.10.
 */
import { pyBool, pyFloat, pyString, pyTuple } from '../../backend/python-text.ts';
import { internalError, ShardwrightError } from '../../errors.ts';
import type { DType } from '../../graph/types.ts';
import {
  type AttributeValue,
  type HloBody,
  type Instruction,
  isFloat,
  type Val,
} from '../hlo/code.ts';
import { type SortKey, sortKeysOf } from '../hlo/sort-keys.ts';

/** Texts of the values that an instruction reads. */
export interface Texts {
  /** The expression of an array. */
  readonly of: (value: Val) => string;
  /** A Python number where the value is one number everywhere, else the array. */
  readonly orNumber: (value: Val) => string;
  readonly isConstant: (value: Val) => boolean;
  /** Name of a function that was made of a region. */
  readonly body: (k: number) => string;
}

export const JAX_TYPES: Readonly<Record<DType, string>> = {
  f64: 'jnp.float64',
  f32: 'jnp.float32',
  bf16: 'jnp.bfloat16',
  f16: 'jnp.float16',
  f8e4m3fn: 'jnp.float8_e4m3fn',
  f8e5m2: 'jnp.float8_e5m2',
  f8e8m0fnu: 'jnp.float8_e8m0fnu',
  i64: 'jnp.int64',
  i32: 'jnp.int32',
  i16: 'jnp.int16',
  i8: 'jnp.int8',
  u64: 'jnp.uint64',
  u32: 'jnp.uint32',
  u16: 'jnp.uint16',
  u8: 'jnp.uint8',
  b8: 'jnp.bool_',
  c64: 'jnp.complex64',
  c128: 'jnp.complex128',
};

/** The name that JAX prints for a type. */
export function jaxTypeName(dtype: DType): string {
  return JAX_TYPES[dtype].slice('jnp.'.length).replace(/_$/, '');
}

const UNARY: Readonly<Record<string, string>> = {
  exponential: 'lax.exp',
  exponential_minus_one: 'lax.expm1',
  log: 'lax.log',
  log_plus_one: 'lax.log1p',
  logistic: 'lax.logistic',
  tanh: 'lax.tanh',
  sqrt: 'lax.sqrt',
  rsqrt: 'lax.rsqrt',
  cbrt: 'lax.cbrt',
  abs: 'lax.abs',
  sign: 'lax.sign',
  sine: 'lax.sin',
  cosine: 'lax.cos',
  tan: 'lax.tan',
  floor: 'lax.floor',
  ceil: 'lax.ceil',
  is_finite: 'lax.is_finite',
  popcnt: 'lax.population_count',
  count_leading_zeros: 'lax.clz',
  real: 'lax.real',
  imag: 'lax.imag',
  'chlo.erf': 'lax.erf',
  'chlo.erfc': 'lax.erfc',
  'chlo.erf_inv': 'lax.erf_inv',
  'chlo.square': 'lax.square',
  'chlo.lgamma': 'lax.lgamma',
  'chlo.digamma': 'lax.digamma',
  'chlo.asin': 'lax.asin',
  'chlo.acos': 'lax.acos',
  'chlo.atan': 'lax.atan',
  'chlo.sinh': 'lax.sinh',
  'chlo.cosh': 'lax.cosh',
  'chlo.asinh': 'lax.asinh',
  'chlo.acosh': 'lax.acosh',
  'chlo.atanh': 'lax.atanh',
  'chlo.conj': 'lax.conj',
  'chlo.is_inf': 'jnp.isinf',
};

const CALLED: Readonly<Record<string, string>> = {
  power: 'lax.pow',
  remainder: 'lax.rem',
  atan2: 'lax.atan2',
  shift_left: 'lax.shift_left',
  complex: 'lax.complex',
  shift_right_arithmetic: 'lax.shift_right_arithmetic',
  shift_right_logical: 'lax.shift_right_logical',
  'chlo.next_after': 'lax.nextafter',
  clamp: 'lax.clamp',
};

const INFIX: Readonly<Record<string, string>> = {
  add: '+',
  subtract: '-',
  multiply: '*',
  and: '&',
  or: '|',
  xor: '^',
};
const COMPARED: Readonly<Record<string, string>> = {
  EQ: '==',
  NE: '!=',
  GE: '>=',
  GT: '>',
  LE: '<=',
  LT: '<',
};
const REDUCERS: Readonly<Record<string, string>> = {
  add: 'lax.add',
  multiply: 'lax.mul',
  maximum: 'lax.max',
  minimum: 'lax.min',
  and: 'lax.bitwise_and',
  or: 'lax.bitwise_or',
  xor: 'lax.bitwise_xor',
};

/** A number as Python writes it. */
export function pyNumber(value: number | bigint | boolean, dtype: DType): string {
  if (typeof value === 'boolean') return pyBool(value);
  if (dtype === 'b8') return pyBool(Boolean(value));
  if (typeof value === 'bigint') return String(value);
  const isWhole = /^[iu]/.test(dtype);
  if (isWhole)
    return Number.isInteger(value) ? String(BigInt(value)) : internal(`${value} as ${dtype}`);
  if (value === Infinity) return 'jnp.inf';
  if (value === -Infinity) return '-jnp.inf';
  return Number.isNaN(value) ? 'jnp.nan' : pyFloat(value);
}

function internal(message: string): never {
  throw internalError(message);
}

function ints(value: AttributeValue | undefined): readonly number[] {
  if (!Array.isArray(value) || value.some((v) => typeof v !== 'number'))
    throw internalError('a list of sizes was expected');
  return value as readonly number[];
}

/** `(1, 2)`. */
export function tuple(values: AttributeValue | undefined): string {
  return pyTuple(ints(values).map(String));
}

/** A call as the writer of its operation reads it. */
interface Call {
  readonly instruction: Instruction;
  readonly texts: Texts;
  readonly inputs: readonly Val[];
  readonly out: Val;
  /** An attribute as it is written. */
  readonly word: (name: string) => string;
  /** An attribute that is a list of sizes, as a tuple. */
  readonly dims: (name: string) => string;
}

type Writer = (call: Call) => string;

function adjoint(matrices: string): string {
  return `jnp.conj(jnp.swapaxes(${matrices}, -1, -2))`;
}

/** Text of the array that an instruction reads at a place. */
function input({ inputs, texts }: Call, at = 0): string {
  return texts.of(inputs[at]);
}

/** The arrays from a place on, as a tuple. */
function inputTuple({ inputs, texts }: Call, from = 0, to = inputs.length): string {
  return pyTuple(inputs.slice(from, to).map(texts.of));
}

const ELEMENTWISE: Readonly<Record<string, Writer>> = {
  divide: ({ instruction, texts }) => infixed(instruction, '/', texts),
  negate: (call) => `-${input(call)}`,
  not: (call) => `~${input(call)}`,
  round_nearest_even: (call) => `lax.round(${input(call)}, lax.RoundingMethod.TO_NEAREST_EVEN)`,
  round_nearest_afz: (call) => `lax.round(${input(call)}, lax.RoundingMethod.AWAY_FROM_ZERO)`,
  maximum: ({ inputs: [x, y], texts }) => `jnp.maximum(${oneArray(x, y, texts)})`,
  minimum: ({ inputs: [x, y], texts }) => `jnp.minimum(${oneArray(x, y, texts)})`,
  compare: ({ instruction, texts, word }) =>
    instruction.attributes['compare_type'] === undefined
      ? infixed(instruction, COMPARED[word('comparison_direction')], texts)
      : none(instruction, 'compares by the total order of floats'),
  select: ({ inputs: [where, x, y], texts }) =>
    `jnp.where(${texts.of(where)}, ${oneArray(x, y, texts)})`,
  convert: (call) => `lax.convert_element_type(${input(call)}, ${JAX_TYPES[call.out.dtype]})`,
  bitcast_convert: (call) =>
    `lax.bitcast_convert_type(${input(call)}, ${JAX_TYPES[call.out.dtype]})`,
  reduce_precision: (call) =>
    `lax.reduce_precision(${input(call)}, ${call.word('exponent_bits')}, ` +
    `${call.word('mantissa_bits')})`,
};

const CONSTANTS: Readonly<Record<string, Writer>> = {
  iota: ({ out, word }) =>
    `lax.broadcasted_iota(${JAX_TYPES[out.dtype]}, ${tuple(out.shape)}, ` +
    `${word('iota_dimension')})`,
  constant_list: ({ instruction, out }) => listText(instruction.attributes['values'], out),
  constant_text: ({ word, out }) => payload(word('payload'), out),
  rank_value: ({ instruction, out }) =>
    `jnp.array(${listOf(instruction.attributes['values'], out.dtype)}, ` +
    `${JAX_TYPES[out.dtype]})[rank]`,
};

const MOVEMENT: Readonly<Record<string, Writer>> = {
  reshape: (call) => `lax.reshape(${input(call)}, ${tuple(call.out.shape)})`,
  transpose: (call) => `lax.transpose(${input(call)}, ${call.dims('permutation')})`,
  broadcast_in_dim: (call) =>
    `lax.broadcast_in_dim(${input(call)}, ${tuple(call.out.shape)}, ` +
    `${call.dims('broadcast_dimensions')})`,
  slice: sliced,
  pad: padded,
  concatenate: ({ inputs, texts, word }) =>
    `lax.concatenate([${inputs.map(texts.of).join(', ')}], ${word('dimension')})`,
  reverse: (call) => `lax.rev(${input(call)}, ${call.dims('dimensions')})`,
  dynamic_slice: (call) =>
    `lax.dynamic_slice(${input(call)}, ${inputTuple(call, 1)}, ${call.dims('slice_sizes')})`,
  dynamic_update_slice: (call) =>
    `lax.dynamic_update_slice(${input(call)}, ${input(call, 1)}, ${inputTuple(call, 2)})`,
  gather: ({ instruction, texts }) => gathered(instruction, texts),
  scatter: ({ instruction, texts }) => scattered(instruction, texts),
  sort: sorted,
  'chlo.top_k': (call) => `lax.top_k(${input(call)}, ${call.word('k')})`,
  constraint: (call) => `lax.with_sharding_constraint(${input(call)}, ${call.word('sharding')})`,
  optimization_barrier: (call) => `lax.optimization_barrier(${inputTuple(call)})`,
};

const PRODUCTS: Readonly<Record<string, Writer>> = {
  dot_general: ({ instruction, texts }) => product(instruction, texts),
  convolution: ({ instruction, texts }) => convolution(instruction, texts),
  reduce: ({ instruction, texts }) => reduction(instruction, texts),
  reduce_window: windowed,
  select_and_scatter: chosen,
  collective: ({ instruction, texts }) => collective(instruction, texts),
};

const MATRICES: Readonly<Record<string, Writer>> = {
  fft: (call) =>
    `lax.fft(${input(call)}, lax.FftType.${call.word('fft_type')}, ${call.dims('fft_length')})`,
  cholesky: (call) => {
    const factor = (x: string): string => `lax.linalg.cholesky(${x}, symmetrize_input=False)`;
    // JAX factors what the lower triangle has.
    return call.instruction.attributes['lower'] === true
      ? factor(input(call))
      : adjoint(factor(adjoint(input(call))));
  },
  triangular_solve: (call) => {
    const { attributes } = call.instruction;
    const how = call.word('transpose_a');
    const rest = [
      `left_side=${pyBool(attributes['left_side'] === true)}`,
      `lower=${pyBool(attributes['lower'] === true)}`,
      `transpose_a=${pyBool(how !== 'NO_TRANSPOSE')}`,
      `conjugate_a=${pyBool(how === 'ADJOINT')}`,
      `unit_diagonal=${pyBool(attributes['unit_diagonal'] === true)}`,
    ];
    return `lax.linalg.triangular_solve(${inputTuple(call).slice(1, -1)}, ${rest.join(', ')})`;
  },
  rng_bit_generator: (call) => {
    const { dtype, shape } = call.instruction.outputs[1];
    return (
      `lax.rng_bit_generator(${input(call)}, ${tuple(shape)}, ${JAX_TYPES[dtype]}, ` +
      `lax.RandomAlgorithm.RNG_${call.word('rng_algorithm')})`
    );
  },
};

const RANDOM: Readonly<Record<string, Writer>> = {
  'jax.random_bits': (call) => {
    const rest = `${call.dims('shape')}, ${JAX_TYPES[call.out.dtype]}`;
    return ofEachKey(call, (keys) => `jax.random.bits(${keys}, ${rest})`);
  },
  'jax.random_split': (call) =>
    keyData(ofEachKey(call, (keys) => `jax.random.split(${keys}, ${call.dims('shape')})`)),
  'jax.random_fold_in': (call) =>
    keyData(ofEachKey(call, (keys, msgs) => `jax.random.fold_in(${keys}, ${msgs})`)),
};

const CONTROL: Readonly<Record<string, Writer>> = {
  if: (call) => `lax.cond(${input(call)}, ${call.texts.body(0)}, ${call.texts.body(1)})`,
  case: (call) => {
    const branches = call.instruction.bodies.map((_, k) => call.texts.body(k));
    return `lax.switch(${input(call)}, [${branches.join(', ')}])`;
  },
  while: (call) =>
    `lax.while_loop(${call.texts.body(0)}, ${call.texts.body(1)}, ${inputTuple(call)})`,
  scan: scanned,
};

const WRITERS: ReadonlyMap<string, Writer> = new Map(
  [ELEMENTWISE, CONSTANTS, MOVEMENT, PRODUCTS, MATRICES, RANDOM, CONTROL].flatMap((group) =>
    Object.entries(group),
  ),
);

/** The expression of an instruction. @throws E_UNSUPPORTED for one that JAX has no text for */
export function expression(instruction: Instruction, texts: Texts): string {
  const { op, inputs, attributes, outputs } = instruction;
  if (INFIX[op] !== undefined) return infixed(instruction, INFIX[op], texts);
  if (UNARY[op] !== undefined) return `${UNARY[op]}(${texts.of(inputs[0])})`;
  if (CALLED[op] !== undefined) return `${CALLED[op]}(${inputs.map(texts.of).join(', ')})`;
  const writer = WRITERS.get(op) ?? none(instruction, `(${op}) has no text in JAX`);
  return writer({
    instruction,
    texts,
    inputs,
    out: outputs[0],
    word: (name) => String(attributes[name]),
    dims: (name) => tuple(attributes[name]),
  });
}

function none({ op, note }: Instruction, why: string): never {
  throw new ShardwrightError(
    'E_UNSUPPORTED',
    `${note ?? op} ${why}`,
    note === undefined ? {} : { node: note },
  );
}

/** One of two operands may be a number; of two numbers the first is made an array. */
function oneArray(x: Val, y: Val, texts: Texts): string {
  if (texts.isConstant(x) && texts.isConstant(y)) return `${texts.of(x)}, ${texts.of(y)}`;
  return `${texts.orNumber(x)}, ${texts.orNumber(y)}`;
}

function infixed({ op, inputs: [x, y] }: Instruction, sign: string, texts: Texts): string {
  const whole = /^[iu]/.test(x.dtype);
  if (op === 'divide' && whole) return `lax.div(${texts.of(x)}, ${texts.of(y)})`;
  const left = texts.isConstant(y) ? texts.of(x) : texts.orNumber(x);
  return `${left} ${sign} ${texts.orNumber(y)}`;
}

function sliced(call: Call): string {
  const { instruction, dims } = call;
  const isDense = ints(instruction.attributes['strides']).every((step) => step === 1);
  const steps = isDense ? '' : `, ${dims('strides')}`;
  return `lax.slice(${input(call)}, ${dims('start_indices')}, ${dims('limit_indices')}${steps})`;
}

function padded(call: Call): string {
  const { attributes } = call.instruction;
  const [low, high, inner] = ['edge_padding_low', 'edge_padding_high', 'interior_padding'].map(
    (name) => ints(attributes[name]),
  );
  const rows = low.map((n, d) => pyTuple([n, high[d], inner[d]].map(String)));
  return `lax.pad(${input(call)}, ${input(call, 1)}, ${pyTuple(rows)})`;
}

/** The padding before and after each dim, as a tuple of pairs. */
function paddingPairs({ attributes }: Instruction): string {
  const numbers = ints(attributes['padding']);
  const pairs = numbers.flatMap((n, i) =>
    i % 2 === 0 ? [pyTuple([n, numbers[i + 1]].map(String))] : [],
  );
  return pyTuple(pairs);
}

function windowed(call: Call): string {
  const { instruction, dims } = call;
  const rest = [
    dims('window_dimensions'),
    dims('window_strides'),
    paddingPairs(instruction),
    dims('base_dilations'),
    dims('window_dilations'),
  ];
  return (
    `lax.reduce_window(${input(call)}, ${input(call, 1)}, ${reducerOf(instruction)}, ` +
    `${rest.join(', ')})`
  );
}

function keyData(keys: string): string {
  return `jax.random.key_data(${keys})`;
}

/** A call of a JAX function of one key, mapped over an array of keys. */
function ofEachKey(call: Call, text: (keys: string, other: string) => string): string {
  const { inputs, texts, word } = call;
  const keys = `jax.random.wrap_key_data(${input(call)}, impl=${pyString(word('impl'))})`;
  const other = inputs.length > 1 ? texts.of(inputs[1]) : '';
  const dims = inputs[0].shape.length - 1;
  if (dims === 0) return text(keys, other);
  const [names, values] = other === '' ? ['a', keys] : ['a, b', `${keys}, ${other}`];
  const of = `${'jax.vmap('.repeat(dims)}lambda ${names}: ${text('a', 'b')}${')'.repeat(dims)}`;
  return `${of}(${values})`;
}

/**
 * JAX has `select_and_scatter` only as the gradient of a window's maximum or minimum, so no other
 * selection can be written.
 */
function chosen(call: Call): string {
  const { instruction, texts, inputs, dims } = call;
  const [select, scatter] = instruction.bodies.map(operationOf);
  const direction = select?.op === 'compare' ? select.attributes['comparison_direction'] : '';
  const keeps = { GE: ['-jnp.inf', 'lax.max'], LE: ['jnp.inf', 'lax.min'] }[String(direction)];
  if (keeps === undefined || scatter?.op !== 'add' || !isFloat(inputs[0].dtype))
    return none(instruction, 'chooses or scatters otherwise than the gradient of a pool does');
  const windows = [dims('window_dimensions'), dims('window_strides'), paddingPairs(instruction)];
  const gradient =
    `jax.vjp(lambda a: lax.reduce_window(a, ${keeps.join(', ')}, ${windows.join(', ')}), ` +
    `${input(call)})[1](${input(call, 1)})[0]`;
  const from = texts.orNumber(inputs[2]);
  return Number(from) === 0 ? gradient : `${gradient} + ${from}`;
}

/** The operation of a region that does one thing to its own two numbers, in their order. */
function operationOf({ inputs, code, returns }: HloBody): Instruction | undefined {
  const made = code.find(({ outputs }) => outputs.some(({ id }) => id === returns[0].id));
  return made?.inputs.map(({ id }) => id).join() === inputs.map(({ id }) => id).join()
    ? made
    : undefined;
}

function sorted(call: Call): string {
  const { instruction, texts, inputs, word } = call;
  const [comparator] = instruction.bodies;
  const given = `dimension=${word('dimension')}, is_stable=${pyBool(
    instruction.attributes['is_stable'] === true,
  )}`;
  if (comparator === undefined)
    return `lax.sort(${inputTuple(call)}, ${given}, num_keys=${word('num_keys')})`;
  const keys =
    sortKeysOf(comparator) ??
    none(instruction, 'sorts by a comparator that is not an order of keys');
  if (keys.every((key, k) => key.operand === k && !key.isDescending && !key.hasSignedZeros))
    return `lax.sort(${inputTuple(call)}, ${given}, num_keys=${keys.length})`;
  // The keys go first, each so that it ascends, and are left out of the results.
  const first = keys.flatMap((key) => ascending(inputs[key.operand], key, texts));
  const all = pyTuple([...first, ...inputs.map(texts.of)]);
  return `lax.sort(${all}, ${given}, num_keys=${first.length})[${first.length}:]`;
}

/**
 * Arrays that ascend in the order of a key. NaN is last among ascending numbers, first among
 * others.
 */
function ascending(value: Val, { isDescending, hasSignedZeros }: SortKey, texts: Texts): string[] {
  const x = texts.of(value);
  const zeros = hasSignedZeros ? [`${isDescending ? '' : '~'}jnp.signbit(${x})`] : [];
  if (!isDescending) return [x, ...zeros];
  return isFloat(value.dtype) ? [`${x} == ${x}`, `-${x}`, ...zeros] : [`~${x}`];
}

function scanned(call: Call): string {
  const { instruction, texts, inputs, word } = call;
  const carries = Number(instruction.attributes['carries']);
  const xs = inputs.length > carries ? inputTuple(call, carries) : 'None';
  const reverse = instruction.attributes['reverse'] === true ? ', reverse=True' : '';
  return (
    `lax.scan(${texts.body(0)}, ${inputTuple(call, 0, carries)}, ${xs}, ` +
    `length=${word('length')}${reverse})`
  );
}

function product(
  { inputs: [x, y], attributes: a, outputs: [out] }: Instruction,
  texts: Texts,
): string {
  const [lb, rb, lc, rc] = [
    'lhs_batching',
    'rhs_batching',
    'lhs_contracting',
    'rhs_contracting',
  ].map((n) => ints(a[`${n}_dimensions`]));
  const [left, right] = [texts.of(x), texts.of(y)];
  const matrices =
    x.shape.length === 2 &&
    y.shape.length === 2 &&
    lb.length === 0 &&
    lc.join() === '1' &&
    rc.join() === '0';
  if (matrices && x.dtype === out.dtype && y.dtype === out.dtype) return `${left} @ ${right}`;
  const numbers = `((${tuple(lc)}, ${tuple(rc)}), (${tuple(lb)}, ${tuple(rb)}))`;
  return (
    `lax.dot_general(${left}, ${right}, ${numbers}, ` +
    `preferred_element_type=${JAX_TYPES[out.dtype]})`
  );
}

function convolution(instruction: Instruction, texts: Texts): string {
  const {
    inputs: [x, w],
    attributes: a,
  } = instruction;
  const [input, feature, ...spatial] = ints(a['kernel_dimensions']);
  // JAX names the output features of a kernel first.
  const numbers =
    `lax.ConvDimensionNumbers(${tuple(a['input_dimensions'])}, ` +
    `${tuple([feature, input, ...spatial])}, ${tuple(a['output_dimensions'])})`;
  const dilation = ['lhs_dilation', 'rhs_dilation'].flatMap((n) =>
    a[n] === undefined ? [] : [`${n}=${tuple(a[n])}`],
  );
  const counts = ['feature_group_count', 'batch_group_count'].flatMap((n) =>
    a[n] === undefined ? [] : [`${n}=${String(a[n])}`],
  );
  const rest = [
    tuple(a['window_strides']),
    paddingPairs(instruction),
    ...dilation,
    `dimension_numbers=${numbers}`,
    ...counts,
  ];
  return `lax.conv_general_dilated(${texts.of(x)}, ${texts.of(w)}, ${rest.join(', ')})`;
}

function reducerOf(instruction: Instruction): string {
  const name = REDUCERS[String(instruction.attributes['reducer'])];
  return name ?? none(instruction, 'reduces by a body that has no name');
}

function reduction(instruction: Instruction, texts: Texts): string {
  const { inputs, attributes, bodies } = instruction;
  const half = inputs.length / 2;
  const dims = tuple(attributes['dimensions']);
  if (bodies.length === 0)
    return (
      `lax.reduce(${texts.of(inputs[0])}, ${texts.of(inputs[1])}, ${reducerOf(instruction)}, ` +
      `${dims})`
    );
  const [values, inits] = [inputs.slice(0, half), inputs.slice(half)].map((list) =>
    pyTuple(list.map(texts.of)),
  );
  return `lax.reduce(${values}, ${inits}, lambda a, b: ${texts.body(0)}(*a, *b), ${dims})`;
}

/** JAX wants index vectors in the last dim. */
function vectors(indices: Val, dim: number, texts: Texts): string {
  const rank = indices.shape.length;
  if (dim === rank - 1) return texts.of(indices);
  if (dim === rank) return `lax.expand_dims(${texts.of(indices)}, (${rank},))`;
  return `jnp.moveaxis(${texts.of(indices)}, ${dim}, -1)`;
}

function gathered({ inputs: [x, indices], attributes: a }: Instruction, texts: Texts): string {
  const names = [
    'offset_dims',
    'collapsed_slice_dims',
    'start_index_map',
    'operand_batching_dims',
    'start_indices_batching_dims',
  ] as const;
  const given = names
    .filter((n, i) => i < 3 || ints(a[n]).length > 0)
    .map((n) => `${n}=${tuple(a[n])}`);
  const at = vectors(indices, Number(a['index_vector_dim']), texts);
  return (
    `lax.gather(${texts.of(x)}, ${at}, lax.GatherDimensionNumbers(${given.join(', ')}), ` +
    `${tuple(a['slice_sizes'])}, mode="clip")`
  );
}

const SCATTERS: Readonly<Record<string, string>> = {
  add: 'scatter_add',
  second: 'scatter',
  maximum: 'scatter_max',
  minimum: 'scatter_min',
  multiply: 'scatter_mul',
};

function scattered(instruction: Instruction, texts: Texts): string {
  const { inputs, attributes: a } = instruction;
  const [x, indices, updates] = inputs;
  const name = SCATTERS[String(a['reducer'])];
  if (name === undefined || inputs.length !== 3)
    return none(instruction, 'scatters by a body that has no name');
  const names = {
    update_window_dims: 'update_window_dims',
    inserted_window_dims: 'inserted_window_dims',
    scatter_dims_to_operand_dims: 'scatter_dims_to_operand_dims',
    input_batching_dims: 'operand_batching_dims',
    scatter_indices_batching_dims: 'scatter_indices_batching_dims',
  };
  const given = Object.entries(names)
    .filter(([n], i) => i < 3 || ints(a[n]).length > 0)
    .map(([n, own]) => `${own}=${tuple(a[n])}`);
  const at = vectors(indices, Number(a['index_vector_dim']), texts);
  return (
    `lax.${name}(${texts.of(x)}, ${at}, ${texts.of(updates)}, ` +
    `lax.ScatterDimensionNumbers(${given.join(', ')}), mode="drop")`
  );
}

function collective(instruction: Instruction, texts: Texts): string {
  const { inputs, attributes: a } = instruction;
  const names = String(a['axes']).split(',').map(pyString);
  const axes = names.length === 1 ? names[0] : pyTuple(names);
  const x = texts.of(inputs[0]);
  const op = a['reduce'] === undefined ? undefined : String(a['reduce']);
  switch (String(a['kind'])) {
    case 'all_gather':
      return `lax.all_gather(${x}, ${axes}, axis=0, tiled=True)`;
    case 'all_to_all':
      return `lax.all_to_all(${x}, ${axes}, split_axis=0, concat_axis=0, tiled=True)`;
    case 'collective_permute': {
      const pairs = ints(a['targets']).map((to, from) => `(${from}, ${to})`);
      return `lax.ppermute(${x}, ${axes}, [${pairs.join(', ')}])`;
    }
    case 'reduce_scatter': {
      const scattered = `lax.psum_scatter(${x}, ${axes}, scatter_dimension=0, tiled=True)`;
      if (op === 'sum') return scattered;
      return op === 'avg'
        ? `${scattered} / ${String(a['members'])}`
        : scatteredExtreme(instruction, x, axes, op);
    }
    default:
      return allReduce(instruction, x, axes, op);
  }
}

/**
 * JAX scatters sums only: of other reductions each member is sent its part by all, and reduces
 * them.
 */
function scatteredExtreme(
  instruction: Instruction,
  x: string,
  axes: string,
  op: string | undefined,
): string {
  const {
    attributes,
    outputs: [out],
  } = instruction;
  const reducer = { max: 'max', min: 'min', product: 'prod', bor: 'any', band: 'all' }[op ?? ''];
  if (reducer === undefined || (reducer.startsWith('a') && out.dtype !== 'b8'))
    return none(instruction, `scatters a ${op ?? ''} reduction`);
  const parts = `lax.all_to_all(${x}, ${axes}, split_axis=0, concat_axis=0, tiled=True)`;
  return (
    `jnp.${reducer}(lax.reshape(${parts}, ` +
    `${tuple([Number(attributes['members']), ...out.shape])}), axis=0)`
  );
}

/** Tells whether a collective is written as another kind, of which JAX has one. */
export function writtenKind(kind: string, reduce: string | undefined): string {
  if (kind === 'reduce_scatter' && reduce !== 'sum' && reduce !== 'avg') return 'all_to_all';
  return kind === 'all_reduce' && reduce === 'product' ? 'all_gather' : kind;
}

function allReduce(
  instruction: Instruction,
  x: string,
  axes: string,
  op: string | undefined,
): string {
  const { dtype } = instruction.outputs[0];
  switch (op) {
    case 'sum':
      return `lax.psum(${x}, ${axes})`;
    case 'avg':
      return `lax.pmean(${x}, ${axes})`;
    case 'max':
    case 'min':
      return `lax.p${op}(${x}, ${axes})`;
    case 'bor':
    case 'band':
      if (dtype !== 'b8') return none(instruction, `reduces bits (${op})`);
      return (
        `lax.p${op === 'bor' ? 'max' : 'min'}(${x}.astype(jnp.int32), ` +
        `${axes}).astype(jnp.bool_)`
      );
    case 'product':
      return `jnp.prod(lax.all_gather(${x}, ${axes}), axis=0)`;
    default:
      return none(instruction, `reduces by ${op ?? 'nothing'}`);
  }
}

// ---- constants
// -----------------------------------------------------------------------------

function listOf(values: AttributeValue | undefined, dtype: DType): string {
  if (!Array.isArray(values)) throw internalError('a list constant without a list');
  return `[${(values as readonly (number | bigint)[]).map((v) => pyNumber(v, dtype)).join(', ')}]`;
}

function listText(values: AttributeValue | undefined, { dtype, shape }: Val): string {
  const flat = `jnp.array(${listOf(values, dtype)}, ${JAX_TYPES[dtype]})`;
  return shape.length === 1 ? flat : `lax.reshape(${flat}, ${tuple(shape)})`;
}

/** Bytes in hexadecimal, or nested lists of numbers, as MLIR writes them. */
function payload(text: string, { dtype, shape }: Val): string {
  const plain = text.trim().replace(/^"|"$/g, '');
  if (/^0x[0-9a-fA-F]*$/.test(plain))
    return (
      `jnp.array(np.frombuffer(bytes.fromhex(${pyString(plain.slice(2))}), ` +
      `${JAX_TYPES[dtype]}).reshape(${tuple(shape)}))`
    );
  const words = plain.match(/\([^)]*\)|[^[\],\s]+/g) ?? [];
  const numbers = words.map((word) => {
    const parts = /^\((.*),(.*)\)$/.exec(word)?.slice(1);
    return parts === undefined ? numberOf(word) : `complex(${parts.map(numberOf).join(', ')})`;
  });
  const type = JAX_TYPES[dtype];
  // One element stands for all.
  if (numbers.length === 1) return `jnp.full(${tuple(shape)}, ${numbers[0]}, ${type})`;
  return `lax.reshape(jnp.array([${numbers.join(', ')}], ${type}), ${tuple(shape)})`;
}

/** A number of MLIR as Python writes it. */
function numberOf(text: string): string {
  const word = text.trim();
  if (word === 'true' || word === 'false') return word === 'true' ? 'True' : 'False';
  if (/^[+-]?\d+$/.test(word)) return String(BigInt(word));
  const value = Number(word);
  if (!/^[+-]?[\d.]+([eE][+-]?\d+)?$/.test(word) || Number.isNaN(value))
    throw new ShardwrightError(
      'E_UNSUPPORTED',
      `a constant with the element '${word.slice(0, 20)}' has no text in JAX`,
    );
  return pyFloat(value);
}
