/** The setting in which programs of a request are priced: mesh, cluster, and prices of moves. */
import type { CollectiveModel } from '../../cost/collective-model.ts';
import { type Cluster, usableMemoryBytes } from '../../cost/hardware/cluster.ts';
import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import { defaultCostPreset } from '../../cost/presets/presets.ts';
import { RedistributionCharges } from '../../cost/redistribution/charges.ts';
import { Redistributor } from '../../cost/redistribution/redistribute.ts';
import { ShardwrightError } from '../../errors.ts';
import { checkPlannedDims, parseMesh } from '../../mesh/devices/mesh.ts';
import { ShardingSpace } from '../../mesh/sharding/space.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { PlanRequest, PricedRequest } from '../request/request.ts';
import { pricesOf } from './prices.ts';

export interface Setting {
  readonly request: PricedRequest;
  readonly operators: OperatorTable;
  readonly space: ShardingSpace;
  readonly cluster: Cluster;
  readonly collectives: CollectiveModel;
  readonly charges: RedistributionCharges;
  readonly budgetBytes: number;
}

/**
 * @param checkTime is called while redistributions are priced
 * @throws E_USAGE for the activations of a trainer where there is none; E_MESH, E_CLUSTER, E_COST
 *   for a request that cannot be read
 */
export function settle(
  asked: PlanRequest,
  operators: OperatorTable,
  checkTime: () => void,
): Setting {
  if (asked.activations === 'trainer' && asked.trainer === undefined)
    throw new ShardwrightError('E_USAGE', '--activations trainer counts the step of a trainer', {
      hint: 'name it with --for megatron, or plan a model by name.',
    });
  const mesh = parseMesh(asked.mesh);
  checkPlannedDims(mesh);
  const cluster = loadCluster(asked.cluster);
  const space = new ShardingSpace(mesh, operators.kinds);
  const cost = asked.cost ?? defaultCostPreset(cluster);
  const collectives = pricesOf({ ...asked, cost }, cluster, mesh);
  return {
    // Whoever reads the plan later, to lower it or to open it again, reads from its request that
    // there are no copies.
    request: {
      ...asked,
      cost,
      ...(collectives.copies === 'each-use' ? { sharing: false } : {}),
    },
    operators,
    space,
    cluster,
    collectives,
    charges: new RedistributionCharges(new Redistributor(space, collectives, { checkTime })),
    budgetBytes: usableMemoryBytes(cluster, asked),
  };
}
