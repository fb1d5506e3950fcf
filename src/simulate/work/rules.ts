/**
 * Defines the rules of overlap within a step, once for the simulation and for the bound: launches,
 * buckets, and the steps of a redistribution that communicate. `streams.ts` gives work to streams.
 */
import type { CollectiveModel } from '../../cost/collective-model.ts';
import type { Graph } from '../../graph/types.ts';
import type { CollectiveKind } from '../../mesh/collective-kinds.ts';
import type { Dataflow } from '../../strategy/dataflow.ts';

/**
 * Seconds before every kernel. PyTorch and its compilers: about a microsecond between kernels that
 * are queued.
 */
export const LAUNCH_SECONDS = 1e-6;

/** Most bytes of a bucket of collectives: PyTorch's data-parallel buckets (`bucket_cap_mb`). */
export const DEFAULT_BUCKET_BYTES = 25 * 2 ** 20;

/**
 * Tells whether a collective may travel in a bucket with others of its kind, as frameworks do it:
 * gathers of weights, and sums that no kernel needs (gradients). What a kernel waits for travels
 * alone.
 */
export function travelsInBuckets(isGatherOfWeights: boolean, isNeededByKernel: boolean): boolean {
  return isGatherOfWeights || !isNeededByKernel;
}

/**
 * Seconds of a step of a redistribution on the links, and of the copy on the device in it: dims
 * that are not contiguous.
 */
export function splitStep(
  model: CollectiveModel,
  kind: CollectiveKind,
  {
    bytes,
    meshDims,
    seconds,
  }: { readonly bytes: number; readonly meshDims: readonly number[]; readonly seconds: number },
): { readonly communicating: number; readonly copying: number } {
  const communicating = Math.min(seconds, model.seconds(kind, bytes, meshDims));
  const copying = seconds - communicating;
  return copying <= 1e-9 * seconds
    ? { communicating: seconds, copying: 0 }
    : { communicating, copying };
}

/**
 * By value: whether it is a parameter or constant, or made of these alone, so that it is there from
 * the start of a step.
 */
export function weightValues(
  graph: Graph,
  { inputs, results, alias, values }: Dataflow,
): Uint8Array {
  const weight = new Uint8Array(values.length);
  graph.nodes.forEach((node, n) => {
    if (alias[n] >= 0) return;
    const { role } = node.meta;
    const isWeight =
      node.kind === 'call'
        ? inputs[n].length > 0 && inputs[n].every((value) => weight[value] === 1)
        : role === 'parameter' || role === 'constant';
    if (isWeight) for (const value of results[n]) if (value >= 0) weight[value] = 1;
  });
  return weight;
}
