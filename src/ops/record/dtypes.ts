/**
 * Type promotion as PyTorch does it (`c10/core/ScalarType.h`,
 * `aten/src/ATen/native/TypeProperties.cpp`): tensors with dims, zero-dim tensors and plain numbers
 * form three ranks; a lower rank only matters if its category is higher.
 */

import type { DType } from '../../graph/types.ts';
import type { ScalarArg } from './call.ts';

type Category = 0 | 1 | 2 | 3;

const INTEGERS: readonly DType[] = ['i64', 'i32', 'i16', 'i8', 'u64', 'u32', 'u16', 'u8'];

/** 0 bool, 1 integer, 2 floating point, 3 complex. */
export function categoryOf(dtype: DType): Category {
  if (dtype === 'b8') return 0;
  if (INTEGERS.includes(dtype)) return 1;
  return dtype === 'c64' || dtype === 'c128' ? 3 : 2;
}

export function isFloating(dtype: DType): boolean {
  return categoryOf(dtype) === 2;
}
export function isIntegral(dtype: DType): boolean {
  return categoryOf(dtype) <= 1;
}

const SIGNED_BITS: Partial<Record<DType, number>> = { i8: 8, i16: 16, i32: 32, i64: 64 };
const UNSIGNED_BITS: Partial<Record<DType, number>> = { u8: 8, u16: 16, u32: 32, u64: 64 };
const FLOAT_ORDER: readonly DType[] = [
  'f8e4m3fn',
  'f8e5m2',
  'f8e8m0fnu',
  'f16',
  'bf16',
  'f32',
  'f64',
];

/**
 * The smallest dtype that holds both, `torch.promote_types`. Distinct 16-bit floats meet in f32.
 */
export function promoteTypes(a: DType, b: DType): DType {
  if (a === b) return a;
  const ca = categoryOf(a);
  const cb = categoryOf(b);
  if (ca === 3 || cb === 3)
    return a === 'c128' || b === 'c128' || a === 'f64' || b === 'f64' ? 'c128' : 'c64';
  if (ca !== cb) return ca > cb ? a : b;
  if (ca === 2) {
    if (a !== 'f32' && b !== 'f32' && a !== 'f64' && b !== 'f64') return 'f32';
    return FLOAT_ORDER.indexOf(a) > FLOAT_ORDER.indexOf(b) ? a : b;
  }
  return promoteIntegers(a, b);
}

function promoteIntegers(a: DType, b: DType): DType {
  const signedA = SIGNED_BITS[a];
  const signedB = SIGNED_BITS[b];
  if (signedA !== undefined && signedB !== undefined) return signedA >= signedB ? a : b;
  const unsignedA = UNSIGNED_BITS[a];
  const unsignedB = UNSIGNED_BITS[b];
  if (unsignedA !== undefined && unsignedB !== undefined) return unsignedA >= unsignedB ? a : b;
  const signed = signedA ?? signedB ?? 64;
  const unsigned = unsignedA ?? unsignedB ?? 64;
  if (signed > unsigned) return signedA !== undefined ? a : b;
  return unsigned === 8 ? 'i16' : unsigned === 16 ? 'i32' : 'i64';
}

/** The operands of a promotion. */
interface Operands {
  readonly tensors: readonly { readonly dtype: DType; readonly shape: readonly number[] }[];
  readonly scalars: readonly ScalarArg[];
}

/** `torch.result_type` with default dtype f32; undefined when there are no operands. */
export function resultType({ tensors, scalars }: Operands): DType | undefined {
  let dims: DType | undefined;
  let zeros: DType | undefined;
  let numbers: DType | undefined;
  for (const t of tensors) {
    if (t.shape.length > 0) dims = dims === undefined ? t.dtype : promoteTypes(dims, t.dtype);
    else zeros = zeros === undefined ? t.dtype : promoteTypes(zeros, t.dtype);
  }
  for (const s of scalars) {
    const dtype = s.kind === 'float' ? 'f32' : s.kind === 'int' ? 'i64' : 'b8';
    numbers = numbers === undefined ? dtype : promoteTypes(numbers, dtype);
  }
  return combine(dims, combine(zeros, numbers));
}

/**
 * PyTorch's `combine_categories`: the higher rank wins unless the lower one is of a higher
 * category.
 */
function combine(higher: DType | undefined, lower: DType | undefined): DType | undefined {
  if (higher === undefined) return lower;
  if (lower === undefined) return higher;
  const h = categoryOf(higher);
  const l = categoryOf(lower);
  if (h === 3) return higher;
  if (h === 2) return l === 3 ? (higher === 'f64' ? 'c128' : 'c64') : higher;
  if (h === 0 || l >= 2) return promoteTypes(higher, lower);
  return higher;
}

/**
 * Result of functions that are only defined on reals, such as true division and exp: integers and
 * bools become f32.
 */
export function floatResult(dtype: DType): DType {
  return isIntegral(dtype) ? 'f32' : dtype;
}

/** Accumulation type of sums: bools and integers add up in i64. */
export function sumResult(dtype: DType): DType {
  return isIntegral(dtype) ? 'i64' : dtype;
}

/** The type of the parts of complex numbers; of others their own. */
export function realOf(dtype: DType): DType {
  return dtype === 'c64' ? 'f32' : dtype === 'c128' ? 'f64' : dtype;
}
