import { expect, test } from 'vitest';

import { blocksOf, NONE } from '../../src/solver/fold/repeated-blocks.ts';
import { networkOf } from '../../src/solver/network/from-problem.ts';
import { Pool } from '../../src/solver/store/pool.ts';
import { layered } from './layered.ts';
import { build } from './support.ts';

test('blocks reach the outermost layers, which see the ends and so look different', () => {
  for (let seed = 1; seed <= 6; seed++) {
    const { plain, width } = layered(seed, 40);
    const blocks = blocksOf(networkOf(build(plain), new Pool()), 4, 5);
    if (blocks === undefined) throw new Error('no blocks');
    // A block may begin inside a layer: then half a layer is left over at either end.
    expect([seed, blocks.last - blocks.first + 1 >= 39]).toEqual([seed, true]);
    const steps = new Set<number>();
    blocks.block.forEach((b, i) => {
      const next = blocks.block[i + width] ?? NONE;
      if (b !== NONE && next !== NONE) steps.add(next - b);
    });
    // The same place of the next layer is in the next block, counted from either end.
    expect([[1], [-1]]).toContainEqual([...steps]);
  }
});
