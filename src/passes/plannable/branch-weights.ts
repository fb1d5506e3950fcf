/**
 * Weighs the branches of a `cond` or `case`: the runs of each in one run of the call. These are the
 * probabilities that the program states, else 1 for the branch with the most FLOPs.
 */
import { statedProbability } from '../../graph/control.ts';
import type { Graph, Node } from '../../graph/types.ts';
import { programFlops } from '../../ops/program-flops.ts';
import type { OperatorTable } from '../../ops/record/table.ts';

/**
 * Branches that are not the one with the most FLOPs count this much, so that their placements are
 * cheapest too.
 */
const RARE = 1e-3;

/** @param note told what was assumed, in one sentence */
export function branchWeights(
  node: Node,
  branches: readonly Graph[],
  table: OperatorTable,
  note: (text: string) => void,
): number[] {
  const share = node.target === 'cond' ? statedProbability(node) : undefined;
  if (share !== undefined) return [share, 1 - share];
  note(
    'Of the branches of a condition the one with the most FLOPs counts whole, the others a ' +
      'thousandth.',
  );
  const flops = branches.map((body) => programFlops(body, table).total);
  const heaviest = flops.indexOf(Math.max(...flops));
  return branches.map((_, b) => (b === heaviest ? 1 : RARE));
}
