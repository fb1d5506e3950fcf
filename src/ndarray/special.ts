/** Special functions in double precision, from their series, continued fractions and recurrences. */

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
const STIRLING = [1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400];

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
  return (y - 0.5) * Math.log(y) - y + 0.5 * Math.log(2 * Math.PI) + series * inverse - Math.log(shift);
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
