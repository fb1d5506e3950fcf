/**
 * Fingerprint of a problem: 2 x 32 bits over every number in a fixed order. It ties a certificate
 * to its problem; the proof itself never relies on it.
 */
import type { Problem } from '../types.ts';
import { withoutNegativeZeros } from './zeros.ts';

/**
 * Hash of everything that decides costs and rows (names are left out), as 16 hexadecimal digits.
 */
export function hashProblem(problem: Problem): string {
  const state = Int32Array.of(0x243f6a88, 0x85a308d3);
  const integers = (list: Int32Array): void => mix(state, list);
  const numbers = (given: Float64Array): void => {
    const list = withoutNegativeZeros(given);
    integers(new Int32Array(list.buffer, list.byteOffset, 2 * list.length));
  };
  integers(problem.domains);
  integers(problem.unary);
  problem.vectors.forEach(numbers);
  const { first, second, table, firstMap, secondMap } = problem.edges;
  for (const list of [first, second, table, firstMap, secondMap]) integers(list);
  problem.maps.forEach(integers);
  for (const t of problem.tables) {
    integers(Int32Array.of(t.rows, t.columns));
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
      integers(Int32Array.of(p.variable));
      numbers(Float64Array.of(p.lo, p.hi));
      numbers(p.amounts);
    }
  }
  return Array.from(state, (h) => (h >>> 0).toString(16).padStart(8, '0')).join('');
}

function mix(state: Int32Array, list: Int32Array): void {
  let a = state[0] ^ list.length;
  let b = state[1] + list.length;
  for (let k = 0; k < list.length; k++) {
    a = Math.imul(a ^ list[k], 0x01000193);
    b = Math.imul(b + list[k], 0x85ebca6b);
    a ^= a >>> 15;
    b ^= b >>> 13;
  }
  state[0] = a;
  state[1] = b;
}
