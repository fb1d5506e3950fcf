/** Maps the name of a cost preset to its collective model and to its compute price of one call. */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError, suggestion } from '../../errors.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import type { OperatorRecord, TypedContext } from '../../ops/record/record.ts';
import type { CollectiveModel, CostRecord } from '../collective-model.ts';
import { alphaBeta } from '../collectives/alpha-beta.ts';
import { hasNcclConstants, ncclModel } from '../collectives/nccl.ts';
import { withCollectiveTable } from '../collectives/tabled-model.ts';
import { ATTENTION_SHARE, type CallFacts, computeCost, type ComputeOptions } from '../compute.ts';
import type { Cluster } from '../hardware/cluster.ts';
import { hostSize } from '../hardware/topology.ts';
import { measuredCopy } from '../kernels/measured-calls.ts';
import { autoparallelCompute, autoparallelModel } from './autoparallel.ts';
import { dtensorModel } from './dtensor.ts';
import { COST_PRESETS, type CostPreset } from './names.ts';

type MakeModel = (cluster: Cluster, mesh: DeviceMesh) => CollectiveModel;

/** Cost presets by the name that `--cost` takes. */
const PRESETS: Readonly<Record<CostPreset, MakeModel>> = {
  'alpha-beta': alphaBeta,
  autoparallel: autoparallelModel,
  dtensor: (cluster, mesh) => dtensorModel(mesh, hostSize(cluster, mesh)),
  nccl: ncclModel,
};

/**
 * The preset of a request that names none: the most accurate one that the cluster has constants
 * for.
 */
export function defaultCostPreset(cluster: Cluster): CostPreset {
  return hasNcclConstants(cluster) ? 'nccl' : 'alpha-beta';
}

/**
 * The collective model of a preset on a cluster and mesh.
 *
 * @throws E_USAGE for a preset that is unknown
 */
export function collectiveModel(
  preset: string,
  cluster: Cluster,
  mesh: DeviceMesh,
): CollectiveModel {
  checkKinds('collectiveModel', {
    preset: [preset, 'string'],
    cluster: [cluster, 'cluster'],
    mesh: [mesh, 'mesh'],
  });
  const name = COST_PRESETS.find((known) => known === preset);
  if (name === undefined)
    throw new ShardwrightError('E_USAGE', `no cost preset '${preset}' in this version`, {
      hint:
        `--cost takes ${COST_PRESETS.join(' or ')}; ` +
        `${suggestion(preset, COST_PRESETS, 'presets')}`,
    });
  const made = PRESETS[name](cluster, mesh);
  const copySeconds = ON_THE_CLUSTER.has(preset) ? measuredCopy(cluster) : undefined;
  const model = copySeconds === undefined ? made : { ...made, copySeconds };
  if (cluster.collectiveTable === undefined) return model;
  if (ON_THE_CLUSTER.has(preset)) return withCollectiveTable(model, cluster);
  // A literal preset reproduces another system's figures: times of this cluster are none of them.
  return {
    ...model,
    note: `${model.note ?? ''} The table of collectives is not looked at.`.trimStart(),
  };
}

/** Presets that price the cluster's own links. */
const ON_THE_CLUSTER: ReadonlySet<string> = new Set(['alpha-beta', 'nccl']);

/**
 * Price of one call under a preset: AutoParallel's own roofline under `autoparallel`; ours under
 * every other one, with attention at what its kernels reach under `nccl`.
 *
 * @param ctx the call at the sizes of the largest shard
 * @param runs what runs in place of the operator's own kernel, or as a part of a compiled one
 */
export function presetComputeCost(
  preset: string,
  record: OperatorRecord,
  ctx: TypedContext,
  cluster: Cluster,
  runs: Pick<ComputeOptions, 'body' | keyof CallFacts> = {},
): CostRecord {
  if (preset === 'autoparallel') return autoparallelCompute(record, ctx, cluster);
  return computeCost(
    record,
    ctx,
    cluster,
    preset === 'nccl' ? { attentionShare: ATTENTION_SHARE, ...runs } : runs,
  );
}
