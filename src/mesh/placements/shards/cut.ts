/** The base of placements that give each rank a part of the rows. */

import { checkKinds } from '../../../arguments.ts';
import { ShardwrightError, wrongArgument } from '../../../errors.ts';
import type { Placement } from '../placement.ts';

/**
 * The base class of all slicing kinds. A kind only has to say which rows go to which rank (`split`)
 * and how the same cut is made on another dim; sizes, evenness and the inverse follow. Kinds with a
 * formula override them for speed.
 */
export abstract class Cut implements Placement {
  abstract readonly kind: string;
  abstract readonly text: string;
  readonly chunks: number = 1;
  readonly oneRun: boolean = false;

  /** @throws E_USAGE for a dim that is negative or not whole: dims count from 0 */
  constructor(readonly dim: number) {
    checkKinds('Cut', { dim: [dim, 'number'] });
    if (!Number.isInteger(dim) || dim < 0)
      throw wrongArgument(
        'Cut',
        'dim',
        String(dim),
        'dims count from 0; normalDim counts from the end.',
      );
  }

  /** Derived: a kind that refuses some sizes has a `refusal` of its own. */
  get anySize(): boolean {
    return this.refusal === Cut.prototype.refusal;
  }

  abstract split(size: number, n: number): number[][];
  abstract withDim(dim: number): Placement;

  localSize(size: number, n: number, rank?: number): number {
    const parts = this.split(size, n);
    if (rank !== undefined) return parts[rank].length;
    let most = 0;
    for (const rows of parts) most = Math.max(most, rows.length);
    return most;
  }
  join<T>(parts: readonly ArrayLike<T>[], size: number): T[] {
    const out = new Array<T>(size);
    this.split(size, parts.length).forEach((rows, r) => {
      if (rows.length !== parts[r].length)
        throw new ShardwrightError(
          'E_PLACEMENT',
          `${this.text}: rank ${r} of ${parts.length} gives ${parts[r].length} rows of ` +
            `${size}, expected ${rows.length}`,
        );
      rows.forEach((row, i) => (out[row] = parts[r][i]));
    });
    return out;
  }
  isEven(size: number, n: number): boolean {
    if (this.refusal(size, n) !== undefined) return false;
    const parts = this.split(size, n);
    return parts.every((rows) => rows.length === parts[0].length);
  }
  refusal(_size: number, _n: number): string | undefined {
    return undefined;
  }
  equals(other: Placement): boolean {
    return this.text === other.text;
  }
  toString(): string {
    return this.text;
  }
}

/** @throws E_PLACEMENT with the reason why the rows cannot be cut, if there is one */
export function checkCut(p: Placement, size: number, n: number): void {
  const reason = p.refusal(size, n);
  if (reason !== undefined) throw new ShardwrightError('E_PLACEMENT', reason);
}

/**
 * A tensor dim counted from the front: `normalDim(-1, 3)` is 2.
 *
 * @throws E_PLACEMENT when a tensor of that rank has no such dim
 */
export function normalDim(dim: number, rank: number): number {
  checkKinds('normalDim', { dim: [dim, 'number'], rank: [rank, 'number'] });
  const normal = dim < 0 ? dim + rank : dim;
  if (!Number.isInteger(normal) || normal < 0 || normal >= rank)
    throw new ShardwrightError('E_PLACEMENT', `a ${rank}-D tensor has no dim ${dim}`, {
      hint: rank === 0 ? 'a scalar cannot be cut' : `dims are ${-rank}..${rank - 1}`,
    });
  return normal;
}
