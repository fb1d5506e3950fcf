/**
 * How each operation is written as a call: operands into positional arguments, attributes into
 * keywords of the names that `src/ops/stablehlo` has. One table; what is not in it takes its
 * operands as they are and its attributes one by one.
 */

import type { Arg, GraphRef, ValueRef } from '../../graph/types.ts';
import { NO_KWARGS } from '../../graph/value.ts';
import { firstItems, itemAt } from '../../item-at.ts';
import { recogniseReducer } from './reducer.ts';
import { denseValue } from './syntax/dense.ts';
import type { MlirReader } from './syntax/reader.ts';
import type { MlirAttribute, MlirTensor, Operation, Region } from './syntax/syntax.ts';
import type { AttributeValues } from './values.ts';

type AttributeKind = 'int' | 'ints' | 'bool' | 'word' | 'words' | 'float' | 'struct' | 'plain';

interface Conversion {
  /** Operands as arguments; one argument an operand by default. */
  readonly operands?: (values: readonly ValueRef[], fail: (message: string) => never) => Arg[];
  /** Attributes by name; a second entry renames. */
  readonly attributes?: Readonly<Record<string, AttributeKind | readonly [AttributeKind, string]>>;
  /**
   * The parts of the result type that become arguments: always, or `dtype?` only where it differs
   * from that of the first operand.
   */
  readonly result?: readonly ('dtype' | 'shape' | 'dtype?')[];
  /** Keyword of each region; `reducer` names a simple body and keeps any other as `body`. */
  readonly regions?: readonly string[];
}

const oneList = (values: readonly ValueRef[]): Arg[] => [[...values]];
/** The first `n` operands alone, the others as a list. */
const thenList =
  (n: number) =>
  (values: readonly ValueRef[]): Arg[] => [...values.slice(0, n), values.slice(n)];
/** Two lists of equal length. */
const halves = (values: readonly ValueRef[], fail: (message: string) => never): Arg[] => {
  if (values.length === 0 || values.length % 2 !== 0)
    fail(`${values.length} operands; they come in pairs`);
  return [values.slice(0, values.length / 2), values.slice(values.length / 2)];
};

const WINDOW = {
  window_dimensions: 'ints',
  window_strides: 'ints',
  base_dilations: 'ints',
  window_dilations: 'ints',
  padding: 'ints',
} as const;
const NORM = { epsilon: 'float', feature_index: 'int' } as const;
const PRODUCT = { precision_config: ['words', 'precision'], algorithm: 'plain' } as const;
const GROUPS = { replica_groups: 'plain', use_global_device_ids: 'bool' } as const;

