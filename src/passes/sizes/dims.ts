/**
 * Groups the dims of a program into axes: dims of one axis have the same size whatever the sizes
 * become. Two dims of a call are one axis where a rule of the operator cuts both together; dims
 * that no rule cuts are one axis where their sizes are equal, and so are all dims of a control-flow
 * call and its bodies. Axes of one size that the same operators use in the same places (the widths
 * of all layers) count as one.
 */

import { CONTROL_TARGETS, controlCall, placeholdersOf } from '../../graph/control.ts';
import { LOCAL_MAP, localMapCall } from '../../graph/local-map.ts';
import type { Graph, Node, ValueType } from '../../graph/types.ts';
import { exampleShape, getOwn, isList, isRef } from '../../graph/value.ts';
import { bindCall, tensorInputs } from '../../ops/record/context.ts';
import type { TypedContext } from '../../ops/record/record.ts';
import { inOnePiece } from '../../ops/record/rule.ts';
import type { OperatorTable } from '../../ops/record/table.ts';

/** The axes of a value: one a dim of a tensor, lists of a tuple. */
export interface ValueAxes {
  readonly dims: readonly number[];
  readonly items: readonly ValueAxes[];
}

/** A call with its sizes, and with the axis of every dim. */
export interface AxisCall {
  readonly node: Node;
  readonly ctx: TypedContext;
  /** Shapes of the inputs and outputs, in the order of `ctx.inputs` and `ctx.outputs`. */
  readonly inputs: readonly (readonly number[])[];
  readonly outputs: readonly (readonly number[])[];
}

export interface ProgramNode {
  readonly node: Node;
  readonly graph: Graph;
}

const CONTROL: ReadonlySet<string> = new Set(CONTROL_TARGETS);
const NONE: ValueAxes = { dims: [], items: [] };

/** The nodes of a program and of all its bodies, each with its graph. */
export function programNodes(graph: Graph): ProgramNode[] {
  const own = graph.nodes.map((node) => ({ node, graph }));
  return [
    ...own,
    ...Object.keys(graph.subgraphs).flatMap((name) => programNodes(getOwn(graph.subgraphs, name)!)),
  ];
}

export class ProgramAxes {
  /** By axis: its size. */
  private readonly sizes: number[] = [];
  private readonly parent: number[] = [];
  private readonly axes = new Map<Node, ValueAxes>();
  private readonly byName = new Map<Graph, Map<string, Node>>();
  /** Literals that are positions in a dim, by the axis and the number. */
  private readonly positions = new Map<string, number>();
  /**
   * Pairs of (tensor, dim) that the rules of a call tie, and dims that no rule cuts; by content of
   * the call.
   */
  private readonly ties = new Map<string, Ties>();

  /**
   * @param coarse calls whose dims of equal size are one axis, because no finer reading of them
   *   held
   */
  constructor(
    nodes: readonly ProgramNode[],
    private readonly table: OperatorTable,
    coarse: ReadonlySet<Node>,
  ) {
    for (const { node, graph } of nodes) {
      let names = this.byName.get(graph);
      if (names === undefined) this.byName.set(graph, (names = new Map<string, Node>()));
      names.set(node.name, node);
      this.axes.set(node, this.make(node.type));
    }
    for (const at of nodes) this.link(at, coarse.has(at.node));
    for (const graph of this.byName.keys()) this.linkOutputs(graph);
    this.joinSameViews();
    this.joinSameUses(nodes);
  }

  /** Axes of one row, and of none. */
  ones(): number[] {
    return this.sizes.flatMap((n, axis) => (n <= 1 ? [axis] : []));
  }

  sizeOf(axis: number): number {
    return this.sizes[axis];
  }

  /** The one axis that represents all equal axes. */
  find(axis: number): number {
    let at = axis;
    while (this.parent[at] !== at) at = this.parent[at] = this.parent[this.parent[at]];
    return at;
  }

  of(node: Node): ValueAxes {
    return this.axes.get(node) ?? NONE;
  }

