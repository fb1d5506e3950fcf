/**
 * Small questions about arguments and types that every analysis asks. Nothing here allocates per
 * call without need.
 */

import { defined } from '../defined.ts';
import {
  type Arg,
  type Dim,
  type DType,
  DTYPE_BYTES,
  type GraphRef,
  type Node,
  type Sym,
  type TensorType,
  type ValueRef,
  type ValueType,
} from './types.ts';

export const NONE_TYPE: ValueType = Object.freeze({ kind: 'none' });
/**
 * The keyword arguments of a call that has none; shared, so that thousands of calls cost nothing.
 */
export const NO_KWARGS: Readonly<Record<string, Arg>> = Object.freeze({});

/** A use of a value by its name. */
export function ref(name: string): ValueRef {
  return { kind: 'value', name };
}

export function isList(arg: Arg): arg is readonly Arg[] {
  return Array.isArray(arg);
}

export function isRef(arg: Arg | undefined): arg is ValueRef {
  return typeof arg === 'object' && arg !== null && !isList(arg) && arg.kind === 'value';
}

export function isGraphRef(arg: Arg): arg is GraphRef {
  return typeof arg === 'object' && arg !== null && !isList(arg) && arg.kind === 'graph';
}

/**
 * Sets an own property even for `__proto__`, which plain assignment would take for the prototype.
 */
export function setOwn<T>(record: Record<string, T>, key: string, value: T): void {
  if (key === '__proto__') {
    Object.defineProperty(record, key, {
      value,
      writable: true,
      enumerable: true,
      configurable: true,
    });
  } else {
    record[key] = value;
  }
}

/** A copy of the record that lacks one property. */
export function without<T extends object, K extends keyof T>(record: T, key: K): Omit<T, K> {
  const copy: Partial<T> = { ...record };
  delete copy[key];
  return copy as Omit<T, K>;
}

/** The own property, undefined for inherited names such as `constructor`. */
export function getOwn<T>(record: Readonly<Record<string, T>>, key: string): T | undefined {
  return Object.hasOwn(record, key) ? record[key] : undefined;
}

/** Calls `visit` for every value used in `arg`, in order and with repetition. */
export function eachRef(arg: Arg, visit: (name: string) => void): void {
  if (typeof arg !== 'object' || arg === null) return;
  if (isList(arg)) {
    // Indexed, here and below: these loops run for every argument of every node, several times per
    // import.
    for (let i = 0; i < arg.length; i++) eachRef(arg[i], visit);
  } else if (arg.kind === 'value') {
    visit(arg.name);
  } else if (arg.kind === 'slice') {
    eachRef(arg.start, visit);
    eachRef(arg.stop, visit);
    eachRef(arg.step, visit);
  }
}

/**
 * Calls `visit` for every value used by a call: positional arguments, then keywords in written
 * order.
 */
export function eachOperand(
  node: { readonly args: readonly Arg[]; readonly kwargs: Readonly<Record<string, Arg>> },
  visit: (name: string) => void,
): void {
  const { args, kwargs } = node;
  for (let i = 0; i < args.length; i++) eachRef(args[i], visit);
  if (kwargs === NO_KWARGS) return;
  const keys = Object.keys(kwargs);
  for (let i = 0; i < keys.length; i++) eachRef(kwargs[keys[i]], visit);
}

/** The node with every value that it uses renamed. */
export function mapOperands(node: Node, rename: (name: string) => string): Node {
  const map = (arg: Arg): Arg => {
    if (typeof arg !== 'object' || arg === null) return arg;
    if (isList(arg)) return arg.map(map);
    if (arg.kind === 'value') return { kind: 'value', name: rename(arg.name) };
    if (arg.kind === 'slice')
      return { ...arg, start: map(arg.start), stop: map(arg.stop), step: map(arg.step) };
    return arg;
  };
  const kwargs: Record<string, Arg> = {};
  for (const key of Object.keys(node.kwargs)) setOwn(kwargs, key, map(node.kwargs[key]));
  return { ...node, args: node.args.map(map), kwargs };
}

/** Calls `visit` for every subgraph that a call references. */
export function eachGraphRef(
  node: { readonly args: readonly Arg[]; readonly kwargs: Readonly<Record<string, Arg>> },
  visit: (name: string) => void,
): void {
  const walk = (arg: Arg): void => {
    if (typeof arg !== 'object' || arg === null) return;
    if (isList(arg)) arg.forEach(walk);
    else if (arg.kind === 'graph') visit(arg.name);
  };
  node.args.forEach(walk);
  for (const key of Object.keys(node.kwargs)) walk(node.kwargs[key]);
}

