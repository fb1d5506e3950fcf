import type { Placement } from './placement.ts';
import { ceilChunks } from './shard.ts';

/**
 * The dim is cut into `factor` ceil chunks and each chunk into n ceil pieces; rank r holds piece r of every chunk
 * (DTensor's _StridedShard). Factor 1 is a plain Shard and is not made here.
 */
export class StridedShard implements Placement {
  readonly kind = 'strided';
  readonly text: string;

  constructor(
    readonly dim: number,
    readonly factor: number,
  ) {
    if (!Number.isInteger(dim) || dim < 0) throw new RangeError(`internal: StridedShard of dim ${dim}`);
    if (!Number.isInteger(factor) || factor < 1) throw new RangeError(`internal: StridedShard with factor ${factor}`);
    this.text = `_S(${dim}, ${factor})`;
  }

  localSize(size: number, n: number): number {
    let rows = 0;
    for (const { length } of ceilChunks(size, this.factor)) rows += Math.ceil(length / n);
    return rows;
  }
  split(size: number, n: number): number[][] {
    const out: number[][] = Array.from({ length: n }, () => []);
    for (const chunk of ceilChunks(size, this.factor)) {
      ceilChunks(chunk.length, n).forEach(({ offset, length }, r) => {
        for (let i = 0; i < length; i++) out[r].push(chunk.offset + offset + i);
      });
    }
    return out;
  }
  isEven(size: number, n: number): boolean {
    return size % (n * this.factor) === 0;
  }
  withDim(dim: number): Placement {
    return new StridedShard(dim, this.factor);
  }
}
