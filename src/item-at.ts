/** Reads a list where the index is known to be in it, and says so where it is not. */
import { internalError } from './errors.ts';

export function itemAt<T>(list: ArrayLike<T>, index: number): T {
  const item = list[index];
  if (item === undefined)
    throw internalError(`a list of ${list.length} has no item at index ${index}`);
  return item;
}

/** The first items of a list, to be named: `const [batch, rows] = firstItems(sizes, 2)`. */
export function firstItems<T>(list: ArrayLike<T>, count: 1): [T];
export function firstItems<T>(list: ArrayLike<T>, count: 2): [T, T];
export function firstItems<T>(list: ArrayLike<T>, count: 3): [T, T, T];
export function firstItems<T>(list: ArrayLike<T>, count: 4): [T, T, T, T];
export function firstItems<T>(list: ArrayLike<T>, count: number): T[] {
  return Array.from({ length: count }, (_, index) => itemAt(list, index));
}
