/**
 * One job in a worker thread of its own, so that limits and stops are heard whatever it does. The
 * job looks at the clock itself; past its deadline and a grace it is terminated, and so it is at
 * once when the caller says stop.
 */
import { monotonicMilliseconds as milliseconds, startThread } from '../../platform/platform.ts';
import type { ThreadCode } from '../../platform/types.ts';

/** Limits that may end a job early. */
export interface JobLimits {
  /** Milliseconds since the epoch; Infinity for none. */
  readonly deadline: number;
  /** Tells whether the job is to stop at once. */
  readonly stopped: () => boolean;
}

/** How a job ended: its answer, its end by the clock or the caller, or the fault of its thread. */
type JobOutcome<T> =
  | { readonly kind: 'answer'; readonly answer: T }
  | { readonly kind: 'stopped' }
  | { readonly kind: 'fault'; readonly fault: Error };

/**
 * Milliseconds after the deadline that a job gets to notice it, and between two looks at the clock.
 */
const GRACE = 500;
const TICK = 50;

/**
 * Runs a thread on a job. Messages `{ update }` go to `receive` as they come, a message `{ answer
 * }` ends it. The types are asserted by the caller, who knows what its worker posts.
 */
export async function runJob<T, Update = never>(
  code: ThreadCode,
  job: unknown,
  { deadline, stopped }: JobLimits,
  receive: (update: Update) => void = () => undefined,
): Promise<JobOutcome<T>> {
  const worker = startThread(code, job);
  let timer: ReturnType<typeof setInterval> | undefined;
  try {
    return await new Promise<JobOutcome<T>>((resolve) => {
      worker.on('message', (message: { readonly answer: T } | { readonly update: Update }) => {
        if ('update' in message) receive(message.update);
        else resolve({ kind: 'answer', answer: message.answer });
      });
      worker.on('error', (fault: Error) => resolve({ kind: 'fault', fault }));
      timer = setInterval(() => {
        if (milliseconds() > deadline + GRACE || stopped()) resolve({ kind: 'stopped' });
      }, TICK);
    });
  } finally {
    clearInterval(timer);
    await worker.terminate();
  }
}
