/**
 * Writes HLO instructions, with the attributes of inputs and results, as the StableHLO text of one
 * module with the function `main`. Source: the StableHLO specification, in the forms that JAX 0.10
 * prints and reads.
 */
import { defined } from '../../defined.ts';
import { internalError, ShardwrightError } from '../../errors.ts';
import { roleName } from '../../graph/nodes.ts';
import type { DType } from '../../graph/types.ts';
import {
  type AttributeValue,
  type HloBody,
  HloCode,
  type Instruction,
  isFloat,
  type Val,
} from '../hlo/code.ts';
import type { HloProgram } from '../hlo/program.ts';

const ELEMENTS: Readonly<Record<DType, string>> = {
  f64: 'f64',
  f32: 'f32',
  bf16: 'bf16',
  f16: 'f16',
  f8e4m3fn: 'f8E4M3FN',
  f8e5m2: 'f8E5M2',
  f8e8m0fnu: 'f8E8M0FNU',
  i64: 'i64',
  i32: 'i32',
  i16: 'i16',
  i8: 'i8',
  u64: 'ui64',
  u32: 'ui32',
  u16: 'ui16',
  u8: 'ui8',
  b8: 'i1',
  c64: 'complex<f32>',
  c128: 'complex<f64>',
};

function typeText({ dtype, shape }: Pick<Val, 'dtype' | 'shape'>): string {
  return `tensor<${shape.map((n) => `${n}x`).join('')}${ELEMENTS[dtype]}>`;
}

/** Attributes of the inputs and results, and lines after that of the module. */
interface ModuleText {
  readonly name: string;
  readonly partitions: number;
  readonly header: readonly string[];
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  /** Text of a constraint on a value: `%in` constrained. */
  readonly constraint: (operand: string, sharding: string, type: string) => string;
}

/** @throws E_UNSUPPORTED for what StableHLO has no text for */
export function moduleText(program: HloProgram, text: ModuleText): string {
  const writer = new ModuleWriter(text);
  const params = program.inputs.map(({ value, node }, i) => {
    writer.define(value, `%arg${i}`);
    const dict = text.inputs[i] === '' ? '' : ` {${text.inputs[i]}}`;
    const place = mlirString(roleName(node));
    return `%arg${i}: ${typeText(value)}${dict} loc(${place})`;
  });
  writer.block(program.code, 2);
  const returned = program.outputs.flatMap((value, k) =>
    value === null ? [] : [{ value, dict: text.outputs[k] }],
  );
  const results = returned.map(
    ({ value, dict }) => `${typeText(value)}${dict === '' ? '' : ` {${dict}}`}`,
  );
  const values = returned.map(({ value }) => writer.of(value));
  const types = returned.map(({ value }) => typeText(value));
  return [
    `module @${identifier(text.name)} attributes {mhlo.num_partitions = ${text.partitions} : ` +
      'i32, mhlo.num_replicas = 1 : i32} {',
    ...text.header,
    `  func.func public @main(${params.join(', ')}) -> (${results.join(', ')}) {`,
    ...writer.lines,
    `    return ${values.join(', ')} : ${types.join(', ')}`,
    '  }',
    '}',
    '',
  ].join('\n');
}

function identifier(name: string): string {
  const plain = name.replace(/[^A-Za-z0-9_]/g, '_');
  return /^[A-Za-z_]/.test(plain) ? plain : `m${plain}`;
}

