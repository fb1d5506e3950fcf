/**
 * Computes the cost of discarding a share of a region's results: operators are given up in the
 * order of bytes freed a second, and the resulting staircase is bounded by a convex line of two
 * pieces, which a linear program can hold (the trade-off curve of PyTorch's
 * `torch.distributed._tools.sac_estimator`).
 */

import { checkItems, checkKinds } from '../../arguments.ts';
import { regionGroups, type RegionOp } from './per-op.ts';

/** After discarding this share of the region's bytes, this share of its seconds is recomputed. */
export interface CurvePoint {
  readonly discarded: number;
  readonly recomputed: number;
}

/** recomputed = slope * discarded + intercept, shares both. */
export interface CurveLine {
  readonly slope: number;
  readonly intercept: number;
}

/** Seconds of recomputation against bytes kept, for one region. */
export interface RecomputeCurve {
  /** Bytes and seconds of all operators of the region, also of results that nothing would keep. */
  readonly bytes: number;
  readonly seconds: number;
  /** From discarding views alone to discarding everything; shares of bytes rise strictly. */
  readonly points: readonly CurvePoint[];
}

/**
 * The curve of a region whose last result leaves it and is kept whatever is chosen: give that
 * operator 0 bytes.
 *
 * @throws E_USAGE when an in-place operator names none of the region
 */
export function recomputeCurve(ops: readonly RegionOp[]): RecomputeCurve {
  checkKinds('recomputeCurve', { ops: [ops, 'list'] });
  checkItems('recomputeCurve', 'ops', ops, ['bytes', 'seconds']);
  const bytes = ops.reduce((sum, op) => sum + op.bytes, 0);
  const seconds = ops.reduce((sum, op) => sum + op.seconds, 0);
  const share = (part: number, whole: number): number => (whole === 0 ? 0 : part / whole);
  // Results freed for nothing come first.
  const perSecond = (g: { bytes: number; seconds: number }): number =>
    g.seconds > 0 ? g.bytes / g.seconds : Infinity;
  const order = regionGroups(ops).sort((a, b) =>
    perSecond(a) === perSecond(b) ? 0 : perSecond(b) - perSecond(a),
  );
  let freed = 0;
  let again = ops.reduce((sum, op) => (op.view === true ? sum + op.seconds : sum), 0);
  const points: CurvePoint[] = [{ discarded: 0, recomputed: share(again, seconds) }];
  for (const group of order) {
    freed += group.bytes;
    again += group.seconds;
    const point = { discarded: share(freed, bytes), recomputed: share(again, seconds) };
    if (point.discarded === points[points.length - 1].discarded) points.pop();
    points.push(point);
  }
  return { bytes, seconds, points };
}

/** The shift by which PyTorch moves every point to the right. */
const SHIFT = 0.01;

/**
 * At most two lines whose larger value replaces the curve. Each point takes the seconds of the next
 * one, because a share between two steps costs the later: an upper estimate, as PyTorch makes it.
 */
export function curveLines(input: RecomputeCurve): CurveLine[] {
  checkKinds('curveLines', { input: [input, ['bytes', 'seconds', 'points']] });
  const { points } = input;
  if (points.length < 2) return [];
  const x = points.slice(0, -1).map((p) => p.discarded + SHIFT);
  const y = points.slice(1).map((p) => p.recomputed);
  return x.length < 4 ? [leastSquares(x, y)] : twoPieces(x, y);
}

/** Sum of squared differences between points and a continuous line of one or two pieces. */
export function squaredError(
  lines: readonly CurveLine[],
  x: readonly number[],
  y: readonly number[],
): number {
  // The pieces meet at the break; left of it the first holds.
  const at = (v: number): number => {
    const [a, b] = lines;
    const turn =
      b === undefined || b.slope === a.slope
        ? Infinity
        : (a.intercept - b.intercept) / (b.slope - a.slope);
    const line = v <= turn ? a : b;
    return line.slope * v + line.intercept;
  };
  return x.reduce((sum, v, i) => sum + (at(v) - y[i]) ** 2, 0);
}

function leastSquares(x: readonly number[], y: readonly number[]): CurveLine {
  const meanX = x.reduce((a, b) => a + b, 0) / x.length;
  const meanY = y.reduce((a, b) => a + b, 0) / y.length;
  const spread = x.reduce((sum, v) => sum + (v - meanX) ** 2, 0);
  const slope =
    spread === 0 ? 0 : x.reduce((sum, v, i) => sum + (v - meanX) * (y[i] - meanY), 0) / spread;
  return { slope, intercept: meanY - slope * meanX };
}

/**
 * The continuous line of two pieces of least squared error. With the points cut into a left and a
 * right part, either the best lines of both meet between the parts, or the best break is at a point
 * (Hudson 1966, doi:10.1080/01621459.1966.10482202): so all cuts are tried. Of equals the leftmost
 * break stays.
 */
function twoPieces(x: readonly number[], y: readonly number[]): CurveLine[] {
  let best: CurveLine[] = [leastSquares(x, y)];
  let least = Infinity;
  const offer = (lines: CurveLine[]): void => {
    const error = squaredError(lines, x, y);
    if (error >= least * (1 - 1e-12)) return;
    least = error;
    best = lines;
  };
  for (let k = 1; k < x.length - 1; k++) {
    offer(brokenAt(x[k], x, y));
    if (k < 2 || k > x.length - 2) continue;
    const a = leastSquares(x.slice(0, k), y.slice(0, k));
    const b = leastSquares(x.slice(k), y.slice(k));
    const turn = (a.intercept - b.intercept) / (b.slope - a.slope);
    if (turn >= x[k - 1] && turn <= x[k]) offer([a, b]);
  }
  return best;
}

/** Least squares over 1, x and max(x - turn, 0), by the normal equations around the break. */
function brokenAt(turn: number, x: readonly number[], y: readonly number[]): CurveLine[] {
  // In coordinates u = x - turn: value + left * min(u, 0) + right * max(u, 0).
  const basis = x.map((v) => [1, Math.min(v - turn, 0), Math.max(v - turn, 0)]);
  const m = [0, 1, 2].map((r) => [
    ...[0, 1, 2].map((c) => basis.reduce((sum, row) => sum + row[r] * row[c], 0)),
    basis.reduce((sum, row, i) => sum + row[r] * y[i], 0),
  ]);
  for (let p = 0; p < 3; p++) {
    for (let r = 0; r < 3; r++) {
      if (r === p) continue;
      const factor = m[r][p] / m[p][p];
      for (let c = p; c < 4; c++) m[r][c] -= factor * m[p][c];
    }
  }
  const [value, left, right] = m.map((row, r) => row[3] / row[r]);
  return [
    { slope: left, intercept: value - left * turn },
    { slope: right, intercept: value - right * turn },
  ];
}
