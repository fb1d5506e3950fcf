/** The messages between a command that runs in a thread and the thread that started it. */

import type { StreamColours } from '../output/io.ts';

/** The data that a thread is started with. */
export interface ThreadStart {
  readonly argv: readonly string[];
  readonly isTerminal: boolean;
  readonly colours?: StreamColours;
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
