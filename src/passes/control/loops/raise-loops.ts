/**
 * Rewrites counted `while_loop` calls of StableHLO into scans where they read or write one row a
 * trip.
 */

import { checkKinds } from '../../../arguments.ts';
import { nonEmpty } from '../../../defined.ts';
import { freeKey } from '../../../graph/names.ts';
import { nodesByName } from '../../../graph/nodes.ts';
import type { Arg, Graph, Node, Output, TensorType, ValueRef } from '../../../graph/types.ts';
import {
  eachOperand,
  getOwn,
  isList,
  isRef,
  mapOperands,
  setOwn,
  tensorType,
} from '../../../graph/value.ts';
import { inlineCalls } from '../inline-calls.ts';
import { bodyOf, type Counter, counterOf, inputIndex, integer } from './counted-loops.ts';

/**
 * Counted loops as scans. A `while_loop` of StableHLO carries whole arrays that it reads, or
 * writes, one row a trip; a scan says so: rows come in (`xs`), rows go out (`ys`), what does not
 * change is captured, the rest is the carry. Rows may be taken from the end (`reverse`). A loop
 * that scans nothing stays a `while_loop` with its number of `trips`.
 */
export function raiseLoops(graph: Graph): Graph {
  checkKinds('raiseLoops', { graph: [graph, 'graph'] });
  return raised(graph, new Map());
}

function raised(graph: Graph, done: Map<Graph, Graph>): Graph {
  const known = done.get(graph);
  if (known !== undefined) return known;
  const subgraphs: Record<string, Graph> = {};
  let changed = false;
  for (const name of Object.keys(graph.subgraphs)) {
    const before = getOwn(graph.subgraphs, name)!;
    const after = raised(before, done);
    changed ||= after !== before;
    setOwn(subgraphs, name, after);
  }
  let current: Graph = changed ? { ...graph, subgraphs } : graph;
  for (const node of graph.nodes)
    if (node.kind === 'call' && node.target === 'while_loop')
      current = raiseOne(current, node.name) ?? current;
  done.set(graph, current);
  return current;
}

/** The fate of each carried value. */
type InputUse =
  | { readonly kind: 'carry'; readonly at: number }
  | { readonly kind: 'same' }
  | { readonly kind: 'rows' }
  | { readonly kind: 'stacked'; readonly row: string }
  | { readonly kind: 'counter' };

/** The graph with one loop as a scan; undefined where the loop scans nothing. */
function raiseOne(graph: Graph, name: string): Graph | undefined {
  const byName = nodesByName(graph);
  const loop = byName.get(name);
  if (loop === undefined) return undefined;
  const counter = counterOf(loop, graph, byName);
  const step = bodyOf(loop.args[1], graph);
  const carried = loop.args[2];
  if (counter === undefined || counter.step !== 1 || counter.start !== 0 || step === undefined)
    return undefined;
  if (!isList(carried) || !carried.every(isRef)) return undefined;
  const captured =
    loop.args[3] !== undefined && isList(loop.args[3]) ? loop.args[3].filter(isRef) : [];
  const body = new LoopBody(inlineCalls(step), counter, carried.length);
  const plan = body.plan(carried.length + captured.length);
  if (plan === undefined) return undefined;
  const outside = [...carried, ...captured] as readonly ValueRef[];
  // The counter is dropped unless something reads it.
  const countRead =
    graph.nodes.some((node) => readsResult(node, name, counter.index)) || plan.countNeeded;
  const uses = plan.uses.map((use, i): InputUse =>
    i === counter.index && countRead ? { kind: 'carry', at: -1 } : use,
  );
  return body.write(graph, loop, uses, outside);
}

function readsResult(node: Node, name: string, index: number): boolean {
  const [source, at] = node.args;
  return (
    node.target === 'operator.getitem' &&
    source !== undefined &&
    isRef(source) &&
    source.name === name &&
    at === index
  );
}

class LoopBody {
  private readonly nodes: ReadonlyMap<string, Node>;
  private readonly users = new Map<string, Node[]>();
  private readonly inputs: readonly Node[];
  /** Rows read by slices: the value of the row, by the slice or the reshape that makes it. */
  private readonly rows = new Map<string, number>();
  private reverse: boolean | undefined;

