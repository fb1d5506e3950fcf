/** The base of placements that leave every row on every rank. */

import type { Placement } from './placement.ts';

/** The base class of all kinds that cut nothing: every rank holds every row. */
export abstract class Uncut implements Placement {
  abstract readonly kind: string;
  abstract readonly text: string;
  readonly dim = undefined;
  readonly chunks = 1;
  readonly anySize = true;
  readonly oneRun = true;

  get identity(): object | undefined {
    return undefined;
  }
  localSize(size: number): number {
    return size;
  }
  split(size: number, n: number): number[][] {
    return Array.from({ length: n }, () => Array.from({ length: size }, (_, i) => i));
  }
  join<T>(parts: readonly ArrayLike<T>[]): T[] {
    return Array.from(parts[0] ?? []);
  }
  isEven(): boolean {
    return true;
  }
  refusal(): undefined {
    return undefined;
  }
  withDim(): Placement {
    return this;
  }
  equals(other: Placement): boolean {
    return this.text === other.text && this.identity === other.identity;
  }
  toString(): string {
    return this.text;
  }
}
