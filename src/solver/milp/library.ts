/**
 * One worker per library, started on first use and kept: asking a small question again costs a
 * millisecond. The clock is ours: a run that outlives its limit is terminated, and the last
 * solution that it reported is what it is worth.
 */
import { defined } from '../../defined.ts';
import { startThread } from '../../platform/platform.ts';
import type { Thread, ThreadCode, ThreadPort } from '../../platform/types.ts';
import type { LinearProgram } from './linear-program.ts';

export type Library = 'highs' | 'javascript-lp-solver';

/**
 * The answer of a library about a program. `values` may be fractional or wrong; nothing here is
 * trusted.
 */
export interface LibraryAnswer {
  readonly word: string;
  readonly values?: Float64Array;
  /** The library's own lower bound, in the program's (scaled) cost. */
  readonly bound?: number;
  readonly seconds: number;
}

export interface LibraryRun {
  readonly timeLimitSeconds?: number;
  readonly seed?: number;
  readonly start?: Float64Array;
  readonly signal?: AbortSignal;
  /** Called with every improving solution that the library reports while it runs. */
  readonly onIncumbent?: (values: Float64Array) => void;
}

/**
 * Seconds beyond the limit after which a run is terminated: HiGHS was seen 0.8 s late,
 * javascript-lp-solver 0.1 s.
 */
const GRACE_SECONDS = { highs: 1, 'javascript-lp-solver': 0.25 };

/** Past this many nonzeros a worker is not kept: WASM memory grows and is never given back. */
const LARGE_NONZEROS = 100_000;

interface Message {
  readonly id: number;
  readonly incumbent?: Float64Array;
  readonly word?: string;
  readonly values?: Float64Array;
  readonly bound?: number;
}

const CODE: ThreadCode = {
  from: import.meta.url,
  file: './library-worker.mjs',
  body: async () => {
    const { runLibrary } = await import('./library-run.mjs');
    return (port: ThreadPort) => {
      port.on('message', async (job: Parameters<typeof runLibrary>[0]) =>
        port.postMessage(await runLibrary(job, (message) => port.postMessage(message))),
      );
    };
  },
};

const idle = new Map<Library, Thread[]>();
let lastId = 0;

function takeWorker(library: Library): Thread {
  const kept = idle.get(library)?.pop();
  if (kept !== undefined) {
    kept.ref();
    return kept;
  }
  const worker = startThread(CODE);
  // A worker that was terminated may still report a fault; by then nobody listens any more.
  worker.on('error', () => undefined);
  return worker;
}

function keepWorker(library: Library, worker: Thread): void {
  worker.unref();
  idle.set(library, [...(idle.get(library) ?? []), worker]);
}

/** Puts a program to a library, in its worker. Never rejects: a crash is an answer, too. */
export function askLibrary(
  library: Library,
  lp: LinearProgram,
  run: LibraryRun = {},
): Promise<LibraryAnswer> {
  const { rows, starts, rowLower, rowUpper } = lp;
  // To javascript-lp-solver an empty row is not a constraint whatever its bounds are; HiGHS calls a
  // program of them "Empty".
  for (let r = 0; r < rows; r++) {
    if (starts[r] === starts[r + 1] && (rowLower[r] > 0 || rowUpper[r] < 0)) {
      return Promise.resolve({
        word: `infeasible before asking: row ${lp.rowName(r)} is empty`,
        seconds: 0,
      });
    }
  }
  return new Promise((resolve) => {
    new LibraryJob(library, run, lp.values.length < LARGE_NONZEROS, resolve).start(programOf(lp));
  });
}

/** The part of a program that a thread may be sent. */
function programOf(lp: LinearProgram) {
  const { columns, rows, cost, lower, upper, integer } = lp;
  const { starts, indices, values, rowLower, rowUpper } = lp;
  return {
    columns,
    rows,
    cost,
    lower,
    upper,
    integer,
    starts,
    indices,
    values,
    rowLower,
    rowUpper,
  };
}

/** One program in a worker, until the worker, the clock or the caller ends it. */
class LibraryJob {
  private readonly began = performance.now();
  private readonly id = ++lastId;
  private readonly worker: Thread;
  private incumbent: Float64Array | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** @param keeps whether the worker is kept for another program */
  constructor(
    private readonly library: Library,
    private readonly run: LibraryRun,
    private readonly keeps: boolean,
    private readonly resolve: (answer: LibraryAnswer) => void,
  ) {
    this.worker = takeWorker(library);
  }

  start(program: ReturnType<typeof programOf>): void {
    const { library, run, worker } = this;
    worker.on('message', this.onMessage);
    worker.on('error', this.onError);
    worker.on('exit', this.onExit);
    run.signal?.addEventListener('abort', this.onAbort, { once: true });
    if (run.signal?.aborted === true) {
      this.onAbort();
      return;
    }
    if (run.timeLimitSeconds !== undefined) {
      const limit = (run.timeLimitSeconds + GRACE_SECONDS[library]) * 1000;
      this.timer = setTimeout(
        () => this.stop(`terminated ${GRACE_SECONDS[library]} s after its time limit`),
        limit,
      );
    }
    worker.postMessage({
      id: this.id,
      library,
      program,
      seed: run.seed ?? 0,
      ...defined({ timeLimitSeconds: run.timeLimitSeconds, start: run.start }),
    });
  }

  private readonly onAbort = (): void => this.stop('stopped by the caller');

  private readonly onError = (fault: Error): void =>
    this.stop(`crashed (${fault.message.split('\n')[0]})`);

  private readonly onExit = (code: number): void =>
    this.stop(`its worker exited with code ${code}`);

  private readonly onMessage = ({ id, incumbent, word, values, bound }: Message): void => {
    if (id !== this.id) return;
    if (incumbent !== undefined) {
      this.incumbent = incumbent;
      this.run.onIncumbent?.(incumbent);
    } else if (word !== undefined) {
      const found = values ?? this.incumbent;
      this.finish(
        {
          word,
          ...defined({ values: found, bound }),
        },
        true,
      );
    }
  };

  private stop(word: string): void {
    const values = this.incumbent;
    this.finish({ word, ...defined({ values }) }, false);
  }

  private finish(answer: Omit<LibraryAnswer, 'seconds'>, healthy: boolean): void {
    const { worker } = this;
    clearTimeout(this.timer);
    worker.off('message', this.onMessage);
    worker.off('error', this.onError);
    worker.off('exit', this.onExit);
    this.run.signal?.removeEventListener('abort', this.onAbort);
    if (healthy && this.keeps) keepWorker(this.library, worker);
    else void worker.terminate();
    this.resolve({ ...answer, seconds: (performance.now() - this.began) / 1000 });
  }
}
