/**
 * Defines the services of the machine that the planner runs on: files, threads, hashes, gzip and a
 * clock. `node.ts` and `browser.ts` each provide all of them, and everything imports `platform.ts`;
 * a bundle for a page takes `browser.ts` instead of `node.ts`.
 */

/** A thread, as far as the planner uses one. */
export interface Thread {
  /**
   * `message` with what the thread posts, `error` with its fault, `exit` with its code; the caller
   * knows the types.
   */
  on<T>(event: 'message' | 'error' | 'exit', listen: (value: T) => void): unknown;
  off<T>(event: 'message' | 'error' | 'exit', listen: (value: T) => void): unknown;
  removeAllListeners(): unknown;
  postMessage(message: unknown): void;
  terminate(): Promise<unknown>;
  /** Tells whether the program waits for the thread at its end. */
  ref(): void;
  unref(): void;
}

/** The thread's side of the talk. */
export interface ThreadPort {
  postMessage(message: unknown): void;
  /**
   * Where this thread runs in the thread that asks, a listener may be waited for: its fault is the
   * thread's.
   */
  on<T>(event: 'message', listen: (message: T) => void | Promise<void>): unknown;
}

/** The code of a thread. */
export interface ThreadCode {
  /** `import.meta.url` of the module that starts it. */
  readonly from: string;
  /** File of the thread, relative to `from`. */
  readonly file: string;
  /**
   * The function of that file, for a platform that runs it in the thread that asks; absent where
   * only several threads are worth it.
   */
  readonly body?: () => Promise<(port: ThreadPort, data: never) => void | Promise<void>>;
  /**
   * The name of that function, for a platform whose threads all load one file; absent: it needs
   * shared memory, or is short.
   */
  readonly task?: string;
}

export interface Platform {
  /**
   * Threads that work at the same time here; 1: none besides this one, and `startThread` runs its
   * code in this one.
   */
  readonly threadsAtMost: () => number;
  /** Threads that a search takes where the caller does not say. */
  readonly defaultThreads: () => number;
  readonly startThread: (code: ThreadCode, data?: unknown) => Thread;
  /** Bytes that all threads see, set to zero. */
  readonly sharedBytes: (length: number) => ArrayBuffer | SharedArrayBuffer;
  /** Lets events and timers have their turn. */
  readonly nextTurn: () => Promise<void>;
  /** A clock that never goes back and that all threads share; its zero is arbitrary. */
  readonly monotonicMilliseconds: () => number;

  /** Hexadecimal digits of the hash of a text in UTF-8. */
  readonly sha256: (text: string) => string;
  readonly md5: (text: string) => string;
  readonly crc32: (bytes: Uint8Array) => number;
  /**
   * Unpacked gzip, undefined where it is longer than `maxBytes`. Throws what is wrong with damaged
   * data.
   */
  readonly gunzip: (bytes: Uint8Array, maxBytes: number) => Uint8Array | undefined;
  /** A character of U+0000 to U+00FF for each byte. */
  readonly latin1: (bytes: Uint8Array) => string;

  /** Text of a file of the package's folder `data`, by its path there. */
  readonly packageData: (path: string) => string;
  /** Text of a user's file, undefined where there is none; `what` names it in messages. */
  readonly readUserFile: (path: string, what: string) => string | undefined;
  readonly appendToFile: (path: string, text: string) => void;
  readonly truncateFile: (path: string, bytes: number) => void;

  /** Folder or address that the library's own code lies under, with a slash at its end. */
  readonly libraryFolder: () => string;
  /** A stack frame's file as a path where it is one. */
  readonly localPath: (file: string) => string;
  /** Relative to the working folder, with forward slashes. */
  readonly relativePath: (path: string) => string;
}
