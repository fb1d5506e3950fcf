/** Restricts a rematerialization problem to a part of its decisions by fixing strategies. */
import {
  type CompactProblem,
  compactProblem,
  KeptLists,
} from '../../../solver/problem/restrict.ts';
import type { RematProblem } from './remat-problem.ts';

/**
 * The rematerialization problem with every strategy, copy and output fixed and the decisions left:
 * checkpointing after sharding.
 */
export function fixedStrategies(remat: RematProblem, compact: Int32Array): CompactProblem {
  const lists = new KeptLists();
  const kept = Array.from(remat.problem.domains, (size, v) => {
    const decisions = remat.decisionsOf(v);
    const from = compact[v] * decisions;
    return lists.of(`${from}:${decisions}:${size}`, () =>
      Int32Array.from({ length: decisions }, (_, k) => from + k),
    );
  });
  return compactProblem(remat.problem, kept);
}