  /**
   * Axes of the tensors that a node reads and of those that it makes, in the order of its record.
   */
  tensors(at: ProgramNode): Readonly<Record<'inputs' | 'outputs', readonly (readonly number[])[]>> {
    const call = this.call(at);
    if (call !== undefined) return call;
    const outputs = flatAxes(this.of(at.node));
    return { inputs: [], outputs: outputs.map((dims) => dims.map((axis) => this.find(axis))) };
  }

  /** Axes of all tensors that a call reads and makes. */
  around({ node, graph }: ProgramNode): number[][] {
    const all = [...flatAxes(this.of(node))];
    eachRef(node, (name) => {
      const source = this.byName.get(graph)?.get(name);
      if (source !== undefined) all.push(...flatAxes(this.of(source)));
    });
    return all.map((dims) => dims.map((axis) => this.find(axis)));
  }

  /**
   * A number that is a position or a count of rows along an axis (-1: of none): the same number is
   * the same size there.
   */
  along(axis: number, n: number): number {
    const key = `${axis < 0 ? 'alone' : this.find(axis)}:${n}`;
    let made = this.positions.get(key);
    if (made === undefined) this.positions.set(key, (made = this.axis(n)));
    return made;
  }

  /** The call with its axes; undefined for one without a record. */
  call({ node, graph }: ProgramNode): AxisCall | undefined {
    const record = node.kind === 'call' ? this.table.get(node.target) : undefined;
    if (record === undefined) return undefined;
    const names = this.byName.get(graph);
    const source = (name: string): Node | undefined => names?.get(name);
    const ctx = bindCall(record, node.args, node.kwargs, (name) => {
      const type = source(name)?.type;
      if (type?.kind !== 'tensor') throw new Error(`internal: ${name} is not a tensor`);
      return { dtype: type.dtype, shape: exampleShape(type) };
    });
    const types = node.type.kind === 'tuple' ? node.type.items : [node.type];
    const outputs = types.map((type) =>
      type.kind === 'tensor' ? { dtype: type.dtype, shape: exampleShape(type) } : null,
    );
    const own = this.of(node);
    const found = (dims: readonly number[]): number[] => dims.map((axis) => this.find(axis));
    return {
      node,
      ctx: Object.assign(Object.create(ctx) as TypedContext, { outputs }),
      inputs: tensorInputs(record, node.args, node.kwargs).map((name) =>
        found(this.of(source(name)!).dims),
      ),
      outputs: (node.type.kind === 'tuple' ? own.items : [own]).map((item) => found(item.dims)),
    };
  }

  /**
   * Dims that meet at the border of a region of per-device code: those of the whole value, those of
   * a piece, and how many pieces.
   */
  borders({ node, graph }: ProgramNode): { outer: number; inner: number; pieces: number }[] {
    const { body: name, operands, axes, inSpecs, outSpecs } = localMapCall(node);
    const body = getOwn(graph.subgraphs, name);
    if (body === undefined) return [];
    const names = this.byName.get(body);
    const pairs = (outer: ValueAxes, inner: ValueAxes, spec: readonly string[]) =>
      outer.dims.flatMap((axis, d) => {
        const pieces = axes.reduce((n, { size }, a) => (spec[a] === `S(${d})` ? n * size : n), 1);
        return inner.dims[d] === undefined ? [] : [{ outer: axis, inner: inner.dims[d], pieces }];
      });
    const entering = placeholdersOf(body).flatMap((input, i) => {
      const operand = operands[i];
      const source =
        operand !== undefined && isRef(operand)
          ? this.byName.get(graph)?.get(operand.name)
          : undefined;
      return source === undefined ? [] : pairs(this.of(source), this.of(input), inSpecs[i]);
    });
    const leaving = body.outputs.flatMap(({ value }, k) => {
      const made = value === null ? undefined : names?.get(value);
      const item = this.of(node).items[k];
      return made === undefined || item === undefined
        ? []
        : pairs(item, this.of(made), outSpecs[k]);
    });
    return [...entering, ...leaving].map(({ outer, inner, pieces }) => ({
      outer: this.find(outer),
      inner: this.find(inner),
      pieces,
    }));
  }

  private make(type: ValueType): ValueAxes {
    if (type.kind === 'tuple')
      return { dims: [], items: type.items.map((item) => this.make(item)) };
    if (type.kind !== 'tensor') return NONE;
    return { dims: exampleShape(type).map((n) => this.axis(n)), items: [] };
  }

