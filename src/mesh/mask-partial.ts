import { Uncut } from './uncut.ts';

/**
 * A masked table lookup waiting for its sum: out-of-range indices were masked and the shard's offset subtracted. Two are
 * the same placement only with the same reduction, offset shape and offset dim (DTensor's _MaskPartial).
 */
export class MaskPartial extends Uncut {
  readonly kind = 'mask-partial';
  readonly text: string;

  constructor(
    readonly offsetShape: readonly number[],
    readonly offsetDim: number,
  ) {
    super();
    this.text = `MaskP(sum, [${offsetShape.join(', ')}], ${offsetDim})`;
  }
}
