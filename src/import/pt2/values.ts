/** Types and arguments of an exported program; the numbers are those of torch's export schema. */

import { suggestion } from '../../errors.ts';
import type { Arg, Dim, DType, TensorType, ValueType } from '../../graph/types.ts';
import { ref, tensorType } from '../../graph/value.ts';
import type { JsonObject, JsonValue } from '../file/json.ts';
import {
  booleanAt,
  floatAt,
  integerAt,
  listAt,
  objectAt,
  onlyKey,
  type Place,
  sizeAt,
  stringAt,
} from './place.ts';
import { sizeExpression } from './sympy.ts';

const DTYPES: ReadonlyMap<number, DType> = new Map<number, DType>([
  [1, 'u8'],
  [2, 'i8'],
  [3, 'i16'],
  [4, 'i32'],
  [5, 'i64'],
  [6, 'f16'],
  [7, 'f32'],
  [8, 'f64'],
  [10, 'c64'],
  [11, 'c128'],
  [12, 'b8'],
  [13, 'bf16'],
  [28, 'u16'],
  [29, 'f8e4m3fn'],
  [30, 'f8e5m2'],
  [33, 'f8e8m0fnu'],
  [34, 'u32'],
  [35, 'u64'],
]);

const LAYOUTS: ReadonlyMap<number, string> = new Map([
  [1, 'sparse_coo'],
  [2, 'sparse_csr'],
  [3, 'sparse_csc'],
  [4, 'sparse_bsr'],
  [5, 'sparse_bsc'],
  [6, '_mkldnn'],
  [7, 'strided'],
]);

const MEMORY_FORMATS: ReadonlyMap<number, string> = new Map([
  [1, 'contiguous_format'],
  [2, 'channels_last'],
  [3, 'channels_last_3d'],
  [4, 'preserve_format'],
]);

const MAX_RANK = 64;
const MAX_NAME = 4096;

/** The names that arguments may refer to. */
export interface Scope {
  has(name: string): boolean;
  names(): Iterable<string>;
}

export function nameAt(value: JsonValue | undefined, place: Place): string {
  const name = stringAt(value, place);
  if (name.length > MAX_NAME)
    throw place.error(
      'E_LIMIT',
      `a name of ${name.length} characters; at most ${MAX_NAME} are allowed`,
    );
  if (name === '') throw place.error('E_SYNTAX', 'a value has an empty name');
  return name;
}

/**
 * The argument that a tagged JSON value means. A body (`as_graph`) is not read here: `body` is
 * asked for its reference.
 *
 * @throws E_SYNTAX, E_REF, E_UNSUPPORTED, each with the JSON path
 */
export function readArg(
  value: JsonValue | undefined,
  place: Place,
  scope: Scope,
  body: (value: JsonObject, place: Place) => Arg,
): Arg {
  const key = onlyKey(value, place, TAGS);
  const read = ARGUMENTS.get(key) ?? ((inner, at) => body(objectAt(inner, at), at));
  return read(objectAt(value, place)[key], place.at(key), scope);
}

type ReadArgument = (value: JsonValue | undefined, place: Place, scope: Scope) => Arg;

/** How the value of each tag is read; undefined for a body, which the caller reads. */
const ARGUMENTS: ReadonlyMap<string, ReadArgument | undefined> = new Map<
  string,
  ReadArgument | undefined
>([
  ['as_none', () => null],
  ['as_tensor', tensor],
  ['as_tensors', listOf(tensor)],
  ['as_optional_tensor', optionalTensor],
  ['as_optional_tensors', listOf(optionalTensor)],
  ['as_nested_tensors', listOf(listOf(tensor))],
  ['as_int', integerAt],
  ['as_ints', listOf(integerAt)],
  ['as_int_lists', listOf(listOf(integerAt))],
  ['as_float', float],
  ['as_floats', listOf(float)],
  ['as_bool', booleanAt],
  ['as_bools', listOf(booleanAt)],
  ['as_string', stringAt],
  ['as_strings', listOf(stringAt)],
  ['as_sym_int', symbolic],
  ['as_sym_ints', listOf(symbolic)],
  ['as_sym_bool', symbolic],
  ['as_sym_bools', listOf(symbolic)],
  ['as_sym_float', symbolic],
  ['as_sym_floats', listOf(symbolic)],
  ['as_scalar_type', (value, place) => ({ kind: 'dtype', dtype: dtypeAt(value, place) })],
  ['as_memory_format', wordOf(MEMORY_FORMATS, 'memory format')],
  ['as_layout', wordOf(LAYOUTS, 'layout')],
  ['as_device', (value, place) => ({ kind: 'device', word: deviceAt(value, place) })],
  ['as_graph', undefined],
  ['as_operator', stringAt],
]);
const TAGS = [...ARGUMENTS.keys()];

