/**
 * Fingerprint of a problem: 2 x 32 bits over every number in a fixed order. It ties a certificate to its problem; the proof
 * itself never relies on it.
 */
import type { Problem } from './types.ts';

/** Hash of everything that decides costs and rows (names are left out), as 16 hexadecimal digits. */
export function hashProblem(problem: Problem): string {
  let a = 0x243f6a88;
  let b = 0x85a308d3;
  const word = (w: number): void => {
    a = Math.imul(a ^ w, 0x01000193);
    b = Math.imul(b + w, 0x85ebca6b);
    b ^= b >>> 13;
  };
  const integers = (list: Int32Array): void => {
    word(list.length);
    for (let k = 0; k < list.length; k++) word(list[k]);
  };
  const numbers = (list: Float64Array): void => integers(new Int32Array(list.buffer, list.byteOffset, 2 * list.length));
  integers(problem.domains);
  integers(problem.unary);
  problem.vectors.forEach(numbers);
  const { first, second, table, firstMap, secondMap } = problem.edges;
  for (const list of [first, second, table, firstMap, secondMap]) integers(list);
  problem.maps.forEach(integers);
  for (const t of problem.tables) {
    word(t.rows);
    word(t.columns);
    numbers(t.costs);
  }
  numbers(Float64Array.of(problem.constant ?? 0));
  for (const row of problem.rows ?? []) {
    integers(row.variables);
    row.amounts.forEach(numbers);
    numbers(Float64Array.of(row.bound));
  }
  if (problem.usage !== undefined) {
    numbers(Float64Array.of(problem.usage.limit));
    for (const p of problem.usage.pieces) {
      word(p.variable);
      numbers(Float64Array.of(p.lo, p.hi));
      numbers(p.amounts);
    }
  }
  return [a, b].map((h) => (h >>> 0).toString(16).padStart(8, '0')).join('');
}
