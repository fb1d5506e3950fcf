/** Draws the blocks of a partitioned tensor as cells that name their devices. */

import { ShardwrightError } from '../../errors.ts';
import { product } from '../../product.ts';
import type { Block } from '../einshard/blocks.ts';
import { checkShape, type Drawing, matrixOfMatrices } from './matrix.ts';
import { drawText } from './text.ts';

/**
 * One cell for each block, with the devices that hold it (ascending, joined by commas) and a cut
 * between all blocks.
 */
export function drawBlocks(blocks: readonly Block[], counts: readonly number[]): string {
  return drawText(blocksDrawing(blocks, counts));
}

/**
 * The drawing behind `drawBlocks`.
 *
 * @param counts blocks along each tensor dim; `blocks` has every index of that grid once, in any
 *   order
 * @throws E_DRAW when a block is missing, given twice or outside the grid
 */
function blocksDrawing(blocks: readonly Block[], counts: readonly number[]): Drawing {
  checkShape(counts);
  const total = product(counts);
  const labels = new Array<string | undefined>(total).fill(undefined);
  for (const { index, devices } of blocks) {
    if (
      index.length !== counts.length ||
      index.some((i, d) => !Number.isInteger(i) || i < 0 || i >= counts[d])
    )
      throw new ShardwrightError(
        'E_DRAW',
        `block (${index.join(', ')}) is outside the grid (${counts.join(', ')})`,
      );
    const at = index.reduce((n, i, d) => n * counts[d] + i, 0);
    if (labels[at] !== undefined)
      throw new ShardwrightError('E_DRAW', `block (${index.join(', ')}) is given twice`);
    labels[at] = deviceList(devices);
  }
  if (blocks.length !== total)
    throw new ShardwrightError(
      'E_DRAW',
      `${blocks.length} blocks are given for a grid of ${total}`,
    );
  return matrixOfMatrices(
    counts,
    (at) => labels[at] ?? '',
    new Map(counts.map((_, dim) => [dim, 'all'])),
  );
}

/** `0,2,10`: ascending, joined by commas. */
export function deviceList(devices: readonly number[]): string {
  return [...devices].sort((a, b) => a - b).join(',');
}
