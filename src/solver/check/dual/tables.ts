/**
 * Summed cost tables between groups for the checker of dual bounds. In: a problem and its groups. Out: one table per pair of
 * groups that an edge joins, and what edges inside a group add to its values.
 */
import { Refused } from '../store.ts';
import type { Problem } from '../../types.ts';
import { cell, type Grouping } from './grouping.ts';

const SAFE = 2 ** 52;

/** The number, if sums of a few such numbers are exact. @throws Refused if not */
export function exact(x: number): number {
  if (!(Math.abs(x) <= SAFE)) throw new Refused(`a number of ${x} is beyond exact arithmetic`);
  return x;
}

/** Summed costs between two groups, row-major over the values of their leaders. */
export interface PairTable {
  readonly one: number;
  readonly other: number;
  readonly cells: Float64Array;
}

/** Tables by first leader * n + second leader (ascending); edges inside a group go to `own`. */
export function pairTables(
  problem: Problem,
  groups: Grouping,
  own: (leader: number, costs: Float64Array) => void,
): Map<number, PairTable> {
  const n = problem.domains.length;
  const { first, second } = problem.edges;
  const tables = new Map<number, PairTable>();
  for (let e = 0; e < first.length; e++) {
    const [u, v] = [first[e], second[e]];
    const [lu, lv] = [groups.leader[u], groups.leader[v]];
    const [rows, columns] = [groups.value[u], groups.value[v]];
    if (lu === lv) {
      own(
        lu,
        Float64Array.from(rows, (x, a) => cell(problem, e, x, columns[a])),
      );
      continue;
    }
    const swap = lu > lv;
    const [one, two] = swap ? [lv, lu] : [lu, lv];
    const key = one * n + two;
    let table = tables.get(key);
    if (table === undefined) {
      table = { one, other: two, cells: new Float64Array(rows.length * columns.length) };
      tables.set(key, table);
    }
    const { cells } = table;
    for (let a = 0; a < rows.length; a++) {
      for (let b = 0; b < columns.length; b++) {
        const at = swap ? b * rows.length + a : a * columns.length + b;
        const c = cell(problem, e, rows[a], columns[b]);
        cells[at] = c === Infinity || cells[at] === Infinity ? Infinity : exact(cells[at] + c);
      }
    }
  }
  return tables;
}
