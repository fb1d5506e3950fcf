/**
 * Takes a mesh and gives the collective model of PyTorch 2.13's DTensor, copied from
 * torch/distributed/tensor/_collective_utils.py.
 */

import type { CollectiveKind } from '../../mesh/collective-kinds.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import type { CollectiveModel } from '../collective-model.ts';
import { hardware } from '../hardware/hardware.ts';

const GIB = 2 ** 30;

/**
 * The preset `dtensor`: PyTorch 2.13's own figures, literally
 * (torch/distributed/tensor/_collective_utils.py), so that its choices can be reproduced: GiB over
 * GB/s, 6.6 us also on mesh dims of size 1, all_to_all as a gather of the local buffer plus 1 us,
 * fractional local bytes. Redistributions take our steps at these figures; what PyTorch itself
 * charges, its greedy plan, is the price of `GreedyPlanner` and never less. A group is inter-host
 * if the product of mesh sizes from its outermost dim rightwards exceeds the devices of a host.
 * Local copies are free.
 *
 * @param devicesPerHost of the reference host, 8 unless stated
 */
export function dtensorModel(mesh: DeviceMesh, devicesPerHost = 8): CollectiveModel {
  const facts = hardware().latency_models.torch_dtensor_default;
  const parts = (
    kind: CollectiveKind,
    bytes: number,
    meshDims: readonly number[],
  ): [latency: number, transfer: number] => {
    const outermost = kind === 'collective_permute' ? 0 : Math.min(...meshDims);
    let reach = 1;
    for (let m = outermost; m < mesh.rank; m++) reach *= mesh.sizes[m];
    const { GBps, hop_us } = reach > devicesPerHost ? facts.inter_host : facts.intra_host;
    const n = mesh.sizeOf(meshDims);
    const share = (n - 1) / n;
    const transfer = (bytes / GIB / GBps) * 1e6;
    switch (kind) {
      case 'all_gather':
      case 'reduce_scatter':
        return [facts.base_us + (n - 1) * hop_us, transfer * share];
      case 'all_reduce':
        return [facts.base_us + 2 * (n - 1) * hop_us, 2 * transfer * share];
      case 'all_to_all':
        return [facts.base_us + (n - 1) * hop_us + 1, transfer * share];
      case 'collective_permute':
        return [facts.base_us + hop_us, transfer];
    }
  };
  const MICRO = 1e-6;
  return {
    preset: 'dtensor',
    note:
      `Collectives at PyTorch's own figures, whatever the cluster has: ` +
      `${facts.intra_host.GBps} GB/s inside a host, ${facts.inter_host.GBps} GB/s between ` +
      'hosts, local copies free. A redistribution is charged as it runs, by our steps at these ' +
      'figures; PyTorch charges its greedy plan, which is never cheaper.',
    mesh,
    byteRule: 'fraction',
    chargesUnitDims: true,
    seconds(kind, bytes, meshDims) {
      const [latency, transfer] = parts(kind, bytes, meshDims);
      return (latency + transfer) * MICRO;
    },
    record(kind, bytes, meshDims) {
      const [latency, transfer] = parts(kind, bytes, meshDims);
      return {
        seconds: (latency + transfer) * MICRO,
        kind,
        terms: { latencySeconds: latency * MICRO, bandwidthSeconds: transfer * MICRO },
        source: 'dtensor: PyTorch 2.13 defaults; permutation as ours',
      };
    },
    copySeconds: () => 0,
  };
}
