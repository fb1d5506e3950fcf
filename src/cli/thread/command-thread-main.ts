/**
 * Runs a command in its thread. `run-in-thread.ts` starts it; its output and its exit code go back
 * as messages.
 */
import type { MessagePort } from 'node:worker_threads';

import { surroundings } from '../input/defaults.ts';
import { runCli } from '../program.ts';
import { SharedSignal, watched } from './run-control.ts';

/** The data that a thread is started with. */
export interface ThreadStart {
  readonly argv: readonly string[];
  readonly isTerminal: boolean;
  readonly words: Int32Array;
  /**
   * Milliseconds that the process had run at `at`, a time of the monotonic clock that all threads
   * share (nanoseconds).
   */
  readonly ranMilliseconds: number;
  readonly at: bigint;
}

/** The messages of a thread. */
export type ThreadMessage =
  | { readonly kind: 'stdout' | 'stderr'; readonly text: string }
  /** Its time limit, as what is left of it. */
  | { readonly kind: 'limit'; readonly leftSeconds: number }
  | { readonly kind: 'end'; readonly code: number };

/** Runs the command; resolves when all is said. */
export async function serve(
  port: MessagePort,
  { argv, isTerminal, words, ranMilliseconds, at }: ThreadStart,
): Promise<void> {
  const say = (message: ThreadMessage): void => port.postMessage(message);
  const signal = new SharedSignal(words);
  port.on('message', () => signal.tell());
  // Who only waits for a signal is done.
  port.unref();
  const ran = ranMilliseconds + Number(process.hrtime.bigint() - at) / 1e6;
  const control = watched(words, signal, performance.now() - ran, (leftSeconds) =>
    say({ kind: 'limit', leftSeconds }),
  );
  const code = await runCli(
    argv,
    {
      stdout: (text) => say({ kind: 'stdout', text }),
      stderr: (text) => say({ kind: 'stderr', text }),
      isTerminal,
    },
    control,
    surroundings(),
  );
  say({ kind: 'end', code });
}
