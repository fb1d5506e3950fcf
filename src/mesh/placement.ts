/**
 * A placement says how one mesh dim splits the current local tensor. A sharding is one placement per mesh dim, applied
 * outer to inner. The set is open: a new kind implements this interface, and no operator rule needs to know of it.
 * Definitions: Shard, StridedShard, Replicate and Partial as in PyTorch DTensor 2.13.
 */

export interface Placement {
  /** `shard`, `strided`, `replicate`, `partial`, or the name of a further kind. */
  readonly kind: string;
  /** Tensor dim that is sliced; undefined for kinds that slice nothing. */
  readonly dim: number | undefined;
  /** DTensor spelling: `S(0)`, `_S(0, 2)`, `R`, `P(sum)`. Two placements are equal iff their texts are. */
  readonly text: string;
  /** Largest number of rows that one of `n` ranks holds of a dim of `size` rows. */
  localSize(size: number, n: number): number;
  /** Rows held by each rank, as index lists: disjoint, together 0..size-1 for slicing kinds. */
  split(size: number, n: number): number[][];
  /** Whether every one of `n` ranks holds equally many rows. */
  isEven(size: number, n: number): boolean;
  /** Same cut on another dim (operator rules remap dims). */
  withDim(dim: number): Placement;
}

export type ReduceOp = 'sum' | 'avg' | 'max' | 'min' | 'product' | 'band' | 'bor' | 'bxor';
