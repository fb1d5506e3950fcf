/** Makes the prices of a request on a mesh: those of its redistributions and of its bodies. */

import type { CollectiveModel } from '../../cost/collective-model.ts';
import type { Cluster } from '../../cost/hardware/cluster.ts';
import { collectiveModel } from '../../cost/presets/presets.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import type { PricedRequest } from '../request/request.ts';

/** @throws E_USAGE for a cost preset that there is not */
export function pricesOf(
  { cost, joinedBodies }: PricedRequest,
  cluster: Cluster,
  mesh: DeviceMesh,
): CollectiveModel {
  const model = collectiveModel(cost, cluster, mesh);
  return joinedBodies === true ? { ...model, bodies: 'joined' } : model;
}