/** All but printable ASCII is written as the bytes of UTF-8 in hexadecimal. */
export function mlirString(text: string): string {
  let out = '';
  for (const byte of new TextEncoder().encode(text)) {
    const plain = byte >= 0x20 && byte < 0x7f && byte !== 0x22 && byte !== 0x5c;
    out += plain
      ? String.fromCharCode(byte)
      : `\\${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }
  return `"${out}"`;
}

const TERMINATOR = 'stablehlo.return';

class ModuleWriter {
  readonly lines: string[] = [];
  private readonly names = new Map<number, string>();
  private count = 0;
  /** The next id of a value in a region that is made apart; those of the program are from 0 on. */
  private apart = -1;

  constructor(private readonly text: ModuleText) {}

  define(value: Val, name: string): void {
    this.names.set(value.id, name);
  }

  of(value: Val): string {
    return this.names.get(value.id) ?? missing(value);
  }

  block(code: readonly Instruction[], depth: number): void {
    for (const instruction of code) this.statement(instruction, depth);
  }

  private statement(instruction: Instruction, depth: number): void {
    const { outputs } = instruction;
    const regions = this.regions(instruction, depth);
    const body = this.operation(instruction, regions);
    const own = `%${this.count++}`;
    outputs.forEach((value, k) => this.define(value, outputs.length === 1 ? own : `${own}#${k}`));
    const left = outputs.length === 1 ? own : `${own}:${outputs.length}`;
    this.lines.push(`${'  '.repeat(depth)}${left} = ${body}`);
  }

  /** Regions of an operation, in round brackets; empty where it has none. */
  private regions(instruction: Instruction, depth: number): string {
    const bodies = bodiesOf(instruction, () => this.apart--);
    if (bodies.length === 0) return '';
    const texts = bodies.map((body) => {
      const from = this.lines.length;
      const params = body.inputs.map((value) => {
        const name = `%r${this.count++}`;
        this.define(value, name);
        return `${name}: ${typeText(value)}`;
      });
      this.block(body.code, depth + 2);
      const lines = this.lines.splice(from);
      const values = body.returns.map((value) => this.of(value)).join(', ');
      const end =
        `${'  '.repeat(depth + 2)}${TERMINATOR} ${values} : ` +
        `${body.returns.map(typeText).join(', ')}`;
      const label =
        params.length === 0 ? [] : [`${'  '.repeat(depth + 1)}^bb0(${params.join(', ')}):`];
      return ['{', ...label, ...lines, end, `${'  '.repeat(depth)}}`].join('\n');
    });
    return ` (${texts.join(', ')})`;
  }

  private operation(instruction: Instruction, regions: string): string {
    const { op, inputs, attributes, outputs } = instruction;
    const names = inputs.map((value) => this.of(value));
    const types = inputs.map(typeText);
    const results = outputs.map(typeText);
    if (op === 'constraint')
      return this.text.constraint(names[0], String(attributes['sharding']), types[0]);
    if (op.startsWith('jax.'))
      refused(instruction, `(${op}) is a call of JAX and has no text in StableHLO`);
    const result = results.length === 1 ? results[0] : `(${results.join(', ')})`;
    const call: Call = {
      instruction,
      name: op.includes('.') ? op : `stablehlo.${op}`,
      names: names.join(', '),
      types,
      out: results[0],
      arrow: `(${types.join(', ')}) -> ${result}`,
      regions,
      word: (name) => String(attributes[name]),
      list: (name) => list(attributes[name]),
    };
    return (OPERATIONS.get(op) ?? plain)(call);
  }
}

/** An instruction as the writer of its operation reads it. */
interface Call {
  readonly instruction: Instruction;
  /** Name of the operation with its dialect. */
  readonly name: string;
  /** Names of the operands. */
  readonly names: string;
  readonly types: readonly string[];
  /** Type of the first result. */
  readonly out: string;
  readonly arrow: string;
  readonly regions: string;
  /** An attribute as it is written. */
  readonly word: (name: string) => string;
  /** An attribute that is a list of sizes. */
  readonly list: (name: string) => string;
}

type Writer = (call: Call) => string;

const CONSTANTS: Readonly<Record<string, Writer>> = {
  constant: ({ instruction: { attributes, outputs }, out }) =>
    `stablehlo.constant dense<${element(attributes['value'], outputs[0].dtype)}> : ${out}`,
  constant_list: ({ instruction: { attributes, outputs }, out }) =>
    `stablehlo.constant dense<${nested(attributes['values'], outputs[0])}> : ${out}`,
  constant_text: ({ word, out }) => `stablehlo.constant dense<${word('payload')}> : ${out}`,
  iota: ({ word, out }) => `stablehlo.iota dim = ${word('iota_dimension')} : ${out}`,
};

