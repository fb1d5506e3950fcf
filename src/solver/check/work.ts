/**
 * The limit on the work of a replay, in numbers that are read or written. It follows from the
 * problem alone, so that no certificate, however it was made, takes longer than its problem
 * deserves.
 */
import type { Problem } from '../types.ts';
import { Refused } from './refused.ts';

/** The work that every replay may take, whatever the problem is: some seconds. */
const BASE = 1e9;
/** More for each number of the problem: ten times what the longest honest proofs take. */
const PER_NUMBER = 2e3;

export class Work {
  private left: number;

  constructor(problem: Problem) {
    this.left = BASE + PER_NUMBER * numbersOf(problem);
  }

  /** @throws Refused once more is spent than the problem allows */
  spend(numbers: number): void {
    this.left -= numbers;
    if (!(this.left >= 0))
      throw new Refused('the replay takes more work than a problem of this size allows');
  }
}

/** Variables, values, edges and cells; a table that several edges share counts once. */
function numbersOf({ domains, edges, tables, rows = [] }: Problem): number {
  let numbers = domains.length * (1 + rows.length) + edges.first.length;
  for (const size of domains) numbers += size;
  for (const { costs } of tables) numbers += costs.length;
  return numbers;
}
