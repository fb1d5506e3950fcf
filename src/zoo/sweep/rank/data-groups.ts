/**
 * Makes the dense mesh and the expert mesh of a layout with their collective models, and keeps each for the next layout.
 */

import type { Cluster } from '../../../cost/hardware/cluster.ts';
import { groupTopology } from '../../../cost/collective-model.ts';
import { collectiveModel } from '../../../cost/presets/presets.ts';
import { DeviceMesh } from '../../../mesh/devices/mesh.ts';
import type { LayoutKind, LayoutSizes } from '../model/layout.ts';
import type { DataGroups } from '../model/states.ts';

type PricedMesh = DataGroups['dense'];

/** Meshes of layouts with the prices of their collectives; each is made once, whatever its dims are called for. */
export class GroupMaker {
  private readonly made = new Map<string, PricedMesh>();

  constructor(
    private readonly preset: string,
    private readonly cluster: Cluster,
  ) {}

  private mesh(dims: readonly (readonly [string, number])[]): PricedMesh {
    const key = dims.flat().join();
    let found = this.made.get(key);
    if (found === undefined) {
      const mesh = new DeviceMesh(dims.map(([name, size]) => ({ name, size })));
      found = { mesh, collectives: collectiveModel(this.preset, this.cluster, mesh) };
      this.made.set(key, found);
    }
    return found;
  }

  /** The dense and the expert mesh of a layout. */
  groups(sizes: LayoutSizes, context: LayoutKind['context']): DataGroups {
    const { pp, dp_replicate, dp_shard, cp, tp, ep, etp = 1 } = sizes;
    const sequence = context === 'ulysses' ? 'sp' : 'cp';
    const outer = [['pp', pp], ['dp_replicate', dp_replicate], ['efsdp', (dp_shard * cp * tp) / (ep * etp)]] as const;
    const inner = etp > 1 ? [['etp', etp] as const] : [];
    const expert = this.mesh([...outer, ['ep', ep], ...inner]);
    const { hosts, perHost } = groupTopology(expert.mesh, this.cluster.devicesPerHost, expert.mesh.resolve(['ep']));
    const isForwarded = hosts > 1 && hosts * perHost === ep;
    return {
      dense: this.mesh([['pp', pp], ['dp_replicate', dp_replicate], ['dp_shard', dp_shard], [sequence, cp], ['tp', tp]]),
      expert,
      ...(isForwarded ? { forwarding: this.mesh([...outer, ['epHosts', hosts], ['epInside', perHost], ...inner]) } : {}),
      ep,
      etp,
    };
  } // prettier-ignore
}