const ELEMENTWISE: Readonly<Record<string, Writer>> = {
  compare: ({ instruction, names, types, out, word }) =>
    `stablehlo.compare ${word('comparison_direction')}, ${names}, ` +
    `${comparison(instruction)} : (${types.join(', ')}) -> ${out}`,
  select: ({ names, types, out }) => `stablehlo.select ${names} : ${types[0]}, ${out}`,
  convert: withArrow,
  bitcast_convert: withArrow,
  clamp: (call) => generic(call, []),
  reduce_precision: (call) =>
    generic(call, [
      `exponent_bits = ${call.word('exponent_bits')} : i32`,
      `mantissa_bits = ${call.word('mantissa_bits')} : i32`,
    ]),
};

const MOVEMENT: Readonly<Record<string, Writer>> = {
  reshape: withArrow,
  transpose: ({ names, arrow, list }) =>
    `stablehlo.transpose ${names}, dims = ${list('permutation')} : ${arrow}`,
  broadcast_in_dim: ({ names, arrow, list }) =>
    `stablehlo.broadcast_in_dim ${names}, dims = ${list('broadcast_dimensions')} : ${arrow}`,
  slice: sliced,
  pad: ({ names, arrow, list }) =>
    `stablehlo.pad ${names}, low = ${list('edge_padding_low')}, high = ` +
    `${list('edge_padding_high')}, interior = ${list('interior_padding')} : ${arrow}`,
  concatenate: ({ names, arrow, word }) =>
    `stablehlo.concatenate ${names}, dim = ${word('dimension')} : ${arrow}`,
  reverse: ({ names, out, list }) =>
    `stablehlo.reverse ${names}, dims = ${list('dimensions')} : ${out}`,
  dynamic_slice: ({ names, arrow, list }) =>
    `stablehlo.dynamic_slice ${names}, sizes = ${list('slice_sizes')} : ${arrow}`,
  dynamic_update_slice: withArrow,
  gather: (call) => generic(call, gatherProperties(call.instruction.attributes)),
  scatter: (call) => generic(call, scatterProperties(call.instruction.attributes)),
  sort: (call) =>
    generic(call, [
      `dimension = ${call.word('dimension')} : i64`,
      `is_stable = ${call.word('is_stable')}`,
    ]),
  select_and_scatter: (call) =>
    generic(
      call,
      windowProperties(call.instruction.attributes, ['window_dimensions', 'window_strides']),
    ),
  'chlo.top_k': ({ instruction, names, types, word }) =>
    `chlo.top_k(${names}, k = ${word('k')}) : ${types[0]} -> ` +
    `(${instruction.outputs.map(typeText).join(', ')})`,
  optimization_barrier: ({ names, types }) =>
    `stablehlo.optimization_barrier ${names} : ${types.join(', ')}`,
};

const PRODUCTS: Readonly<Record<string, Writer>> = {
  dot_general: product,
  convolution,
  reduce: (call) =>
    generic(call, [`dimensions = ${array(call.instruction.attributes['dimensions'])}`]),
  reduce_window: (call) => generic(call, windowProperties(call.instruction.attributes)),
};

const MATRICES: Readonly<Record<string, Writer>> = {
  // XLA 0.10.2 ends in a fatal check (fft_handler.cc) where it cuts the transformed dims.
  fft: ({ instruction }) =>
    refused(instruction, 'is not text for XLA, whose partitioner ends the process on a transform'),
  cholesky: ({ names, out, word }) =>
    `stablehlo.cholesky ${names}, lower = ${word('lower')} : ${out}`,
  triangular_solve: (call) =>
    generic(call, [
      `left_side = ${call.word('left_side')}`,
      `lower = ${call.word('lower')}`,
      `transpose_a = #stablehlo<transpose ${call.word('transpose_a')}>`,
      `unit_diagonal = ${call.word('unit_diagonal')}`,
    ]),
  rng_bit_generator: ({ names, arrow, word }) =>
    `stablehlo.rng_bit_generator ${names}, algorithm = ${word('rng_algorithm')} : ${arrow}`,
};

