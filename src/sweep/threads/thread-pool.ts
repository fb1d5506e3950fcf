/** A sweep pool of worker threads: takes jobs and gives answers in the order of the jobs. */

import { internalError } from '../../errors.ts';
import { Deadline } from '../../plan/request/deadline.ts';
import { startThread } from '../../platform/platform.ts';
import type { Thread, ThreadCode } from '../../platform/types.ts';
import type { SweepAnswer, SweepJob, SweepPool, SweepThread } from './pool.ts';

const CODE: ThreadCode = {
  from: import.meta.url,
  file: './thread.mjs',
  body: async () => (await import('./thread-main.ts')).serve,
  task: 'sweep',
};

interface Reply {
  readonly id: number;
  readonly answer?: SweepAnswer;
  readonly error?: string;
}

/**
 * Threads that take jobs as they get free. Answers do not depend on how many there are: each job is
 * a question of its own. At the deadline jobs that are begun are left alone.
 */
export function threadPool(
  count: number,
  start: SweepThread,
  deadline = new Deadline(undefined),
): SweepPool {
  const workers: Thread[] = [];
  return {
    run: async (jobs) => {
      if (jobs.length === 0 || deadline.isOver) return noAnswers(jobs);
      while (workers.length < Math.min(count, jobs.length)) workers.push(startThread(CODE, start));
      return await answersOf(workers, jobs, deadline);
    },
    close: async () => {
      for (const worker of workers) worker.removeAllListeners();
      await Promise.all(workers.map((worker) => worker.terminate()));
    },
  };
}

function noAnswers(jobs: readonly SweepJob[]): (SweepAnswer | undefined)[] {
  return Array.from({ length: jobs.length }, () => undefined);
}

/** Gives jobs to threads as they get free; undefined for those that the deadline left. */
function answersOf(
  workers: readonly Thread[],
  jobs: readonly SweepJob[],
  deadline: Deadline,
): Promise<(SweepAnswer | undefined)[]> {
  return new Promise((resolve, reject) => {
    const answers = noAnswers(jobs);
    const over = (): void => end(() => resolve(answers));
    const timer =
      deadline.leftSeconds === Infinity ? undefined : setTimeout(over, 1e3 * deadline.leftSeconds);
    const { signal } = deadline;
    signal?.addEventListener('abort', over);
    const end = (settle: () => void): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', over);
      settle();
    };
    let next = 0;
    let left = jobs.length;
    const give = (worker: Thread): void => {
      if (next < jobs.length)
        worker.postMessage({ id: next, job: jobs[next++] satisfies SweepJob });
    };
    for (const worker of workers) {
      worker.removeAllListeners();
      worker.on('error', (error: Error) => end(() => reject(error)));
      worker.on('exit', (code: number) => {
        end(() => reject(internalError(`a thread of the sweep ended with code ${code}`)));
      });
      worker.on('message', ({ id, answer, error }: Reply) => {
        if (answer === undefined) {
          end(() => reject(internalError(error ?? 'a thread of the sweep gave no answer')));
          return;
        }
        answers[id] = answer;
        left--;
        if (left === 0) end(() => resolve(answers));
        else give(worker);
      });
      give(worker);
    }
  });
}
