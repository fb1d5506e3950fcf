import type { Placement } from './placement.ts';

/**
 * A masked table lookup waiting for its sum: out-of-range indices were masked and the shard's offset subtracted. Two are
 * the same placement only with the same reduction, offset shape and offset dim (DTensor's _MaskPartial).
 */
export class MaskPartial implements Placement {
  readonly kind = 'mask-partial';
  readonly dim = undefined;
  readonly text: string;

  constructor(
    readonly offsetShape: readonly number[],
    readonly offsetDim: number,
  ) {
    this.text = `MaskP(sum, [${offsetShape.join(', ')}], ${offsetDim})`;
  }

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
