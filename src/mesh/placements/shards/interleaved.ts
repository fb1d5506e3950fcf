/** The placement that cuts stated sections of a dim one by one, as fused weights are cut. */

import { checkKinds } from '../../../arguments.ts';
import type { PlacementKind } from '../kinds.ts';
import { checkCut, Cut } from './cut.ts';
import { ceilChunks, Shard } from './shard.ts';
import { StridedShard } from './strided.ts';

/**
 * Sections of stated lengths, each cut into n ceil pieces; rank r holds piece r of every section.
 * This is how a fused query-key-value weight is cut when the sections differ in length:
 * `Interleaved(0, [4096, 1024, 1024])`. Sections of equal length are a StridedShard: the text
 * `Interleaved(0, 3)` means `_S(0, 3)`.
 */
export class Interleaved extends Cut {
  readonly kind = 'interleaved';
  readonly text: string;

  constructor(
    dim: number,
    readonly sections: readonly number[],
  ) {
    super(dim);
    checkKinds('Interleaved', { dim: [dim, 'number'], sections: [sections, 'integers'] });
    this.text = `Interleaved(${dim}, [${sections.join(', ')}])`;
  }

  override refusal(size: number): string | undefined {
    const total = this.sections.reduce((a, b) => a + b, 0);
    return total === size
      ? undefined
      : `${this.text} has sections of ${total} rows in all, the dim has ${size}`;
  }
  override localSize(size: number, n: number, rank?: number): number {
    checkCut(this, size, n);
    let rows = 0;
    for (const length of this.sections) rows += Shard.of(0).localSize(length, n, rank);
    return rows;
  }
  split(size: number, n: number): number[][] {
    checkCut(this, size, n);
    const out: number[][] = Array.from({ length: n }, () => []);
    let start = 0;
    for (const section of this.sections) {
      ceilChunks(section, n).forEach(({ offset, length }, r) => {
        for (let i = 0; i < length; i++) out[r].push(start + offset + i);
      });
      start += section;
    }
    return out;
  }
  override isEven(size: number, n: number): boolean {
    return this.refusal(size) === undefined && this.sections.every((length) => length % n === 0);
  }
  withDim(dim: number): Interleaved {
    return new Interleaved(dim, this.sections);
  }
}

export const INTERLEAVED: PlacementKind = {
  kind: 'interleaved',
  words: ['Interleaved'],
  parse(scan) {
    scan.expect('(');
    scan.keyword('dim');
    const dim = scan.dim();
    scan.expect(',');
    scan.keyword('sections');
    if (!scan.ahead('[')) {
      const sections = scan.count('a number of sections of at least 1', 1);
      scan.expect(')');
      return sections === 1 ? Shard.of(dim) : new StridedShard(dim, sections);
    }
    const lengths = scan.counts('the length of a section', 0);
    scan.expect(')');
    return new Interleaved(dim, lengths);
  },
};