function listOf(read: ReadArgument): ReadArgument {
  return (value, place, scope) =>
    listAt(value, place).map((item, i) => read(item, place.at(i), scope));
}

function tensor(value: JsonValue | undefined, place: Place, scope: Scope): Arg {
  return reference(nameAt(objectAt(value, place).name, place.at('name')), place, scope);
}

function float(value: JsonValue | undefined, place: Place): Arg {
  return { kind: 'float', value: floatAt(value, place) };
}

function reference(name: string, place: Place, scope: Scope): Arg {
  if (scope.has(name)) return ref(name);
  throw place.error(
    'E_REF',
    `'${name.slice(0, 80)}' is not defined`,
    suggestion(name, [...scope.names()], 'values'),
  );
}

function optionalTensor(value: JsonValue | undefined, place: Place, scope: Scope): Arg {
  const key = onlyKey(value, place, ['as_tensor', 'as_none']);
  return key === 'as_none' ? null : tensor(objectAt(value, place)[key], place.at(key), scope);
}

/** `{as_name}` is a use of a symbolic value; the other keys are literals. */
function symbolic(value: JsonValue | undefined, place: Place, scope: Scope): Arg {
  const key = onlyKey(value, place, ['as_name', 'as_int', 'as_bool', 'as_float']);
  const inner = objectAt(value, place)[key];
  const here = place.at(key);
  if (key === 'as_name') return reference(nameAt(inner, here), place, scope);
  if (key === 'as_int') return integerAt(inner, here);
  return key === 'as_bool' ? booleanAt(inner, here) : float(inner, here);
}

function wordOf(words: ReadonlyMap<number, string>, what: string): ReadArgument {
  return (value, place) => {
    const number = integerAt(value, place);
    const word = words.get(Number(number));
    if (word === undefined) throw place.error('E_UNSUPPORTED', `${what} ${number} is not known`);
    return { kind: 'layout', word };
  };
}

function dtypeAt(value: JsonValue | undefined, place: Place): DType {
  const number = integerAt(value, place);
  const dtype = DTYPES.get(Number(number));
  if (dtype === undefined)
    throw place.error(
      'E_UNSUPPORTED',
      `dtype number ${number} of the export schema is none we know`,
    );
  return dtype;
}

function deviceAt(value: JsonValue | undefined, place: Place): string {
  const device = objectAt(value, place);
  const type = stringAt(device.type, place.at('type'));
  const { index } = device;
  return index === null || index === undefined
    ? type
    : `${type}:${sizeAt(index, place.at('index'))}`;
}

/**
 * Types are written once a value; equal ones become one frozen object, on which later stages key
 * their tables.
 */
export class Types {
  private readonly known = new Map<string, TensorType>();

  /** Type of an entry of `tensor_values`. */
  tensor(value: JsonValue | undefined, place: Place): TensorType {
    const meta = objectAt(value, place);
    const dtype = dtypeAt(meta.dtype, place.at('dtype'));
    const shape = this.dims(meta.sizes, place.at('sizes'));
    const stride =
      meta.strides === undefined ? undefined : this.dims(meta.strides, place.at('strides'));
    if (stride !== undefined && stride.length !== shape.length)
      throw place.error('E_TYPE', `${shape.length} sizes but ${stride.length} strides`);
    const type = tensorType(dtype, shape, stride);
    const key = `${dtype}${JSON.stringify([type.shape, type.stride ?? 0])}`;
    const known = this.known.get(key);
    if (known !== undefined) return known;
    this.known.set(key, type);
    return type;
  }

  /** Type of an entry of `sym_int_values` and its like. */
  symbol(value: JsonValue | undefined, place: Place): ValueType {
    const entry = objectAt(value, place);
    const expression = entry.as_expr;
    if (expression === undefined) return { kind: 'sym' };
    const at = place.at('as_expr');
    return {
      kind: 'sym',
      expr: sizeExpression(stringAt(objectAt(expression, at).expr_str, at.at('expr_str')), at),
    };
  }

  private dims(value: JsonValue | undefined, place: Place): Dim[] {
    const list = listAt(value, place);
    if (list.length > MAX_RANK)
      throw place.error('E_LIMIT', `more than ${MAX_RANK} dims`, 'no tensor has so many dims');
    return list.map((dim, i) => this.dim(dim, place.at(i)));
  }

  private dim(value: JsonValue, place: Place): Dim {
    const key = onlyKey(value, place, ['as_int', 'as_expr']);
    const here = place.at(key);
    const inner = objectAt(value, place)[key];
    if (key === 'as_int') return sizeAt(inner, here);
    const expression = objectAt(inner, here);
    const sym = sizeExpression(stringAt(expression.expr_str, here.at('expr_str')), here);
    const { hint } = expression;
    if (hint === null || hint === undefined) return { sym };
    const at = here.at('hint');
    return { sym, example: sizeAt(objectAt(hint, at).as_int, at.at('as_int')) };
  }
}
