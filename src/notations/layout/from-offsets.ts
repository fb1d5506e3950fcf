/** Finds the layout whose offsets are a given list, where one exists. */

import type { Order } from './int-tree.ts';
import { type FlatMode, fromModes, type Layout, reverse } from './layout.ts';

/**
 * The coalesced layout whose offsets, in index order, are the given ones; undefined when no layout
 * has them. The first is 0 and none is negative. Unique: the first mode is as long as the offsets
 * grow by one step.
 */
export function layoutOfOffsets(offsets: readonly number[], order: Order): Layout | undefined {
  const modes: FlatMode[] = [];
  if (offsets.length === 0 || offsets[0] !== 0) return undefined;
  // `block` offsets are explained by the modes so far; look at one offset of each block.
  for (let block = 1; block < offsets.length;) {
    const stride = offsets[block];
    if (!Number.isSafeInteger(stride) || stride < 0) return undefined;
    let size = 1;
    while (size * block < offsets.length && offsets[size * block] === size * stride) size++;
    const next = size * block;
    if (offsets.length % next !== 0) return undefined;
    for (let i = block; i < next; i++)
      if (offsets[i] !== offsets[i % block] + Math.floor(i / block) * stride) return undefined;
    modes.push({ size, stride });
    block = next;
  }
  const found = fromModes(modes);
  return order === 'lex' ? reverse(found) : found;
}
