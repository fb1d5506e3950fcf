import { internalError, ShardwrightError } from '../../errors.ts';
import { Shard } from '../../mesh/shard.ts';
import type { ShardingSpace } from '../../mesh/space.ts';
import { rankInt, type RankInt } from './rank-int.ts';

/** The rows of one tensor dim that each rank holds: one run of rows, because lowered cuts are ceil chunks. */
export interface Piece {
  /** First row; the size of the dim where a rank holds none. */
  readonly start: RankInt;
  readonly rows: RankInt;
}

/** Where the local tensors of shardings lie in the global ones, by rank. */
export class Pieces {
  private readonly known = new Map<string, Piece>();

  constructor(readonly space: ShardingSpace) {}

  /**
   * Rows of a dim of `size` rows under a sharding.
   *
   * @throws E_UNSUPPORTED for cuts other than ceil chunks: their rows are no single run
   */
  of(sharding: number, dim: number, size: number): Piece {
    const spec = this.space.get(sharding);
    const order = spec.orderOf(dim).filter((m) => this.space.mesh.sizes[m] > 1);
    const key = `${order.join('.')}:${size}`;
    let piece = this.known.get(key);
    if (piece !== undefined) return piece;
    for (const m of order)
      if (!(spec.placements[m] instanceof Shard))
        throw new ShardwrightError('E_UNSUPPORTED', `${spec.text} is not lowered: ${spec.placements[m].text} is no cut into chunks`, {
          hint: 'lowering takes R, S(d) and pending reductions; a plan has other cuts only where the request asks for them (--cut, a pin)',
        }); // prettier-ignore
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
    piece = { start: rankInt(starts, `start(${size}, ${names})`), rows: rankInt(rows, `rows(${size}, ${names})`) };
    this.known.set(key, piece);
    return piece;
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
