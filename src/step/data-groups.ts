/**
 * Makes the dense mesh and the expert mesh of a layout with their collective models, and keeps each
 * for the next layout.
 */

import type { Cluster } from '../cost/hardware/cluster.ts';
import { clusterTopology, usedPerHost } from '../cost/hardware/topology.ts';
import { collectiveModel } from '../cost/presets/presets.ts';
import { DeviceMesh } from '../mesh/devices/mesh.ts';
import { layoutInners, type LayoutKind, type LayoutSizes } from './layout.ts';
import type { DataGroups } from './states.ts';

type PricedMesh = DataGroups['dense'];

/** An expert mesh, and the hosts that one of its groups reaches over. */
interface ExpertMesh extends PricedMesh {
  /** Topology of a group; undefined until it is asked for. */
  reach?: { readonly hosts: number; readonly perHost: number };
}

/**
 * Meshes of layouts with the prices of their collectives; each is made once, whatever its dims are
 * called for.
 */
export class GroupMaker {
  private readonly made = new Map<string, ExpertMesh>();

  constructor(
    private readonly preset: string,
    private readonly cluster: Cluster,
  ) {}

  private mesh(dims: readonly (readonly [string, number])[], cluster: Cluster): ExpertMesh {
    const key = `${cluster.usedPerHost ?? ''} ${dims.flat().join()}`;
    let found = this.made.get(key);
    if (found === undefined) {
      const mesh = new DeviceMesh(dims.map(([name, size]) => ({ name, size })));
      found = { mesh, collectives: collectiveModel(this.preset, cluster, mesh) };
      this.made.set(key, found);
    }
    return found;
  }

  /** The dense and the expert mesh of a layout. */
  groups(sizes: LayoutSizes, context: LayoutKind['context']): DataGroups {
    const { pp, dp_replicate, dp_shard, cp, tp, ep, etp = 1 } = sizes;
    const sequence = context === 'ulysses' ? 'sp' : 'cp';
    const outer = [
      ['pp', pp],
      ['dp_replicate', dp_replicate],
      ['efsdp', (dp_shard * cp * tp) / (ep * etp)],
    ] as const;
    const inner = etp > 1 ? [['etp', etp] as const] : [];
    // Both meshes are of the same devices.
    const used = usedPerHost(this.cluster, layoutInners(sizes));
    const cluster =
      used === undefined || used === this.cluster.devicesPerHost
        ? this.cluster
        : { ...this.cluster, usedPerHost: used };
    const expert = this.mesh([...outer, ['ep', ep], ...inner], cluster);
    const { hosts, perHost } = (expert.reach ??= clusterTopology(
      cluster,
      expert.mesh,
      expert.mesh.resolve(['ep']),
    ));
    const isForwarded = hosts > 1 && hosts * perHost === ep;
    const dense = this.mesh(
      [
        ['pp', pp],
        ['dp_replicate', dp_replicate],
        ['dp_shard', dp_shard],
        [sequence, cp],
        ['tp', tp],
      ],
      cluster,
    );
    return {
      dense,
      overHosts:
        clusterTopology(cluster, dense.mesh, dense.mesh.resolve(['dp_replicate', 'dp_shard']))
          .hosts > 1,
      expert,
      ...(isForwarded
        ? {
            forwarding: this.mesh(
              [...outer, ['epHosts', hosts], ['epInside', perHost], ...inner],
              cluster,
            ),
          }
        : {}),
      ep,
      etp,
    };
  }
}
