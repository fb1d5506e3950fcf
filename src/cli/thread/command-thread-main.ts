/**
 * Runs a command in its thread. `run-in-thread.ts` starts it; its output and its exit code go back
 * as messages.
 */
import type { MessagePort } from 'node:worker_threads';

import { defined } from '../../defined.ts';
import { surroundings } from '../input/defaults.ts';
import { runCli } from '../program.ts';
import { SharedSignal, watched } from './run-control.ts';
import type { ThreadMessage, ThreadStart } from './thread-messages.ts';

/** Runs the command; resolves when all its output has been sent. */
export async function serve(
  port: MessagePort,
  { argv, isTerminal, colours, words, ranMilliseconds, at }: ThreadStart,
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
      ...defined({ colours }),
    },
    control,
    surroundings(),
  );
  say({ kind: 'end', code });
}
