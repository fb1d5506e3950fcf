/**
 * Penalties of a block for rows that its result would exceed: per row a price between one known to
 * be too low and one known to be too high. Tripled and bisected, because a price that makes the
 * block worthless overshoots by far in large blocks.
 */

interface Penalty {
  low: number;
  high: number;
  now: number;
}

/** Factor on a price of which nothing is known but that it is too low. */
const GROWTH = 3;
/** Relative change of a price below which another attempt is not worth it. */
const LEAST_CHANGE = 0.02;

export class RowPenalties {
  private readonly rows = new Map<number, Penalty>();

  clear(): void {
    this.rows.clear();
  }

  /** The row is exceeded: its price rises, to `first` if it had none. Returns the difference. */
  raise(row: number, first: number): number {
    const penalty = this.rows.get(row) ?? { low: 0, high: Infinity, now: 0 };
    this.rows.set(row, penalty);
    const { high, now } = penalty;
    // A penalty that is too high together with another row may be too low alone.
    penalty.low = Math.min(now, high);
    penalty.now = high < Infinity ? (penalty.low + high) / 2 : now > 0 ? GROWTH * now : first;
    return penalty.now - now;
  }

  /**
   * The result keeps the rows but is not worth it: all prices go halfway back. Calls `apply` with
   * every difference; returns false when that changes little.
   */
  lower(apply: (row: number, difference: number) => void): boolean {
    let any = false;
    for (const [row, penalty] of this.rows) {
      const { low, now } = penalty;
      penalty.high = now;
      penalty.now = (low + now) / 2;
      if (now - penalty.now > LEAST_CHANGE * now) any = true;
      apply(row, penalty.now - now);
    }
    return any;
  }
}
