/**
 * Runs the finisher's jobs in a thread: `finish`, or, on a job with `kind: 'plan'`, `branchTree`.
 * HiGHS is one long call, and past its memory it poisons the thread that it runs in. The thread
 * posts `{ update: { choice, cost } }` for every better choice and `{ answer }` at the end.
 */
import type { ThreadPort } from '../../platform/types.ts';
import { branchTree, type TreeJob } from './branch-tree.ts';
import { finish, type FinishJob } from './finish.ts';

export async function finishThread(
  port: ThreadPort,
  job: (FinishJob & { readonly kind?: never }) | (TreeJob & { readonly kind: 'plan' }),
): Promise<void> {
  const answer =
    job.kind === 'plan'
      ? await branchTree(job)
      : await finish(job, (choice, cost) => port.postMessage({ update: { choice, cost } }));
  port.postMessage({ answer });
}
