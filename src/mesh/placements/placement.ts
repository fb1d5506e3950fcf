/**
 * A placement says how one mesh dim splits the current local tensor. A sharding is one placement
 * per mesh dim, applied outer to inner. The set is open: a new kind implements this interface
 * (usually on top of `Cut` or `Pending`) and enters a `PlacementKinds` table for its text; no
 * operator rule needs to know of it. Definitions: Shard, StridedShard, Replicate and Partial as in
 * PyTorch DTensor 2.13.
 */

export interface Placement {
  /** `shard`, `strided`, `replicate`, `partial`, or the name of a further kind. */
  readonly kind: string;
  /** Tensor dim that is sliced, never negative; undefined for kinds that slice nothing. */
  readonly dim: number | undefined;
  /**
   * DTensor spelling: `S(0)`, `_S(0, 2)`, `R`, `P(sum)`. It holds everything that tells two
   * placements apart, except `identity`.
   */
  readonly text: string;
  /**
   * Chunks into which the dim is cut before every chunk is cut into n pieces: StridedShard's
   * factor, 1 for other kinds.
   */
  readonly chunks: number;
  /**
   * True if the rows that a rank holds are always one run of the dim: along the leading dim its
   * part is then a view of the whole.
   */
  readonly oneRun: boolean;
  /**
   * Run-time object that the placement belongs to: placements of equal text are equal only with the
   * same one.
   */
  readonly identity?: object | undefined;
  /**
   * True if it can cut any number of rows over any number of ranks: `refusal` is then always
   * undefined.
   */
  readonly anySize: boolean;
  /**
   * Rows that a rank holds of a dim of `size` rows; without `rank`, the most that any of the `n`
   * ranks holds.
   *
   * @throws E_PLACEMENT where `refusal` gives a reason
   */
  localSize(size: number, n: number, rank?: number): number;
  /**
   * Rows held by each of `n` ranks, as index lists: disjoint, together 0..size-1 for slicing kinds.
   *
   * @throws E_PLACEMENT where `refusal` gives a reason
   */
  split(size: number, n: number): number[][];
  /**
   * Inverse of `split`: the `size` rows in order, from the rows of each rank. Kinds that slice
   * nothing take rank 0's.
   */
  join<T>(parts: readonly ArrayLike<T>[], size: number): T[];
  /** Tells whether every one of `n` ranks holds equally many rows. */
  isEven(size: number, n: number): boolean;
  /** Why `size` rows cannot be cut this way over `n` ranks; undefined when they can. */
  refusal(size: number, n: number): string | undefined;
  /** Same cut on another dim (operator rules remap dims). */
  withDim(dim: number): Placement;
  equals(other: Placement): boolean;
  toString(): string;
}

/** How partial values of several devices become one. */
export type ReduceOp = 'sum' | 'avg' | 'max' | 'min' | 'product' | 'band' | 'bor' | 'bxor';
