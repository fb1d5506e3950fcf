/** Tensors of an ONNX model: always their shape, their elements only where there are few. */

import { defined } from '../../../defined.ts';
import { ShardwrightError } from '../../../errors.ts';
import type { DType } from '../../../graph/types.ts';
import type { WireReader } from './wire.ts';

export interface OnnxTensor {
  readonly name: string;
  readonly dims: readonly number[];
  readonly dtype: DType;
  /** Elements, where there are few enough to matter for shapes; absent for weights. */
  readonly values?: readonly (number | bigint)[];
}

export const MAX_NAME = 4096;
export const MAX_RANK = 64;
export const MAX_LIST = 1 << 20;
/** Elements beyond which an initializer is a weight and its contents are not read. */
const MAX_CONSTANT = 1024;

const DTYPES: ReadonlyMap<number, DType> = new Map<number, DType>([
  [1, 'f32'],
  [2, 'u8'],
  [3, 'i8'],
  [4, 'u16'],
  [5, 'i16'],
  [6, 'i32'],
  [7, 'i64'],
  [9, 'b8'],
  [10, 'f16'],
  [11, 'f64'],
  [12, 'u32'],
  [13, 'u64'],
  [14, 'c64'],
  [15, 'c128'],
  [16, 'bf16'],
  [17, 'f8e4m3fn'],
  [19, 'f8e5m2'],
  [24, 'f8e8m0fnu'],
]);

/** A TensorProto. @throws E_SYNTAX, E_LIMIT, E_UNSUPPORTED */
export function readTensor(reader: WireReader): OnnxTensor {
  const dims: (number | bigint)[] = [];
  let type = 0;
  let name = '';
  let raw: Uint8Array | undefined;
  let external = false;
  const floats: number[] = [];
  const ints: (number | bigint)[] = [];
  while (reader.next()) {
    switch (reader.field) {
      case 1:
        reader.ints(dims, MAX_RANK);
        break;
      case 2:
        type = reader.small();
        break;
      case 8:
        name = reader.text(MAX_NAME);
        break;
      case 9:
        raw = reader.raw();
        break;
      case 4:
        if (reader.wire !== 2 || reader.raw().length <= 4 * MAX_CONSTANT)
          reader.floats(floats, MAX_LIST);
        break;
      case 5:
      case 7:
        if (reader.wire !== 2 || reader.raw().length <= 10 * MAX_CONSTANT)
          reader.ints(ints, MAX_LIST);
        break;
      case 14:
        external = reader.small() === 1;
        break;
      default:
    }
  }
  const dtype = dtypeOf(type, `tensor '${name}'`);
  let count = 1;
  const sizes = dims.map((dim) => {
    if (typeof dim === 'bigint' || dim < 0)
      throw reader.fail(`tensor '${name}' has a size of ${dim}`, reader.start);
    count *= dim;
    return dim;
  });
  if (!Number.isSafeInteger(count))
    throw new ShardwrightError('E_LIMIT', `tensor '${name}' has more than 2^53 elements`, {
      hint: 'the file may be damaged',
    });
  const values =
    external || count > MAX_CONSTANT ? undefined : elements(dtype, count, raw, floats, ints);
  return { name, dims: sizes, dtype, ...defined({ values }) };
}

/** Elements of a small tensor; undefined where they are stored in a way that shapes never are. */
function elements(
  dtype: DType,
  count: number,
  raw: Uint8Array | undefined,
  floats: readonly number[],
  ints: readonly (number | bigint)[],
): (number | bigint)[] | undefined {
  if (raw !== undefined && raw.length > 0) return rawElements(dtype, count, raw);
  if (dtype === 'f32' && floats.length === count) return [...floats];
  const integer = /^[iu]|^b8$/.test(dtype);
  return integer && ints.length === count ? [...ints] : undefined;
}

function rawElements(
  dtype: DType,
  count: number,
  raw: Uint8Array,
): (number | bigint)[] | undefined {
  const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength);
  const read = (
    bytes: number,
    at: (offset: number) => number | bigint,
  ): (number | bigint)[] | undefined =>
    raw.length === bytes * count
      ? Array.from({ length: count }, (_, i) => at(i * bytes))
      : undefined;
  switch (dtype) {
    case 'i64':
      return read(8, (o) => {
        const value = view.getBigInt64(o, true);
        return Number.isSafeInteger(Number(value)) ? Number(value) : value;
      });
    case 'i32':
      return read(4, (o) => view.getInt32(o, true));
    case 'f32':
      return read(4, (o) => view.getFloat32(o, true));
    case 'f64':
      return read(8, (o) => view.getFloat64(o, true));
    case 'b8':
    case 'u8':
      return read(1, (o) => view.getUint8(o));
    case 'i8':
      return read(1, (o) => view.getInt8(o));
    case 'f16':
      return read(2, (o) => half(view.getUint16(o, true)));
    case 'bf16':
      return read(2, (o) => {
        view32.setUint32(0, view.getUint16(o, true) << 16);
        return view32.getFloat32(0);
      });
    default:
      return undefined;
  }
}

const view32 = new DataView(new ArrayBuffer(4));

/** Value of IEEE half precision bits. */
function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** The dtype of an ONNX type number. @throws E_UNSUPPORTED */
export function dtypeOf(number: number, what: string): DType {
  const dtype = DTYPES.get(number);
  if (dtype !== undefined) return dtype;
  throw new ShardwrightError(
    'E_UNSUPPORTED',
    `${what} has the ONNX type number ${number}${number === 8 ? ' (string)' : ''}, which no ` +
      'graph here holds',
    {
      hint: 'numbers from float8 to int64 and bool are read',
    },
  );
}
