/** The values that nodes hold in a run, and the count of elements alive. */

import { NDArray } from '../../ndarray/array.ts';

/**
 * The value of a node of a graph: an array, the results of a call with several, a symbolic number,
 * or nothing.
 */
export type Value = NDArray | readonly Value[] | number | null;

/** Place of a node's value; undefined after it was freed. */
export interface Cell {
  value: Value | undefined;
}

/** Counts the elements that are held, each storage once however many views it has. */
export class Ledger {
  peak = 0;
  private live = 0;
  private readonly uses = new Map<Float64Array, number>();

  hold(value: Value): void {
    this.eachStorage(value, (storage) => {
      const uses = this.uses.get(storage) ?? 0;
      if (uses === 0) this.live += storage.length;
      this.uses.set(storage, uses + 1);
    });
    this.peak = Math.max(this.peak, this.live);
  }

  release(value: Value): void {
    this.eachStorage(value, (storage) => {
      const uses = (this.uses.get(storage) ?? 0) - 1;
      if (uses > 0) {
        this.uses.set(storage, uses);
        return;
      }
      this.uses.delete(storage);
      this.live -= storage.length;
    });
  }

  private eachStorage(value: Value, visit: (storage: Float64Array) => void): void {
    if (value instanceof NDArray) visit(value.storage);
    else if (isValues(value)) for (const member of value) this.eachStorage(member, visit);
  }
}

export function isValues(value: Value): value is readonly Value[] {
  return Array.isArray(value);
}
