/**
 * Fits named constants by coordinate search, to lower a loss. Names are tried up and down by a
 * factor, which shrinks from one round to the next. The search is deterministic: a move counts only
 * where it lowers the loss, up is tried before down, and of equal moves the first is taken.
 */

/** Seconds, shares and factors of a model by name. */
type Constants<N extends string> = Readonly<Record<N, number>>;

interface Search<C, N> {
  readonly start: C;
  readonly free: readonly N[];
  /** The loss that is lowered. */
  readonly loss: (constants: C) => number;
  /** Factors of the rounds, the largest first. */
  readonly factors: readonly number[];
}

/**
 * Takes the move that lowers the loss most, again and again with each factor, so that the constant
 * that explains most moves first.
 */
export function steepestSearch<N extends string, C extends Constants<N>>(search: Search<C, N>): C {
  const { start, free, loss, factors } = search;
  let best = start;
  let least = loss(best);
  for (const factor of factors)
    for (let from: C | undefined; from !== best;) {
      from = best;
      for (const name of free)
        for (const by of [factor, 1 / factor]) {
          const next = { ...from, [name]: from[name] * by };
          const now = loss(next);
          if (now >= least) continue;
          least = now;
          best = next;
        }
    }
  return best;
}
