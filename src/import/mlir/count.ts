/** Counts the operations of a StableHLO program, for `inspect`. */

import { TERMINATORS } from './reducer.ts';
import type { MlirModule, Operation } from './syntax/syntax.ts';

/** The counts that `inspect` prints of a program: every operation of every function once. */
export interface ProgramCounts {
  readonly nodes: number;
  /** By name in the file, `stablehlo.add`, `func.call`. */
  readonly ops: Readonly<Record<string, number>>;
}

/**
 * Operations whose regions are code of the program; the bodies of others (reducers) belong to their
 * operation.
 */
const CONTROL = /(^|\.)(while|case|if|manual_computation)$/;

/** Functions and control regions each once; terminators and bodies of reducers are left out. */
export function countProgram(module: MlirModule): ProgramCounts {
  const counts = new Map<string, number>();
  let nodes = 0;
  const work: Operation[] = [...module.functions.values()].flatMap((func) => [
    ...(func.body?.operations ?? []),
  ]);
  for (let op = work.pop(); op !== undefined; op = work.pop()) {
    if (TERMINATORS.has(op.name)) continue;
    nodes++;
    counts.set(op.name, (counts.get(op.name) ?? 0) + 1);
    if (CONTROL.test(op.name))
      for (const region of op.regions) for (const inner of region.operations) work.push(inner);
  }
  const ops: Record<string, number> = Object.create(null) as Record<string, number>;
  for (const [name, n] of [...counts].sort(([a], [b]) => (a < b ? -1 : 1))) ops[name] = n;
  return { nodes, ops };
}
