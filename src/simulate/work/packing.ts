/**
 * Gives stretches of a program to streams, and every second of work a weight such that the weighted
 * seconds of any plan are at most its overlapped step.
 *
 * A step runs its kernels one after another, with the moves that kernels wait for between them. In
 * a stretch of the program each stream must also have run everything that can only run there: a
 * communication stream its moves, the compute stream its kernels and local copies. So a stretch
 * takes at least the seconds of the chain or of one stream, and any mixture of these is a lower
 * bound. A mixture gives each stretch `y` of each stream a share, and no place of the program more
 * than 1 in all; what is left of 1 is the share of the chain. This is the linear programming dual
 * of the longest path through the step.
 */
import { ANY_LINK, COMPUTE, LINK_STREAMS } from './streams.ts';

/** Places `from` to `to`, both included, given to a stream. */
export interface Stretch {
  readonly stream: number;
  readonly from: number;
  readonly to: number;
}

/** Every stretch of so many places, for each stream that has work. */
export function everyStretch(places: number, streams: readonly number[]): Stretch[] {
  const out: Stretch[] = [];
  for (const stream of streams)
    for (let from = 0; from < places; from++)
      for (let to = from; to < places; to++) out.push({ stream, from, to });
  return out;
}

/** Shares of stretches, and the weights that follow from them. */
export class Packing {
  /**
   * By stream, then first place times places plus last place: sum of the shares of stretches that
   * contain both.
   */
  private readonly covers: readonly Float64Array[];

  /** @param shares one for each stretch, at least 0, and at most 1 together at every place */
  constructor(
    readonly places: number,
    readonly stretches: readonly Stretch[],
    readonly shares: readonly number[],
  ) {
    this.covers = Array.from({ length: LINK_STREAMS }, () => new Float64Array(places * places));
    stretches.forEach(({ stream, from, to }, i) => {
      if (shares[i] === 0) return;
      for (let lo = from; lo <= to; lo++)
        for (let hi = lo; hi <= to; hi++) this.covers[stream][lo * places + hi] += shares[i];
    });
  }

  /** The weight of the work that can overlap with the kernels from place `lo` to `hi`. */
  hidden(stream: number, lo: number, hi: number): number {
    return Math.min(1, this.covers[stream][lo * this.places + hi]);
  }

  /**
   * Weight of what is on the chain: kernels, and what the next kernel waits for. It counts on its
   * own stream too.
   */
  chained(stream: number, place: number): number {
    let weight = 1;
    for (let s = COMPUTE; s < LINK_STREAMS; s++)
      if (s !== stream) weight -= this.hidden(s, place, place);
    return Math.max(0, weight);
  }

  /**
   * The place from `lo` to `hi` in which the chain has the smallest share: what can run at any of
   * them weighs no less there.
   */
  leastChained(lo: number, hi: number): number {
    let best = lo;
    for (let place = lo + 1; place <= hi; place++)
      if (this.chained(ANY_LINK, place) < this.chained(ANY_LINK, best)) best = place;
    return best;
  }
}
