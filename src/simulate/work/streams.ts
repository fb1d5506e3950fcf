/**
 * Gives the stream that a collective runs on, by its mesh dims; compute has a stream of its own.
 */

import type { Cluster } from '../../cost/hardware/cluster.ts';
import { clusterTopology } from '../../cost/hardware/topology.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';

/**
 * `link`: one stream for collectives inside a host, one for those between hosts. `axis`: one for
 * each group of mesh dims.
 */
export type StreamRule = 'link' | 'axis';

/** Number of the compute stream; collectives have those above it. */
export const COMPUTE = 0;
/** Under `link`: streams in all. */
export const LINK_STREAMS = 3;
/** Takes the place of a stream: the chain of kernels waits for links of an unknown kind. */
export const ANY_LINK = LINK_STREAMS;

export class Streams {
  readonly names = ['compute'];
  private readonly known = new Map<string, number>();

  constructor(
    private readonly rule: StreamRule,
    private readonly mesh: DeviceMesh,
    private readonly cluster: Cluster,
  ) {
    if (rule === 'link') this.names.push('inside a host', 'between hosts');
  }

  of(meshDims: readonly number[]): number {
    const name = [...meshDims]
      .sort((a, b) => a - b)
      .map((d) => this.mesh.names[d])
      .join('+');
    let stream = this.known.get(name);
    if (stream === undefined) {
      if (this.rule === 'link')
        stream = clusterTopology(this.cluster, this.mesh, meshDims).hosts > 1 ? 2 : 1;
      else stream = this.names.push(name) - 1;
      this.known.set(name, stream);
    }
    return stream;
  }
}
