/**
 * Special functions in double precision, from their series, continued fractions and recurrences.
 */

const TWO_OVER_SQRT_PI = 2 / Math.sqrt(Math.PI);

/** Error function: a series of positive terms near zero, else by its complement. */
export function erf(x: number): number {
  if (Number.isNaN(x)) return x;
  const a = Math.abs(x);
  if (a > 2) return Math.sign(x) * (1 - erfc(a));
  // 2/sqrt(pi) exp(-x^2) sum of 2^n x^(2n+1) / (1 3 .. (2n+1))
  let term = a;
  let total = a;
  for (let n = 1; term > total * 1e-17; n++) {
    term *= (2 * a * a) / (2 * n + 1);
    total += term;
  }
  const value = TWO_OVER_SQRT_PI * Math.exp(-a * a) * total;
  return x < 0 ? -value : value === 0 ? x : value;
}

/**
 * The inverse of `erf` on (-1, 1), infinite at its ends: a start by Winitzki's formula, then
 * Newton's steps.
 */
export function erfinv(y: number): number {
  if (!(Math.abs(y) < 1)) return Math.abs(y) === 1 ? y * Infinity : NaN;
  const l = Math.log1p(-y * y);
  const t = 2 / (Math.PI * 0.147) + l / 2;
  let x = Math.sign(y) * Math.sqrt(Math.max(0, Math.sqrt(t * t - l / 0.147) - t));
  for (let step = 0; step < 6; step++) {
    // Far out the difference of two numbers near 1 would be lost.
    const off =
      Math.abs(y) > 0.5 ? Math.sign(y) * (1 - Math.abs(y) - erfc(Math.abs(x))) : erf(x) - y;
    x -= off * (Math.sqrt(Math.PI) / 2) * Math.exp(x * x);
  }
  return x;
}

/** exp(x^2) erfc(x), without overflow of either factor for large x. */
export function erfcx(x: number): number {
  if (Number.isNaN(x)) return x;
  if (x < 2) return Math.exp(x * x) * erfc(x);
  // The continued fraction of erfc, from its tail, without the exponential.
  let tail = 0;
  for (let k = 120; k >= 1; k--) tail = k / 2 / (x + tail);
  return 1 / (Math.sqrt(Math.PI) * (x + tail));
}

/**
 * Trapezoids over [0, pi]: of a smooth periodic function they converge faster than any power of the
 * step.
 */
function meanOverHalfTurn(f: (t: number) => number): number {
  const STEPS = 256;
  let total = (f(0) + f(Math.PI)) / 2;
  for (let i = 1; i < STEPS; i++) total += f((i * Math.PI) / STEPS);
  return total / STEPS;
}

/**
 * Modified Bessel function of the first kind, order 0 or 1: the mean of exp(x cos t) cos(n t). As
 * in PyTorch, NaN at infinity.
 */
export function besselI(order: 0 | 1, x: number): number {
  if (!Number.isFinite(x)) return NaN;
  return meanOverHalfTurn((t) => Math.exp(x * Math.cos(t)) * Math.cos(order * t));
}

/**
 * Modified Bessel function of the second kind, order 0 or 1, times exp(x): the integral of exp(-x
 * (cosh t - 1)) cosh(n t) over t > 0, by trapezoids. Infinite at 0, NaN below.
 */
export function besselKScaled(order: 0 | 1, x: number): number {
  if (Number.isNaN(x) || x < 0) return NaN;
  if (x === 0) return Infinity;
  if (x === Infinity) return 0;
  const STEP = 1 / 64;
  let total = 0.5;
  for (let t = STEP; ; t += STEP) {
    // cosh t - 1 without cancellation.
    const term = Math.exp(-2 * x * Math.sinh(t / 2) ** 2) * Math.cosh(order * t);
    total += term;
    if (term < 1e-20 * total) return total * STEP;
  }
}

/** 1 - erf(x), without cancellation for large x: a continued fraction, evaluated from its tail. */
export function erfc(x: number): number {
  if (Number.isNaN(x)) return x;
  if (x < 2) return 1 - erf(x);
  if (x > 27.3) return 0;
  let tail = x;
  for (let n = 80; n >= 1; n--) tail = x + n / 2 / tail;
  return Math.exp(-x * x) / (Math.sqrt(Math.PI) * tail);
}

/** Coefficients of Stirling's series of log gamma: B(2n) / (2n (2n - 1)). */
const STIRLING = [
  1 / 12,
  -1 / 360,
  1 / 1260,
  -1 / 1680,
  1 / 1188,
  -691 / 360360,
  1 / 156,
  -3617 / 122400,
];

/** log |gamma(x)|: shifted up to where Stirling's series is exact, reflected for negative x. */
export function lgamma(x: number): number {
  if (Number.isNaN(x)) return x;
  if (!Number.isFinite(x)) return Infinity;
  if (x <= 0) {
    if (Number.isInteger(x)) return Infinity;
    return Math.log(Math.PI / Math.abs(Math.sin(Math.PI * x))) - lgamma(1 - x);
  }
  if (x === 1 || x === 2) return 0;
  let shift = 1;
  let y = x;
  while (y < 15) shift *= y++;
  const inverse = 1 / y;
  let series = 0;
  for (let n = STIRLING.length - 1; n >= 0; n--) series = series * inverse * inverse + STIRLING[n];
  return (
    (y - 0.5) * Math.log(y) - y + 0.5 * Math.log(2 * Math.PI) + series * inverse - Math.log(shift)
  );
}

/** B(2n) / 2n of the asymptotic series of digamma. */
const DIGAMMA = [1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12];

/** Derivative of log gamma. */
export function digamma(x: number): number {
  if (x === 0) return Object.is(x, -0) ? Infinity : -Infinity;
  if (x < 0) {
    if (Number.isInteger(x)) return NaN;
    return digamma(1 - x) - Math.PI / Math.tan(Math.PI * (x % 1));
  }
  if (x === Infinity) return x;
  let below = 0;
  let y = x;
  while (y < 12) below += 1 / y++;
  const square = 1 / (y * y);
  let series = 0;
  for (let n = DIGAMMA.length - 1; n >= 0; n--) series = (series + DIGAMMA[n]) * square;
  return Math.log(y) - 0.5 / y - series - below;
}

/** To the nearest integer, halves to the even one. */
export function roundHalfEven(x: number): number {
  const floor = Math.floor(x);
  const rest = x - floor;
  if (rest < 0.5) return rest === 0 ? x : floor === 0 && x < 0 ? -0 : floor;
  const up = floor + 1;
  const rounded = rest > 0.5 || floor % 2 !== 0 ? up : floor;
  return rounded === 0 && x < 0 ? -0 : rounded;
}

/** The next float64 after `a` towards `b`. */
export function nextAfter(a: number, b: number): number {
  if (Number.isNaN(a) || Number.isNaN(b)) return NaN;
  if (a === b) return b;
  if (a === 0) return b > 0 ? Number.MIN_VALUE : -Number.MIN_VALUE;
  const bits = new DataView(new ArrayBuffer(8));
  bits.setFloat64(0, a);
  bits.setBigInt64(0, bits.getBigInt64(0) + (b > a === a > 0 ? 1n : -1n));
  return bits.getFloat64(0);
}