  private axis(size: number): number {
    this.sizes.push(size);
    this.parent.push(this.parent.length);
    return this.parent.length - 1;
  }

  private join(a: number, b: number): void {
    if (this.sizes[a] !== this.sizes[b]) return;
    this.parent[this.find(a)] = this.find(b);
  }

  /** Makes dims of equal size one axis. */
  private joinEqual(axes: readonly number[]): void {
    const bySize = new Map<number, number>();
    for (const axis of axes) {
      const first = bySize.get(this.sizes[axis]);
      if (first === undefined) bySize.set(this.sizes[axis], axis);
      else this.join(axis, first);
    }
  }

  private link(at: ProgramNode, coarse: boolean): void {
    const { node, graph } = at;
    if (node.kind !== 'call') return;
    if (node.target === 'operator.getitem') {
      const [source, k] = node.args;
      const from =
        source !== undefined && isRef(source)
          ? this.byName.get(graph)?.get(source.name)
          : undefined;
      if (from === undefined || typeof k !== 'number') return;
      const { items } = this.of(from);
      const item = items[k < 0 ? k + items.length : k];
      this.of(node).dims.forEach(
        (axis, d) => item?.dims[d] !== undefined && this.join(axis, item.dims[d]),
      );
      return;
    }
    if (node.target === LOCAL_MAP) {
      for (const { outer, inner, pieces } of this.borders(at))
        if (pieces === 1) this.join(outer, inner);
      return;
    }
    if (CONTROL.has(node.target)) {
      const typeOf = (name: string): ValueType =>
        this.byName.get(graph)?.get(name)?.type ?? { kind: 'none' };
      const bodies = controlCall(node, graph.subgraphs, typeOf)?.bodies ?? [];
      const inner = bodies.flatMap(({ graph: body }) => {
        const names = this.byName.get(body);
        const returned = body.outputs.flatMap(({ value }) =>
          value === null ? [] : [names?.get(value)],
        );
        return [...placeholdersOf(body), ...returned].flatMap((n) =>
          n === undefined ? [] : flatAxes(this.of(n)),
        );
      });
      this.joinEqual([...this.around(at), ...inner].flat());
      return;
    }
    if (coarse) {
      this.joinEqual(this.around(at).flat());
      return;
    }
    const call = this.call(at);
    if (call === undefined) return;
    const tensors = [...call.inputs, ...call.outputs];
    const { tied, loose } = this.tiesOf(call);
    for (const group of tied) {
      const axes = group.map(([tensor, dim]) => tensors[tensor][dim]);
      for (const axis of axes.slice(1)) this.join(axis, axes[0]);
    }
    this.joinEqual(loose.map(([tensor, dim]) => tensors[tensor][dim]));
  }

  /** A gradient, a new state or a changed input has the dims of the input that it belongs to. */
  private linkOutputs(graph: Graph): void {
    for (const { value, role, of, stateName } of graph.outputs) {
      if (value === null || of === undefined) continue;
      const state = role === 'newstate' ? stateName : undefined;
      const input = graph.nodes.find(
        ({ kind, meta }) =>
          kind === 'placeholder' && meta.roleName === of && meta.stateName === state,
      );
      const made = this.byName.get(graph)?.get(value);
      if (input === undefined || made === undefined) continue;
      const { dims } = this.of(input);
      this.of(made).dims.forEach((axis, d) => dims[d] !== undefined && this.join(axis, dims[d]));
    }
  }

  private tiesOf({ node, ctx }: AxisCall): Ties {
    const shapes = [...ctx.inputs, ...ctx.outputs].map((meta) => meta?.shape ?? null);
    const plain = `${JSON.stringify(shapes)} ${literalText(node)}`;
    let known = this.ties.get(plain);
    if (known === undefined) this.ties.set(plain, (known = readTies(this.table, node.target, ctx)));
    return known;
  }

  /** The same view of a value, taken twice, is one value to a plan: it stays one. */
  private joinSameViews(): void {
    for (const names of this.byName.values())
      for (const [name, first] of sameViews([...names.values()], this.table)) {
        const [own, dims] = [names.get(name)!, this.of(names.get(first)!).dims];
        this.of(own).dims.forEach((axis, d) => this.join(axis, dims[d]));
      }
  }

