/**
 * Makes the `Deadline` of a command: a signal or its time limit may end it before it is done, and
 * every long computation asks the deadline. A signal arrives through two words of memory shared
 * with the thread that receives signals (`run-in-thread.ts`).
 *
 * Source: Node gives signals to the event loop of the main thread only, and a planner that computes
 * lets no event through; hence the words in shared memory.
 */
import { interrupted } from '../../errors.ts';
import { Deadline } from '../../plan/request/deadline.ts';

/** Places of the shared words. */
const WORD = {
  /** Number of the signal that came; 0: none. */
  signal: 0,
  /** 1: the command has something to answer with, and ends by itself. */
  answers: 1,
} as const;

/** One run of a command, as it is watched. */
export interface RunControl {
  /**
   * The deadline of the command; its limit counts from the start of the process. Without a limit
   * signals alone end it.
   */
  readonly deadline: (limitSeconds: number | undefined) => Deadline;
  /** From here on the command ends itself with what it has; before, it is ended with nothing. */
  readonly answers: () => void;
}

/**
 * The control of a run that nobody watches, such as one inside another program: its limit counts
 * from now.
 */
export function unwatched(): RunControl {
  const since = performance.now();
  return {
    deadline: (limitSeconds) => new Deadline(limitSeconds, { since }),
    answers: () => undefined,
  };
}

/**
 * The control of a run in a thread.
 *
 * @param since when the process began, by this thread's `performance.now()`
 * @param tell is called with the seconds that are left when the command knows its limit
 */
export function watched(
  words: Int32Array,
  signal: AbortSignal,
  since: number,
  tell: (leftSeconds: number) => void,
): RunControl {
  return {
    deadline: (limitSeconds) => {
      const deadline = new Deadline(limitSeconds, { since, signal });
      if (limitSeconds !== undefined) tell(deadline.leftSeconds);
      return deadline;
    },
    answers: () => void Atomics.store(words, WORD.answers, 1),
  };
}

/**
 * An `AbortSignal` that is aborted as soon as the word says so, whether or not this thread has come
 * to its events.
 */
export class SharedSignal extends EventTarget implements AbortSignal {
  onabort: AbortSignal['onabort'] = null;

  constructor(private readonly words: Int32Array) {
    super();
  }

  get aborted(): boolean {
    return Atomics.load(this.words, WORD.signal) !== 0;
  }

  get reason(): unknown {
    return this.aborted ? interrupted() : undefined;
  }

  throwIfAborted(): void {
    if (this.aborted) throw interrupted();
  }

  /** Tells the listeners, which only an event can. */
  tell(): void {
    this.dispatchEvent(new Event('abort'));
  }
}
