/**
 * One worker per library, started on first use and kept: asking a small question again costs a
 * millisecond. The clock is ours: a run that outlives its limit is terminated, and the last
 * solution that it reported is what it is worth.
 */
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
  const {
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
  } = lp;
  const program = {
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
  const began = performance.now();
  // To javascript-lp-solver an empty row is no constraint whatever its bounds are; HiGHS calls a
  // program of them "Empty".
  for (let r = 0; r < rows; r++) {
    if (starts[r] === starts[r + 1] && (rowLower[r] > 0 || rowUpper[r] < 0)) {
      return Promise.resolve({
        word: `infeasible before asking: row ${lp.rowName(r)} is empty`,
        seconds: 0,
      });
    }
  }
  const id = ++lastId;
  return new Promise((resolve) => {
    const worker = takeWorker(library);
    let incumbent: Float64Array | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const finish = (word: Omit<LibraryAnswer, 'seconds'>, healthy: boolean): void => {
      clearTimeout(timer);
      worker.off('message', onMessage);
      worker.off('error', onError);
      worker.off('exit', onExit);
      run.signal?.removeEventListener('abort', onAbort);
      if (healthy && values.length < LARGE_NONZEROS) keepWorker(library, worker);
      else void worker.terminate();
      resolve({ ...word, seconds: (performance.now() - began) / 1000 });
    };
    const stop = (word: string): void =>
      finish({ word, ...(incumbent === undefined ? {} : { values: incumbent }) }, false);
    const onAbort = (): void => stop('stopped by the caller');
    const onError = (fault: Error): void => stop(`crashed (${fault.message.split('\n')[0]})`);
    const onExit = (code: number): void => stop(`its worker exited with code ${code}`);
    const onMessage = (message: Message): void => {
      if (message.id !== id) return;
      if (message.incumbent !== undefined) {
        incumbent = message.incumbent;
        run.onIncumbent?.(incumbent);
      } else if (message.word !== undefined) {
        const found = message.values ?? incumbent;
        const { word, bound } = message;
        finish(
          {
            word,
            ...(found === undefined ? {} : { values: found }),
            ...(bound === undefined ? {} : { bound }),
          },
          true,
        );
      }
    };
    worker.on('message', onMessage);
    worker.on('error', onError);
    worker.on('exit', onExit);
    run.signal?.addEventListener('abort', onAbort, { once: true });
    if (run.signal?.aborted === true) return onAbort();
    if (run.timeLimitSeconds !== undefined) {
      const limit = (run.timeLimitSeconds + GRACE_SECONDS[library]) * 1000;
      timer = setTimeout(
        () => stop(`terminated ${GRACE_SECONDS[library]} s after its time limit`),
        limit,
      );
    }
    worker.postMessage({
      id,
      library,
      program,
      seed: run.seed ?? 0,
      ...(run.timeLimitSeconds === undefined ? {} : { timeLimitSeconds: run.timeLimitSeconds }),
      ...(run.start === undefined ? {} : { start: run.start }),
    });
  });
}
