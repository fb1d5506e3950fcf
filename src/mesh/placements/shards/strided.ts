/** The placement `_S(d, f)` (DTensor's `_StridedShard`): pieces of the chunks of a dim. */

import { checkKinds } from '../../../arguments.ts';
import { wrongArgument } from '../../../errors.ts';
import type { PlacementKind } from '../kinds.ts';
import { Cut } from './cut.ts';
import { ceilChunks, Shard } from './shard.ts';

/**
 * The dim is cut into `factor` ceil chunks and each chunk into n ceil pieces; rank r holds piece r
 * of every chunk (DTensor's _StridedShard). Factor 1 is a plain Shard and is not made here.
 */
export class StridedShard extends Cut {
  readonly kind = 'strided';
  readonly text: string;
  override readonly chunks: number;

  constructor(
    dim: number,
    readonly factor: number,
  ) {
    super(dim);
    checkKinds('StridedShard', { factor: [factor, 'integer'] });
    if (factor < 1)
      throw wrongArgument('StridedShard', 'factor', String(factor), 'it is a count of chunks.');
    this.text = `_S(${dim}, ${factor})`;
    this.chunks = factor;
  }

  override localSize(size: number, n: number, rank?: number): number {
    if (size === 0) return 0;
    const chunk = Math.ceil(size / this.factor);
    const whole = Math.floor(size / chunk);
    return whole * piece(chunk, n, rank) + piece(size - whole * chunk, n, rank);
  }
  split(size: number, n: number): number[][] {
    const out: number[][] = Array.from({ length: n }, () => []);
    if (size === 0) return out;
    // Chunks that hold a row; a factor far above the size has no more of them than rows.
    const chunk = Math.ceil(size / this.factor);
    for (let start = 0; start < size; start += chunk) {
      ceilChunks(Math.min(chunk, size - start), n).forEach(({ offset, length }, r) => {
        for (let i = 0; i < length; i++) out[r].push(start + offset + i);
      });
    }
    return out;
  }
  override isEven(size: number, n: number): boolean {
    return size % (n * this.factor) === 0;
  }
  withDim(dim: number): StridedShard {
    return dim === this.dim ? this : new StridedShard(dim, this.factor);
  }
}

/** Rows of a ceil piece of `length` rows; without a rank, of the largest. */
function piece(length: number, n: number, rank: number | undefined): number {
  const rows = Math.ceil(length / n);
  return rank === undefined ? rows : Math.max(0, Math.min(rows, length - rank * rows));
}

/** Reads `_S(0, 2)`, `_StridedShard(dim=0, sf=2)`. */
export const STRIDED: PlacementKind = {
  kind: 'strided',
  words: ['_S', '_StridedShard'],
  parse(scan) {
    scan.expect('(');
    scan.keyword('dim');
    const dim = scan.dim();
    scan.expect(',');
    scan.keyword('sf');
    scan.keyword('split_factor');
    const factor = scan.count('a stride factor of at least 1', 1);
    scan.expect(')');
    return factor === 1 ? Shard.of(dim) : new StridedShard(dim, factor);
  },
};