const CONVERSIONS: Readonly<Record<string, Conversion>> = {
  compare: { attributes: { comparison_direction: 'word', compare_type: 'word' } },
  'chlo.broadcast_compare': { attributes: { comparison_direction: 'word', compare_type: 'word' } },
  convert: { result: ['dtype'] },
  bitcast_convert: { result: ['dtype', 'shape'] },
  iota: { attributes: { iota_dimension: 'int' }, result: ['dtype', 'shape'] },
  broadcast_in_dim: { attributes: { broadcast_dimensions: 'ints' }, result: ['shape'] },
  broadcast: { result: ['shape'] },
  reshape: { result: ['shape'] },
  transpose: { attributes: { permutation: 'ints' } },
  slice: { attributes: { start_indices: 'ints', limit_indices: 'ints', strides: 'ints' } },
  pad: {
    attributes: { edge_padding_low: 'ints', edge_padding_high: 'ints', interior_padding: 'ints' },
  },
  concatenate: { operands: oneList, attributes: { dimension: 'int' } },
  reverse: { attributes: { dimensions: 'ints' } },
  dynamic_slice: { operands: thenList(1), attributes: { slice_sizes: 'ints' } },
  dynamic_update_slice: { operands: thenList(2) },
  get_dimension_size: { attributes: { dimension: 'int' } },
  reduce_precision: { attributes: { exponent_bits: 'int', mantissa_bits: 'int' } },
  optimization_barrier: { operands: oneList },
  dot_general: { attributes: { dot_dimension_numbers: 'struct', ...PRODUCT }, result: ['dtype?'] },
  dot: { attributes: PRODUCT, result: ['dtype?'] },
  einsum: { attributes: { einsum_config: 'word' } },
  convolution: {
    attributes: {
      dimension_numbers: 'struct',
      window_strides: 'ints',
      padding: 'ints',
      lhs_dilation: 'ints',
      rhs_dilation: 'ints',
      window_reversal: 'ints',
      feature_group_count: 'int',
      batch_group_count: 'int',
      ...PRODUCT,
    },
    result: ['dtype?'],
  },
  triangular_solve: {
    attributes: { left_side: 'bool', lower: 'bool', unit_diagonal: 'bool', transpose_a: 'word' },
  },
  cholesky: { attributes: { lower: 'bool' } },
  fft: { attributes: { fft_type: 'word', fft_length: 'ints' } },
  gather: {
    attributes: { dimension_numbers: 'struct', slice_sizes: 'ints', indices_are_sorted: 'bool' },
  },
  scatter: {
    operands: (values, fail) => {
      if (values.length < 3 || values.length % 2 === 0)
        fail(`${values.length} operands; expected inputs, indices, updates`);
      const n = (values.length - 1) / 2;
      return [values.slice(0, n), itemAt(values, n), values.slice(n + 1)];
    },
    attributes: {
      scatter_dimension_numbers: 'struct',
      indices_are_sorted: 'bool',
      unique_indices: 'bool',
    },
    regions: ['reducer'],
  },
  reduce: { operands: halves, attributes: { dimensions: 'ints' }, regions: ['reducer'] },
  reduce_window: { operands: halves, attributes: WINDOW, regions: ['reducer'] },
  select_and_scatter: { attributes: WINDOW, regions: ['select', 'scatter'] },
  sort: {
    operands: oneList,
    attributes: { dimension: 'int', is_stable: 'bool' },
    regions: ['comparator'],
  },
  map: {
    operands: oneList,
    attributes: { dimensions: 'ints' },
    result: ['dtype?'],
    regions: ['computation'],
  },
  'chlo.top_k': { attributes: { k: 'int' } },
  batch_norm_training: { attributes: NORM },
  batch_norm_inference: { attributes: NORM },
  batch_norm_grad: { attributes: NORM },
  all_reduce: { operands: oneList, attributes: GROUPS, regions: ['reducer'] },
  all_gather: { attributes: { all_gather_dim: 'int', ...GROUPS } },
  reduce_scatter: { attributes: { scatter_dimension: 'int', ...GROUPS }, regions: ['reducer'] },
  all_to_all: {
    attributes: {
      split_dimension: 'int',
      concat_dimension: 'int',
      split_count: 'int',
      replica_groups: 'plain',
    },
  },
  collective_permute: { attributes: { source_target_pairs: 'plain' } },
  collective_broadcast: { attributes: { replica_groups: 'plain' } },
  partition_id: {},
  replica_id: {},
  rng: {
    operands: (values) => values.slice(0, 2),
    attributes: { rng_distribution: 'word' },
    result: ['shape', 'dtype?'],
  },
  rng_bit_generator: { attributes: { rng_algorithm: 'word' } },
};

export interface ConvertedCall {
  readonly args: readonly Arg[];
  readonly kwargs: Readonly<Record<string, Arg>>;
}

interface ConvertOptions {
  readonly reader: MlirReader;
  readonly values: AttributeValues;
  /** Makes a subgraph of a region and returns its reference. */
  readonly region: (region: Region, keyword: string) => GraphRef;
  /** Types of the operands, flat. */
  readonly operandTypes: readonly MlirTensor[];
  readonly resultTypes: readonly MlirTensor[];
}

/** @throws E_TYPE where an attribute does not have the form that the operation wants */
export function convertCall(
  base: string,
  operation: Operation,
  operands: readonly ValueRef[],
  options: ConvertOptions,
): ConvertedCall {
  const { reader } = options;
  const { at, attributes } = operation;
  const conversion = Object.hasOwn(CONVERSIONS, base) ? CONVERSIONS[base] : undefined;
  if (conversion === undefined && attributes.size === 0)
    return { args: operands, kwargs: NO_KWARGS };
  const fail = (message: string): never => {
    throw reader.error('E_TYPE', `${operation.name}: ${message}`, at);
  };
  const kwargs: Record<string, Arg> = {};
  const put = (name: string, value: Arg): void => {
    Object.defineProperty(kwargs, name, {
      value,
      enumerable: true,
      configurable: true,
      writable: true,
    });
  };
  const args = conversion?.operands?.(operands, fail) ?? [...operands];
  putAttributes(conversion, operation, put, options);
  const [first] = options.resultTypes;
  for (const part of conversion?.result ?? []) {
    if (first === undefined) fail('has no result');
    else if (part === 'shape') put('shape', [...first.shape]);
    else if (part === 'dtype' || options.operandTypes[0]?.dtype !== first.dtype)
      put('dtype', { kind: 'dtype', dtype: first.dtype });
  }
  (conversion?.regions ?? []).forEach((keyword, i) => {
    const region = operation.regions[i];
    if (region === undefined) return;
    const known = keyword === 'reducer' ? recogniseReducer(region) : undefined;
    if (known !== undefined) put('reducer', known);
    else put(keyword === 'reducer' ? 'body' : keyword, options.region(region, keyword));
  });
  special(base, put, options, fail);
  return { args, kwargs };
}

