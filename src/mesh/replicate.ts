import type { Placement } from './placement.ts';

/** Equal data on every rank. */
class Replicate implements Placement {
  readonly kind = 'replicate';
  readonly dim = undefined;
  readonly text = 'R';

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

/** The replicated placement, `R`. */
export const REPLICATE: Placement = Object.freeze(new Replicate());
