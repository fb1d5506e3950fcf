/** Reads a list where the index is known to be in it, and says so where it is not. */
import { internalError } from './errors.ts';

export function itemAt<T>(list: ArrayLike<T>, index: number): T {
  const item = list[index];
  if (item === undefined)
    throw internalError(`a list of ${list.length} has no item at index ${index}`);
  return item;
}