function sameDim(a: Dim, b: Dim): boolean {
  if (typeof a === 'number' || typeof b === 'number') return a === b;
  return a.sym === b.sym;
}

export function sameShape(a: readonly Dim[], b: readonly Dim[]): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (!sameDim(a[i], b[i])) return false;
  return true;
}

/** Equal kind, dtype and shape; strides and given shardings are not compared. */
export function sameType(a: ValueType, b: ValueType): boolean {
  if (a === b) return true;
  if (a.kind === 'tensor')
    return b.kind === 'tensor' && a.dtype === b.dtype && sameShape(a.shape, b.shape);
  if (a.kind === 'tuple') {
    if (b.kind !== 'tuple' || a.items.length !== b.items.length) return false;
    for (let i = 0; i < a.items.length; i++) if (!sameType(a.items[i], b.items[i])) return false;
    return true;
  }
  return a.kind === b.kind;
}

/**
 * Strides of a row-major tensor in elements; null where they would need a product of symbolic
 * sizes.
 */
export function contiguousStride(shape: readonly Dim[]): number[] | null {
  const stride: number[] = new Array<number>(shape.length);
  let step = 1;
  for (let i = shape.length - 1; i >= 0; i--) {
    stride[i] = step;
    const size = shape[i];
    if (typeof size === 'number') step *= Math.max(size, 1);
    else if (i > 0) return null;
  }
  return stride;
}

/** Tells whether `stride` is the row-major one for `shape`. */
export function isContiguousStride(shape: readonly Dim[], stride: readonly Dim[]): boolean {
  let step = 1;
  let known = true;
  for (let i = shape.length - 1; i >= 0; i--) {
    if (!known || stride[i] !== step) return false;
    const size = shape[i];
    if (typeof size === 'number') step *= Math.max(size, 1);
    else known = false;
  }
  return stride.length === shape.length;
}

/**
 * A frozen tensor type. A row-major stride is left out, so that equal tensors have equal records.
 */
export function tensorType(
  dtype: DType,
  shape: readonly Dim[],
  stride?: readonly Dim[],
  given?: string,
): TensorType {
  const keepStride = stride !== undefined && !isContiguousStride(shape, stride);
  return Object.freeze({
    kind: 'tensor',
    dtype,
    shape: Object.freeze([...shape]),
    ...(keepStride ? { stride: Object.freeze([...stride]) } : {}),
    ...defined({ given }),
  });
}

export function symText(sym: Sym): string {
  return sym.example === undefined ? sym.sym : `${sym.sym}=${sym.example}`;
}

/** `f32[8, 16]`, `(f32[8], none)`, `sym`, `none`; without strides. */
export function typeText(type: ValueType, sizeText: (sym: Sym) => string = symText): string {
  switch (type.kind) {
    case 'tensor': {
      const sizes = type.shape.map((dim) => (typeof dim === 'number' ? dim : sizeText(dim)));
      return `${type.dtype}[${sizes.join(', ')}]`;
    }
    case 'tuple':
      return `(${type.items.map((item) => typeText(item, sizeText)).join(', ')})`;
    case 'sym':
      return type.expr === undefined ? 'sym' : `sym(${type.expr})`;
    case 'none':
      return 'none';
  }
}

/** Sizes of a tensor: a symbolic size by its example, or `otherwise` where it has none. */
export function exampleShape({ shape }: Pick<TensorType, 'shape'>, otherwise = 1): number[] {
  return shape.map((dim) => (typeof dim === 'number' ? dim : (dim.example ?? otherwise)));
}

/** Elements of a tensor; a symbolic size counts with its example, and is undefined without one. */
export function elementCount(type: TensorType): number | undefined {
  let n = 1;
  for (const dim of type.shape) {
    const size = typeof dim === 'number' ? dim : dim.example;
    if (size === undefined) return undefined;
    n *= size;
  }
  return n;
}

/** Bytes of a tensor; undefined where a size has no known value. */
export function tensorBytes(type: TensorType): number | undefined {
  const n = elementCount(type);
  return n === undefined ? undefined : n * DTYPE_BYTES[type.dtype];
}

/** Bytes of all tensors of a value; a tensor whose size has no known value counts as none. */
export function valueBytes(type: ValueType): number {
  if (type.kind === 'tuple') return type.items.reduce((sum, item) => sum + valueBytes(item), 0);
  return type.kind === 'tensor' ? (tensorBytes(type) ?? 0) : 0;
}
