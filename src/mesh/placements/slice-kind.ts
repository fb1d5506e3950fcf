/** Makes a placement kind from a user's functions: which rows go where, and how they join again. */

import { checkKinds } from '../../arguments.ts';
import type { PlacementKind } from './kinds.ts';
import type { Placement } from './placement.ts';
import { Cut } from './shards/cut.ts';

/** A slicing kind of the user: which rows go to which rank, and how they are put together again. */
export interface SliceKindOptions {
  readonly kind: string;
  /** Word of its texts; they read `Word(dim)`. */
  readonly word: string;
  /** Rows of each of `n` ranks: disjoint, together 0..size-1. */
  readonly split: (size: number, n: number) => number[][];
  /** Inverse of `split`; derived from it when not given. */
  readonly join?: <T>(parts: readonly ArrayLike<T>[], size: number) => T[];
}

/** A kind of placement that states by a function which slices a device holds. */
export interface SliceKind extends PlacementKind {
  /** The placement that cuts this tensor dim. */
  readonly of: (dim: number) => Placement;
}

/**
 * Makes a kind of placement from its split (and join): sizes, evenness, other dims and texts
 * follow. Enter it in a `PlacementKinds` table to read its texts; operator rules take it wherever a
 * rule asks nothing special of a cut.
 */
export function sliceKind(options: SliceKindOptions): SliceKind {
  checkKinds('sliceKind', { options: [options, ['kind', 'word', 'split']] });
  class Slice extends Cut {
    readonly kind = options.kind;
    readonly text: string;

    constructor(dim: number) {
      super(dim);
      this.text = `${options.word}(${dim})`;
    }
    split(size: number, n: number): number[][] {
      return options.split(size, n);
    }
    override join<T>(parts: readonly ArrayLike<T>[], size: number): T[] {
      return options.join === undefined ? super.join(parts, size) : options.join(parts, size);
    }
    withDim(dim: number): Slice {
      return of(dim);
    }
  }
  const made = new Map<number, Slice>();
  const of = (dim: number): Slice => {
    let slice = made.get(dim);
    if (slice === undefined) made.set(dim, (slice = new Slice(dim)));
    return slice;
  };
  return {
    kind: options.kind,
    words: [options.word],
    of,
    parse(scan) {
      scan.expect('(');
      scan.keyword('dim');
      const dim = scan.dim();
      scan.expect(')');
      return of(dim);
    },
  };
}
