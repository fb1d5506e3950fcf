/** Gives the blocks of a tensor under a sharding and the devices that hold each. */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { product } from '../../product.ts';
import { axisOf, type Einshard } from './resolve.ts';

/** One piece of the tensor, and who holds it. */
export interface Block {
  /** Number of the piece along each tensor dim. */
  readonly index: readonly number[];
  /** Ascending. */
  readonly devices: readonly number[];
}

/** Beyond this a list of blocks is of no use to anyone. */
const MAX_LISTED = 1 << 20;

/** Number of pieces along each tensor dim. */
export function blockCounts({ axes, axisOfDim }: Einshard): number[] {
  return axisOfDim.map((axis) => axisOf(axes, axis).size);
}

/**
 * All blocks of the tensor, in lexicographic order of their indices.
 *
 * @throws E_LIMIT beyond 2^20 devices
 */
export function einshardBlocks(einshard: Einshard): Block[] {
  checkKinds('einshardBlocks', { einshard: [einshard, 'einshard'] });
  const { axes, axisOfDim, devices } = einshard;
  if (devices > MAX_LISTED)
    throw new ShardwrightError(
      'E_LIMIT',
      `the blocks of ${devices} devices are not listed, at most ${MAX_LISTED} are`,
    );
  const step: number[] = new Array<number>(axes.length).fill(1);
  for (let a = axes.length - 2; a >= 0; a--) step[a] = step[a + 1] * axes[a + 1].size;
  const counts = blockCounts(einshard);
  const holders: number[][] = Array.from({ length: product(counts) }, () => []);
  for (let device = 0; device < devices; device++) {
    let block = 0;
    axisOfDim.forEach(
      (a, d) => (block = block * counts[d] + (Math.floor(device / step[a]) % axes[a].size)),
    );
    holders[block].push(device);
  }
  return holders.map((list, block) => {
    const index: number[] = new Array<number>(counts.length).fill(0);
    let rest = block;
    for (let d = counts.length - 1; d >= 0; d--) {
      index[d] = rest % counts[d];
      rest = Math.floor(rest / counts[d]);
    }
    return { index, devices: list };
  });
}
