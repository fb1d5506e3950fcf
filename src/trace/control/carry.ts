/**
 * Carries of loops that start as numbers of the host. A whole number starts as i64; where the body
 * returns a floating-point value for it, the number starts as that type instead, as it would in
 * arithmetic: `foriLoop(0, 3, (i, c) => c.mul(0.5), 1)`.
 */

import type { DType } from '../../graph/types.ts';
import type { Recorder, TracedValue } from '../record/recorder.ts';
import type { Tree } from '../record/tree.ts';
import { isFloating } from '../record/typed-value.ts';
import { withScalars } from './body.ts';
import { asTensor, type Flat, flat, refill, valueOf } from './traced-values.ts';

interface Attempt<T> {
  /** The values that the body returns for the carry. */
  readonly next: Tree<TracedValue>;
  readonly traced: T;
}

/**
 * Traces bodies on the carry; once more for each number of the host that has to start as another
 * type.
 *
 * @param given the carry as the program gives it
 * @param scalars the same with its numbers as tensors
 */
export function withSettledCarry<T>(
  recorder: Recorder,
  given: Tree<TracedValue>,
  attempt: (start: Flat) => Attempt<T>,
  scalars: Tree<TracedValue> = withScalars(recorder, given),
): { readonly carry: Flat; readonly traced: T } {
  const { trace } = recorder;
  const numbers = new Set(hostNumbers(given));
  let carry = flat(scalars);
  for (;;) {
    const [sites, notes, guards] = [
      trace.sites.length,
      trace.notes.length,
      trace.hostGuards.length,
    ];
    const { next, traced } = attempt(carry);
    const wider = numbers.size === 0 ? new Map<string, DType>() : widened(carry, next, numbers);
    if (wider.size === 0) return { carry, traced };
    // Notes of the bodies are taken again.
    trace.sites.length = sites;
    trace.notes.length = notes;
    trace.hostGuards.length = guards;
    const leaves = carry.leaves.map(({ path, leaf }) => {
      const dtype = wider.get(path);
      return dtype === undefined ? leaf : valueOf(asTensor(leaf).to(dtype), 'a carry');
    });
    carry = flat(refill(carry.tree, leaves));
  }
}

/** Numbers of the host whose value after a trip has a wider type: that type, by path. */
function widened(
  carry: Flat,
  next: Tree<TracedValue>,
  numbers: ReadonlySet<string>,
): Map<string, DType> {
  const results = new Map<string, TracedValue | number>();
  collect(commonPrefix(next, carry.tree), results);
  const wider = new Map<string, DType>();
  for (const { path, leaf } of carry.leaves) {
    const result = results.get(path);
    if (!numbers.has(path) || isFloating(leaf.dtype) || leaf.dtype === 'b8' || result === undefined)
      continue;
    if (typeof result === 'number') {
      if (!Number.isSafeInteger(result)) wider.set(path, 'f32');
    } else if (result.shape.length === 0 && isFloating(result.dtype)) wider.set(path, result.dtype);
  }
  return wider;
}

/** Tensors and numbers by path. */
function collect(tree: Tree<TracedValue>, found: Map<string, TracedValue | number>): void {
  switch (tree.kind) {
    case 'leaf':
      found.set(tree.path, tree.leaf);
      break;
    case 'host':
      if (typeof tree.value === 'number') found.set(tree.path, tree.value);
      break;
    case 'list':
      for (const item of tree.items) collect(item, found);
      break;
    case 'record':
      for (const [, inner] of tree.entries) collect(inner, found);
  }
}

/** Paths of the numbers of the host in a tree. */
function hostNumbers(tree: Tree<TracedValue>): string[] {
  switch (tree.kind) {
    case 'leaf':
      return [];
    case 'host':
      return typeof tree.value === 'number' ? [tree.path] : [];
    case 'list':
      return tree.items.flatMap(hostNumbers);
    case 'record':
      return tree.entries.flatMap(([, inner]) => hostNumbers(inner));
  }
}

/**
 * The tree with the paths of the other one, as far as they have the same structure: `1.h` of a pair
 * becomes `h`.
 */
export function commonPrefix(tree: Tree<TracedValue>, like: Tree<TracedValue>): Tree<TracedValue> {
  if (
    (tree.kind === 'leaf' || tree.kind === 'host') &&
    (like.kind === 'leaf' || like.kind === 'host')
  )
    return { ...tree, path: like.path };
  if (tree.kind === 'list' && like.kind === 'list' && tree.items.length === like.items.length)
    return { kind: 'list', items: tree.items.map((item, i) => commonPrefix(item, like.items[i])) };
  if (
    tree.kind === 'record' &&
    like.kind === 'record' &&
    tree.entries.length === like.entries.length
  )
    return {
      kind: 'record',
      entries: tree.entries.map(
        ([key, inner], i) => [key, commonPrefix(inner, like.entries[i][1])] as const,
      ),
    };
  return tree;
}
