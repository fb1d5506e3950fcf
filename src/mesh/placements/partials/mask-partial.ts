/** The placement of a masked table lookup that waits for its sum. */

import { checkKinds } from '../../../arguments.ts';
import type { PlacementKind } from '../kinds.ts';
import { Pending } from './pending.ts';

/**
 * A masked table lookup waiting for its sum: out-of-range indices were masked and the shard's
 * offset subtracted (DTensor's _MaskPartial). Two are the same placement only with the same offset
 * shape and dim and, once there is one, the same mask: rows masked by one lookup mean nothing to
 * another.
 */
export class MaskPartial extends Pending {
  readonly kind = 'mask-partial';
  readonly text: string;

  /**
   * @param offsetShape shape of the whole table
   * @param offsetDim dim of the table that was cut
   * @param mask of the lookup; absent for a placement that is only described
   */
  constructor(
    readonly offsetShape: readonly number[],
    readonly offsetDim: number,
    readonly mask?: LookupMask,
  ) {
    super();
    checkKinds('MaskPartial', {
      offsetShape: [offsetShape, 'integers'],
      offsetDim: [offsetDim, 'number'],
      mask: [mask, ['local', 'masked'], 'undefined'],
    });
    this.text = `MaskP(sum, [${offsetShape.join(', ')}], ${offsetDim})`;
  }

  override get identity(): object | undefined {
    return this.mask;
  }

  /** Operands whose masked rows are 0 already: their sum. */
  reduce(operands: readonly number[]): number {
    return operands.reduce((a, b) => a + b, 0);
  }
  /** A value cannot become a lookup: masks are made from indices. */
  operand(): undefined {
    return undefined;
  }
}

/**
 * The lookup of one rank: row numbers of its own part of the table, and the indices that belong to
 * other ranks.
 */
export interface LookupMask {
  /** Index into the local rows; 0 where masked. */
  readonly local: Int32Array;
  /** 1 where the row is another rank's. */
  readonly masked: Uint8Array;
}

/** Mask of a rank that holds rows `offset .. offset + length - 1` of the table. */
export function lookupMask(indices: readonly number[], offset: number, length: number): LookupMask {
  checkKinds('lookupMask', {
    indices: [indices, 'choice'],
    offset: [offset, 'number'],
    length: [length, 'number'],
  });
  const local = new Int32Array(indices.length);
  const masked = new Uint8Array(indices.length);
  indices.forEach((index, i) => {
    const own = index >= offset && index < offset + length;
    local[i] = own ? index - offset : 0;
    masked[i] = own ? 0 : 1;
  });
  return { local, masked };
}

/**
 * The rows looked up with those of other ranks set to 0; the mask stays usable, so a value can be
 * reduced many times.
 */
export function maskedRows(rows: readonly (readonly number[])[], mask: LookupMask): number[][] {
  checkKinds('maskedRows', { rows: [rows, 'list'], mask: [mask, ['local', 'masked']] });
  return rows.map((row, i) => (mask.masked[i] === 1 ? row.map(() => 0) : [...row]));
}

/** Reads `MaskP(sum, [8, 4], 0)`, and `_MaskPartial` with its table as DTensor prints it. */
export const MASK: PlacementKind = {
  kind: 'mask-partial',
  words: ['MaskP', '_MaskPartial', 'MaskPartial'],
  parse(scan) {
    scan.expect('(');
    scan.expect('sum');
    scan.expect(',');
    const torch = scan.take('torch.Size(');
    const shape = scan.counts('a size', 0);
    if (torch) scan.expect(')');
    scan.expect(',');
    const dim = scan.count('a tensor dim', 0);
    if (dim >= shape.length)
      scan.fail(`a dim of the ${shape.length}-D table before this place (got ${dim})`);
    scan.expect(')');
    return new MaskPartial(shape, dim);
  },
};
