/** Computes the rows of a tensor dim that each rank holds under a sharding. */
import { internalError, ShardwrightError } from '../../errors.ts';
import { Shard } from '../../mesh/placements/shards/shard.ts';
import { StridedShard } from '../../mesh/placements/shards/strided.ts';
import type { Sharding } from '../../mesh/sharding/sharding.ts';
import type { ShardingSpace } from '../../mesh/sharding/space.ts';
import { type RankInt, rankInt } from './rank-int.ts';

/**
 * The rows of one tensor dim that each rank holds: one run of rows where all cuts are ceil chunks,
 * else several.
 */
export interface Piece {
  /**
   * First row; the size of the dim where a rank holds none. @throws E_INTERNAL of rows that are no
   * single run
   */
  readonly start: RankInt;
  readonly rows: RankInt;
}

/** Places of the local tensors of shardings in the global ones, by rank. */
export class Pieces {
  private readonly known = new Map<string, Piece>();

  constructor(readonly space: ShardingSpace) {}

  /**
   * Rows of a dim of `size` rows under a sharding.
   *
   * @throws E_UNSUPPORTED for cuts other than ceil chunks and even strides
   */
  of(sharding: number, dim: number, size: number): Piece {
    const spec = this.space.get(sharding);
    const order = spec.orderOf(dim).filter((m) => this.space.mesh.sizes[m] > 1);
    const strided = order.filter((m) => !(spec.placements[m] instanceof Shard));
    const key = `${order.join('.')}:${size}:${strided.map((m) => spec.placements[m].text).join()}`;
    let piece = this.known.get(key);
    if (piece !== undefined) return piece;
    if (strided.length > 0) {
      piece = this.inStrides(spec, order, dim, size);
      this.known.set(key, piece);
      return piece;
    }
    const { mesh } = this.space;
    const starts: number[] = [];
    const rows: number[] = [];
    for (let rank = 0; rank < mesh.size; rank++) {
      let start = 0;
      let length = size;
      for (const m of order) {
        const chunk = Math.ceil(length / mesh.sizes[m]);
        const skip = Math.min(chunk * coordinate(this.space, rank, m), length);
        start += skip;
        length = Math.min(chunk, length - skip);
      }
      starts.push(start);
      rows.push(length);
    }
    const names = order.map((m) => mesh.names[m]).join(', ');
    piece = {
      start: rankInt(starts, `start(${size}, ${names})`),
      rows: rankInt(rows, `rows(${size}, ${names})`),
    };
    this.known.set(key, piece);
    return piece;
  }

  /** Equally many rows on every rank, in runs. */
  private inStrides(spec: Sharding, order: readonly number[], dim: number, size: number): Piece {
    const refuse = (m: number, why: string, hint: string): never => {
      throw new ShardwrightError(
        'E_UNSUPPORTED',
        `${spec.text} is not lowered: ${spec.placements[m].text} ${why}`,
        { hint },
      );
    };
    let rows = size;
    for (const m of order) {
      const cut = spec.placements[m];
      if (!(cut instanceof Shard || cut instanceof StridedShard))
        refuse(
          m,
          'is not a cut into chunks',
          'lowering takes R, S(d), even _S(d, n) and pending reductions; a plan has other ' +
            'cuts only where the request asks for them (--cut, a pin)',
        );
      const n = this.space.mesh.sizes[m];
      if (!cut.isEven(rows, n))
        refuse(
          m,
          `cuts ${rows} rows of dim ${dim} unevenly`,
          'a plan that is made now has no such cut: plan again, or pin a placement that cuts ' +
            'it evenly',
        );
      rows /= n;
    }
    return {
      rows,
      get start(): RankInt {
        throw internalError(`rows of ${spec.text} are not a single run`);
      },
    };
  }

  /** Local shape under a sharding; -1 (a masked-off result) is an internal error. */
  shape(sharding: number, shape: readonly number[]): RankInt[] {
    if (sharding < 0) throw internalError('a result without placement has no local shape');
    return shape.map((size, dim) => this.of(sharding, dim, size).rows);
  }
}

export function coordinate({ mesh }: ShardingSpace, rank: number, m: number): number {
  return Math.floor(rank / mesh.strides[m]) % mesh.sizes[m];
}
