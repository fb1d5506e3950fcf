/**
 * Runs commands that search in a thread of their own, while this one hears SIGHUP, SIGINT and
 * SIGTERM. A signal makes the command end with the best it has; one that comes before there is
 * anything, or again, ends the process, as does a time limit that is over before there is anything.
 *
 * Source: exit codes 129, 130 and 143 are 128 plus the number of the signal, as shells have it.
 */
import { Worker } from 'node:worker_threads';

import { interrupted, ShardwrightError } from '../../errors.ts';
import { type CliStreams, EXIT, printer, reportError } from '../output/io.ts';
import type { ThreadMessage, ThreadStart } from './command-thread-main.ts';

const SIGNALS = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 } as const;
type SignalName = keyof typeof SIGNALS;

/**
 * Places of the shared words; `run-control.ts` reads them in the thread, and is not loaded here.
 */
const [SIGNAL, ANSWERS] = [0, 1];

/** Commands that have something to give before they are done. */
const SEARCHES: ReadonlySet<string> = new Set(['plan', 'compare', 'audit', 'solve']);
/** Commands that have a time limit and nothing to give before they are done. */
const LIMITED: ReadonlySet<string> = new Set(['verify']);

/**
 * How long after its limit a command is ended that had nothing to answer with: its own words say
 * where the time went.
 */
const GRACE_SECONDS = 0.5;

/**
 * Room for what lives briefly. Comparisons make tens of thousands of short lists; in the 48 MB that
 * Node gives, a quarter of their time goes to moving what is still in use. Plans take no less time
 * with more than half of that room.
 */
const YOUNG_MEGABYTES = { compare: 192, other: 96 } as const;

/** Whether a command needs a thread, which costs some hundredths of a second. */
export function needsThread([command = '', ...rest]: readonly string[]): boolean {
  if (rest.some((word) => word === '--help' || word === '-h')) return false;
  return (
    SEARCHES.has(command) ||
    (LIMITED.has(command) && rest.some((word) => /^--time-limit(=|$)/.test(word)))
  );
}

/** Runs the command; resolves to the exit code, or ends the process. */
export function runInThread(argv: readonly string[], streams: CliStreams): Promise<number> {
  const words = new Int32Array(new SharedArrayBuffer(8));
  const start: ThreadStart = {
    argv,
    isTerminal: streams.isTerminal,
    words,
    ranMilliseconds: performance.now(),
    at: process.hrtime.bigint(),
  };
  const worker = new Worker(new URL('./command-thread.mjs', import.meta.url), {
    workerData: start,
    execArgv: [],
    resourceLimits: {
      maxYoungGenerationSizeMb:
        argv[0] === 'compare' ? YOUNG_MEGABYTES.compare : YOUNG_MEGABYTES.other,
    },
  });
  const io = printer(streams);
  const report = (error: unknown): number => reportError(error, io, argv.includes('--json'));
  const hasAnswer = (): boolean => Atomics.load(words, ANSWERS) === 1;
  let came: SignalName | undefined;
  const onSignal = (name: SignalName): void => {
    const code = 128 + SIGNALS[name];
    if (came !== undefined) process.exit(code);
    came = name;
    if (!hasAnswer()) {
      report(interrupted(name));
      process.exit(code);
    }
    Atomics.store(words, SIGNAL, SIGNALS[name]);
    worker.postMessage('stop');
    io.stderr(`${name}: ending with the best so far; a second signal ends at once\n`);
  };
  let timer: NodeJS.Timeout | undefined;
  const limit = (seconds: number): void => {
    clearTimeout(timer);
    timer = setTimeout(
      () => {
        if (hasAnswer()) return;
        const hint = 'raise --time-limit.';
        report(
          new ShardwrightError(
            'E_TIME_LIMIT',
            'the time limit came before there was anything to answer with',
            { hint },
          ),
        );
        process.exit(EXIT.gap);
      },
      1e3 * (seconds + GRACE_SECONDS),
    );
  };
  const names = Object.keys(SIGNALS) as SignalName[];
  for (const name of names) process.on(name, onSignal);
  return new Promise<number>((resolve) => {
    worker.on('message', (message: ThreadMessage) => {
      if (message.kind === 'limit') limit(message.leftSeconds);
      else if (message.kind === 'end')
        resolve(
          message.code === EXIT.interrupted && came !== undefined
            ? 128 + SIGNALS[came]
            : message.code,
        );
      else streams[message.kind](message.text);
    });
    worker.on('error', (error) => resolve(report(outOfMemory(error))));
    // A model file may end its thread itself.
    worker.on('exit', resolve);
  }).finally(() => {
    clearTimeout(timer);
    for (const name of names) process.off(name, onSignal);
  });
}

/** A heap that is full ends the thread, not the process. */
function outOfMemory(error: Error & { readonly code?: string }): Error {
  if (error.code !== 'ERR_WORKER_OUT_OF_MEMORY') return error;
  return new ShardwrightError(
    'E_LIMIT',
    "the command needs more memory than Node's heap may have",
    {
      hint:
        'give more with NODE_OPTIONS=--max-old-space-size=8192 (MiB), or plan fewer layers or ' +
        'a smaller mesh.',
    },
  );
}
