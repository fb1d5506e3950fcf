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

/** The attributes of a node that is computed at import. */
export interface FoldedAttributes {
  readonly int: (name: string) => number | undefined;
  readonly ints: (name: string) => readonly number[] | undefined;
  readonly tensor: (name: string) => Constant | undefined;
}

/** Elements of a tensor that is known at import. */
const MOST_ELEMENTS = 256;

/**
 * Operators that are computed at import when all of their inputs are known; the key of exporters'
 * shape arithmetic.
 */
export function fold(
  op: string,
  inputs: readonly Constant[],
  attributes: FoldedAttributes,
): Constant | undefined {
  const [a, b] = inputs;
  if (a === undefined) return undefined;
  switch (op) {
    case 'Identity':
      return a;
    case 'Cast':
      return cast(a, attributes.int('to'));
    case 'Neg':
      return numbers(a) ? { ...a, values: a.values.map((v) => -(v as number)) } : undefined;
    case 'Add':
    case 'Sub':
    case 'Mul':
    case 'Div':
    case 'Max':
    case 'Min':
    case 'Equal':
      return b !== undefined && inputs.length === 2 ? arithmetic(op, a, b) : undefined;
    case 'Where':
      return chosen(inputs);
    case 'ConstantOfShape':
      return filled(a, attributes.tensor('value'));
    case 'Transpose':
      return transposed(a, attributes.ints('perm'));
    case 'Concat':
      return a.dims.length === 1 && inputs.every((x) => x.dims.length === 1)
        ? vector(
            a.dtype,
            inputs.flatMap((x) => [...x.values]),
          )
        : undefined;
    case 'Unsqueeze':
      return unsqueezed(a, axesOf(attributes, b));
    case 'Squeeze':
      return squeezed(a, axesOf(attributes, b));
    case 'Reshape':
      return b === undefined ? undefined : reshape(a, b);
    case 'Gather':
      return b === undefined ? undefined : gather(a, b);
    case 'Slice':
      return slice(inputs);
    case 'ReduceProd':
      return numbers(a) && attributes.int('keepdims') === 0
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

/** Dtypes that shape arithmetic is done in, by their ONNX number. */
const CAST_TO: Readonly<Partial<Record<number, DType>>> = {
  1: 'f32',
  6: 'i32',
  7: 'i64',
  9: 'b8',
  11: 'f64',
};

function cast(a: Constant, to: number | undefined): Constant | undefined {
  const dtype = to === undefined ? undefined : CAST_TO[to];
  if (dtype === undefined || !/^[iuf]|^b8/.test(a.dtype)) return undefined;
  const isWhole = /^[iu]/.test(a.dtype) && /^i64/.test(dtype);
  // Symbolic sizes and ends beyond 2^53 stay what they are.
  if (isWhole || a.dtype === dtype) return { ...a, dtype };
  if (!numbers(a)) return undefined;
  const changed = (v: number): number =>
    dtype === 'b8' ? Number(v !== 0) : dtype.startsWith('i') ? Math.trunc(v) : v;
  const values = a.values.map((v) => changed(v as number));
  const limit = dtype === 'i32' ? 2 ** 31 - 1 : Number.MAX_SAFE_INTEGER;
  const fits = !dtype.startsWith('i') || values.every((v) => Math.abs(v) <= limit);
  return fits ? { ...a, dtype, values } : undefined;
}

/** A fill of whole numbers; others are made in the graph. */
function filled(sizes: Constant, value: Constant | undefined): Constant | undefined {
  const [one] = value?.values ?? [];
  if (!numbers(sizes) || one === undefined || value?.values.length !== 1) return undefined;
  if (!/^i|^b8/.test(value.dtype)) return undefined;
  const dims = sizes.values as readonly number[];
  const count = product(dims);
  if (dims.length !== 1 || count > MOST_ELEMENTS) return undefined;
  return { dtype: value.dtype, dims, values: new Array<Dim | bigint>(count).fill(one) };
}

function axesOf(attributes: FoldedAttributes, input: Constant | undefined): readonly number[] {
  return attributes.ints('axes') ?? input?.values.map(Number) ?? [];
}

function unsqueezed(a: Constant, axes: readonly number[]): Constant | undefined {
  const rank = a.dims.length + axes.length;
  const places = new Set(axes.map((axis) => (axis < 0 ? axis + rank : axis)));
  if (axes.length === 0 || places.size < axes.length) return undefined;
  const left = [...a.dims];
  const dims = Array.from({ length: rank }, (_, d) => (places.has(d) ? 1 : (left.shift() ?? NaN)));
  return dims.every(Number.isInteger) ? { ...a, dims } : undefined;
}

function squeezed(a: Constant, axes: readonly number[]): Constant | undefined {
  const places = new Set(axes.map((axis) => (axis < 0 ? axis + a.dims.length : axis)));
  const goes = (size: number, d: number): boolean =>
    axes.length === 0 ? size === 1 : places.has(d);
  const isRight = a.dims.every((size, d) => size === 1 || !places.has(d));
  return isRight ? { ...a, dims: a.dims.filter((size, d) => !goes(size, d)) } : undefined;
}

function reshape(a: Constant, { values: sizes }: Constant): Constant | undefined {
  const stated = sizes.map((size, d) => (size === 0 ? (a.dims[d] ?? NaN) : Number(size)));
  const known = product(stated.filter((size) => size !== -1));
  const dims = stated.map((size) => (size === -1 ? a.values.length / known : size));
  const isRight = dims.every((size) => Number.isInteger(size) && size >= 0);
  return isRight && product(dims) === a.values.length ? { ...a, dims } : undefined;
}

/** Elements at places of each dim, in the order of the places. */
function taken(a: Constant, places: readonly (readonly number[])[]): Constant {
  let offsets = [0];
  places.forEach((list, d) => {
    const stride = product(a.dims.slice(d + 1));
    offsets = offsets.flatMap((from) => list.map((place) => from + place * stride));
  });
  const values = offsets.map((at) => itemAt(a.values, at));
  return { dtype: a.dtype, dims: places.map((list) => list.length), values };
}

function transposed(a: Constant, perm: readonly number[] | undefined): Constant | undefined {
  if (a.dims.length !== 2) return a.dims.length < 2 ? a : undefined;
  if (perm?.[0] === 0) return a;
  const [rows, columns] = [itemAt(a.dims, 0), itemAt(a.dims, 1)];
  const values = Array.from({ length: rows * columns }, (_, i) =>
    itemAt(a.values, (i % rows) * columns + Math.floor(i / rows)),
  );
  return { ...a, dims: [columns, rows], values };
}

function chosen([which, yes, no]: readonly Constant[]): Constant | undefined {
  if (which === undefined || yes === undefined || no === undefined || !numbers(which))
    return undefined;
  const all = [which, yes, no];
  const long = all.reduce((a, c) => (c.values.length > a.values.length ? c : a));
  const fits = all.every((c) => c.values.length === 1 || c.dims.join() === long.dims.join());
  if (!fits || all.some((c) => c.dims.length > long.dims.length)) return undefined;
  const at = ({ values }: Constant, i: number): Dim | bigint =>
    itemAt(values, values.length === 1 ? 0 : i);
  const values = long.values.map((_, i) => at(at(which, i) === 0 ? no : yes, i));
  return { dtype: yes.dtype, dims: long.dims, values };
}

function arithmetic(op: string, a: Constant, b: Constant): Constant | undefined {
  if (!numbers(a) || !numbers(b)) return undefined;
  const integer = /^[iu]/.test(a.dtype);
  const long = a.values.length >= b.values.length ? a : b;
  const short = long === a ? b : a;
  if (short.dims.length > long.dims.length) return undefined;
  if (short.values.length !== 1 && short.dims.join() !== long.dims.join()) return undefined;
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
      case 'Equal':
        return Number(x === y);
      default:
        return integer ? Math.trunc(x / y) : x / y;
    }
  });
  if (integer && !values.every(Number.isSafeInteger)) return undefined;
  return { ...long, dtype: op === 'Equal' ? 'b8' : a.dtype, values };
}

