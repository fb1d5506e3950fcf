/**
 * Payloads of `dense<...>`: one literal for a splat, all elements of a short list, else the payload
 * as text.
 */

import { exactInteger } from '../../../graph/text/token.ts';
import type { Arg, DType } from '../../../graph/types.ts';
import { elements } from '../../../ops/record/record.ts';
import type { MlirReader } from './reader.ts';
import type { MlirTensor, Span } from './syntax.ts';
import { typeName } from './types.ts';

/** Longer lists stay text: a plan reads no element of them. */
const MAX_ELEMENTS = 16;

/**
 * The value of a dense constant as an argument. The number of elements is checked against the type
 * for every length.
 *
 * @throws E_SYNTAX, E_TYPE with line and column
 */
export function denseValue(
  outer: MlirReader,
  payload: Span,
  type: MlirTensor,
  maxListed = MAX_ELEMENTS,
): Arg {
  const reader = outer.within(payload);
  if (reader.atEnd()) {
    if (!type.shape.includes(0))
      reader.fail(`no elements for ${typeName(type)}`, payload.from, 'E_TYPE');
    return [];
  }
  if (reader.peek('"')) return packed(reader, payload, type);
  if (!reader.peek('[')) {
    const value = element(reader, type.dtype);
    if (!reader.atEnd()) reader.expected(`'>'`);
    return value;
  }
  return listed(reader, payload, type, maxListed);
}

/** `[[1, 2], [3, 4]]`, without recursion: `counts[d]` members so far at depth d. */
function listed(reader: MlirReader, payload: Span, type: MlirTensor, maxListed: number): Arg {
  const { shape } = type;
  const wanted = elements(shape);
  const keep = wanted <= maxListed;
  const values: Arg[] = [];
  const counts: number[] = [0];
  const member = (): void => {
    counts[counts.length - 1] = (counts.at(-1) ?? 0) + 1;
    if (counts.length > 1 && !reader.accept(',') && !reader.peek(']'))
      reader.expected(`',' or ']'`);
  };
  do {
    if (reader.accept('[')) {
      if (counts.length > shape.length)
        reader.fail(
          `the list is deeper than ${typeName(type)}`,
          reader.pos - 1,
          'E_TYPE',
          'one bracket a dim',
        );
      counts.push(0);
    } else if (reader.accept(']')) {
      const dim = counts.length - 2;
      if (counts[dim + 1] !== shape[dim])
        reader.fail(
          `${counts[dim + 1]} members along dim ${dim} of ${typeName(type)}`,
          reader.pos - 1,
          'E_TYPE',
        );
      counts.pop();
      member();
    } else {
      if (counts.length !== shape.length + 1) reader.expected(`'['`);
      const value = element(reader, type.dtype);
      if (keep) values.push(value);
      member();
    }
  } while (counts.length > 1);
  if (!reader.atEnd()) reader.expected(`'>'`);
  return keep ? values : reader.text.slice(payload.from, payload.to);
}

const BITS: Partial<Record<DType, number>> = {
  b8: 1,
  i8: 8,
  u8: 8,
  i16: 16,
  u16: 16,
  i32: 32,
  u32: 32,
  i64: 64,
  u64: 64,
};
const WIDTH: Partial<Record<DType, number>> = {
  ...BITS,
  f64: 64,
  f32: 32,
  bf16: 16,
  f16: 16,
  f8e4m3fn: 8,
  f8e5m2: 8,
  f8e8m0fnu: 8,
  c64: 64,
  c128: 128,
};

/** `"0x0000803F..."`: the bytes of all elements. */
function packed(reader: MlirReader, payload: Span, type: MlirTensor): Arg {
  const text = reader.string('bytes');
  if (!/^0x[0-9A-Fa-f]*$/.test(text))
    reader.fail('expected bytes such as "0x0000803F"', payload.from);
  const bytes = (text.length - 2) / 2;
  const count = elements(type.shape);
  const width = (WIDTH[type.dtype] ?? 8) / 8;
  const fits =
    type.dtype === 'b8' ? bytes >= count / 8 : bytes === count * width || bytes === width;
  if (!fits) reader.fail(`${bytes} bytes for ${typeName(type)}`, payload.from, 'E_TYPE');
  return reader.text.slice(payload.from, payload.to);
}

function element(reader: MlirReader, dtype: DType): Arg {
  reader.skip();
  const at = reader.pos;
  if (reader.peek('(')) {
    const parts = reader.list('(', ')', () => reader.number().text);
    if (parts.length !== 2 || !dtype.startsWith('c'))
      reader.fail(`no element of type ${dtype}`, at, 'E_TYPE');
    return `(${parts.join(', ')})`;
  }
  if (reader.acceptWord('true')) return booleanOrOne(dtype, true);
  if (reader.acceptWord('false')) return booleanOrOne(dtype, false);
  const { text, form } = reader.number();
  const isInteger = BITS[dtype] !== undefined;
  if (isInteger) {
    if (form === 'float')
      reader.fail(`${text} is not an element of type ${dtype}`, at, 'E_TYPE', 'write an integer');
    if (dtype === 'b8') return Number(text) !== 0;
    const value = form === 'hex' ? exactInteger(String(BigInt(text))) : exactInteger(text);
    const bits = BITS[dtype] ?? 64;
    const limit = 2n ** BigInt(bits);
    if (BigInt(value) >= limit || BigInt(value) < -limit / 2n)
      reader.fail(`${text} does not fit ${dtype}`, at, 'E_TYPE', `use a wider type`);
    return value;
  }
  if (form !== 'hex') return { kind: 'float', value: Number(text) };
  const value = fromBits(text, dtype);
  return value === undefined ? text : { kind: 'float', value };
}

function booleanOrOne(dtype: DType, value: boolean): Arg {
  return dtype === 'b8' ? value : Number(value);
}

/** The number behind a bit pattern; undefined for types that are kept as text. */
function fromBits(text: string, dtype: DType): number | undefined {
  const negative = text.startsWith('-');
  const bits = BigInt(negative ? text.slice(1) : text);
  const view = new DataView(new ArrayBuffer(8));
  switch (dtype) {
    case 'f64':
      view.setBigUint64(0, BigInt.asUintN(64, bits));
      return view.getFloat64(0);
    case 'f32':
      view.setUint32(0, Number(BigInt.asUintN(32, bits)));
      return view.getFloat32(0);
    case 'bf16':
      view.setUint32(0, Number(BigInt.asUintN(16, bits)) * 65536);
      return view.getFloat32(0);
    case 'f16':
      return half(Number(BigInt.asUintN(16, bits)));
    default:
      return undefined;
  }
}

/** IEEE 754 binary16. */
function half(bits: number): number {
  const sign = bits >= 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