  constructor(
    private readonly body: Graph,
    private readonly counter: Counter,
    private readonly carried: number,
  ) {
    this.nodes = nodesByName(body);
    this.inputs = body.nodes.filter((node) => node.kind === 'placeholder');
    for (const node of body.nodes)
      eachOperand(node, (name) => {
        const list = this.users.get(name);
        if (list === undefined) this.users.set(name, [node]);
        else if (list[list.length - 1] !== node) list.push(node);
      });
  }

  plan(total: number): { readonly uses: InputUse[]; readonly countNeeded: boolean } | undefined {
    const { body, counter, carried } = this;
    if (this.inputs.length !== total) return undefined;
    const uses = this.inputs.map((input, i): InputUse => {
      if (i === counter.index) return { kind: 'counter' };
      const returned = i < carried ? (body.outputs[i]?.value ?? undefined) : input.name;
      if (returned === input.name)
        return this.readByRows(input, i) ? { kind: 'rows' } : { kind: 'same' };
      const row = returned === undefined ? undefined : this.writtenRow(input, returned);
      return row === undefined ? { kind: 'carry', at: i } : { kind: 'stacked', row };
    });
    const scans = uses.some((use) => use.kind === 'rows' || use.kind === 'stacked');
    return scans ? { uses, countNeeded: this.counterNeeded(uses) } : undefined;
  }

  /**
   * Tells whether every use of an input takes row `counter` (or the one from the end) of it,
   * without its leading dim.
   */
  private readByRows(input: Node, index: number): boolean {
    const users = this.users.get(input.name) ?? [];
    const type = input.type;
    if (users.length === 0 || type.kind !== 'tensor' || type.shape[0] !== this.counter.trips)
      return false;
    const found: [string, boolean][] = [];
    for (const slice of users) {
      const [operand, starts] = slice.args;
      const sizes = slice.kwargs.slice_sizes;
      if (slice.target !== 'stablehlo.dynamic_slice' || inputIndex(operand, this.body) !== index)
        return false;
      const whole = isList(sizes) && sizes.every((n, d) => n === (d === 0 ? 1 : type.shape[d]));
      const direction = isList(starts) ? this.rowOf(starts) : undefined;
      const after = this.users.get(slice.name) ?? [];
      const dropped =
        after.length > 0 &&
        after.every(
          (node) =>
            node.target === 'stablehlo.reshape' &&
            sameSizes(node.type as TensorType, type.shape.slice(1) as number[]),
        );
      if (!whole || direction === undefined || !dropped || this.returned(slice.name)) return false;
      for (const node of after) found.push([node.name, direction]);
    }
    if (!found.every(([, reverse]) => this.agrees(reverse))) return false;
    for (const [name] of found) this.rows.set(name, index);
    return true;
  }

  /**
   * The row that a `dynamic_update_slice` of the input writes at the counter; its result is what
   * the body returns.
   */
  private writtenRow(input: Node, returned: string): string | undefined {
    const write = this.nodes.get(returned);
    const type = input.type;
    if (write?.target !== 'stablehlo.dynamic_update_slice' || type.kind !== 'tensor')
      return undefined;
    const [operand, update, starts] = write.args;
    if (type.shape[0] !== this.counter.trips || !isRef(operand) || operand.name !== input.name)
      return undefined;
    if (
      (this.users.get(input.name) ?? []).length !== 1 ||
      (this.users.get(write.name) ?? []).length > 0
    )
      return undefined;
    const direction = isList(starts) ? this.rowOf(starts) : undefined;
    const lifted = isRef(update) ? this.nodes.get(update.name) : undefined;
    const row = lifted?.args[0];
    if (direction === undefined || lifted === undefined || row === undefined || !isRef(row))
      return undefined;
    const source = this.nodes.get(row.name)?.type;
    const rest = type.shape.slice(1) as number[];
    const views = lifted.target === 'stablehlo.reshape' || this.addsLeadingDim(lifted);
    if (!views || source?.kind !== 'tensor' || !sameSizes(source, rest) || !this.agrees(direction))
      return undefined;
    return row.name;
  }

  private addsLeadingDim(node: Node): boolean {
    const dims = node.kwargs.broadcast_dimensions;
    return (
      node.target === 'stablehlo.broadcast_in_dim' &&
      dims !== undefined &&
      isList(dims) &&
      dims.every((d, i) => d === i + 1)
    );
  }

  private agrees(reverse: boolean): boolean {
    this.reverse ??= reverse;
    return this.reverse === reverse;
  }

