/** Groups pointwise calls as a compiler fuses them and gives the compute seconds with and without fusion. */

import type { Cluster } from '../../cost/hardware/cluster.ts';
import { computeCost, type ComputeOptions } from '../../cost/compute.ts';
import { DTYPE_BYTES, type Graph, type ValueType } from '../../graph/types.ts';
import { eachOperand } from '../../graph/value.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { callContext, tensorMeta, tensorMetas } from '../call-context.ts';

/**
 * What a compiler fuses, as groups of pointwise calls that run as one kernel, and the compute time of a graph with and
 * without it. A group reads its outside inputs once and writes what somebody outside reads; what stays inside never
 * reaches memory. The graph itself is left as it is: fusion changes prices, not placements.
 */
export interface FusedGroup {
  /** Names of the calls, in program order. */
  readonly nodes: readonly string[];
  /** Bytes read from and written to memory by the one kernel. */
  readonly bytes: number;
}

/**
 * Groups of pointwise calls (and views between them): a call joins the group of its last pointwise input when all readers of
 * that input come no later than the call and lie in the group, so that the group can run at the place of its last call.
 */
export function fusedGroups(graph: Graph, table: OperatorTable): FusedGroup[] {
  const index = new Map(graph.nodes.map((n, i) => [n.name, i]));
  const readers = graph.nodes.map((): number[] => []);
  const inputsOf = graph.nodes.map((node, i) => {
    const inputs = new Set<number>();
    eachOperand(node, (name) => {
      const at = index.get(name);
      if (at !== undefined) inputs.add(at);
    });
    for (const j of inputs) readers[j].push(i);
    return [...inputs];
  });
  const outside = new Set<number>();
  for (const output of graph.outputs) {
    const at = output.value === null ? undefined : index.get(output.value);
    if (at !== undefined) outside.add(at);
  }
  const fuses = graph.nodes.map((n) => {
    const cls = n.kind === 'call' ? table.get(n.target)?.cls : undefined;
    return (cls === 'pointwise' || cls === 'view') && n.type.kind === 'tensor';
  });
  const group = new Int32Array(graph.nodes.length).fill(-1);
  const members: number[][] = [];
  graph.nodes.forEach((_, i) => {
    if (!fuses[i]) return;
    // Only values with one reader are swallowed: anything else has to be written anyway.
    const sole = inputsOf[i].filter((j) => group[j] >= 0 && readers[j].length === 1 && !outside.has(j));
    const home = sole.length > 0 ? group[sole[sole.length - 1]] : members.push([]) - 1;
    for (const j of sole) {
      const other = group[j];
      if (other === home) continue;
      for (const k of members[other]) group[k] = home;
      members[home].push(...members[other]);
      members[other] = [];
    }
    group[i] = home;
    members[home].push(i);
  });
  return members
    .filter((m) => m.some((i) => table.get(graph.nodes[i].target)?.cls === 'pointwise'))
    .map((m) => {
      const inside = new Set(m);
      const read = new Set<number>();
      let bytes = 0;
      for (const i of m) {
        for (const j of inputsOf[i]) if (!inside.has(j)) read.add(j);
        if (outside.has(i) || readers[i].some((r) => !inside.has(r)) || readers[i].length === 0)
          bytes += bytesOf(graph.nodes[i].type);
      }
      for (const j of read) bytes += bytesOf(graph.nodes[j].type);
      return { nodes: m.sort((a, b) => a - b).map((i) => graph.nodes[i].name), bytes };
    });
}

/** Compute seconds of a graph on one device, unsharded: kernel by kernel, and with pointwise chains as one kernel each. */
export interface FusedSeconds {
  readonly eagerSeconds: number;
  readonly fusedSeconds: number;
  readonly eagerKernels: number;
  readonly fusedKernels: number;
}

/** Compute seconds of a graph if elementwise chains were fused, beside those of its calls one by one. */
export function fusedComputeSeconds(
  graph: Graph,
  table: OperatorTable,
  cluster: Cluster,
  options: ComputeOptions = {},
): FusedSeconds {
  const metas = tensorMetas(graph);
  const fused = fusedGroups(graph, table);
  const inGroup = new Set(fused.flatMap((g) => g.nodes));
  let eagerSeconds = 0;
  let fusedSeconds = 0;
  let eagerKernels = 0;
  let fusedKernels = 0;
  for (const node of graph.nodes) {
    const record = node.kind === 'call' ? table.get(node.target) : undefined;
    const ctx = record === undefined ? undefined : callContext(node, record, metas);
    if (record === undefined || ctx === undefined) continue;
    const { seconds } = computeCost(record, ctx, cluster, options);
    if (seconds === 0) continue;
    eagerSeconds += seconds;
    eagerKernels++;
    if (inGroup.has(node.name)) continue;
    fusedSeconds += seconds;
    fusedKernels++;
  }
  for (const { bytes } of fused) {
    fusedSeconds += Math.max(bytes / (cluster.memoryBytesPerSecond * cluster.memoryEfficiency), cluster.launchSeconds);
    fusedKernels++;
  }
  return { eagerSeconds, fusedSeconds, eagerKernels, fusedKernels };
}

function bytesOf(type: ValueType): number {
  const meta = tensorMeta(type);
  return meta === undefined ? 0 : meta.shape.reduce((a, b) => a * b, DTYPE_BYTES[meta.dtype]);
}
