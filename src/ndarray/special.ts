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
function meanOverHalfTurn(f: (t: number) => number, steps = 256): number {
  let total = (f(0) + f(Math.PI)) / 2;
  for (let i = 1; i < steps; i++) total += f((i * Math.PI) / steps);
  return total / steps;
}

/**
 * Modified Bessel function of the first kind, order 0 or 1: the mean of exp(x cos t) cos(n t). As
 * in PyTorch, NaN at infinity.
 */
export function besselI(order: 0 | 1, x: number): number {
  if (!Number.isFinite(x)) return NaN;
  return meanOverHalfTurn((t) => Math.exp(x * Math.cos(t)) * Math.cos(order * t));
}

/** The same times exp(-|x|), which vanishes at infinity. */
export function besselIScaled(order: 0 | 1, x: number): number {
  if (Math.abs(x) === Infinity) return 0;
  return meanOverHalfTurn((t) => Math.exp(x * Math.cos(t) - Math.abs(x)) * Math.cos(order * t));
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

/** Bessel function of the first kind: the mean of cos(n t - x sin t). NaN at infinity. */
export function besselJ(order: number, x: number): number {
  if (!Number.isFinite(x)) return NaN;
  // Enough steps for the waves of the function, and some more for its precision.
  const steps = Math.ceil(order + Math.abs(x)) + 32;
  return meanOverHalfTurn((t) => Math.cos(order * t - x * Math.sin(t)), steps);
}

const EULER = 0.5772156649015329;

/**
 * Bessel function of the second kind, order 0 or 1, by Neumann's series over Bessel functions of
 * the first kind of even order. Infinite at 0, NaN below.
 */
export function besselY(order: 0 | 1, x: number): number {
  if (Number.isNaN(x) || x < 0 || x === Infinity) return NaN;
  if (x === 0) return -Infinity;
  // The orders grow until the functions vanish.
  const last = Math.ceil(x / 2) + 12;
  const log = Math.log(x / 2) + EULER;
  let total = 0;
  for (let k = last; k >= 1; k--) {
    const sign = (k % 2 === 0 ? -1 : 1) / k;
    total +=
      sign *
      (order === 0 ? besselJ(2 * k, x) : (besselJ(2 * k - 1, x) - besselJ(2 * k + 1, x)) / 2);
  }
  if (order === 0) return (2 / Math.PI) * log * besselJ(0, x) + (4 / Math.PI) * total;
  // The derivative of the series, with its sign turned.
  return (2 / Math.PI) * (log * besselJ(1, x) - besselJ(0, x) / x) - (4 / Math.PI) * total;
}

/**
 * Airy function Ai: its series near zero, else a Bessel function or its expansion. As in PyTorch,
 * NaN at infinity.
 */
export function airyAi(x: number): number {
  if (!Number.isFinite(x)) return NaN;
  const zeta = (2 / 3) * Math.abs(x) ** 1.5;
  if (x > 2) {
    // K of order 1/3 by trapezoids of exp(-zeta (cosh t - 1)) cosh(t / 3).
    const STEP = 1 / 64;
    let total = 0.5;
    for (let t = STEP, term = 1; term > 1e-20 * total; t += STEP)
      total += term = Math.exp(-2 * zeta * Math.sinh(t / 2) ** 2) * Math.cosh(t / 3);
    return (Math.sqrt(x / 3) / Math.PI) * Math.exp(-zeta) * total * STEP;
  }
  if (x < -8) {
    let [even, odd, term] = [1, 0, 1];
    for (let k = 1; k < 24; k++) {
      term *= ((6 * k - 5) * (6 * k - 3) * (6 * k - 1)) / (216 * k * (2 * k - 1) * zeta);
      const sign = Math.floor(k / 2) % 2 === 0 ? 1 : -1;
      if (k % 2 === 0) even += sign * term;
      else odd += sign * term;
    }
    const angle = zeta + Math.PI / 4;
    return (Math.sin(angle) * even - Math.cos(angle) * odd) / (Math.sqrt(Math.PI) * (-x) ** 0.25);
  }
  let [f, g] = [1, x];
  let [termF, termG] = [1, x];
  for (let k = 1; k < 120; k++) {
    f += termF *= x ** 3 / ((3 * k - 1) * (3 * k));
    g += termG *= x ** 3 / (3 * k * (3 * k + 1));
  }
  return 0.3550280538878172 * f - 0.2588194037928068 * g;
}

/** B(2n) / (2n)! of the Euler-Maclaurin formula. */
const EULER_MACLAURIN = [
  1 / 12,
  -1 / 720,
  1 / 30240,
  -1 / 1209600,
  1 / 47900160,
  -691 / 1307674368000,
  1 / 74724249600,
];

/**
 * Hurwitz's zeta function, the sum of (q + n)^-s: its first terms, and the rest by Euler and
 * Maclaurin. As in PyTorch, infinite for s = 1 and for q that are integers up to 0.
 */
export function zeta(s: number, q: number): number {
  if (s === 1) return Infinity;
  if (!(s > 1)) return NaN;
  if (q <= 0) {
    if (Number.isInteger(q)) return Infinity;
    if (!Number.isInteger(s)) return NaN;
  }
  const TERMS = 12;
  let total = 0;
  let a = q;
  for (let n = 0; n < TERMS || a < TERMS; n++) total += (a++) ** -s;
  total += a ** (1 - s) / (s - 1) + a ** -s / 2;
  let factor = s;
  let power = a ** (-s - 1);
  EULER_MACLAURIN.forEach((b, k) => {
    total += b * factor * power;
    factor *= (s + 2 * k + 1) * (s + 2 * k + 2);
    power /= a * a;
  });
  return total;
}

/** Derivative `n` of digamma: by Hurwitz's zeta function beyond the first. */
export function polygamma(n: number, x: number): number {
  if (n === 0) return digamma(x);
  return (n % 2 === 0 ? -1 : 1) * Math.exp(lgamma(n + 1)) * zeta(n + 1, x);
}

/**
 * Regularised incomplete gamma functions of `a` at `x`, the lower and the upper one: a series below
 * `a`, a continued fraction above.
 */
export function incompleteGamma(a: number, x: number): readonly [lower: number, upper: number] {
  if (!(x >= 0 && a >= 0) || (a === 0 && x === 0)) return [NaN, NaN];
  if (x === 0) return [0, 1];
  if (a === 0) return [1, 0];
  if (x === Infinity || a === Infinity)
    return x === a ? [NaN, NaN] : x === Infinity ? [1, 0] : [0, 1];
  const scale = Math.exp(a * Math.log(x) - x - lgamma(a));
  if (x < a + 1) {
    let [term, total] = [1 / a, 1 / a];
    for (let n = 1; term > total * 1e-17; n++) total += term *= x / (a + n);
    return [scale * total, 1 - scale * total];
  }
  // Lentz's method.
  let b = x + 1 - a;
  let [c, d] = [Infinity, 1 / b];
  let h = d;
  for (let i = 1; i < 10_000; i++) {
    const an = -i * (i - a);
    b += 2;
    d = 1 / (an * d + b);
    c = b + an / c;
    h *= d * c;
    if (Math.abs(d * c - 1) < 1e-16) break;
  }
  return [1 - scale * h, scale * h];
}

/** Log of the distribution function of the standard normal, without underflow far below zero. */
export function logNormalCdf(x: number): number {
  return x < -1
    ? Math.log(erfcx(-x * Math.SQRT1_2) / 2) - (x * x) / 2
    : Math.log1p(-erfc(x * Math.SQRT1_2) / 2);
}