  /** False for row `counter`, true for row `trips - 1 - counter`; undefined for other starts. */
  private rowOf(starts: readonly Arg[]): boolean | undefined {
    const [first, ...rest] = starts;
    if (!rest.every((start) => integer(start, this.nodes) === 0)) return undefined;
    const found = this.affine(first, 0);
    if (found === undefined) return undefined;
    if (found[0] === 1 && found[1] === 0) return false;
    return found[0] === -1 && found[1] === this.counter.trips - 1 ? true : undefined;
  }

  /** `a * counter + b` of an index. */
  private affine(arg: Arg, depth: number): readonly [number, number] | undefined {
    if (!isRef(arg) || depth > 32) return undefined;
    if (inputIndex(arg, this.body) === this.counter.index) return [1, 0];
    const constant = integer(arg, this.nodes);
    if (constant !== undefined) return [0, constant];
    const node = this.nodes.get(arg.name);
    if (node?.target === 'stablehlo.convert') return this.affine(node.args[0], depth + 1);
    if (node?.target !== 'stablehlo.add' && node?.target !== 'stablehlo.subtract') return undefined;
    const [left, right] = [
      this.affine(node.args[0], depth + 1),
      this.affine(node.args[1], depth + 1),
    ];
    if (left === undefined || right === undefined) return undefined;
    const sign = node.target === 'stablehlo.add' ? 1 : -1;
    return [left[0] + sign * right[0], left[1] + sign * right[1]];
  }

  private returned(name: string): boolean {
    return this.body.outputs.some((output) => output.value === name);
  }

  /**
   * Tells whether the counter is read by more than the reads and writes of rows and its own
   * increment.
   */
  private counterNeeded(uses: readonly InputUse[]): boolean {
    const live = this.live(uses);
    return live.has(this.inputs[this.counter.index].name);
  }

  /** Names that the results of the scan's body need. */
  private live(uses: readonly InputUse[]): Set<string> {
    const live = new Set<string>();
    const work: string[] = [];
    uses.forEach((use, i) => {
      if (use.kind === 'stacked') work.push(use.row);
      else if (use.kind === 'carry') work.push(this.body.outputs[i]?.value ?? '');
    });
    for (let name = work.pop(); name !== undefined; name = work.pop()) {
      if (live.has(name)) continue;
      live.add(name);
      const node = this.nodes.get(name);
      if (node !== undefined && !this.rows.has(name))
        eachOperand(node, (operand) => work.push(operand));
    }
    return live;
  }

  /** The graph with the scan in the loop's place. */
  write(graph: Graph, loop: Node, uses: readonly InputUse[], outside: readonly ValueRef[]): Graph {
    const parts = this.partsOf(uses);
    const old = (loop.args[1] as { name: string }).name;
    const key = bodyName(graph, loop, old);
    const body = this.scanBody(uses, parts);
    const scan = this.scanCall(loop, key, parts, outside);
    const { nodes, alias } = withScan(graph, loop, scan, { parts, outside });
    const test = (loop.args[0] as { name: string }).name;
    const used = new Set(nodes.flatMap((node) => (node === scan ? [] : graphNames(node.args))));
    const subgraphs: Record<string, Graph> = {};
    for (const name of Object.keys(graph.subgraphs))
      if (used.has(name) || (name !== test && name !== old))
        setOwn(subgraphs, name, getOwn(graph.subgraphs, name)!);
    setOwn(subgraphs, key, body);
    return {
      ...graph,
      nodes,
      outputs: graph.outputs.map((o): Output =>
        o.value === null ? o : { ...o, value: alias.get(o.value) ?? o.value },
      ),
      subgraphs,
    };
  }

  /** Inputs of the loop by what they become in the scan. */
  private partsOf(uses: readonly InputUse[]): ScanParts {
    const live = this.live(uses);
    const at = (kind: InputUse['kind']): number[] =>
      uses.flatMap((use, i) => (use.kind === kind ? [i] : []));
    return {
      live,
      carry: at('carry'),
      rows: at('rows'),
      same: at('same').filter((i) => live.has(this.inputs[i].name)),
      stacked: at('stacked'),
    };
  }

