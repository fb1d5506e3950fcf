/** Takes a graph and gives the same program at smaller sizes, to be run with numbers. */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { CONTROL_TARGETS, controlCall } from '../../graph/control.ts';
import { lintGraph } from '../../graph/lint.ts';
import type { Graph, Node, ValueType } from '../../graph/types.ts';
import {
  exampleShape,
  getOwn,
  isList,
  isRef,
  sameType,
  setOwn,
  tensorType,
  typeText,
} from '../../graph/value.ts';
import { inferCall } from '../../ops/record/infer.ts';
import { elements } from '../../ops/record/record.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { stridesAt } from '../../ops/strides.ts';
import { chooseSizes, productsOf } from './choose.ts';
import { ProgramAxes, type ProgramNode, programNodes, sameViews, type ValueAxes } from './dims.ts';
import { byValue, type Resized, written } from './literals.ts';
import { SizeRelations } from './relation-set.ts';
import { readRelations } from './relations.ts';

/** Which sizes of a graph may become smaller. */
export interface ShrinkOptions {
  /**
   * Sizes of the mesh dims: a size that a mesh can cut evenly stays one that it can. Default none.
   */
  readonly meshSizes?: readonly number[];
  /** The cuts of a plan: even cuts stay even, with or without those that a mesh could make. */
  readonly cuts?: readonly Cut[];
  /** Sizes up to this one stay. Default 4. */
  readonly keepUpTo?: number;
  /** Elements of all tensors above which sizes may coincide, to be smaller still. Default 4e6. */
  readonly large?: number;
  /** Calls whose equal sizes stay equal, by name. */
  readonly coarse?: ReadonlySet<string>;
  /** Calls that keep their sizes, by name, with the reason. */
  readonly keep?: ReadonlyMap<string, string>;
  /**
   * Operators without a record: refuse (default), or let their sizes shrink with those around them.
   */
  readonly unknown?: 'refuse' | 'replicate';
}

/** A dim of a tensor that a call reads or makes, and the pieces that it is cut into. */
export interface Cut {
  readonly node: string;
  readonly of: 'inputs' | 'outputs';
  /** Place of the tensor among them. */
  readonly tensor: number;
  readonly dim: number;
  readonly pieces: number;
}

/** A graph at reduced sizes, and what became of every size. */
export interface Shrunk {
  readonly graph: Graph;
  /** Every size of the graph above 1 with what became of it, ascending. */
  readonly sizes: readonly { readonly from: number; readonly to: number }[];
  /** Calls whose sizes had to stay, with the reason; empty when everything could be shrunk. */
  readonly kept: readonly {
    readonly node: string;
    readonly target: string;
    readonly reason: string;
  }[];
}

/** Rounds of reading more calls in a coarser way, or of keeping their sizes. */
const MAX_ROUNDS = 16;

const CONTROL: ReadonlySet<string> = new Set(CONTROL_TARGETS);

/**
 * The same program at smaller sizes, to be run with numbers: batch, sequence, width, heads and
 * vocabulary are replaced consistently, in types and in literals (view sizes, slice bounds, ranges,
 * counts). Dims that an operator ties stay equal; products that views rely on, sums that joins and
 * slices rely on and differences that padding makes hold for the new sizes too; every new type is
 * checked against the operator's own inference. A call that fits no smaller form is first read in a
 * coarser way (its equal sizes stay equal), then keeps its sizes, and is named. Bodies of loops and
 * branches shrink with the program around them; a loop over rows makes as many trips as there are
 * rows now.
 *
 * @throws E_UNSUPPORTED for calls without a record, with the node
 */
export function shrinkGraph(
  graph: Graph,
  table: OperatorTable,
  options: ShrinkOptions = {},
): Shrunk {
  checkKinds('shrinkGraph', {
    graph: [graph, 'graph'],
    table: [table, 'operators'],
    options: [options, 'record', 'undefined'],
  });
  const nodes = programNodes(graph);
  if (options.unknown !== 'replicate') refuseUnknown(nodes, table);
  const first = shrunkWith(graph, nodes, table, options, true);
  if (elementsOf(first.graph) <= (options.large ?? 4e6)) return first;
  const second = shrunkWith(graph, nodes, table, options, false);
  return elementsOf(second.graph) < elementsOf(first.graph) ? second : first;
}

function refuseUnknown(nodes: readonly ProgramNode[], table: OperatorTable): void {
  const known = (target: string): boolean =>
    target === 'operator.getitem' || CONTROL.has(target) || table.get(target) !== undefined;
  const unknown = nodes.find(({ node }) => node.kind === 'call' && !known(node.target))?.node;
  if (unknown !== undefined)
    throw new ShardwrightError(
      'E_UNSUPPORTED',
      `${unknown.target} is not shrunk: what its sizes mean is not known`,
      {
        node: unknown.name,
      },
    );
}

