/** Defines the loop that a compiler makes of a call. */

/** The loop of a call. */
export interface LoopForm {
  /**
   * `each`: one value at a time; `rows`: also values of each row (of trailing dims); `columns`:
   * values across rows, or of everything, which no call of the same loop can read.
   */
  readonly over: 'each' | 'rows' | 'columns';
  /** Elements that it visits. */
  readonly count: number;
  /** Rows that it reduces over; `count` where it reduces nothing. */
  readonly rows: number;
  /**
   * True if results have the size of the loop, in a pass of their own behind the reduction: softmax
   * and norms.
   */
  readonly whole: boolean;
  /**
   * Inputs whose values are read in full, by position; others are small, or looked up here and
   * there.
   */
  readonly reads: (input: number) => boolean;
  /** Inputs that the pass of the results does not read. */
  readonly once?: (input: number) => boolean;
  /** Statistics of a row that are kernels of their own where the row is cut over devices. */
  readonly statistics?: number;
  /** Bytes that are read by lookups, as a share of the bytes of the results. */
  readonly lookups?: number;
  /**
   * The loop sums over rows in addition to the sums of each row, as gradients of a norm's weights
   * do: one more kernel adds up each block's part of them.
   */
  readonly sumsRows?: true;
}
