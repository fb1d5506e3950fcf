/**
 * Gives the forward values of a joint graph with bytes, seconds and readers, for the choice of what
 * to save.
 */

import { computeCost } from '../../cost/compute.ts';
import type { Cluster } from '../../cost/hardware/cluster.ts';
import { ShardwrightError } from '../../errors.ts';
import type { Graph, Node } from '../../graph/types.ts';
import { eachOperand, tensorBytes } from '../../graph/value.ts';
import type { OpClass, TensorMeta } from '../../ops/record/record.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { callContext, tensorMetas } from '../call-context.ts';
import { backwardStart } from '../plannable/weight-views.ts';
import type { ForwardValue } from './saved-values.ts';

/** Classes whose results are never recomputed for free. */
const EXPENSIVE: ReadonlySet<OpClass> = new Set<OpClass>([
  'matmul',
  'attention',
  'collective',
  'other',
  'control',
]);
/** Classes that fuse into their reader: computing them again takes no kernel of their own. */
const FUSED: ReadonlySet<OpClass> = new Set<OpClass>(['pointwise', 'view', 'factory']);

/**
 * The forward values of a joint graph as the choice of what to keep sees them: bytes, time of a
 * kernel of their own on one device, who reads them in the backward pass. Unsharded sizes; symbolic
 * sizes by their example.
 *
 * @throws E_UNSUPPORTED for a graph without a backward pass
 */
export function forwardValues(
  graph: Graph,
  table: OperatorTable,
  cluster: Cluster,
): ForwardValue[] {
  const split = backwardStart(graph);
  if (split === graph.nodes.length)
    throw new ShardwrightError('E_UNSUPPORTED', `graph '${graph.name}' has no backward pass`, {
      hint: 'give a joint graph, or make one with jointGraph',
    });
  const forward = graph.nodes.filter((n, i) => i < split || n.kind !== 'call');
  const position = new Map(forward.map((n, i) => [n.name, i]));
  const metas = tensorMetas(graph);
  const readers = readersInBackward(graph, split, position, table);
  const taken = resultsTaken(graph);
  return forward.map((node): ForwardValue => {
    const inputs = new Set<number>();
    eachOperand(node, (name) => void inputs.add(position.get(name) ?? -1));
    inputs.delete(-1);
    const cls = node.kind === 'call' ? (table.get(node.target)?.cls ?? 'other') : undefined;
    const read = readers.get(node.name);
    return {
      name: node.name,
      bytes:
        node.type.kind === 'tensor' ? (tensorBytes(node.type) ?? 0) : untaken(node, split, taken),
      seconds: cls === undefined || FUSED.has(cls) ? 0 : kernelSeconds(node, table, metas, cluster),
      inputs: [...inputs].sort((a, b) => a - b),
      ...(cls === undefined && { isInput: true }),
      ...(cls !== undefined &&
        EXPENSIVE.has(cls) &&
        node.type.kind === 'tensor' && { expensive: true }),
      // The user's `save` wins over every policy.
      ...((cls === 'random' || node.meta.save === 'save') && { once: true }),
      ...(read !== undefined && { readInBackward: read.any, readByExpensive: read.expensive }),
    };
  });
}

/** A result of a call with several: which it is, and where it is taken out. */
interface Taken {
  readonly at: number;
  readonly bytes: number;
}

/** By call with several results, those that are taken out. */
function resultsTaken(graph: Graph): ReadonlyMap<string, readonly Taken[]> {
  const taken = new Map<string, Taken[]>();
  graph.nodes.forEach((node, at) => {
    if (node.target !== 'operator.getitem' || node.type.kind !== 'tensor') return;
    const { type } = node;
    eachOperand(node, (name) =>
      taken.set(name, [...(taken.get(name) ?? []), { at, bytes: tensorBytes(type) ?? 0 }]),
    );
  });
  return taken;
}

/**
 * Bytes of a call with several results. Those that the forward pass takes out are values of their
 * own; those that the backward pass takes out are kept with the call, and without any there is
 * nothing to keep.
 */
function untaken(node: Node, split: number, taken: ReadonlyMap<string, readonly Taken[]>): number {
  const late = (taken.get(node.name) ?? []).filter(({ at }) => at >= split);
  return late.length === 0 ? Infinity : late.reduce((sum, { bytes }) => sum + bytes, 0);
}

/**
 * Bytes that the backward pass finds kept, unsharded: of forward values that a later call reads,
 * views with what they show.
 *
 * @param split the first call that is no longer part of the forward pass; calls that recompute come
 *   behind it
 */
export function keptForBackwardBytes(graph: Graph, split: number, table: OperatorTable): number {
  const nodes = new Map(graph.nodes.map((n, i) => [n.name, { node: n, at: i }]));
  const root = new Map<string, string>();
  const kept = new Set<string>();
  graph.nodes.forEach((node, i) => {
    if (node.kind !== 'call') return;
    const operands: string[] = [];
    eachOperand(node, (name) => void operands.push(name));
    if (table.get(node.target)?.cls === 'view' && operands.length > 0)
      root.set(node.name, root.get(operands[0]) ?? operands[0]);
    if (i < split) return;
    for (const operand of operands) {
      const found = nodes.get(root.get(operand) ?? operand);
      if (found !== undefined && found.at < split && found.node.kind === 'call')
        kept.add(found.node.name);
    }
  });
  const taken = resultsTaken(graph);
  return [...kept].reduce((sum, name) => {
    const node = nodes.get(name)?.node;
    if (node === undefined) return sum;
    return (
      sum +
      (node.type.kind === 'tensor' ? (tensorBytes(node.type) ?? 0) : untaken(node, split, taken))
    );
  }, 0);
}

interface Readers {
  readonly any: boolean;
  readonly expensive: boolean;
}

/**
 * Who reads each forward value in the backward pass. Views cost nothing wherever they are taken, so
 * what an expensive kernel reads through views is the value that they are views of.
 */
function readersInBackward(
  graph: Graph,
  split: number,
  position: ReadonlyMap<string, number>,
  table: OperatorTable,
): ReadonlyMap<string, Readers> {
  const readers = new Map<string, Readers>();
  const mark = (name: string, more: Readers): void => {
    const found = readers.get(name);
    readers.set(name, {
      any: more.any || found?.any === true,
      expensive: more.expensive || found?.expensive === true,
    });
  };
  const viewOf = new Map<string, string>();
  graph.nodes.forEach((node, i) => {
    if (node.kind !== 'call') return;
    const operands: string[] = [];
    eachOperand(node, (name) => void operands.push(name));
    const cls = table.get(node.target)?.cls;
    const isView = (cls === 'view' || node.target === 'operator.getitem') && operands.length > 0;
    if (isView) viewOf.set(node.name, viewOf.get(operands[0]) ?? operands[0]);
    if (i < split) return;
    for (const name of operands) {
      if (position.has(name)) mark(name, { any: true, expensive: false });
      const root = viewOf.get(name) ?? name;
      const expensive = !isView && (cls === undefined || EXPENSIVE.has(cls));
      if (expensive && position.has(root)) mark(root, { any: false, expensive: true });
    }
  });
  return readers;
}

function kernelSeconds(
  node: Node,
  table: OperatorTable,
  metas: ReadonlyMap<string, TensorMeta>,
  cluster: Cluster,
): number {
  const record = table.get(node.target);
  if (record === undefined) return 0;
  const ctx = callContext(node, record, metas);
  return ctx === undefined ? 0 : computeCost(record, ctx, cluster).seconds;
}
