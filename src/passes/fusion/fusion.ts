/**
 * Predicts how a compiler runs a graph: the calls that it joins into one kernel, the part of each
 * call's traffic that then reaches memory, and the compute seconds with and without. The graph
 * itself is unchanged: fusion changes prices, not placements. The rules are those of PyTorch's
 * Inductor (`loop-forms.ts`, `joined-loops.ts`, `written.ts`); of programs of JAX, those of XLA
 * (`xla-loops.ts`).
 */

import { checkKinds } from '../../arguments.ts';
import { type CallTraffic, computeCost, type ComputeOptions } from '../../cost/compute.ts';
import type { Cluster } from '../../cost/hardware/cluster.ts';
import type { Graph } from '../../graph/types.ts';
import { metaBytes } from '../../ops/record/record.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { callContext, tensorMetas } from '../call-context.ts';
import { callGraph, type InLine } from './calls.ts';
import { joinedLoops } from './joined-loops.ts';
import { loopTraffic } from './loop-traffic.ts';
import { Memory } from './written.ts';

/** Calls that run as one kernel. */
export interface FusedGroup {
  /** Names of the calls, in program order; views are none. */
  readonly nodes: readonly string[];
  /** Bytes read from and written to memory by the kernel. */
  readonly bytes: number;
}

/**
 * The part of each call's traffic that reaches memory once a compiler has joined calls, by the name
 * of its node. Calls that a library runs (products, attention, sorts) are not in it, and views have
 * no kernel.
 *
 * @param inLine bodies of an opened graph; absent: the program is a straight line
 */
export function compiledTraffic(
  graph: Graph,
  table: OperatorTable,
  inLine?: InLine,
): ReadonlyMap<string, CallTraffic> {
  const calls = callGraph(graph, table, inLine);
  const unitOf = joinedLoops(calls);
  return loopTraffic(calls, unitOf, new Memory(calls, unitOf));
}

/**
 * Groups of loops (elementwise calls, copies, lookups, reductions and norms) that a compiler runs
 * as one kernel each.
 */
export function fusedGroups(graph: Graph, table: OperatorTable): FusedGroup[] {
  checkKinds('fusedGroups', { graph: [graph, 'graph'], table: [table, 'operators'] });
  const calls = callGraph(graph, table);
  const unitOf = joinedLoops(calls);
  const traffic = loopTraffic(calls, unitOf, new Memory(calls, unitOf));
  const metas = tensorMetas(graph);
  const groups = new Map<number, { nodes: string[]; bytes: number }>();
  calls.calls.forEach(({ node, form }, i) => {
    const record = table.get(node.target);
    const ctx = record === undefined ? undefined : callContext(node, record, metas);
    const { inputs, outputs } = traffic.get(node.name) ?? { inputs: [], outputs: [] };
    if (form === undefined || ctx === undefined) return;
    const group = groups.get(unitOf[i]) ?? { nodes: [], bytes: 0 };
    groups.set(unitOf[i], group);
    group.nodes.push(node.name);
    ctx.inputs.forEach((meta, k) => (group.bytes += (inputs[k] ?? 0) * metaBytes(meta)));
    ctx.outputs.forEach(
      (meta, k) => (group.bytes += meta === null ? 0 : (outputs[k] ?? 0) * metaBytes(meta)),
    );
  });
  return [...groups.values()].filter(({ bytes }) => bytes > 0);
}

/**
 * Compute seconds of a graph on one device, unsharded: call by call, and as a compiler joins calls.
 */
export interface FusedSeconds {
  readonly eagerSeconds: number;
  readonly fusedSeconds: number;
  readonly eagerKernels: number;
  readonly fusedKernels: number;
}

/**
 * Compute seconds of a graph if a compiler joined its calls, with those of its calls one by one.
 */
export function fusedComputeSeconds(
  graph: Graph,
  table: OperatorTable,
  cluster: Cluster,
  options: ComputeOptions = {},
): FusedSeconds {
  checkKinds('fusedComputeSeconds', {
    graph: [graph, 'graph'],
    table: [table, 'operators'],
    cluster: [cluster, 'cluster'],
    options: [options, 'record', 'undefined'],
  });
  const metas = tensorMetas(graph);
  const compiled = compiledTraffic(graph, table);
  const total = { eagerSeconds: 0, fusedSeconds: 0, eagerKernels: 0, fusedKernels: 0 };
  for (const node of graph.nodes) {
    const record = node.kind === 'call' ? table.get(node.target) : undefined;
    const ctx = record === undefined ? undefined : callContext(node, record, metas);
    if (record === undefined || ctx === undefined) continue;
    const { seconds } = computeCost(record, ctx, cluster, options);
    if (seconds === 0) continue;
    const traffic = compiled.get(node.name);
    total.eagerSeconds += seconds;
    total.eagerKernels++;
    total.fusedSeconds += computeCost(record, ctx, cluster, { ...options, traffic }).seconds;
    total.fusedKernels += traffic?.kernels ?? 1;
  }
  return total;
}
