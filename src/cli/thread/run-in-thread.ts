/**
 * Runs commands that search in a thread of their own, while this one hears SIGHUP, SIGINT and
 * SIGTERM. A signal makes the command end with the best it has; one that comes before there is
 * anything, or again, ends the process, as does a time limit that is over before there is anything.
 *
 * Source: exit codes 129, 130 and 143 are 128 plus the number of the signal, as shells have it.
 */
import { Worker } from 'node:worker_threads';

import { defined } from '../../defined.ts';
import { interrupted, ShardwrightError } from '../../errors.ts';
import { type CliIo, type CliStreams, EXIT, printer, reportError } from '../output/io.ts';
import type { ThreadMessage, ThreadStart } from './thread-messages.ts';

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

/** Tells whether a command needs a thread, which costs some hundredths of a second. */
export function needsThread([command = '', ...rest]: readonly string[]): boolean {
  if (rest.some((word) => /^(-h|--help(-all)?)$/.test(word))) return false;
  return (
    SEARCHES.has(command) ||
    (LIMITED.has(command) && rest.some((word) => /^--time-limit(=|$)/.test(word)))
  );
}

/** Runs the command; resolves to the exit code, or ends the process. */
export function runInThread(argv: readonly string[], streams: CliStreams): Promise<number> {
  const run = new ThreadedRun(argv, streams);
  const names = Object.keys(SIGNALS) as SignalName[];
  const onSignal = (name: SignalName): void => run.onSignal(name);
  for (const name of names) process.on(name, onSignal);
  return run.ended().finally(() => {
    run.endLimit();
    for (const name of names) process.off(name, onSignal);
  });
}

/** A command in its thread, with the signal and the time limit that end it. */
class ThreadedRun {
  private readonly words = new Int32Array(new SharedArrayBuffer(8));
  private readonly worker: Worker;
  private readonly io: CliIo;
  private came: SignalName | undefined;
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly argv: readonly string[],
    private readonly streams: CliStreams,
  ) {
    this.io = printer(streams);
    const start: ThreadStart = {
      argv,
      isTerminal: streams.isTerminal,
      ...defined({ colours: streams.colours }),
      words: this.words,
      ranMilliseconds: performance.now(),
      at: process.hrtime.bigint(),
    };
    this.worker = new Worker(new URL('./command-thread.mjs', import.meta.url), {
      workerData: start,
      execArgv: [],
      resourceLimits: {
        maxYoungGenerationSizeMb:
          argv[0] === 'compare' ? YOUNG_MEGABYTES.compare : YOUNG_MEGABYTES.other,
      },
    });
  }

  /** Ends the search with its best so far; the second signal, and one before any, the process. */
  onSignal(name: SignalName): void {
    const code = 128 + SIGNALS[name];
    if (this.came !== undefined) process.exit(code);
    this.came = name;
    if (!this.hasAnswer()) {
      this.report(interrupted(name));
      process.exit(code);
    }
    Atomics.store(this.words, SIGNAL, SIGNALS[name]);
    this.worker.postMessage('stop');
    this.io.stderr(`${name}: ending with the best so far; a second signal ends at once\n`);
  }

  ended(): Promise<number> {
    return new Promise<number>((resolve) => {
      this.worker.on('message', (message: ThreadMessage) => {
        if (message.kind === 'limit') this.limit(message.leftSeconds);
        else if (message.kind === 'end')
          resolve(
            message.code === EXIT.interrupted && this.came !== undefined
              ? 128 + SIGNALS[this.came]
              : message.code,
          );
        else this.streams[message.kind](message.text);
      });
      this.worker.on('error', (error) => resolve(this.report(outOfMemory(error))));
      // A model file may end its thread itself.
      this.worker.on('exit', resolve);
    });
  }

  endLimit(): void {
    clearTimeout(this.timer);
  }

  private hasAnswer(): boolean {
    return Atomics.load(this.words, ANSWERS) === 1;
  }

  private report(error: unknown): number {
    return reportError(error, this.io, this.argv.includes('--json'));
  }

  /** Ends the process after the limit, where there is nothing to answer with. */
  private limit(seconds: number): void {
    this.endLimit();
    this.timer = setTimeout(
      () => {
        if (this.hasAnswer()) return;
        this.report(
          new ShardwrightError(
            'E_TIME_LIMIT',
            'the time limit came before there was anything to answer with',
            { hint: 'raise --time-limit.' },
          ),
        );
        process.exit(EXIT.gap);
      },
      1e3 * (seconds + GRACE_SECONDS),
    );
  }
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
