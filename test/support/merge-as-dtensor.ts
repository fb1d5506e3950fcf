/** DTensor's own merging of greedy steps, which plans of other software are compared with. */
import { type GreedyStep, stepKind } from '../../src/cost/redistribution/greedy.ts';
import type { DeviceMesh } from '../../src/mesh/devices/mesh.ts';
import type { Placement } from '../../src/mesh/placements/placement.ts';

/** A step of DTensor after its own merging: one collective over the flattened mesh dims. */
interface MergedStep {
  readonly kind: NonNullable<ReturnType<typeof stepKind>> | undefined;
  /** In the order in which the greedy steps came. */
  readonly meshDims: readonly number[];
  readonly from: Placement;
  readonly to: Placement;
}

/**
 * DTensor's own merging, for comparison reports: neighbouring greedy steps of equal change become
 * one collective over a sub-mesh that was flattened beforehand; gathers with descending mesh dims,
 * scatters with ascending ones, both only where the tensor dim divides evenly; exchanges never.
 *
 * @param flattened whether the sub-mesh of these mesh dims was flattened beforehand; default all
 *   are
 */
export function mergeAsDTensor(
  steps: readonly GreedyStep[],
  mesh: DeviceMesh,
  shape: readonly number[],
  flattened: (meshDims: readonly number[]) => boolean = () => true,
): MergedStep[] {
  const merged: { kind: MergedStep['kind']; meshDims: number[]; from: Placement; to: Placement }[] =
    [];
  for (const { meshDim, from, to } of steps) {
    const kind = stepKind(from, to);
    const last = merged.at(-1);
    if (last !== undefined && last.from === from && last.to === to) {
      const previous = last.meshDims[last.meshDims.length - 1];
      const dims = [...last.meshDims, meshDim];
      const dim = from.dim ?? to.dim;
      const ordered =
        kind === 'all_reduce' ||
        (kind === 'all_gather' && meshDim < previous) ||
        (kind === 'reduce_scatter' && meshDim > previous);
      const even =
        kind === 'all_reduce' || (dim !== undefined && shape[dim] % mesh.sizeOf(dims) === 0);
      if (ordered && even && flattened(dims)) {
        last.meshDims.push(meshDim);
        continue;
      }
    }
    merged.push({ kind, meshDims: [meshDim], from, to });
  }
  return merged;
}
