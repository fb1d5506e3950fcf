/** Gives the size of the choice problem behind a plan: variables, values, pairs, rows. */

import type { Prepared } from '../../plan/prepare/prepared.ts';
import type { Problem } from '../../solver/types.ts';

/**
 * The problem that was solved, in numbers. The times of incumbents are clock times; no plan keeps
 * them.
 */
export interface SolverTrace {
  /** All strategies of all nodes. */
  readonly whole: ProblemSize;
  /** The size of the problem that the pins of the request leave. */
  readonly asked: ProblemSize;
}

interface ProblemSize {
  readonly variables: number;
  /** Choices of all variables together, and of the one that has most. */
  readonly values: number;
  readonly largestDomain: number;
  readonly edges: number;
  /** Distinct cost tables: equal ones are kept once. */
  readonly tables: number;
  /** Digits of the number of assignments. */
  readonly digits: number;
}

export function solverTraceOf({
  model,
  left: { compact },
}: Pick<Prepared, 'model' | 'left'>): SolverTrace {
  return { whole: sizeOf(model.problem), asked: sizeOf(compact.problem) };
}

function sizeOf({ domains, edges, tables }: Problem): ProblemSize {
  let values = 0;
  let largest = 0;
  let digits = 0;
  for (const size of domains) {
    values += size;
    largest = Math.max(largest, size);
    digits += Math.log10(Math.max(1, size));
  }
  return {
    variables: domains.length,
    values,
    largestDomain: largest,
    edges: edges.first.length,
    tables: tables.length,
    digits: Math.floor(digits) + 1,
  };
}