const CONTROL: Readonly<Record<string, Writer>> = {
  if: (call) => generic(call, []),
  case: (call) => generic(call, []),
  while: (call) => generic(call, []),
  collective: ofOneDevice,
  rank_value: ofOneDevice,
  scan: ofOneDevice,
};

const OPERATIONS: ReadonlyMap<string, Writer> = new Map(
  [CONSTANTS, ELEMENTWISE, MOVEMENT, PRODUCTS, MATRICES, CONTROL].flatMap((group) =>
    Object.entries(group),
  ),
);

/** The form that every operation has, with its properties and regions. */
function generic({ name, names, arrow, regions }: Call, properties: readonly string[]): string {
  const list = properties.length === 0 ? '' : ` <{${properties.join(', ')}}>`;
  return `"${name}"(${names})${list}${regions} : ${arrow}`;
}

/** The form of an operation of operands alone: one type where all types are the same. */
function plain({ name, names, types, out, arrow }: Call): string {
  if (name.startsWith('chlo.')) return `${name} ${names} : ${types.join(', ')} -> ${out}`;
  return `${name} ${names} : ${types.every((type) => type === out) ? out : arrow}`;
}

function withArrow({ name, names, arrow }: Call): string {
  return `${name} ${names} : ${arrow}`;
}

function ofOneDevice({ instruction }: Call): never {
  throw internalError(`${instruction.op} in a program of all devices`);
}

function sliced({ instruction, names, arrow }: Call): string {
  const [start, limit, step] = ['start_indices', 'limit_indices', 'strides'].map((name) =>
    ints(instruction.attributes[name]),
  );
  const rows = start.map((s, d) => `${s}:${limit[d]}${step[d] === 1 ? '' : `:${step[d]}`}`);
  return `stablehlo.slice ${names} [${rows.join(', ')}] : ${arrow}`;
}

function refused({ op, note }: Instruction, why: string): never {
  throw new ShardwrightError('E_UNSUPPORTED', `${note ?? op} ${why}`, {
    ...defined({ node: note }),
    hint: '--target jax writes it',
  });
}

function missing({ id }: Val): never {
  throw internalError(`value ${id} is read before it is made`);
}

/**
 * The regions of an operation: its own, or that of the reducer or order that it names.
 *
 * @param freeId an id that no value has
 */
function bodiesOf(instruction: Instruction, freeId: () => number): readonly HloBody[] {
  const { op, bodies, attributes, inputs } = instruction;
  if (bodies.length > 0) return bodies;
  if (op === 'sort') {
    const code = new HloCode();
    const scalars = inputs.flatMap(({ dtype }) => [
      { dtype, shape: [] },
      { dtype, shape: [] },
    ]);
    const keys = Number(attributes['num_keys']);
    return [
      renumbered(
        code.body(scalars, (own) => [before(code, own, keys)]),
        freeId,
      ),
    ];
  }
  const reducer = attributes['reducer'];
  if (reducer === undefined || !['reduce', 'reduce_window', 'scatter'].includes(op)) return [];
  const name = String(reducer);
  const code = new HloCode();
  const scalar = { dtype: inputs[0].dtype, shape: [] };
  if (inputs.length > 3)
    throw new ShardwrightError('E_UNSUPPORTED', `${op} of several tensors by ${name}`);
  const body = code.body([scalar, scalar], ([x, y]) => [
    name === 'second' ? y : name === 'first' ? x : code.binary(name, x, y),
  ]);
  return [renumbered(body, freeId)];
}

/**
 * Tells whether the first of two rows comes before the second by its keys, as JAX compares them.
 */
function before(code: HloCode, own: readonly Val[], keys: number): Val {
  let less: Val | undefined;
  for (let k = keys - 1; k >= 0; k--) {
    const [x, y] = own.slice(2 * k, 2 * k + 2).map((value) => comparable(code, value));
    const type = isFloat(x.dtype) ? 'TOTALORDER' : undefined;
    const first = code.compare('LT', x, y, type);
    less =
      less === undefined
        ? first
        : code.binary('or', first, code.binary('and', code.compare('EQ', x, y, type), less));
  }
  return less ?? code.constant(false, 'b8');
}

