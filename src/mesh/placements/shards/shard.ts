/** The placement `S(d)`: ceil chunks of one tensor dim, as DTensor's `Shard`. */

import { checkKinds } from '../../../arguments.ts';
import type { PlacementKind } from '../kinds.ts';
import { Cut, normalDim } from './cut.ts';

/**
 * Ceil chunks of one tensor dim: chunk = ceil(size / n), later ranks short or empty (as DTensor's
 * Shard).
 */
export class Shard extends Cut {
  readonly kind = 'shard';
  readonly text: string;
  override readonly oneRun = true;

  private constructor(dim: number) {
    super(dim);
    checkKinds('Shard', { dim: [dim, 'number'] });
    this.text = `S(${dim})`;
  }

  /**
   * One object for each dim.
   *
   * @param rank of the tensor, for dims counted from the end: `Shard.of(-1, 3)` is `S(2)`
   * @throws E_PLACEMENT when a tensor of that rank has no such dim, RangeError for a negative dim
   *   without a rank
   */
  static of(dim: number, rank?: number): Shard {
    const normal = rank === undefined ? dim : normalDim(dim, rank);
    return (SHARDS[normal] ??= Object.freeze(new Shard(normal)));
  }

  override localSize(size: number, n: number, rank?: number): number {
    const chunk = Math.ceil(size / n);
    return rank === undefined ? chunk : Math.max(0, Math.min(chunk, size - rank * chunk));
  }
  /** First row of a rank; `size` for an empty one. */
  offset(size: number, n: number, rank: number): number {
    return Math.min(rank * Math.ceil(size / n), size);
  }
  split(size: number, n: number): number[][] {
    return ceilChunks(size, n).map(({ offset, length }) =>
      Array.from({ length }, (_, i) => offset + i),
    );
  }
  override isEven(size: number, n: number): boolean {
    return size % n === 0;
  }
  withDim(dim: number): Shard {
    return Shard.of(dim);
  }
}

const SHARDS: Shard[] = [];

/** Offset and length of each of `n` ceil chunks; the offset of an empty chunk is `size`. */
export function ceilChunks(size: number, n: number): { offset: number; length: number }[] {
  const chunk = Math.ceil(size / n);
  return Array.from({ length: n }, (_, r) => {
    const offset = Math.min(r * chunk, size);
    return { offset, length: Math.min(chunk, size - offset) };
  });
}

/** Reads `S(0)`, `S0`, `Shard(dim=0)`. */
export const SHARD: PlacementKind = {
  kind: 'shard',
  words: ['S', 'Shard'],
  parse(scan, word) {
    if (word === 'S' && /\d/.test(scan.peek())) return Shard.of(scan.dim());
    scan.expect('(');
    scan.keyword('dim');
    const dim = scan.dim();
    scan.expect(')');
    return Shard.of(dim);
  },
};
