/**
 * Takes the measured kernels of a cluster and gives the seconds of a call: of an operator that was
 * timed by its own points, on a processor of others by those of copies and products. Calls that
 * only read and write are linear between two measured sizes. Those that multiply take a start, a
 * time for each byte and a time for each operation, none of them below zero, with the least squared
 * error of the logarithm. Seconds never fall when bytes or operations grow.
 */

import type { Calibration } from '../hardware/calibration.ts';
import type { Cluster } from '../hardware/cluster.ts';

/** One call that was timed. */
interface TimedCall {
  readonly flops: number;
  readonly bytes: number;
  readonly seconds: number;
}

/** A call's seconds by what it counts and moves. */
type CallPrice = (flops: number, bytes: number) => number;

/** Prices of calls by operator, and unit where they multiply. */
interface CallPrices {
  readonly moving: ReadonlyMap<string, CallPrice>;
  readonly multiplying: ReadonlyMap<string, CallPrice>;
  /** The price of a copy by the sum of bytes read and written; absent without two sizes. */
  readonly copy: CallPrice | undefined;
}

const PRODUCT = 'aten.mm.default';
/** Points that a line through calls that multiply needs at least. */
const LEAST_POINTS = 3;

/** A calibration is a frozen record, and its prices follow from it alone. */
const known = new WeakMap<Calibration, CallPrices>();

function pricesOf(calibration: Calibration): CallPrices {
  const found = known.get(calibration);
  if (found !== undefined) return found;
  const made = makePrices(calibration);
  known.set(calibration, made);
  return made;
}

/** The work of a call, and the unit that multiplies in it. */
interface CallWork {
  readonly op: string;
  readonly unit: string | undefined;
  readonly flops: number;
  readonly bytes: number;
  readonly kernels: number;
}

/** Seconds of a call as it was measured, and what was; undefined where nothing says. */
export function measuredCall(
  { calibration, launchSeconds }: Cluster,
  { op, unit, flops, bytes, kernels }: CallWork,
): { readonly seconds: number; readonly source: string } | undefined {
  if (calibration === undefined) return undefined;
  const { moving, multiplying, copy } = pricesOf(calibration);
  const on = `measured on ${calibration.device}`;
  const own = flops > 0 ? multiplying.get(`${op} ${unit ?? ''}`) : moving.get(op);
  if (own !== undefined) return { seconds: own(flops, bytes), source: `${op} ${on}` };
  // A device that works on its own has its roofline; on a processor a call is its start and more.
  if (calibration.synchronous !== true) return undefined;
  const other = flops > 0 ? multiplying.get(`${PRODUCT} ${unit ?? ''}`) : copy;
  if (other === undefined) return undefined;
  return {
    seconds: other(flops, bytes) + Math.max(0, kernels - 1) * launchSeconds,
    source: `${flops > 0 ? 'products' : 'copies'} ${on}`,
  };
}

/**
 * Seconds of a copy on a processor, by bytes read and written together; undefined where a device
 * copies on its own, or copies were not measured.
 */
export function measuredCopy({ calibration }: Cluster): ((bytes: number) => number) | undefined {
  if (calibration?.synchronous !== true) return undefined;
  const { copy } = pricesOf(calibration);
  return copy === undefined ? undefined : (bytes) => copy(0, bytes);
}

function makePrices(calibration: Calibration): CallPrices {
  const moving = new Map<string, TimedCall[]>();
  const multiplying = new Map<string, TimedCall[]>();
  const add = (to: Map<string, TimedCall[]>, key: string, call: TimedCall): void => {
    const calls = to.get(key);
    if (calls === undefined) to.set(key, [call]);
    else calls.push(call);
  };
  for (const { op, unit, ...call } of calibration.calls ?? [])
    if (call.flops > 0) add(multiplying, `${op} ${unit}`, call);
    else add(moving, op, call);
  // Where a trace or an older file has products alone, curves price them (`calibrate.ts`).
  if (calibration.calls !== undefined || calibration.synchronous === true)
    for (const unit of Object.keys(calibration.matmul))
      for (const { m, k, n, itemBytes, seconds } of calibration.matmul[unit] ?? []) {
        const bytes = itemBytes * (m * k + k * n + m * n);
        add(multiplying, `${PRODUCT} ${unit}`, { flops: 2 * m * k * n, bytes, seconds });
      }
  const copies = calibration.memory.map(({ bytes, seconds }) => ({ flops: 0, bytes, seconds }));
  const lines = [...multiplying].filter(([, calls]) => calls.length >= LEAST_POINTS);
  return {
    moving: new Map([...moving].map(([op, calls]) => [op, sizeCurve(calls)])),
    multiplying: new Map(lines.map(([key, calls]) => [key, workLine(calls)])),
    copy: copies.length < 2 ? undefined : sizeCurve(copies),
  };
}

