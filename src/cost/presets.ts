import { ShardwrightError, suggestion } from '../errors.ts';
import type { DeviceMesh } from '../mesh/mesh.ts';
import { alphaBeta } from './alpha-beta.ts';
import type { Cluster } from './cluster.ts';
import type { CollectiveModel } from './collectives.ts';
import { dtensorModel } from './dtensor.ts';

type MakeModel = (cluster: Cluster, mesh: DeviceMesh) => CollectiveModel;

/** Cost presets by the name that `--cost` takes. */
const PRESETS: Readonly<Record<string, MakeModel>> = {
  'alpha-beta': alphaBeta,
  dtensor: (cluster, mesh) => dtensorModel(mesh, cluster.devicesPerHost),
};

/** Names of the presets that can be used, sorted. */
export const COST_PRESETS: readonly string[] = Object.keys(PRESETS).sort();
export const DEFAULT_COST_PRESET = 'alpha-beta';

/**
 * The collective model of a preset on a cluster and mesh.
 *
 * @throws E_USAGE for a preset that is unknown
 */
export function collectiveModel(preset: string, cluster: Cluster, mesh: DeviceMesh): CollectiveModel {
  if (!Object.hasOwn(PRESETS, preset))
    throw new ShardwrightError('E_USAGE', `no cost preset '${preset}' in this version`, {
      hint: `--cost takes ${COST_PRESETS.join(' or ')}; ${suggestion(preset, COST_PRESETS, 'presets')}`,
    });
  return PRESETS[preset](cluster, mesh);
}
