import { ShardwrightError } from '../errors.ts';
import { CONTROL_TARGETS, controlCall } from '../graph/control.ts';
import { lintGraph } from '../graph/lint.ts';
import type { Arg, Dim, Graph, Node, TensorType, ValueType } from '../graph/types.ts';
import { getOwn, sameType, setOwn, tensorType, typeText } from '../graph/value.ts';
import { inferCall } from '../ops/infer.ts';
import type { OperatorTable } from '../ops/table.ts';
import { SizeRelations } from './shrink-relations.ts';
import { rewriteLiterals } from './shrink-literals.ts';
import { chooseSizes } from './shrink-sizes.ts';

export interface ShrinkOptions {
  /** Sizes of the mesh dims: a size that a mesh can cut evenly stays one that it can. Default none. */
  readonly meshSizes?: readonly number[];
  /** Sizes up to this one stay. Default 4. */
  readonly keepUpTo?: number;
}

export interface Shrunk {
  readonly graph: Graph;
  /** Every size of the graph above 1 with what became of it, ascending. */
  readonly sizes: readonly { readonly from: number; readonly to: number }[];
  /** Calls whose sizes had to stay, with the reason; empty when everything could be shrunk. */
  readonly kept: readonly { readonly node: string; readonly target: string; readonly reason: string }[];
}

/** Elements of all tensors above which sizes may coincide, to be smaller still. */
const LARGE = 4e6;
/** Rounds of keeping the sizes of one more call. */
const MAX_ROUNDS = 64;

/**
 * The same program at smaller sizes, to be run with numbers: batch, sequence, width, heads and vocabulary are replaced
 * consistently, in types and in literals (view sizes, slice bounds, ranges, counts). Equal sizes stay equal; products that
 * views rely on and sums that joins and slices rely on hold for the new sizes too; every new type is checked against the
 * operator's own inference. Sizes of a call that fits no smaller form stay as they are, and the call is named. Bodies of loops
 * and branches shrink with the program around them; a loop over rows makes as many trips as there are rows now.
 *
 * @throws E_UNSUPPORTED for calls without a record, with the node; E_SHRINK when no sizes fit
 */
export function shrinkGraph(graph: Graph, table: OperatorTable, options: ShrinkOptions = {}): Shrunk {
  refuseUnknown(graph, table);
  const first = shrunkWith(graph, table, options, true);
  if (elementsOf(first.graph) <= LARGE) return first;
  const second = shrunkWith(graph, table, options, false);
  return elementsOf(second.graph) < elementsOf(first.graph) ? second : first;
}

const CONTROL: ReadonlySet<string> = new Set(CONTROL_TARGETS);

function refuseUnknown(graph: Graph, table: OperatorTable): void {
  const known = (target: string): boolean =>
    target === 'operator.getitem' || CONTROL.has(target) || table.get(target) !== undefined;
  const unknown = programNodes(graph).find(({ node }) => node.kind === 'call' && !known(node.target))?.node;
  if (unknown !== undefined)
    throw new ShardwrightError('E_UNSUPPORTED', `${unknown.target} is not shrunk: what its sizes mean is not known`, {
      node: unknown.name,
    });
}

/** The nodes of a program and of all its bodies, each with the graph that it stands in. */
function programNodes(graph: Graph): { readonly node: Node; readonly graph: Graph }[] {
  const own = graph.nodes.map((node) => ({ node, graph }));
  return [...own, ...Object.keys(graph.subgraphs).flatMap((name) => programNodes(getOwn(graph.subgraphs, name)!))];
}

function elementsOf(graph: Graph): number {
  const count = (type: ValueType): number => {
    if (type.kind === 'tuple') return type.items.reduce((sum, item) => sum + count(item), 0);
    return type.kind === 'tensor' ? shapeOf(type).reduce((n, size) => n * size, 1) : 0;
  };
  return programNodes(graph).reduce((sum, { node }) => sum + count(node.type), 0);
}

