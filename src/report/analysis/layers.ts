/**
 * Groups the compute of a plan by layer and gives each group's FLOPs, bytes and seconds under the
 * roofline.
 */

import { matrixPeak } from '../../cost/compute.ts';
import { presetComputeCost } from '../../cost/presets/presets.ts';
import type { DType, Graph } from '../../graph/types.ts';
import { itemAt } from '../../item-at.ts';
import type { Prepared } from '../../plan/prepare/prepared.ts';
import type { Plan } from '../../plan/record/types.ts';
import { layerNames } from './layer-names.ts';
import { localCalls } from './local-calls.ts';

/**
 * The nodes of one layer, equal layers together, on the device with the largest shards, in one
 * step.
 */
interface LayerGroup {
  readonly name: string;
  readonly nodes: number;
  /** Matrix and other FLOPs together. */
  readonly flops: number;
  /** Read and written by its kernels. */
  readonly bytes: number;
  readonly computeSeconds: number;
  /**
   * Redistributions of its inputs and of results made here, and collectives inside its operators.
   */
  readonly communicationSeconds: number;
  /** The bound that holds it back: the largest of the four below. */
  readonly bound: Bound;
  /** Compute seconds by what each kernel waits for; they sum to `computeSeconds`. */
  readonly matrixSeconds: number;
  readonly memorySeconds: number;
  readonly launchSeconds: number;
}

type Bound = 'compute' | 'memory' | 'launch' | 'communication';

/** The roofs over the groups. */
export interface Roofline {
  readonly groups: readonly LayerGroup[];
  /** Largest rate that a matmul reaches, FLOP/s, and what it is made of. */
  readonly flopsPerSecond: number;
  readonly unit: string;
  /** Largest rate at which kernels read and write, bytes/s. */
  readonly bytesPerSecond: number;
}

/**
 * The compute seconds of the plan by group of nodes and by what they wait for, largest group first.
 */
export function rooflineOf(prepared: Pick<Prepared, 'model'>, plan: Plan): Roofline {
  const { model } = prepared;
  const { collectives } = model;
  const { cluster } = model;
  const names = layerNames(prepared);
  const groups = new Map<string, Mutable>();
  const group = (n: number): Mutable => {
    const name = itemAt(names, n);
    let found = groups.get(name);
    if (found === undefined) groups.set(name, (found = { ...EMPTY }));
    return found;
  };
  for (const { node, planned, record, context, times } of localCalls(prepared, plan)) {
    const g = group(node);
    const cost = presetComputeCost(
      collectives.preset,
      record,
      context,
      cluster,
      model.facts?.get(itemAt(model.graph.nodes, node).name),
    );
    const { flopSeconds = 0, memorySeconds = 0, latencySeconds = 0 } = cost.terms;
    const seconds = planned.seconds * times;
    if (seconds > 0) {
      const { matrix, vector } = record.flops(context);
      g.nodes++;
      g.flops += (matrix + vector) * times;
      g.bytes += record.bytes(context) * times;
      g.computeSeconds += seconds;
      if (flopSeconds >= memorySeconds && flopSeconds >= latencySeconds) g.matrixSeconds += seconds;
      else if (memorySeconds >= latencySeconds) g.memorySeconds += seconds;
      else g.launchSeconds += seconds;
    }
  }
  const byName = model.flow.byName;
  plan.nodes.forEach((planned, n) => {
    const own = (planned.internalSeconds ?? 0) * (planned.times ?? 1);
    const moved = planned.redistributions.reduce((sum, r) => sum + r.seconds * (r.times ?? 1), own);
    if (moved > 0) group(n).communicationSeconds += moved;
  });
  for (const { value, redistributions } of plan.outputs) {
    const moved = redistributions.reduce((sum, r) => sum + r.seconds * (r.times ?? 1), 0);
    const n = byName.get(value);
    if (moved > 0 && n !== undefined) group(n).communicationSeconds += moved;
  }
  const total = (g: Mutable): number => g.computeSeconds + g.communicationSeconds;
  const { flopsPerSecond, unit } = matrixPeak(cluster, matrixDtype(model.graph));
  return {
    groups: [...groups]
      .filter(([, g]) => total(g) > 0)
      .sort(([a, x], [b, y]) => total(y) - total(x) || (a < b ? -1 : 1))
      .map(([name, g]) => ({ name, ...g, bound: boundOf(g) })),
    flopsPerSecond: flopsPerSecond * cluster.matmulCap,
    unit,
    bytesPerSecond: cluster.memoryBytesPerSecond * cluster.memoryEfficiency,
  };
}

type Mutable = { -readonly [K in Exclude<keyof LayerGroup, 'name' | 'bound'>]: number };

const EMPTY: Mutable = {
  nodes: 0,
  flops: 0,
  bytes: 0,
  computeSeconds: 0,
  communicationSeconds: 0,
  matrixSeconds: 0,
  memorySeconds: 0,
  launchSeconds: 0,
};

function boundOf(g: Mutable): Bound {
  const parts: readonly (readonly [Bound, number])[] = [
    ['compute', g.matrixSeconds],
    ['memory', g.memorySeconds],
    ['launch', g.launchSeconds],
    ['communication', g.communicationSeconds],
  ];
  return parts.reduce((most, part) => (part[1] > most[1] ? part : most))[0];
}

/** Element type that the matrix units work in: that of the first parameter with several dims. */
export function matrixDtype({ nodes }: Graph): DType {
  for (const node of nodes)
    if (
      node.kind === 'placeholder' &&
      node.meta.role === 'parameter' &&
      node.type.kind === 'tensor'
    )
      if (node.type.shape.length > 1) return node.type.dtype;
  return 'f32';
}
