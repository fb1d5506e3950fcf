/**
 * Calls of operators as records, rules and costs read them: named arguments and sizes, no graph and
 * no mesh.
 */

import type { DType } from '../../graph/types.ts';

export interface TensorMeta {
  readonly dtype: DType;
  readonly shape: readonly number[];
}

/** A scalar argument together with the kind that decides type promotion. */
export interface ScalarArg {
  readonly value: number;
  readonly kind: 'int' | 'float' | 'bool';
}

/**
 * One call of an operator with names and defaults filled in from the schema. Accessors throw
 * `E_TYPE` naming operator and argument when the call does not fit the schema.
 */
export interface OpContext {
  readonly target: string;
  /**
   * Every tensor input in schema order: positional, members of tensor lists, keywords; absent ones
   * left out.
   */
  readonly inputs: readonly TensorMeta[];
  /** The tensor argument, or undefined if absent (optional). */
  tensor(name: string): TensorMeta | undefined;
  /** Position of the tensor argument in `inputs`, -1 if absent. */
  indexOf(name: string): number;
  /**
   * Members of a tensor-list argument with their positions in `inputs`; null members keep their
   * place.
   */
  list(name: string): readonly ({ readonly meta: TensorMeta; readonly index: number } | null)[];
  int(name: string): number;
  ints(name: string): readonly number[];
  /**
   * An optional int, undefined when None. Integers beyond 2^53 (such as "to the end") arrive as
   * Number.MAX_SAFE_INTEGER.
   */
  optionalInt(name: string): number | undefined;
  optionalInts(name: string): readonly number[] | undefined;
  number(name: string): number;
  optionalNumber(name: string): number | undefined;
  bool(name: string): boolean;
  bools(name: string): readonly boolean[];
  text(name: string): string;
  dtype(name: string): DType | undefined;
  /** A Scalar argument, or undefined when None. */
  scalar(name: string): ScalarArg | undefined;
  /** Tells whether the call has the argument with a value other than None. */
  has(name: string): boolean;
  /** Throws `E_TYPE` with the operator's name before the message. */
  fail(message: string, hint?: string): never;
}

/**
 * A call whose results are known. The same shape serves local sizes: then inputs and outputs are
 * those of the largest shard.
 */
export interface TypedContext extends OpContext {
  /** Results in order; null for one that the call masks off. */
  readonly outputs: readonly (TensorMeta | null)[];
}
