import type { Placement } from './placement.ts';

/** Ceil chunks of one tensor dim: chunk = ceil(size / n), later ranks short or empty (as DTensor's Shard). */
export class Shard implements Placement {
  readonly kind = 'shard';
  readonly text: string;

  private constructor(readonly dim: number) {
    this.text = `S(${dim})`;
  }

  /** One object for each dim. */
  static of(dim: number): Shard {
    if (!Number.isInteger(dim) || dim < 0) throw new RangeError(`internal: Shard of dim ${dim}`);
    return (SHARDS[dim] ??= Object.freeze(new Shard(dim)));
  }

  localSize(size: number, n: number): number {
    return Math.ceil(size / n);
  }
  split(size: number, n: number): number[][] {
    return ceilChunks(size, n).map(({ offset, length }) => Array.from({ length }, (_, i) => offset + i));
  }
  isEven(size: number, n: number): boolean {
    return size % n === 0;
  }
  withDim(dim: number): Placement {
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