  /** The body of the scan: reads of rows are its inputs, what is stacked its results. */
  private scanBody(uses: readonly InputUse[], parts: ScanParts): Graph {
    const { live, carry, stacked } = parts;
    const renamed = new Map<string, string>();
    for (const [name, index] of this.rows) renamed.set(name, this.inputs[index].name);
    const nameOf = (name: string): string => renamed.get(name) ?? name;
    const placeholders = this.scanInputs(parts);
    const nodes = this.body.nodes.filter(
      (node) => node.kind !== 'placeholder' && live.has(node.name) && !this.rows.has(node.name),
    );
    const values = [
      ...carry.map((i) => this.body.outputs[i].value ?? ''),
      ...stacked.map((i) => (uses[i] as { row: string }).row),
    ];
    const { given, ...rest } = this.body;
    const kept = new Set([...placeholders, ...nodes].map((node) => node.name));
    const stated = (given ?? []).filter((one) => one.value !== undefined && kept.has(one.value));
    return {
      ...rest,
      ...nonEmpty({ given: stated }),
      nodes: [...placeholders, ...nodes.map((node) => mapOperands(node, nameOf))],
      outputs: values.map((value, index): Output => ({
        value: nameOf(value),
        role: 'output',
        index,
      })),
    };
  }

  private scanInputs({ carry, rows, same }: ScanParts): Node[] {
    const sliced = (i: number): TensorType => {
      const type = this.inputs[i].type as TensorType;
      return tensorType(type.dtype, type.shape.slice(1));
    };
    return [...carry, ...rows, ...same].map((i, roleIndex) => {
      const isRow = roleIndex >= carry.length && roleIndex < carry.length + rows.length;
      const { type, meta } = this.inputs[i];
      return {
        ...this.inputs[i],
        type: isRow ? sliced(i) : type,
        meta: { ...meta, roleIndex },
      };
    });
  }

  private scanCall(
    loop: Node,
    key: string,
    { carry, rows, same, stacked }: ScanParts,
    outside: readonly ValueRef[],
  ): Node {
    const pick = (list: readonly number[]): Arg[] => list.map((i) => outside[i]);
    return {
      ...loop,
      target: 'scan',
      args: [{ kind: 'graph', name: key }, pick(carry), pick(rows), pick(same)],
      kwargs: { length: this.counter.trips, reverse: this.reverse ?? false },
      type: { kind: 'tuple', items: [...carry, ...stacked].map((i) => this.inputs[i].type) },
    };
  }
}

/** Positions of the loop's inputs by what they become in the scan. */
interface ScanParts {
  readonly carry: readonly number[];
  /** They are read row by row. */
  readonly rows: readonly number[];
  /** They are the same on every trip, and read. */
  readonly same: readonly number[];
  /** They are written row by row. */
  readonly stacked: readonly number[];
  /** Names that the results of the scan's body need. */
  readonly live: ReadonlySet<string>;
}

/** A name for the scan's body: another loop may run the loop's. */
function bodyName(graph: Graph, loop: Node, old: string): string {
  const shared = graph.nodes.some((node) => node !== loop && graphNames(node.args).includes(old));
  return shared ? freeKey(graph.subgraphs, old) : old;
}

/**
 * The nodes with the scan in the loop's place. Results move to their place in the scan; `alias`
 * names what went in for those that do not change.
 */
function withScan(
  graph: Graph,
  loop: Node,
  scan: Node,
  { parts, outside }: { readonly parts: ScanParts; readonly outside: readonly ValueRef[] },
): { readonly nodes: readonly Node[]; readonly alias: ReadonlyMap<string, string> } {
  const place = new Map<number, number>([...parts.carry, ...parts.stacked].map((i, k) => [i, k]));
  const alias = new Map<string, string>();
  const nodes: Node[] = [];
  for (const node of graph.nodes) {
    const [source, index] = node.args;
    if (node.name === loop.name) nodes.push(scan);
    else if (
      node.target === 'operator.getitem' &&
      isRef(source) &&
      source.name === loop.name &&
      typeof index === 'number'
    ) {
      const to = place.get(index);
      if (to === undefined) alias.set(node.name, outside[index].name);
      else nodes.push({ ...node, args: [source, to] });
    } else
      nodes.push(alias.size === 0 ? node : mapOperands(node, (name) => alias.get(name) ?? name));
  }
  return { nodes, alias };
}

function graphNames(args: readonly Arg[]): string[] {
  return args.flatMap((arg) => {
    if (isList(arg)) return graphNames(arg);
    return arg !== null && typeof arg === 'object' && arg.kind === 'graph' ? [arg.name] : [];
  });
}

function sameSizes(type: TensorType, sizes: readonly number[]): boolean {
  return (
    type.kind === 'tensor' &&
    type.shape.length === sizes.length &&
    type.shape.every((n, d) => n === sizes[d])
  );
}
