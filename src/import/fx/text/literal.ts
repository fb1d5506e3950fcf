/** Python literals of FX text and the constants of the torch namespace. */

import type { Arg, DType } from '../../../graph/types.ts';

/** torch dtype names (`torch.float32`) to ours. */
const TORCH_DTYPES: ReadonlyMap<string, DType> = new Map<string, DType>([
  ['float64', 'f64'],
  ['double', 'f64'],
  ['float32', 'f32'],
  ['float', 'f32'],
  ['bfloat16', 'bf16'],
  ['float16', 'f16'],
  ['half', 'f16'],
  ['float8_e4m3fn', 'f8e4m3fn'],
  ['float8_e5m2', 'f8e5m2'],
  ['float8_e8m0fnu', 'f8e8m0fnu'],
  ['int64', 'i64'],
  ['long', 'i64'],
  ['int32', 'i32'],
  ['int', 'i32'],
  ['int16', 'i16'],
  ['short', 'i16'],
  ['int8', 'i8'],
  ['uint64', 'u64'],
  ['uint32', 'u32'],
  ['uint16', 'u16'],
  ['uint8', 'u8'],
  ['bool', 'b8'],
  ['complex64', 'c64'],
  ['cfloat', 'c64'],
  ['complex128', 'c128'],
  ['cdouble', 'c128'],
]);

const LAYOUTS = new Set([
  'strided',
  'sparse_coo',
  'jagged',
  'contiguous_format',
  'preserve_format',
  'channels_last',
  'channels_last_3d',
]);

/** Flex attention has its kernel's options in one; no operator of ATen does. */
export const DICTIONARY = 'a dictionary is passed as an argument';
export const WITHOUT_DICTIONARIES =
  'of flex_attention it is read in the text of print_readable alone; of an operator of your own, ' +
  'pass its members';

/**
 * Meaning of `torch.NAME` as an argument; undefined where it is not a constant that a graph may
 * hold.
 */
export function torchConstant(name: string): Arg | undefined {
  const dtype = TORCH_DTYPES.get(name);
  if (dtype !== undefined) return { kind: 'dtype', dtype };
  if (LAYOUTS.has(name)) return { kind: 'layout', word: name };
  if (name === 'inf') return { kind: 'float', value: Infinity };
  if (name === 'nan') return { kind: 'float', value: NaN };
  return undefined;
}

/** The constant that a bare name means in FX text; undefined for a name that is not a constant. */
export function namedConstant(name: string): Arg | undefined {
  switch (name) {
    case 'None':
      return null;
    case 'True':
      return true;
    case 'False':
      return false;
    case 'inf':
      return { kind: 'float', value: Infinity };
    case 'nan':
      return { kind: 'float', value: NaN };
    case 'Ellipsis':
      return { kind: 'layout', word: name };
    default:
      return undefined;
  }
}

/** Contents of a Python string token, quotes included in `token`. */
export function pythonString(token: string): string {
  const body = token.slice(1, -1);
  if (!body.includes('\\')) return body;
  return body.replace(
    /\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|\n|.)/gs,
    (whole, code: string) => {
      const simple = SIMPLE.get(code);
      if (simple !== undefined) return simple;
      if (/^[xuU]./.test(code)) {
        const point = Number.parseInt(code.slice(1), 16);
        return point <= 0x10ffff ? String.fromCodePoint(point) : whole;
      }
      if (/^[0-7]/.test(code)) return String.fromCharCode(Number.parseInt(code, 8));
      return whole;
    },
  );
}

const SIMPLE = new Map([
  ['n', '\n'],
  ['t', '\t'],
  ['r', '\r'],
  ['b', '\b'],
  ['f', '\f'],
  ['v', '\v'],
  ['a', '\x07'],
  ['\\', '\\'],
  ["'", "'"],
  ['"', '"'],
  ['\n', ''],
]);

/** Target names of infix operators, as `operator` calls them. */
export const INFIX: ReadonlyMap<string, string> = new Map([
  ['+', 'operator.add'],
  ['-', 'operator.sub'],
  ['*', 'operator.mul'],
  ['/', 'operator.truediv'],
  ['//', 'operator.floordiv'],
  ['%', 'operator.mod'],
  ['**', 'operator.pow'],
  ['@', 'operator.matmul'],
  ['<<', 'operator.lshift'],
  ['>>', 'operator.rshift'],
  ['&', 'operator.and_'],
  ['|', 'operator.or_'],
  ['^', 'operator.xor'],
  ['==', 'operator.eq'],
  ['!=', 'operator.ne'],
  ['<', 'operator.lt'],
  ['>', 'operator.gt'],
  ['<=', 'operator.le'],
  ['>=', 'operator.ge'],
]);

export const PREFIX: ReadonlyMap<string, string> = new Map([
  ['-', 'operator.neg'],
  ['+', 'operator.pos'],
  ['~', 'operator.invert'],
]);
