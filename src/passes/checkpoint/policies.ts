/**
 * Activation-checkpointing policies that need no placements: takes a joint graph and a policy,
 * gives the names of recomputed calls.
 */

import type { Cluster } from '../../cost/hardware/cluster.ts';
import { ShardwrightError } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import { eachOperand, tensorBytes } from '../../graph/value.ts';
import type { OpClass } from '../../ops/record/record.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { backwardStart } from '../plannable/weight-views.ts';
import { forwardValues } from './joint-values.ts';
import { mayRecompute } from './repeatable.ts';
import { savedUnderBudget } from './saved-values.ts';

/** Policies that need no placements: which forward calls are recomputed in the backward pass. */
export type CheckpointPolicy = 'full' | 'selective' | number;

/**
 * Names of the forward calls that are recomputed under a policy.
 *
 *  - `full`: everything but the narrow points of the forward pass (`narrowPoints`), as
 *    checkpointing of whole blocks does. What comes after the last of them is kept, under
 *    `selective` too: the backward pass starts there.
 *  - `selective`: matmuls, attention and what they read are kept, the rest is recomputed (PyTorch's
 *    min-cut partition).
 *  - a number from 0 to 1: the same with a budget, as `savedUnderBudget` takes it; 1 is
 *    `selective`.
 *
 * @throws E_UNSUPPORTED for a graph without a backward pass; E_USAGE for a number outside 0..1
 */
export function recomputedBy(
  policy: CheckpointPolicy,
  graph: Graph,
  table: OperatorTable,
  cluster: Cluster,
): Set<string> {
  const split = backwardStart(graph);
  if (split === graph.nodes.length)
    throw new ShardwrightError(
      'E_UNSUPPORTED',
      `graph '${graph.name}' has no backward pass, so nothing to checkpoint`,
      {
        hint: 'give a joint graph, or leave --checkpoint out',
      },
    );
  const narrow = narrowPoints(graph, table);
  const last = graph.nodes.findIndex((n) => n.name === narrow.at(-1));
  if (policy !== 'full') {
    const budget = policy === 'selective' ? 1 : policy;
    const behind =
      budget < 1
        ? new Set<string>()
        : new Set(graph.nodes.slice(last < 0 ? split : last + 1, split).map((n) => n.name));
    const values = forwardValues(graph, table, cluster).map((v) =>
      behind.has(v.name) && v.readInBackward === true ? { ...v, once: true } : v,
    );
    const { recomputed } = savedUnderBudget(values, budget);
    return new Set(recomputed.map((i) => values[i].name));
  }
  const kept = new Set(narrow);
  const names = new Set<string>();
  graph.nodes.slice(0, Math.max(0, last)).forEach((node) => {
    if (node.kind !== 'call' || kept.has(node.name)) return;
    if (node.meta.save !== 'save' && mayRecompute(node.target, table.get(node.target)))
      names.add(node.name);
  });
  return names;
}

const EXPENSIVE: ReadonlySet<OpClass> = new Set<OpClass>(['matmul', 'attention']);

/**
 * The narrow points of a forward pass: values that everything computed later from weights depends
 * on, alone. In a transformer these are the sums of the residual stream. Of several without a
 * matmul or attention between them the smallest is taken, the first of equals; those after the last
 * matmul are left out.
 *
 * @returns names in program order
 */
export function narrowPoints(graph: Graph, table: OperatorTable): string[] {
  const split = backwardStart(graph);
  const forward = graph.nodes.slice(0, split);
  // The value whose storage a view shares; other nodes are their own.
  const owner = new Map<string, string>();
  const stream = new Set<string>();
  const weights = new Set<string>();
  const lastUse = new Map<string, number>();
  forward.forEach((node, i) => {
    const inputs: string[] = [];
    eachOperand(node, (name) => inputs.push(owner.get(name) ?? name));
    const { role } = node.meta;
    if (inputs.some((name) => stream.has(name) || weights.has(name))) stream.add(node.name);
    if (role === 'parameter') weights.add(node.name);
    const cls = node.kind === 'call' ? table.get(node.target)?.cls : undefined;
    const shares = cls === 'view' || node.target === 'operator.getitem';
    owner.set(
      node.name,
      shares && inputs.length > 0 && stream.has(inputs[0]) ? inputs[0] : node.name,
    );
    // Views of weights are weights, not stream.
    if (cls === 'view' && inputs.length === 1 && weights.has(inputs[0])) {
      stream.delete(node.name);
      weights.add(node.name);
    }
    for (const name of inputs) lastUse.set(name, i);
  });
  const open = new Set<string>();
  const points: { name: string; bytes: number; expensive: number }[] = [];
  let expensive = 0;
  forward.forEach((node, i) => {
    if (EXPENSIVE.has(table.get(node.target)?.cls ?? 'other')) expensive++;
    if (stream.has(node.name) && owner.get(node.name) === node.name) open.add(node.name);
    for (const name of open)
      if ((lastUse.get(name) ?? -1) <= i && name !== node.name) open.delete(name);
    const [only] = open;
    if (open.size !== 1 || only !== node.name || node.type.kind !== 'tensor') return;
    points.push({ name: node.name, bytes: tensorBytes(node.type) ?? Infinity, expensive });
  });
  const best = new Map<number, (typeof points)[number]>();
  for (const p of points) {
    const known = best.get(p.expensive);
    if (p.expensive < expensive && (known === undefined || p.bytes < known.bytes))
      best.set(p.expensive, p);
  }
  return [...best.values()].map((p) => p.name);
}