  /** Axes of one size that the same operators use in the same places are one. */
  private joinSameUses(nodes: readonly ProgramNode[]): void {
    const uses = new Map<number, Set<string>>();
    const note = (axis: number, use: string): void => {
      const root = this.find(axis);
      const known = uses.get(root);
      if (known === undefined) uses.set(root, new Set([use]));
      else known.add(use);
    };
    for (const at of nodes) {
      if (at.node.kind !== 'call') continue;
      this.around(at).forEach((dims, i) => {
        dims.forEach((axis, d) => note(axis, `${at.node.target} ${i} ${d}`));
      });
    }
    const firsts = new Map<string, number>();
    for (const [axis, of] of uses) {
      const key = `${this.sizes[axis]} ${[...of].sort().join()}`;
      const first = firsts.get(key);
      if (first === undefined) firsts.set(key, axis);
      else this.join(axis, first);
    }
  }
}

type Place = readonly [tensor: number, dim: number];

interface Ties {
  readonly tied: readonly (readonly Place[])[];
  /** Dims that no rule cuts. */
  readonly loose: readonly Place[];
}

function readTies(table: OperatorTable, target: string, ctx: TypedContext): Ties {
  const record = table.get(target);
  const shapes = [...ctx.inputs, ...ctx.outputs].map((meta) => meta?.shape ?? []);
  const tied: Place[][] = [];
  const cut = new Set<string>();
  for (const offered of record?.shard(ctx) ?? []) {
    const rule = inOnePiece(offered);
    if (rule === undefined) continue;
    const groups = new Map<string, Place[]>();
    [...rule.inputs, ...rule.outputs].forEach((slot, tensor) => {
      if (slot?.kind !== 'shard' || slot.scaled) return;
      const group = groups.get(slot.tie);
      if (group === undefined) groups.set(slot.tie, [[tensor, slot.dim]]);
      else group.push([tensor, slot.dim]);
    });
    for (const group of groups.values()) {
      if (group.length > 1) tied.push(group);
      for (const [tensor, dim] of group) cut.add(`${tensor}.${dim}`);
    }
  }
  const loose = shapes.flatMap((shape, tensor) =>
    shape.flatMap((_, dim): Place[] => (cut.has(`${tensor}.${dim}`) ? [] : [[tensor, dim]])),
  );
  return { tied, loose };
}

/** Views that an earlier one of the same value is already, with the name of that one. */
export function sameViews(
  nodes: readonly Node[],
  table: OperatorTable,
): ReadonlyMap<string, string> {
  const same = new Map<string, string>();
  const seen = new Map<string, string>();
  for (const node of nodes) {
    if (
      node.kind !== 'call' ||
      node.type.kind !== 'tensor' ||
      table.get(node.target)?.cls !== 'view'
    )
      continue;
    const read: string[] = [];
    eachRef(node, (name) => read.push(same.get(name) ?? name));
    const key = `${read.join()} ${literalText(node)}`;
    const first = seen.get(key);
    if (first === undefined) seen.set(key, node.name);
    else same.set(node.name, first);
  }
  return same;
}

/** A call without the values that it reads. */
function literalText({ target, args, kwargs }: Node): string {
  return JSON.stringify([target, args, kwargs], (_, value: unknown) =>
    typeof value === 'bigint' ? String(value) : isNamed(value) ? 'value' : value,
  );
}

function isNamed(value: unknown): boolean {
  return typeof value === 'object' && value !== null && 'kind' in value && value.kind === 'value';
}

function flatAxes(axes: ValueAxes): (readonly number[])[] {
  return axes.items.length > 0 ? axes.items.flatMap(flatAxes) : [axes.dims];
}

/** Visits the values that a call reads, in order of its arguments, each time that they occur. */
function eachRef(node: Node, visit: (name: string) => void): void {
  const walk = (arg: Node['args'][number]): void => {
    if (isList(arg)) arg.forEach(walk);
    else if (isRef(arg)) visit(arg.name);
  };
  node.args.forEach(walk);
  Object.values(node.kwargs).forEach(walk);
}
