/**
 * Takes a joint graph and a checkpointing policy and gives the activation bytes that each unit
 * saves for the backward pass, and the recomputed calls.
 */

import type { StepSoftware } from '../../../cost/kernels/software.ts';
import type { Graph, Node } from '../../../graph/types.ts';
import { eachOperand } from '../../../graph/value.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import { narrowPoints } from '../../../passes/checkpoint/policies.ts';
import { mayRecompute } from '../../../passes/checkpoint/repeatable.ts';
import { backwardStart } from '../../../passes/plannable/weight-views.ts';
import { type Checkpoint, isPolicy, modulesOf, type POLICIES } from '../../checkpoints.ts';
import { layerNumbers, layerOf } from '../../layers.ts';
import type { GraphUnits } from '../graph-units.ts';
import { moduleOfCall } from './layer-modules.ts';
import { type FusedCalls, keptInMemory } from './made-again.ts';

/**
 * A value that a product reads again in the backward pass is kept as it was cast for its narrow
 * unit.
 */
interface NarrowSaves {
  /** Bytes of the cast over those of the value. */
  readonly share: number;
  /** Tells whether a call is such a product. */
  readonly isProduct: (node: number) => boolean;
}

interface KeptHow {
  readonly counts?: (node: number) => boolean;
  readonly reads?: (node: number) => boolean;
  readonly narrow?: NarrowSaves | undefined;
  readonly fused?: FusedCalls | undefined;
}

/**
 * Bytes that the forward pass keeps for the backward pass, by unit: results that a backward call
 * reads, and under a policy that recomputes calls, those that stay and that a recomputed call
 * reads. Views count with what they show; parameters are states.
 *
 * @param bytesOf bytes of the result of a node on one device
 * @param again names of the calls that are recomputed
 * @param how whether a node counts, and whether what it reads does; what software keeps otherwise
 * @returns the bytes, and the nodes that the backward pass reads, kept or made again
 */
export function keptByUnit(
  graph: Graph,
  units: GraphUnits,
  again: ReadonlySet<string>,
  bytesOf: (node: number) => number,
  { counts = () => true, reads: isReader = () => true, narrow, fused }: KeptHow = {},
): { readonly bytes: Float64Array; readonly nodes: Set<number> } {
  const { unit, pass, root, weight, index } = units;
  const bytes = new Float64Array(units.count);
  /** True if a kernel of its own reads each. */
  const read = new Map<number, boolean>();
  const cast = new Set<number>();
  graph.nodes.forEach((node, i) => {
    if (node.kind !== 'call' || !isReader(i)) return;
    const isCast = narrow?.isProduct(i) === true;
    const reads = pass[i] !== 'forward' || again.has(node.name);
    if (!reads) return;
    const alone = fused?.joins(i) !== true;
    for (let k = index.operandStart[i]; k < index.operandStart[i + 1]; k++) {
      const r = root[index.operands[k]];
      const made = graph.nodes[r];
      if (made.kind !== 'call' || weight[r] === 1 || pass[r] !== 'forward' || again.has(made.name))
        continue;
      if (!counts(r)) continue;
      if (isCast) cast.add(r);
      else read.set(r, read.get(r) === true || alone);
    }
  });
  const mayStay = (r: number): boolean =>
    counts(r) && pass[r] === 'forward' && !again.has(graph.nodes[r].name);
  const whole =
    fused === undefined
      ? read.keys()
      : keptInMemory(read, { graph, units, fused }, bytesOf, mayStay);
  for (const r of whole) bytes[unit[r]] += bytesOf(r);
  for (const r of cast) bytes[unit[r]] += (narrow?.share ?? 1) * bytesOf(r);
  return { bytes, nodes: new Set([...read.keys(), ...cast]) };
}

/**
 * Products with weights inside the layers, where the software keeps their operands in fewer bytes;
 * undefined where it does not.
 */
export function narrowSaves(
  graph: Graph,
  units: GraphUnits,
  table: OperatorTable,
  software: StepSoftware | undefined,
): NarrowSaves | undefined {
  if (software?.narrowUnit === undefined || software.savedOperandBytes === undefined)
    return undefined;
  const { unit, count } = units;
  return {
    share: software.savedOperandBytes / 2,
    isProduct: (i) =>
      unit[i] > 0 && unit[i] < count - 1 && table.get(graph.nodes[i].target)?.cls === 'matmul',
  };
}

/**
 * Names of the forward calls that are recomputed in the backward pass. `full`: all up to the last
 * narrow point of the program but the last narrow point of each layer, which in a transformer is
 * the residual stream that it hands on; so is what frameworks keep that checkpoint layer by layer.
 * `selective`: of those, all but products of matrices and attention. What no backward call needs is
 * not recomputed, such as the last product of a layer: PyTorch stops recomputing at the last
 * missing value. Modules: their calls, in the layers.
 */
