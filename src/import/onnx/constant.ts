/** Folds ONNX operators on small tensors that are known at import, such as shape arithmetic. */

import type { Dim, DType } from '../../graph/types.ts';
import { itemAt } from '../../item-at.ts';
import { product } from '../../product.ts';

/**
 * Contents of a small tensor that is known at import: sizes, axes, scalars. Elements may be
 * symbolic sizes.
 */
export interface Constant {
  readonly dtype: DType;
  readonly dims: readonly number[];
  readonly values: readonly (Dim | bigint)[];
}

/**
 * Operators that are computed at import when all of their inputs are known; the key of exporters'
 * shape arithmetic.
 */
export function fold(
  op: string,
  inputs: readonly Constant[],
  attribute: (name: string) => number | undefined,
): Constant | undefined {
  const [a, b] = inputs;
  if (a === undefined) return undefined;
  switch (op) {
    case 'Identity':
      return a;
    case 'Cast':
      return /^[iu]|^b8/.test(a.dtype) ? { ...a, dtype: 'i64' } : undefined;
    case 'Neg':
      return numbers(a) ? { ...a, values: a.values.map((v) => -(v as number)) } : undefined;
    case 'Add':
    case 'Sub':
    case 'Mul':
    case 'Div':
    case 'Max':
    case 'Min':
      return b !== undefined && inputs.length === 2 ? arithmetic(op, a, b) : undefined;
    case 'Concat':
      return a.dims.length === 1 && inputs.every((x) => x.dims.length === 1)
        ? vector(
            a.dtype,
            inputs.flatMap((x) => [...x.values]),
          )
        : undefined;
    case 'Unsqueeze':
      return a.dims.length === 0 ? vector(a.dtype, a.values) : undefined;
    case 'Squeeze':
      return a.dims.length === 1 && a.values.length === 1 ? { ...a, dims: [] } : undefined;
    case 'Reshape':
      return b === undefined ? undefined : reshape(a, b);
    case 'Gather':
      return b === undefined ? undefined : gather(a, b);
    case 'Slice':
      return slice(inputs);
    case 'ReduceProd':
      return numbers(a) && attribute('keepdims') === 0
        ? {
            dtype: a.dtype,
            dims: [],
            values: [product(a.values.map((v) => v as number))],
          }
        : undefined;
    default:
      return undefined;
  }
}

export function vector(dtype: DType, values: readonly (Dim | bigint)[]): Constant {
  return { dtype, dims: [values.length], values };
}

function numbers(constant: Constant): boolean {
  return constant.values.every((v) => typeof v === 'number');
}

function reshape(a: Constant, { values: sizes }: Constant): Constant | undefined {
  if (sizes.length === 1) return vector(a.dtype, a.values);
  return sizes.length === 0 ? { ...a, dims: [] } : undefined;
}

function arithmetic(op: string, a: Constant, b: Constant): Constant | undefined {
  if (!numbers(a) || !numbers(b)) return undefined;
  const integer = /^[iu]/.test(a.dtype);
  const long = a.values.length >= b.values.length ? a : b;
  if (a.values.length !== 1 && b.values.length !== 1 && a.values.length !== b.values.length)
    return undefined;
  const at = ({ values }: Constant, i: number): number =>
    itemAt(values, values.length === 1 ? 0 : i) as number;
  const values = long.values.map((_, i) => {
    const [x, y] = [at(a, i), at(b, i)];
    switch (op) {
      case 'Add':
        return x + y;
      case 'Sub':
        return x - y;
      case 'Mul':
        return x * y;
      case 'Max':
        return Math.max(x, y);
      case 'Min':
        return Math.min(x, y);
      default:
        return integer ? Math.trunc(x / y) : x / y;
    }
  });
  if (integer && !values.every(Number.isSafeInteger)) return undefined;
  return { ...long, dtype: a.dtype, values };
}

function gather(data: Constant, indices: Constant): Constant | undefined {
  if (data.dims.length !== 1 || !numbers(indices) || indices.dims.length > 1) return undefined;
  const values = indices.values.flatMap((i) => data.values.at(i as number) ?? []);
  if (values.length < indices.values.length) return undefined;
  return { dtype: data.dtype, dims: indices.dims, values };
}

function slice([data, starts, ends, axes, steps]: readonly Constant[]): Constant | undefined {
  if (data?.dims.length !== 1 || starts?.values.length !== 1 || ends?.values.length !== 1)
    return undefined;
  if (axes !== undefined && Number(axes.values[0]) !== 0 && Number(axes.values[0]) !== -1)
    return undefined;
  if (steps !== undefined && Number(steps.values[0]) !== 1) return undefined;
  const [from, to] = [Number(starts.values[0]), Number(ends.values[0])];
  if (Number.isNaN(from) || Number.isNaN(to)) return undefined;
  return vector(data.dtype, data.values.slice(from, to));
}