/** Elements of all tensors of a program, bodies included. */
export function elementsOf(graph: Graph): number {
  const count = (type: ValueType): number => {
    if (type.kind === 'tuple') return type.items.reduce((sum, item) => sum + count(item), 0);
    return type.kind === 'tensor' ? elements(exampleShape(type)) : 0;
  };
  return programNodes(graph).reduce((sum, { node }) => sum + count(node.type), 0);
}

interface Misfit {
  readonly node: Node;
  readonly reason: string;
}

function shrunkWith(
  graph: Graph,
  nodes: readonly ProgramNode[],
  table: OperatorTable,
  options: ShrinkOptions,
  distinct: boolean,
): Shrunk {
  const coarse = new Set<Node>();
  const kept = new Map<Node, string>();
  for (const { node } of nodes) {
    if (options.coarse?.has(node.name) === true) coarse.add(node);
    const reason = options.keep?.get(node.name);
    if (reason !== undefined) kept.set(node, reason);
  }
  for (let round = 0; ; round++) {
    const axes = new ProgramAxes(nodes, table, coarse);
    const relations = new SizeRelations(axes);
    for (const at of nodes) readRelations(relations, at, table);
    for (const at of nodes) if (kept.has(at.node) || round === MAX_ROUNDS) relations.fixNode(at);
    const piecesOf = piecesByAxis(nodes, axes, options);
    const chosen = chooseSizes(relations, piecesOf, options.keepUpTo ?? 4, distinct);
    const rebuilt = new Rebuilding(
      table,
      axes,
      relations,
      chosen,
      round === MAX_ROUNDS ? undefined : kept,
    );
    const small = rebuilt.graph(graph);
    if (rebuilt.misfits.length > 0) {
      for (const { node, reason } of rebuilt.misfits) {
        if (coarse.has(node)) kept.set(node, reason);
        else coarse.add(node);
      }
      continue;
    }
    const notes = [...(graph.notes ?? []), 'Sizes are reduced for a run with numbers.'];
    const shrunk = { ...small, notes };
    lintGraph(shrunk);
    return {
      graph: shrunk,
      sizes: sizesOf(relations, chosen),
      kept: [...kept].map(([{ name, target }, reason]) => ({ node: name, target, reason })),
    };
  }
}

/** The numbers of pieces of each axis: those of the mesh, and those of the plan's cuts. */
function piecesByAxis(
  nodes: readonly ProgramNode[],
  axes: ProgramAxes,
  { meshSizes = [], cuts = [] }: ShrinkOptions,
): (axis: number) => readonly number[] {
  const all = productsOf(meshSizes);
  const byAxis = new Map<number, Set<number>>();
  const tensorsOf = new Map(
    cuts.length === 0 ? [] : nodes.map((at) => [at.node.name, axes.tensors(at)]),
  );
  for (const { node, of, tensor, dim, pieces } of cuts) {
    const axis = tensorsOf.get(node)?.[of][tensor]?.[dim];
    if (axis === undefined) continue;
    const known = byAxis.get(axis) ?? new Set(all);
    byAxis.set(axis, known.add(pieces));
  }
  const lists = new Map([...byAxis].map(([axis, pieces]) => [axis, [...pieces]]));
  return (axis) => lists.get(axis) ?? all;
}

/** The new value of each size; a size with several meanings may have become several sizes. */
function sizesOf(relations: SizeRelations, chosen: ReadonlyMap<number, number>): Shrunk['sizes'] {
  const pairs = new Map<string, { from: number; to: number }>();
  for (const axis of relations.axes) {
    if (relations.free.has(axis)) continue;
    const [from, to] = [relations.sizeOf(axis), chosen.get(axis) ?? relations.sizeOf(axis)];
    pairs.set(`${from} ${to}`, { from, to });
  }
  return [...pairs.values()].sort((a, b) => a.from - b.from || a.to - b.to);
}

/**
 * Writes a program at new sizes, and notes the calls that do not have the type that their sizes
 * give.
 */
class Rebuilding {
  readonly misfits: Misfit[] = [];

  /**
   * @param kept calls that keep their sizes, which are not asked again; absent: no call is asked
   */
  constructor(
    private readonly table: OperatorTable,
    private readonly axes: ProgramAxes,
    private readonly relations: SizeRelations,
    private readonly chosen: ReadonlyMap<number, number>,
    private readonly kept: ReadonlyMap<Node, string> | undefined,
  ) {}

  graph(graph: Graph): Graph {
    const subgraphs: Record<string, Graph> = {};
    for (const name of Object.keys(graph.subgraphs))
      setOwn(subgraphs, name, this.graph(getOwn(graph.subgraphs, name)!));
    const types = new Map<string, ValueType>();
    const nodes = graph.nodes.map((node): Node => {
      const type = this.resized(node.type, this.axes.of(node));
      types.set(node.name, type);
      return node.kind === 'call'
        ? { ...this.call(node, type, graph, subgraphs, types), type }
        : { ...node, type };
    });
    this.checkViews(graph, nodes);
    return { ...graph, nodes, subgraphs };
  }