/** Attributes as the conversion takes them; without one, those that are plain values. */
function putAttributes(
  conversion: Conversion | undefined,
  { attributes, at }: Operation,
  put: (name: string, value: Arg) => void,
  { reader, values }: ConvertOptions,
): void {
  if (conversion === undefined) {
    for (const [name, value] of attributes) {
      const plain = name.includes('.') ? undefined : values.plain(value);
      if (plain !== undefined) put(name, plain);
    }
  }
  for (const [name, spec] of Object.entries(conversion?.attributes ?? {})) {
    const value = attributes.get(name);
    if (value === undefined) continue;
    const [kind, as] = typeof spec === 'string' ? [spec, name] : spec;
    if (kind === 'struct') {
      for (const [key, member] of values.struct(value, at))
        put(key, structMember(values, member, at));
    } else {
      const given = argument(kind, value, values, reader, at, name);
      // The default precision says nothing.
      if (as !== 'precision' || !Array.isArray(given) || given.some((word) => word !== 'DEFAULT'))
        put(as, given);
    }
  }
}

/** Arguments that only the types show: sizes of groups, the result of a generator. */
function special(
  base: string,
  put: (name: string, value: Arg) => void,
  { operandTypes, resultTypes }: ConvertOptions,
  fail: (message: string) => never,
): void {
  const [from, to] = [operandTypes[0], resultTypes[0]];
  if (base === 'all_gather' || base === 'reduce_scatter') {
    if (from === undefined || to === undefined || from.shape.length !== to.shape.length)
      fail('changes the rank');
    const ratio = from.shape.map((n, d) => {
      const size = itemAt(to.shape, d);
      return base === 'all_gather' ? size / n : n / size;
    });
    put('group_size', ratio.find((r) => Number.isInteger(r) && r > 1) ?? 1);
  } else if (base === 'rng_bit_generator') {
    const output = resultTypes[1];
    if (output === undefined) return fail('has two results, a state and the bits');
    put('dtype', { kind: 'dtype', dtype: output.dtype });
    put('shape', [...output.shape]);
  }
}

function structMember(values: AttributeValues, member: MlirAttribute, at: number): Arg {
  const found = values.resolve(member);
  return found.kind === 'int' && typeof found.value === 'number'
    ? found.value
    : values.ints(found, at);
}

function argument(
  kind: Exclude<AttributeKind, 'struct'>,
  value: MlirAttribute,
  values: AttributeValues,
  reader: MlirReader,
  at: number,
  name: string,
): Arg {
  const found = values.resolve(value);
  switch (kind) {
    case 'ints':
      return values.ints(found, at);
    case 'word':
      return values.word(found, at);
    case 'words':
      return values.words(found, at);
    case 'bool':
      if (found.kind === 'unit') return true;
      if (found.kind === 'bool') return found.value;
      break;
    case 'int':
      if (found.kind === 'int' && typeof found.value === 'number') return found.value;
      break;
    case 'float':
      if (found.kind === 'float') return { kind: 'float', value: found.value };
      if (found.kind === 'int') return { kind: 'float', value: Number(found.value) };
      break;
    case 'plain':
      if (found.kind === 'dense')
        return rows(denseValue(reader, found.payload, found.type, MAX_GROUPS), found.type.shape);
      return values.plain(found) ?? true;
  }
  throw reader.error('E_TYPE', `attribute '${name}' must be of kind ${kind}`, at);
}

/** Devices in one list of groups. */
const MAX_GROUPS = 1 << 16;

/** A flat list of a matrix as a list of its rows. */
function rows(flat: Arg, shape: readonly number[]): Arg {
  if (!Array.isArray(flat) || shape.length !== 2) return flat;
  const list = flat as readonly Arg[];
  const [count, width] = firstItems(shape, 2);
  return Array.from({ length: count }, (_, i) => list.slice(i * width, (i + 1) * width));
}
