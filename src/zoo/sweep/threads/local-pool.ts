/** A sweep pool without threads: answers jobs one after another in this thread. */

import type { OperatorTable } from '../../../ops/record/table.ts';
import { CoreSolver } from '../rank/rank-price.ts';
import type { SweepAnswer, SweepJob, SweepPool } from './pool.ts';
import type { SweepQuestion } from '../model/question.ts';
import type { LayerKinds } from '../model/representative-layers.ts';

/** Does one job. */
export async function answer(solver: CoreSolver, job: SweepJob): Promise<SweepAnswer> {
  if (job.kind === 'core') return { kind: 'core', result: await solver.price(job.request) };
  return { kind: 'routed', costs: solver.routed(job.microbatch, job.ways, job.groups, job.tensor) ?? null };
}

/** A pool without threads. */
export function localPool(question: SweepQuestion, table: OperatorTable, kinds?: LayerKinds): SweepPool & { readonly solver: CoreSolver } {
  const solver = new CoreSolver(question, table, kinds);
  return {
    solver,
    run: async (jobs) => {
      const out: SweepAnswer[] = [];
      for (const job of jobs) out.push(await answer(solver, job));
      return out;
    },
    close: () => Promise.resolve(),
  };
} // prettier-ignore
