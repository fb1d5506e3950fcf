/** The types of kernels: what a kernel gets for a call and what it gives back. */

import { ShardwrightError } from '../../errors.ts';
import type { Literal } from '../../graph/types.ts';
import { type ElementType, full, type NDArray, scalar } from '../../ndarray/array.ts';
import { complexOf, isComplexType } from '../../ndarray/complex.ts';
import { cast } from '../../ndarray/elementwise.ts';
import type { RandomStream } from '../../ndarray/random.ts';
import type { ScalarArg, TypedContext } from './call.ts';

/** A body that a call takes (a comparator, a reducer): its results on arrays. */
export interface EvaluatedBody {
  (inputs: readonly NDArray[]): readonly NDArray[];
  /**
   * The same of a body on single numbers, for many at once: arrays that broadcast stand for its
   * scalar inputs. Null for a result that it does not have.
   *
   * @throws E_NO_KERNEL for a body in which such an input meets an operator that is not elementwise
   */
  elementwise?(inputs: readonly NDArray[]): readonly (NDArray | null)[];
}

/**
 * An argument of an evaluated call: an array where the graph has a value, a function where it has a
 * body, else a literal.
 */
export type EvaluatedArg = NDArray | Literal | EvaluatedBody | readonly EvaluatedArg[];

/**
 * A kernel gives an operator's results on float64 arrays, from its definition. It reads arguments
 * by name as inference and rules do, and sizes from the arrays. Element types of the results are
 * set by the caller from the inferred types.
 */
export interface KernelCall {
  readonly ctx: TypedContext;
  /** In the order of `ctx.inputs`. */
  readonly inputs: readonly NDArray[];
  /** Numbers for random operators. */
  readonly random: RandomStream;
  /**
   * An argument as the call has it, by the name in the schema; for those that `ctx` has no word
   * for.
   */
  argument(name: string): EvaluatedArg | undefined;
}

/** Results in order; null for one that the call masks off. */
export type Kernel = (call: KernelCall) => readonly (NDArray | null)[];
export type Kernels = Readonly<Record<string, Kernel>>;

/** A body that the call names, on single numbers; undefined where it names none. */
export function body(
  call: KernelCall,
  name: string,
  dtypes: readonly ElementType[],
): ((values: readonly number[]) => number[]) | undefined {
  const given = call.argument(name);
  if (typeof given !== 'function') return undefined;
  return (values) =>
    given(values.map((value, i) => scalar(value, dtypes[i]))).map((result) => result.item());
}

/** A kernel with one result. */
export function one(f: (call: KernelCall) => NDArray): Kernel {
  return (call) => [f(call)];
}

/** The same kernel under several names of the aten namespace. */
export function named(names: string, kernel: Kernel): Kernels {
  return Object.fromEntries(names.split(' ').map((name) => [`aten.${name}`, kernel]));
}

/** A tensor argument. */
export function tensor(call: KernelCall, name: string): NDArray {
  return optional(call, name) ?? call.ctx.fail(`argument '${name}' must be a tensor`);
}

export function optional(call: KernelCall, name: string): NDArray | undefined {
  const at = call.ctx.indexOf(name);
  return at < 0 ? undefined : call.inputs[at];
}

/** A tensor-list argument; null members keep their place. */
export function tensors(call: KernelCall, name: string): (NDArray | null)[] {
  return call.ctx.list(name).map((member) => (member === null ? null : call.inputs[member.index]));
}

const SCALAR_TYPE: Readonly<Record<ScalarArg['kind'], ElementType>> = {
  int: 'i64',
  float: 'f64',
  bool: 'b8',
};

/** A tensor argument, or a number in its place as an array without dims. */
export function operand(call: KernelCall, name: string): NDArray {
  const given = optional(call, name);
  if (given !== undefined) return given;
  const number = call.ctx.scalar(name);
  if (number === undefined) return call.ctx.fail(`argument '${name}' must be a tensor or a number`);
  return scalar(number.value, SCALAR_TYPE[number.kind]);
}

/** Element type of the first result. */
export function resultType(call: KernelCall): ElementType {
  return call.ctx.outputs[0]?.dtype ?? 'f64';
}

/** Shape of a result. */
export function resultShape(call: KernelCall, index = 0): readonly number[] {
  return call.ctx.outputs[index]?.shape ?? call.ctx.fail(`has no result ${index}`);
}

/** A result of one value everywhere. */
export function constant(call: KernelCall, value: number): NDArray {
  const dtype = resultType(call);
  const shape = resultShape(call);
  return isComplexType(dtype)
    ? complexOf(full(shape, value), full(shape, 0), dtype)
    : cast(full(shape, value), dtype);
}

/** Refuses values that the operator is not defined on. */
export function valueError(call: KernelCall, message: string): never {
  throw new ShardwrightError('E_VALUE', `${call.ctx.target}: ${message}`);
}

/** The next index tuple in row-major order; false after the last one. */
export function advance(at: number[], shape: readonly number[]): boolean {
  for (let d = at.length - 1; d >= 0; d--) {
    if (++at[d] < shape[d]) return true;
    at[d] = 0;
  }
  return false;
}
