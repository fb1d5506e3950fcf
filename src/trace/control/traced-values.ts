/** Values of users that go into bodies of control flow and come out of them, as they are traced. */

import { refusal } from '../errors/refusal.ts';
import { needRecorder, type Recorder, type TracedValue } from '../record/recorder.ts';
import { type HostValue, leavesOf, mapTree, type Tree } from '../record/tree.ts';
import { describe, type TensorCore, tracedValue } from '../tensor/core.ts';
import type { Tensor } from '../tensor/tensor.ts';
import { tensorsOf } from './body.ts';

/** The values that a body may return: tensors and host constants, nested in lists and records. */
export type BodyTree =
  Tensor | HostValue | readonly BodyTree[] | { readonly [key: string]: BodyTree };

/** The traced value of a tensor. @throws E_TRACE_INPUT for anything else */
export function valueOf(tensor: unknown, what: string): TracedValue {
  const value = tracedValue(tensor);
  if (value !== undefined) return value;
  const { trace } = needRecorder(what);
  throw refusal(
    'E_TRACE_INPUT',
    `${what} is ${typeof tensor === 'object' ? 'no traced tensor' : `a ${typeof tensor}`}`,
    trace.place(),
    {
      hint: 'pass a traced tensor; host constants can be read from the body directly.',
    },
  );
}

/** A tensor that decides: bool without dims. */
export function predicate(
  recorder: Recorder,
  value: unknown,
  code: 'E_COND_PRED' | 'E_WHILE_COND',
  what: string,
): TracedValue {
  const traced = tracedValue(value);
  if (traced?.dtype === 'b8' && traced.shape.length === 0) return recorder.own(traced, what);
  const got =
    traced !== undefined
      ? describe(value as TensorCore)
      : value === null
        ? 'null'
        : `a ${typeof value}`;
  throw refusal(code, `${what} must be one bool, b8[], but is ${got}`, recorder.trace.place(), {
    hint: 'compare (x.gt(0)) and reduce (x.any(), x.all()) until one truth value is left.',
  });
}

export function asTensor(value: TracedValue): Tensor {
  return tensorsOf({ kind: 'leaf', path: '', leaf: value }) as Tensor;
}

/**
 * The tree of a value in the running recorder, its leaves in order, and a way to put others in
 * their places.
 */
export interface Flat {
  readonly tree: Tree<TracedValue>;
  readonly leaves: readonly { readonly path: string; readonly leaf: TracedValue }[];
}

export function flat(tree: Tree<TracedValue>): Flat {
  return { tree, leaves: leavesOf(tree) };
}

/** The tree with these leaves, given in order. */
export function refill(tree: Tree<TracedValue>, leaves: readonly TracedValue[]): Tree<TracedValue> {
  let next = 0;
  return mapTree(tree, () => leaves[next++]);
}