/** A float with one zero and one NaN. */
function comparable(code: HloCode, x: Val): Val {
  if (!isFloat(x.dtype)) return x;
  const zero = code.like(x, 0);
  const number = code.select(code.compare('EQ', x, zero), zero, x);
  return code.select(code.compare('NE', x, x), code.like(x, NaN), number);
}

/** Ids of a region that was made apart are its own. */
function renumbered(body: HloBody, freeId: () => number): HloBody {
  const ids = new Map<number, Val>();
  const own = (value: Val): Val => {
    let found = ids.get(value.id);
    if (found === undefined) ids.set(value.id, (found = { ...value, id: freeId() }));
    return found;
  };
  const inputs = body.inputs.map(own);
  const code = body.code.map((i) => ({
    ...i,
    inputs: i.inputs.map(own),
    outputs: i.outputs.map(own),
  }));
  return { inputs, code, returns: body.returns.map(own) };
}

// ---- attributes
// -----------------------------------------------------------------------------

function ints(value: AttributeValue | undefined): readonly number[] {
  if (!Array.isArray(value)) throw internalError('a list of sizes was expected');
  return value as readonly number[];
}

function list(value: AttributeValue | undefined): string {
  return `[${ints(value).join(', ')}]`;
}

function array(value: AttributeValue | undefined): string {
  const members = ints(value);
  return members.length === 0 ? 'array<i64>' : `array<i64: ${members.join(', ')}>`;
}

function comparison({ inputs: [{ dtype }], attributes }: Instruction): string {
  if (attributes['compare_type'] === 'TOTALORDER') return 'TOTALORDER';
  if (dtype === 'b8' || dtype.startsWith('u')) return 'UNSIGNED';
  return dtype.startsWith('i') ? 'SIGNED' : 'FLOAT';
}

function product({ instruction: { attributes: a }, names, arrow }: Call): string {
  const pair = (name: string): string =>
    `${list(a[`lhs_${name}_dimensions`])} x ${list(a[`rhs_${name}_dimensions`])}`;
  const batch =
    ints(a['lhs_batching_dimensions']).length > 0 ? `, batching_dims = ${pair('batching')}` : '';
  return (
    `stablehlo.dot_general ${names}${batch}, contracting_dims = ` +
    `${pair('contracting')} : ${arrow}`
  );
}

function convolution({ instruction, names, arrow }: Call): string {
  const { attributes: a, inputs } = instruction;
  const order = (name: string, letters: readonly [string, string]): string => {
    const dims = ints(a[name]);
    const out = dims.map(() => '');
    dims.forEach((d, i) => (out[d] = letters[i] ?? String(i - 2)));
    return `[${out.join(', ')}]`;
  };
  const numbers =
    `${order('input_dimensions', ['b', 'f'])}x${order('kernel_dimensions', ['i', 'o'])}` +
    `->${order('output_dimensions', ['b', 'f'])}`;
  const spatial = inputs[0].shape.length - 2;
  const each = (name: string): readonly number[] => {
    const given = a[name] === undefined ? [] : ints(a[name]);
    return given.length === 0 ? new Array<number>(spatial).fill(1) : given;
  };
  const pairs = ints(a['padding']);
  const padding = pairs.flatMap((n, i) => (i % 2 === 0 ? [`[${n}, ${pairs[i + 1]}]`] : []));
  const window =
    `stride = [${each('window_strides').join(', ')}], pad = [${padding.join(', ')}], ` +
    `lhs_dilate = [${each('lhs_dilation').join(', ')}], rhs_dilate = ` +
    `[${each('rhs_dilation').join(', ')}]`;
  return (
    `stablehlo.convolution(${names}) dim_numbers = ${numbers}, window = {${window}} ` +
    `{batch_group_count = ${String(a['batch_group_count'])} : i64, feature_group_count = ` +
    `${String(a['feature_group_count'])} : i64} : ${arrow}`
  );
}

