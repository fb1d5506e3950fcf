/** The placement that gives each rank a stated number of blocks of rows. */

import { checkKinds } from '../../../arguments.ts';
import type { PlacementKind } from '../kinds.ts';
import { checkCut, Cut } from './cut.ts';

/**
 * Rank r holds `units[r]` consecutive blocks of `block` rows, rank 0 first; a rank may own none, or
 * all. The units times the block must be the size of the dim (compare PyTorch issue 169320: whole
 * optimizer states on single ranks).
 */
export class Ragged extends Cut {
  readonly kind = 'ragged';
  readonly text: string;
  override readonly oneRun = true;
  /** First unit of each rank, and the number of all units at the end. */
  private readonly starts: readonly number[];

  constructor(
    dim: number,
    readonly units: readonly number[],
    readonly block: number,
  ) {
    super(dim);
    checkKinds('Ragged', {
      dim: [dim, 'number'],
      units: [units, 'integers'],
      block: [block, 'number'],
    });
    this.text = `Ragged(${dim}, [${units.join(', ')}], ${block})`;
    let sum = 0;
    this.starts = [0, ...units.map((u) => (sum += u))];
  }

  override refusal(size: number, n: number): string | undefined {
    if (this.units.length !== n)
      return `${this.text} has units for ${this.units.length} ranks, the mesh dim has ${n}`;
    const rows = this.starts[n] * this.block;
    return rows === size ? undefined : `${this.text} has ${rows} rows in all, the dim has ${size}`;
  }
  override localSize(size: number, n: number, rank?: number): number {
    checkCut(this, size, n);
    if (rank !== undefined) return this.units[rank] * this.block;
    let most = 0;
    for (const u of this.units) most = Math.max(most, u);
    return most * this.block;
  }
  /** First row of a rank. */
  offset(size: number, n: number, rank: number): number {
    checkCut(this, size, n);
    return this.starts[rank] * this.block;
  }
  split(size: number, n: number): number[][] {
    checkCut(this, size, n);
    return this.units.map((u, r) =>
      Array.from({ length: u * this.block }, (_, i) => this.starts[r] * this.block + i),
    );
  }
  override isEven(size: number, n: number): boolean {
    return this.refusal(size, n) === undefined && this.units.every((u) => u === this.units[0]);
  }
  withDim(dim: number): Ragged {
    return new Ragged(dim, this.units, this.block);
  }
}

export const RAGGED: PlacementKind = {
  kind: 'ragged',
  words: ['Ragged'],
  parse(scan) {
    scan.expect('(');
    scan.keyword('dim');
    const dim = scan.dim();
    scan.expect(',');
    scan.keyword('units');
    const units = scan.counts('a number of blocks', 0);
    scan.expect(',');
    scan.keyword('block');
    const block = scan.count('a block of at least 1 row', 1);
    scan.expect(')');
    return new Ragged(dim, units, block);
  },
};
