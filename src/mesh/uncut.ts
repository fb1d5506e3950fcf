import type { Placement } from './placement.ts';

/** What all kinds that cut nothing have in common: every rank holds every row. */
export abstract class Uncut implements Placement {
  abstract readonly kind: string;
  abstract readonly text: string;
  readonly dim = undefined;

  localSize(size: number): number {
    return size;
  }
  split(size: number, n: number): number[][] {
    return Array.from({ length: n }, () => Array.from({ length: size }, (_, i) => i));
  }
  isEven(): boolean {
    return true;
  }
  withDim(): Placement {
    return this;
  }
}
