/**
 * The program that is planned: the given one with views of weights taken again in the backward
 * pass, what its checkpoint policy recomputes, and gradients in the dtype of their sums.
 */
import { gradientDtype } from '../../cost/memory/state-bytes.ts';
import { ShardwrightError } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { keptForBackwardBytes } from '../../passes/checkpoint/joint-values.ts';
import { type CheckpointPolicy, recomputedBy } from '../../passes/checkpoint/policies.ts';
import { recomputeInBackward } from '../../passes/checkpoint/recompute.ts';
import { withoutDeadCode } from '../../passes/dead-code.ts';
import { plannable } from '../../passes/plannable/plannable.ts';
import { backwardStart } from '../../passes/plannable/weight-views.ts';
import { gradientsIn } from '../../passes/training/gradient-dtype.ts';
import { bytesText } from '../../units.ts';
import type { PlanRequest } from '../request/request.ts';
import type { Setting } from './setting.ts';

/**
 * @throws E_UNSUPPORTED for a program that is one rank's already, E_REQUEST for passes that it
 *   cannot be one of
 */
export function plannableProgram(original: Graph, setting: Setting): Graph {
  const { request, operators } = setting;
  checkAccumulation(original, request);
  const ready = plannable(original, operators);
  refuseShardedText(ready);
  const twice = checkpointed(ready, setting);
  // What is computed again leaves first runs that nothing reads.
  return withoutDeadCode(summedIn(twice, request, operators));
}

/**
 * Tells whether a policy chooses what is recomputed; `auto` and `two-stage` leave it to the search.
 */
export function isPolicy(checkpoint: PlanRequest['checkpoint']): checkpoint is CheckpointPolicy {
  return checkpoint === 'full' || checkpoint === 'selective' || typeof checkpoint === 'number';
}

/**
 * Policies that need no placements are applied here; `auto` and `two-stage` are part of the search.
 */
function checkpointed(graph: Graph, { request, operators, cluster }: Setting): Graph {
  const { checkpoint } = request;
  if (!isPolicy(checkpoint)) return graph;
  const { graph: twice, originalOf } = recomputeInBackward(
    graph,
    recomputedBy(checkpoint, graph, operators, cluster),
  );
  if (originalOf.size > 0) {
    const split = backwardStart(graph);
    const [before, after] = [graph, twice].map((g) => keptForBackwardBytes(g, split, operators));
    const saved =
      after < before
        ? `The backward pass finds ${bytesText(after)} kept rather than ${bytesText(before)}, ` +
          'unsharded.'
        : `This saves no memory: the backward pass finds ${bytesText(after)} kept, unsharded, ` +
          `and ${bytesText(before)} without --checkpoint ${checkpoint}. --checkpoint auto ` +
          'chooses by bytes and seconds.';
    return { ...twice, notes: [...(twice.notes ?? []), saved] };
  }
  const note =
    `Under --checkpoint ${checkpoint} nothing is recomputed: the backward pass reads nothing ` +
    'that could.';
  return { ...graph, notes: [...(graph.notes ?? []), note] };
}

/**
 * Gradients in the dtype in which they are to be summed; a program of theirs that is asked for
 * again has them.
 */
function summedIn(graph: Graph, { gradients }: PlanRequest, table: OperatorTable): Graph {
  return gradients === undefined
    ? graph
    : gradientsIn(graph, gradientDtype(gradients, 'f32'), table);
}

/**
 * A step of several passes adds up their gradients, and the optimizer comes after the last.
 *
 * @throws E_REQUEST for a number of passes that is none, a program without gradients, and one that
 *   updates its parameters itself
 */
export function checkAccumulation(
  { outputs }: Graph,
  { accumulate }: Pick<PlanRequest, 'accumulate'>,
): void {
  if (accumulate === undefined) return;
  const refuse = (message: string, hint: string): never => {
    throw new ShardwrightError('E_REQUEST', message, { hint });
  };
  if (!Number.isInteger(accumulate) || accumulate < 1)
    refuse(
      `a step of ${accumulate} passes (--accumulate)`,
      'give the number of microbatches whose gradients are added up, such as 4.',
    );
  const updated = outputs.find(({ role }) => role === 'newstate');
  if (updated !== undefined && accumulate > 1)
    refuse(
      `the program updates its parameters in each pass (${updated.of ?? 'a state'}), and ` +
        `--accumulate ${accumulate} has one update after ${accumulate} passes`,
      'give the program without its optimizer (no --optimizer-step).',
    );
  if (!outputs.some(({ role, value }) => role === 'grad' && value !== null))
    refuse(
      'the program returns no gradients, which --accumulate adds up',
      'give a joint program of forward and backward, or leave it out.',
    );
}

/**
 * A graph that is one rank's program, of which nothing says what the rank has, has collectives in
 * it and local shapes.
 */
function refuseShardedText(graph: Graph): void {
  const node = graph.nodes.find((n) => n.kind === 'call' && n.target.includes('c10d_functional'));
  if (node === undefined) return;
  throw new ShardwrightError(
    'E_UNSUPPORTED',
    `the graph is already the program of one rank: it calls ${node.target}`,
    {
      node: node.name,
      hint:
        'plan the unsharded model, or say above the class what the rank has: # One device of ' +
        'dp=2,tp=4, # Group 5: tp, # Placement of NAME: S(0)R (docs/local-spmd.md).',
    },
  );
}