function gather(data: Constant, indices: Constant): Constant | undefined {
  if (data.dims.length !== 1 || !numbers(indices) || indices.dims.length > 1) return undefined;
  const values = indices.values.flatMap((i) => data.values.at(i as number) ?? []);
  if (values.length < indices.values.length) return undefined;
  return { dtype: data.dtype, dims: indices.dims, values };
}

function slice([data, starts, ends, axes, steps]: readonly Constant[]): Constant | undefined {
  if (data === undefined || starts === undefined || ends === undefined) return undefined;
  const places = data.dims.map((size) => Array.from({ length: size }, (_, i) => i));
  for (let i = 0; i < starts.values.length; i++) {
    const [from, to] = [Number(starts.values[i]), Number(ends.values[i])];
    const [axis, step] = [Number(axes?.values[i] ?? i), Number(steps?.values[i] ?? 1)];
    const dim = axis < 0 ? axis + places.length : axis;
    const size = data.dims.at(dim);
    if (size === undefined || ![from, to, step].every(Number.isFinite) || step === 0)
      return undefined;
    const least = step < 0 ? -1 : 0;
    const bound = (n: number): number =>
      Math.min(Math.max(n < 0 ? n + size : n, least), step < 0 ? size - 1 : size);
    const list: number[] = [];
    for (let at = bound(from); step > 0 ? at < bound(to) : at > bound(to); at += step)
      list.push(at);
    places[dim] = list;
  }
  return taken(data, places);
}
