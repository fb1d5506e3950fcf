/**
 * Lists the meshes of a number of devices: ordered factorizations, with the reason for each that is
 * refused.
 */

import { type Hosts, innerProducts, tornText, usedPerHost } from '../../cost/hardware/topology.ts';
import { ShardwrightError } from '../../errors.ts';

/** Sizes of a mesh, outermost first, and why it is not planned, where it is not. */
export interface MeshCandidate {
  readonly sizes: readonly number[];
  readonly refused?: string;
}

/** Largest number of devices whose meshes are listed. */
const MAX_DEVICES = 1 << 20;

/**
 * All ordered factorizations of a number of devices into 1 to `maxDims` factors of at least 2, by
 * number of dims, then by the sizes themselves. A mesh is refused when a host would hold part of a
 * group of one mesh dim and part of another's: the devices of the inner dims together must divide a
 * host or fill whole ones, or the part of each host that is used (`packing.ts`).
 *
 * @throws E_MESH for a wrong number of devices
 */
export function meshCandidates(devices: number, hosts: Hosts, maxDims = 3): MeshCandidate[] {
  if (!Number.isSafeInteger(devices) || devices < 1 || devices > MAX_DEVICES)
    throw new ShardwrightError(
      'E_MESH',
      `the number of devices is ${devices}, expected 1 to ${MAX_DEVICES}`,
    );
  const out: MeshCandidate[] = [];
  for (let dims = 1; dims <= maxDims; dims++)
    for (const sizes of orderedFactors(devices, dims)) {
      const inners = innerProducts(sizes);
      out.push({
        sizes,
        ...(usedPerHost(hosts, inners) === undefined ? { refused: tornText(hosts, inners) } : {}),
      });
    }
  return out;
}

/**
 * Ordered factorizations of n into exactly `count` factors of at least 2 (one factor: n itself,
 * also 1).
 */
function orderedFactors(n: number, count: number): number[][] {
  if (count === 1) return [[n]];
  const out: number[][] = [];
  for (let first = 2; first <= n / 2; first++)
    if (n % first === 0)
      for (const rest of orderedFactors(n / first, count - 1))
        if (rest[0] >= 2) out.push([first, ...rest]);
  return out;
}

/** Ordered factorizations where factors of 1 count too: (pp, dp, tp) of 64 devices are 28. */
export function factorizations(n: number, count: number): number[][] {
  if (count === 1) return [[n]];
  const out: number[][] = [];
  for (let first = 1; first <= n; first++)
    if (n % first === 0)
      for (const rest of factorizations(n / first, count - 1)) out.push([first, ...rest]);
  return out;
}