export function recomputedCalls(
  policy: Checkpoint,
  graph: Graph,
  table: OperatorTable,
): ReadonlySet<string> {
  // A sweep asks the same of a program under every mesh.
  const byPolicy =
    known.get(graph) ??
    new Map<Checkpoint, { readonly table: OperatorTable; readonly names: ReadonlySet<string> }>();
  known.set(graph, byPolicy);
  let found = byPolicy.get(policy);
  if (found?.table !== table)
    byPolicy.set(policy, (found = { table, names: recomputed(policy, graph, table) }));
  return found.names;
}

const known = new WeakMap<
  Graph,
  Map<Checkpoint, { readonly table: OperatorTable; readonly names: ReadonlySet<string> }>
>();

function recomputed(policy: Checkpoint, graph: Graph, table: OperatorTable): ReadonlySet<string> {
  if (policy === 'none') return new Set();
  if (!isPolicy(policy))
    return neededRecomputed(callsOf(modulesOf(policy), graph, table), graph, table);
  const narrow = narrowPoints(graph, table);
  const last = graph.nodes.findIndex((n) => n.name === narrow.at(-1));
  const kept = new Set(lastOfLayers(narrow, graph));
  const names = new Set<string>();
  let products = 0;
  for (const node of graph.nodes.slice(0, Math.max(0, Math.min(last, backwardStart(graph))))) {
    const record = table.get(node.target);
    if (
      node.kind !== 'call' ||
      kept.has(node.name) ||
      record === undefined ||
      !mayRecompute(node.target, record)
    )
      continue;
    if (
      record.cls === 'matmul' &&
      node.meta.path !== undefined &&
      layerOf(node.meta.path) !== undefined
    )
      products++;
    if (isDropped(policy, record.cls, products)) names.add(node.name);
  }
  return neededRecomputed(names, graph, table);
}

/** Names of the forward calls of some modules. */
function callsOf(modules: readonly string[], graph: Graph, table: OperatorTable): Set<string> {
  const hasLatent = graph.nodes.some((n) => n.meta.path?.endsWith('.kv_b_proj') === true);
  const calls = graph.nodes.slice(0, backwardStart(graph)).filter((node) => {
    const record = node.kind === 'call' ? table.get(node.target) : undefined;
    if (record === undefined || !mayRecompute(node.target, record)) return false;
    return moduleOfCall(node, record.cls, hasLatent).some((m) => modules.includes(m));
  });
  return new Set(calls.map((n) => n.name));
}

/**
 * The calls that a backward call needs, directly or through others of them, among those that may be
 * recomputed.
 */
function neededRecomputed(
  names: ReadonlySet<string>,
  graph: Graph,
  table: OperatorTable,
): ReadonlySet<string> {
  const needed = new Set<string>();
  const isPart = (n: Node): boolean =>
    n.target === 'operator.getitem' || table.get(n.target)?.cls === 'view';
  const parts = new Set(
    graph.nodes.flatMap((n) => (n.kind === 'call' && isPart(n) ? [n.name] : [])),
  );
  const start = backwardStart(graph);
  for (let i = graph.nodes.length - 1; i >= 0; i--) {
    const node = graph.nodes[i];
    if (node.kind !== 'call' || (i < start && !needed.has(node.name))) continue;
    eachOperand(node, (name) => {
      // One result of several, and a view, is not a call of its own.
      if (names.has(name) || parts.has(name)) needed.add(name);
    });
  }
  return new Set([...needed].filter((name) => names.has(name)));
}

/** Keeps only the last narrow point inside each layer. */
function lastOfLayers(narrow: readonly string[], graph: Graph): string[] {
  const numbers = layerNumbers(graph);
  const layers = new Map(graph.nodes.map((n) => [n.name, numbers.of(n.meta.path)]));
  const last = new Map<number, string>();
  for (const name of narrow) {
    const layer = layers.get(name);
    if (layer !== undefined) last.set(layer, name);
  }
  return narrow.filter((name) => {
    const layer = layers.get(name);
    return layer === undefined || last.get(layer) === name;
  });
}

/**
 * Tells whether a policy drops the result of a call; `products` counts those of the layers so far,
 * this one among them.
 */
function isDropped(policy: (typeof POLICIES)[number], cls: string, products: number): boolean {
  switch (policy) {
    case 'none':
      return false;
    case 'full':
      return true;
    case 'products':
      return cls !== 'matmul';
    case 'operators':
      return cls === 'matmul' ? products % 2 === 0 : !EXPENSIVE.has(cls);
    case 'selective':
      return !EXPENSIVE.has(cls);
  }
}

const EXPENSIVE: ReadonlySet<string> = new Set(['matmul', 'attention']);
