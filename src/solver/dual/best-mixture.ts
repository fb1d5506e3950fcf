/**
 * Finds the mixture that is worth most against a list of answers: each has a constant and one
 * coefficient for each share, and the least of the answers' sums at these shares is largest. This
 * is the master problem of Kelley's cutting-plane method (The cutting-plane method for solving
 * convex programs, 1960): it limits every bound from above.
 */
import solver from 'javascript-lp-solver';

/** One answer: `constant` plus the sum of `slopes` times shares. */
export interface Cut {
  readonly constant: number;
  readonly slopes: readonly number[];
}

/** Shares that lie over one place, from `from` to `to`, sum to at most 1 there. */
interface Span {
  readonly from: number;
  readonly to: number;
}

interface Mixture {
  /** At least 0; over every place they sum to at most 1, whatever the library's rounding. */
  readonly shares: readonly number[];
  /** Least sum of an answer under these shares, evaluated here. */
  readonly value: number;
}

/** @param places number of places that spans lie over */
export function bestMixture(cuts: readonly Cut[], spans: readonly Span[], places: number): Mixture {
  const scale = Math.max(...cuts.map((cut) => Math.abs(cut.constant))) || 1;
  const variables: Record<string, Record<string, number>> = { value: { value: 1 } };
  const constraints: Record<string, { max: number }> = {};
  cuts.forEach(({ constant }, c) => {
    constraints[`cut${c}`] = { max: constant / scale };
    variables.value[`cut${c}`] = 1;
  });
  for (let place = 0; place < places; place++) constraints[`place${place}`] = { max: 1 };
  spans.forEach(({ from, to }, i) => {
    // A share that helps no answer stays 0.
    if (cuts.every(({ slopes }) => slopes[i] <= 0)) return;
    const column: Record<string, number> = {};
    cuts.forEach(({ slopes }, c) => (column[`cut${c}`] = -slopes[i] / scale));
    for (let place = from; place <= to; place++) column[`place${place}`] = 1;
    variables[`share${i}`] = column;
  });
  const answer = solver.Solve({
    optimize: 'value',
    opType: 'max',
    constraints,
    variables,
  }) as Readonly<Record<string, unknown>>;
  const given = spans.map((_, i) => {
    const share = answer[`share${i}`];
    return typeof share === 'number' && share > 0 ? share : 0;
  });
  const sums = new Float64Array(places);
  spans.forEach(({ from, to }, i) => {
    for (let place = from; place <= to; place++) sums[place] += given[i];
  });
  const over = Math.max(1, ...sums);
  const shares = given.map((share) => share / over);
  const value = Math.min(
    ...cuts.map(({ constant, slopes }) =>
      slopes.reduce((sum, s, i) => sum + s * shares[i], constant),
    ),
  );
  return { shares, value };
}
