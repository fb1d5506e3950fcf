/** Divisors and multiples of whole numbers. */

/** The greatest common divisor; 1 of two zeros. */
export function gcd(a: number, b: number): number {
  let [x, y] = [a, b];
  while (y > 0) [x, y] = [y, x % y];
  return Math.max(x, 1);
}

/** The least common multiple of positive numbers. */
export function leastMultiple(a: number, b: number): number {
  return (a / gcd(a, b)) * b;
}

/** All divisors of a positive whole number, ascending. */
export function divisors(n: number): number[] {
  const small: number[] = [];
  for (let d = 1; d * d <= n; d++) if (n % d === 0) small.push(d);
  const large = small.map((d) => n / d).reverse();
  return [...new Set([...small, ...large])];
}