  /** Views of a value that differ stay different: a plan places them apart. */
  private checkViews(graph: Graph, nodes: readonly Node[]): void {
    const before = sameViews(graph.nodes, this.table);
    const now = sameViews(nodes, this.table);
    for (const node of graph.nodes) {
      const first = now.get(node.name);
      if (first === undefined || first === before.get(node.name)) continue;
      for (const one of [node, graph.nodes.find(({ name }) => name === first)!])
        this.misfit(one, `${node.name} and ${first} would be one view`);
    }
  }

  private to(axis: number): number {
    return this.chosen.get(this.axes.find(axis)) ?? this.axes.sizeOf(axis);
  }

  private resized(type: ValueType, axes: ValueAxes): ValueType {
    if (type.kind === 'tuple')
      return {
        kind: 'tuple',
        items: type.items.map((item, i) => this.resized(item, axes.items[i])),
      };
    if (type.kind !== 'tensor') return type;
    const shape = axes.dims.map((axis) => this.to(axis));
    return tensorType(type.dtype, shape, stridesAt(type, shape));
  }

  /** The call with literals that give the type; as it is, and noted, where there are none. */
  private call(
    node: Node,
    type: ValueType,
    graph: Graph,
    subgraphs: Readonly<Record<string, Graph>>,
    types: ReadonlyMap<string, ValueType>,
  ): Node {
    const typeOf = (name: string): ValueType => types.get(name) ?? { kind: 'none' };
    const own = this.relations.literals.get(node) ?? {};
    const literals = Object.fromEntries(
      Object.entries(own).map(([name, axis]) => [name, this.to(axis)]),
    );
    if (CONTROL.has(node.target)) {
      const { length } = literals;
      const changed =
        length === undefined
          ? node
          : { ...node, kwargs: { ...node.kwargs, length: this.lengthOf(node, typeOf, length) } };
      const result = controlCall(changed, subgraphs, typeOf)?.result;
      if (result !== undefined && !agree(type, result))
        this.misfit(node, `it gives ${typeText(result)}, not ${typeText(type)}`);
      return changed;
    }
    const record = this.table.get(node.target);
    const call = record === undefined ? undefined : this.axes.call({ node, graph });
    if (record === undefined || call === undefined) return node;
    const sized = (dims: readonly number[]): number[] => dims.map((axis) => this.to(axis));
    const resized: Resized = {
      ctx: call.ctx,
      inputs: call.inputs.map(sized),
      outputs: call.outputs.map(sized),
      literals,
    };
    let reason: string | undefined;
    const first = written(node, record, resized);
    for (const changed of [first, byValue(node, resized)]) {
      try {
        const result = inferCall(this.table, { ...changed, name: node.name, type }, typeOf);
        if (result === undefined || agree(type, result)) return changed;
        reason ??= `it gives ${typeText(result)}, not ${typeText(type)}`;
      } catch (error) {
        if (!(error instanceof ShardwrightError) || error.code === 'E_INTERNAL') throw error;
        reason ??= error.message;
      }
    }
    this.misfit(node, reason ?? '');
    return first;
  }

  /** Rows of a scan: those that it stacks, if any; else trips of their own. */
  private lengthOf(node: Node, typeOf: (name: string) => ValueType, trips: number): number {
    const [, , xs] = node.args;
    const [first] = xs !== undefined && isList(xs) ? xs : [];
    const scanned = first !== undefined && isRef(first) ? typeOf(first.name) : undefined;
    if (scanned?.kind === 'tensor') return Number(scanned.shape[0]);
    const before = getOwn(node.kwargs, 'length');
    const carried = Array.isArray(node.args[1]) ? node.args[1].length : 0;
    const stacked = node.type.kind === 'tuple' ? node.type.items[carried] : undefined;
    const made = typeOf(node.name);
    const now = made.kind === 'tuple' ? made.items[carried] : undefined;
    if (stacked?.kind === 'tensor' && stacked.shape[0] === before && now?.kind === 'tensor')
      return Number(now.shape[0]);
    return trips;
  }

  private misfit(node: Node, reason: string): void {
    if (this.kept !== undefined && !this.kept.has(node)) this.misfits.push({ node, reason });
  }
}

/** Equal, where a stated tuple may leave a member untyped. */
function agree(stated: ValueType, own: ValueType): boolean {
  if (stated.kind !== 'tuple' || own.kind !== 'tuple') return sameType(stated, own);
  return stated.items.every((item, i) => item.kind === 'none' || agree(item, own.items[i]));
}
