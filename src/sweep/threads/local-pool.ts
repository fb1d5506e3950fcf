/** A sweep pool without threads: answers jobs one after another in this thread. */

import type { OperatorTable } from '../../ops/record/table.ts';
import { Deadline } from '../../plan/request/deadline.ts';
import type { SweepQuestion } from '../model/question.ts';
import type { LayerKinds } from '../model/representative-layers.ts';
import { CoreSolver } from '../rank/rank-price.ts';
import type { SweepAnswer, SweepJob, SweepPool } from './pool.ts';

/** Does one job. */
export async function answer(solver: CoreSolver, job: SweepJob): Promise<SweepAnswer> {
  if (job.kind === 'core') return { kind: 'core', result: await solver.price(job.request) };
  return {
    kind: 'routed',
    costs: solver.routed(job.microbatch, job.ways, job.groups, job.tensor) ?? null,
  };
}

/** A pool without threads. A job that is begun is done. */
export function localPool(
  question: SweepQuestion,
  table: OperatorTable,
  kinds?: LayerKinds,
  deadline = new Deadline(undefined),
): SweepPool & { readonly solver: CoreSolver } {
  const solver = new CoreSolver(question, table, kinds);
  return {
    solver,
    run: async (jobs) => {
      const out: (SweepAnswer | undefined)[] = [];
      for (const job of jobs) out.push(deadline.isOver ? undefined : await answer(solver, job));
      return out;
    },
    close: () => Promise.resolve(),
  };
}
