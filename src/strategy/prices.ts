/**
 * Prices changes of sharding for the propagation of one call, by the redistribution planner or by
 * DTensor's greedy one.
 */

import type { MovedType } from '../cost/redistribution/pricing.ts';
import { DTYPE_BYTES } from '../graph/types.ts';
import type { TensorMeta } from '../ops/record/record.ts';

/** Who prices a change of sharding: the redistribution planner, or the greedy one of DTensor. */
export interface Prices {
  /** Seconds from one sharding to another; Infinity where the change is refused. */
  seconds(type: MovedType, from: number, to: number): number;
  /** The same for many targets at once, row by source. */
  matrix?(type: MovedType, from: ArrayLike<number>, to: ArrayLike<number>): Float64Array;
}

/** Prices of one tensor from where it is, each asked for once. */
export class MovePrices {
  private readonly known = new Map<number, number>();
  private readonly type: MovedType;

  constructor(
    private readonly prices: Prices,
    meta: TensorMeta,
    readonly from: number,
  ) {
    this.type = { shape: meta.shape, itemBytes: DTYPE_BYTES[meta.dtype] };
  }

  seconds(to: number): number {
    let cost = this.known.get(to);
    if (cost === undefined)
      this.known.set(to, (cost = this.prices.seconds(this.type, this.from, to)));
    return cost;
  }

  /** Asks for many targets at once. */
  prepare(targets: readonly number[]): void {
    const open = targets.filter((to) => !this.known.has(to));
    if (open.length === 0) return;
    if (this.prices.matrix === undefined) for (const to of open) this.seconds(to);
    else {
      const row = this.prices.matrix(this.type, [this.from], open);
      open.forEach((to, i) => this.known.set(to, row[i]));
    }
  }
}
