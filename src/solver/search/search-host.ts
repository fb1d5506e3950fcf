/**
 * Defines the host of a search: it evaluates the choices of the search, may end it, and holds the
 * best choice.
 */

/** The best checked choice so far. */
export interface Incumbent {
  readonly objective: number;
  readonly choice: Int32Array;
}

export interface SearchHost {
  /**
   * True cost of a full choice; Infinity when it is not a solution. Rows count only where `rows` is
   * true.
   */
  readonly evaluate: (choice: Int32Array, rows: boolean) => number;
  readonly stopped: () => boolean;
  readonly progress: (phase: string, objective: number, bound: number) => void;
  /** Relative gap that is good enough. */
  readonly gap: number;
  /** True if heuristics may search the whole of a wide gap. */
  readonly searchesWide?: boolean;
  /** Relative gap at which nothing expensive is begun; absent: none, see `SolveOptions.enough`. */
  readonly enough?: number;
  /** True if the bound will be replayed, so that what messages say must be in the log. */
  readonly certifies?: boolean;
  /**
   * Nobody limits time or work: what would take hours is not begun, and the answer is what is known
   * until then.
   */
  readonly isEndless?: boolean;
  /**
   * Work that may still be done, see `WorkMeter`; absent: without end. `stopped` must say when it
   * is used up.
   */
  readonly workLeft?: () => number;
  /**
   * Lazily computed warm start (ignores rows); expensive, so the search asks for it on large
   * networks only.
   */
  readonly expensiveStart?: () => Int32Array | undefined;
}