const WINDOW_PROPERTIES = [
  'window_dimensions',
  'window_strides',
  'base_dilations',
  'window_dilations',
];

function windowProperties(
  a: Instruction['attributes'],
  names: readonly string[] = WINDOW_PROPERTIES,
): string[] {
  const pairs = ints(a['padding']);
  const rows = pairs.flatMap((n, i) => (i % 2 === 0 ? [`[${n}, ${pairs[i + 1]}]`] : []));
  const padding = `padding = dense<[${rows.join(', ')}]> : tensor<${rows.length}x2xi64>`;
  return [...names.map((n) => `${n} = ${array(a[n])}`), padding];
}

function gatherProperties(a: Instruction['attributes']): string[] {
  const names = [
    'offset_dims',
    'collapsed_slice_dims',
    'operand_batching_dims',
    'start_indices_batching_dims',
    'start_index_map',
  ];
  const given = names.filter((n) => ints(a[n]).length > 0).map((n) => `${n} = ${list(a[n])}`);
  const numbers = [...given, `index_vector_dim = ${String(a['index_vector_dim'])}`].join(', ');
  return [
    `dimension_numbers = #stablehlo.gather<${numbers}>`,
    'indices_are_sorted = false',
    `slice_sizes = ${array(a['slice_sizes'])}`,
  ];
}

function scatterProperties(a: Instruction['attributes']): string[] {
  const names = [
    'update_window_dims',
    'inserted_window_dims',
    'input_batching_dims',
    'scatter_indices_batching_dims',
    'scatter_dims_to_operand_dims',
  ];
  const given = names.filter((n) => ints(a[n]).length > 0).map((n) => `${n} = ${list(a[n])}`);
  const numbers = [...given, `index_vector_dim = ${String(a['index_vector_dim'])}`].join(', ');
  return [
    'indices_are_sorted = false',
    `scatter_dimension_numbers = #stablehlo.scatter<${numbers}>`,
    'unique_indices = false',
  ];
}

// ---- numbers
// -----------------------------------------------------------------------------

const BITS: Readonly<
  Partial<Record<DType, readonly [inf: string, negative: string, nan: string]>>
> = {
  f64: ['0x7FF0000000000000', '0xFFF0000000000000', '0x7FF8000000000000'],
  f32: ['0x7F800000', '0xFF800000', '0x7FC00000'],
  bf16: ['0x7F80', '0xFF80', '0x7FC0'],
  f16: ['0x7C00', '0xFC00', '0x7E00'],
};

/** A number as `dense<>` holds it; what is not finite is its bits. */
function element(value: AttributeValue | undefined, dtype: DType): string {
  if (dtype === 'b8') return Boolean(value) && value !== 0 ? 'true' : 'false';
  if (typeof value === 'bigint') return String(value);
  const number = Number(value);
  if (/^[iu]/.test(dtype)) return String(BigInt(number));
  if (!Number.isFinite(number)) {
    const bits = BITS[dtype];
    if (bits === undefined)
      throw new ShardwrightError('E_UNSUPPORTED', `${number} has no text as ${dtype}`);
    return bits[Number.isNaN(number) ? 2 : number > 0 ? 0 : 1];
  }
  if (dtype.startsWith('c')) return `(${float(number)}, 0.0)`;
  return float(number);
}

function float(value: number): string {
  const text = value.toExponential();
  const [digits, exponent] = text.split('e');
  return `${digits.includes('.') ? digits : `${digits}.0`}e${exponent}`;
}

/** All elements in the brackets of their shape. */
function nested(values: AttributeValue | undefined, { dtype, shape }: Val): string {
  if (!Array.isArray(values)) throw internalError('a list constant without a list');
  let parts = (values as readonly (number | bigint)[]).map((v) => element(v, dtype));
  for (let d = shape.length - 1; d >= 0; d--) {
    const size = shape[d];
    const rows: string[] = [];
    for (let i = 0; i < parts.length; i += Math.max(1, size))
      rows.push(`[${parts.slice(i, i + size).join(', ')}]`);
    parts = rows;
  }
  return parts[0] ?? '';
}