function shrunkWith(graph: Graph, table: OperatorTable, options: ShrinkOptions, distinct: boolean): Shrunk {
  const kept: { node: string; target: string; reason: string }[] = [];
  const stuck = new Set<Node>();
  const all = programNodes(graph);
  for (let round = 0; round <= MAX_ROUNDS; round++) {
    const relations = new SizeRelations();
    for (const at of all) relations.read(at.node, at.graph, table);
    for (const at of all) if (stuck.has(at.node)) relations.fixNode(at.graph, at.node.name);
    const chosen = chooseSizes(relations, options.meshSizes ?? [], options.keepUpTo ?? 4, distinct);
    if ('contradiction' in chosen)
      throw new ShardwrightError('E_SHRINK', `no smaller sizes fit: ${chosen.contradiction}`, {
        hint: 'verify the model at its own sizes, or export a smaller one',
      });
    const made = rebuild(graph, table, chosen.sizes);
    if ('graph' in made) {
      const notes = [...(graph.notes ?? []), 'Sizes are reduced for a run with numbers.'];
      const shrunk = { ...made.graph, notes };
      lintGraph(shrunk);
      const sizes = [...chosen.sizes].map(([from, to]) => ({ from, to })).sort((a, b) => a.from - b.from);
      return { graph: shrunk, sizes, kept };
    }
    if (stuck.has(made.node))
      throw new ShardwrightError('E_SHRINK', `${made.node.target} does not shrink: ${made.reason}`, {
        node: made.node.name,
        hint: 'verify the model at its own sizes, or export a smaller one',
      });
    stuck.add(made.node);
    kept.push({ node: made.node.name, target: made.node.target, reason: made.reason });
  }
  throw new ShardwrightError('E_SHRINK', `more than ${MAX_ROUNDS} calls do not shrink`, {
    hint: 'verify the model at its own sizes, or export a smaller one',
  });
}

/** The graph at the new sizes; or the first call that does not have the type that its sizes give. */
function rebuild(
  graph: Graph,
  table: OperatorTable,
  sizes: ReadonlyMap<number, number>,
): { graph: Graph } | { node: Node; reason: string } {
  const types = new Map<string, ValueType>();
  const cache = new Map<ValueType, ValueType>();
  const nodes: Node[] = [];
  const subgraphs: Record<string, Graph> = {};
  for (const name of Object.keys(graph.subgraphs)) {
    const body = rebuild(getOwn(graph.subgraphs, name)!, table, sizes);
    if (!('graph' in body)) return body;
    setOwn(subgraphs, name, body.graph);
  }
  const typeOf = (name: string): ValueType => types.get(name) ?? { kind: 'none' };
  for (const node of graph.nodes) {
    const type = resized(node.type, sizes, cache);
    types.set(node.name, type);
    if (node.kind !== 'call') {
      nodes.push({ ...node, type });
      continue;
    }
    if (CONTROL.has(node.target)) {
      const changed = withLength(node, sizes);
      const own = controlCall(changed, subgraphs, typeOf)?.result;
      if (own !== undefined && !agree(type, own)) return { node, reason: `it gives ${typeText(own)}, not ${typeText(type)}` };
      nodes.push({ ...changed, type });
      continue;
    }
    try {
      const changed = rewriteLiterals(node, type, table, graph, sizes);
      const own = inferCall(table, { ...changed, name: node.name }, typeOf);
      if (own !== undefined && !agree(type, own)) return { node, reason: `it gives ${typeText(own)}, not ${typeText(type)}` };
      nodes.push({ ...changed, type });
    } catch (error) {
      if (error instanceof ShardwrightError && error.code !== 'E_INTERNAL') return { node, reason: error.message };
      throw error;
    }
  } // prettier-ignore
  return { graph: { ...graph, nodes, subgraphs } };
}

/** A scan that states its length, at the new size of its rows. */
function withLength(node: Node, sizes: ReadonlyMap<number, number>): Node {
  const length: Arg | undefined = getOwn(node.kwargs, 'length');
  if (typeof length !== 'number') return node;
  return { ...node, kwargs: { ...node.kwargs, length: sizes.get(length) ?? length } };
}

/** Equal, where a stated tuple may leave a member untyped. */
function agree(stated: ValueType, own: ValueType): boolean {
  if (stated.kind !== 'tuple' || own.kind !== 'tuple') return sameType(stated, own);
  return stated.items.every((item, i) => item.kind === 'none' || agree(item, own.items[i]));
}

function resized(type: ValueType, sizes: ReadonlyMap<number, number>, cache: Map<ValueType, ValueType>): ValueType {
  if (type.kind === 'tuple') return { kind: 'tuple', items: type.items.map((item) => resized(item, sizes, cache)) };
  if (type.kind !== 'tensor') return type;
  let made = cache.get(type);
  if (made === undefined) cache.set(type, (made = tensorType(type.dtype, shapeOf(type).map((n) => sizes.get(n) ?? n)))); // prettier-ignore
  return made;
}

/** Sizes as numbers; a symbolic one counts at its example. */
export function shapeOf(type: TensorType): number[] {
  return type.shape.map((dim: Dim) => (typeof dim === 'number' ? dim : (dim.example ?? 1)));
}
