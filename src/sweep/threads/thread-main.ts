/** The worker of a sweep: receives jobs from its parent thread and posts the answers. */

import { builtinOperators } from '../../ops/builtin.ts';
import type { ThreadPort } from '../../platform/types.ts';
import { CoreSolver } from '../rank/rank-price.ts';
import { answer } from './local-pool.ts';
import type { SweepJob, SweepThread } from './pool.ts';

/** Answers jobs until the thread is ended. */
export function serve(port: ThreadPort, { question, kinds }: SweepThread): void {
  const solver = new CoreSolver(question, builtinOperators(), kinds);
  port.on('message', ({ id, job }: { readonly id: number; readonly job: SweepJob }) => {
    answer(solver, job).then(
      (given) => {
        port.postMessage({ id, answer: given });
      },
      (error: unknown) => {
        port.postMessage({
          id,
          error: error instanceof Error ? (error.stack ?? error.message) : String(error),
        });
      },
    );
  });
}