/** Seconds by bytes: linear between two sizes, at the rate of the last above it, never falling. */
export function sizeCurve(calls: readonly TimedCall[]): CallPrice {
  const sorted = [...calls].sort((a, b) => a.bytes - b.bytes);
  const x = sorted.map(({ bytes }) => bytes);
  let most = 0;
  const y = sorted.map(({ seconds }) => (most = Math.max(most, seconds)));
  const last = x.length - 1;
  return (_, bytes) => {
    if (bytes <= x[0]) return y[0];
    if (bytes >= x[last]) return (y[last] * bytes) / x[last];
    let i = 1;
    while (x[i] < bytes) i++;
    return y[i - 1] + ((y[i] - y[i - 1]) * (bytes - x[i - 1])) / (x[i] - x[i - 1]);
  };
}

/** Steps of `workLine`; each lowers the error, and it settles in a few. */
const FIT_STEPS = 40;

/**
 * A start, a time for each byte and each operation of calls that multiply: of all such lines with
 * none below zero that of the least squared error of the logarithm, by squares that are weighted
 * with the line before.
 */
export function workLine(calls: readonly TimedCall[]): CallPrice {
  const rows = calls.map(({ flops, bytes }) => [1, bytes, flops]);
  let line = [0, 0, 0];
  for (let step = 0; step < FIT_STEPS; step++) {
    const weights: number[] = [];
    const wanted: number[] = [];
    calls.forEach(({ seconds }, i) => {
      const given = step === 0 ? seconds : Math.max(dot(line, rows[i]), seconds / 100);
      weights.push(1 / given);
      // To first order, squares of this difference over the line are those of the logarithm.
      wanted.push(step === 0 ? seconds : given * (1 + Math.log(seconds / given)));
    });
    line = leastSquares(rows, wanted, weights);
  }
  const [start, perByte, perFlop] = line;
  return (flops, bytes) => start + bytes * perByte + flops * perFlop;
}

/** Weighted least squares with no coefficient below zero: the best of all sets above it. */
function leastSquares(
  rows: readonly (readonly number[])[],
  wanted: readonly number[],
  weights: readonly number[],
): number[] {
  let best = [0, 0, 0];
  let least = Infinity;
  for (let mask = 1; mask < 8; mask++) {
    const used = [0, 1, 2].filter((c) => (mask & (1 << c)) !== 0);
    const solved = solve(used, rows, wanted, weights);
    if (solved === undefined || solved.some((value) => value < 0)) continue;
    const error = rows.reduce(
      (sum, row, i) => sum + ((dot(solved, row) - wanted[i]) * weights[i]) ** 2,
      0,
    );
    if (error >= least) continue;
    least = error;
    best = solved;
  }
  return best;
}

/** The normal equations of some columns by elimination; undefined where they do not tell. */
function solve(
  used: readonly number[],
  rows: readonly (readonly number[])[],
  wanted: readonly number[],
  weights: readonly number[],
): number[] | undefined {
  // Columns differ by many orders of magnitude: each is scaled to 1.
  const scale = used.map((c) =>
    Math.sqrt(rows.reduce((sum, row, i) => sum + (row[c] * weights[i]) ** 2, 0)),
  );
  if (scale.some((value) => !(value > 0))) return undefined;
  const n = used.length;
  const table = used.map((a, i) => [
    ...used.map(
      (b, j) =>
        rows.reduce((sum, row, r) => sum + row[a] * row[b] * weights[r] ** 2, 0) /
        (scale[i] * scale[j]),
    ),
    rows.reduce((sum, row, r) => sum + row[a] * wanted[r] * weights[r] ** 2, 0) / scale[i],
  ]);
  for (let k = 0; k < n; k++) {
    const pivot = table[k][k];
    if (!(pivot > 1e-12)) return undefined;
    for (let i = 0; i < n; i++) {
      if (i === k) continue;
      const factor = table[i][k] / pivot;
      for (let j = k; j <= n; j++) table[i][j] -= factor * table[k][j];
    }
  }
  const line = [0, 0, 0];
  used.forEach((c, k) => (line[c] = table[k][n] / table[k][k] / scale[k]));
  return line;
}

function dot(a: readonly number[], b: readonly number[]): number {
  return a.reduce((sum, value, i) => sum + value * b[i], 0);
}
