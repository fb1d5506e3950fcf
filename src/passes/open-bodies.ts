import { ShardwrightError } from '../errors.ts';
import { CONTROL_TARGETS } from '../graph/control.ts';
import type { Arg, Graph, Node, Output, TensorType, ValueType } from '../graph/types.ts';
import { getOwn, isGraphRef, isList, isRef, setOwn, tensorType } from '../graph/value.ts';
import { programFlops } from '../ops/program-flops.ts';
import type { OperatorTable } from '../ops/table.ts';
import { Loops } from './loops.ts';

/**
 * A view of a program with control flow for planning: every body stands once, in line, where its call was.
 *
 *  - A carry is a node of its own: it starts as the initial value, the body and whoever reads the result see it, and what
 *    the body returns must end in its placement (`carries`). One placement holds at entry, in the body and at exit.
 *  - A scanned tensor is read by `aten.select.int` on dim 0, so a cut of dim 0 cannot survive; what a body stacks leaves by
 *    `unsqueeze` and `expand`, so its new dim 0 is whole.
 *  - The results of branches meet in `aten.where.self`, which makes their placements equal and the predicate replicated.
 *
 * `loops` says how often each node runs. The graph is for pricing and placing; running it would run each body once.
 */
export interface OpenedGraph {
  readonly graph: Graph;
  readonly loops: Loops;
  /** What a body returns for the next trip, and the carry that it becomes. */
  readonly carries: readonly { readonly value: string; readonly carry: string }[];
  /** What was assumed of trip counts and branches, one sentence each. */
  readonly notes: readonly string[];
}

/** Branches that are not the one with the most FLOPs count this much, so that their placements are cheapest too. */
const RARE = 1e-3;
const MAX_NODES = 500_000;
const MAX_DEPTH = 64;

const CONTROL: ReadonlySet<string> = new Set(CONTROL_TARGETS);

/** Opens all bodies; undefined for a graph without control flow. Calls and wrappers must have been written out. */
export function openBodies(graph: Graph, table: OperatorTable): OpenedGraph | undefined {
  if (!graph.nodes.some((node) => node.kind === 'call' && CONTROL.has(node.target))) return undefined;
  return new Opener(graph, table).run();
}

class Opener {
  private readonly nodes: Node[] = [];
  private readonly names = new Set<string>();
  private readonly loops = new Loops();
  private readonly carries: { value: string; carry: string }[] = [];
  private readonly notes = new Set<string>();
  private readonly types = new Map<string, ValueType>();

  constructor(
    private readonly original: Graph,
    private readonly table: OperatorTable,
  ) {}

  run(): OpenedGraph {
    const { original } = this;
    for (const node of original.nodes) this.names.add(node.name);
    const renamed = new Map<string, Arg>();
    this.body(original, 0, renamed, '', 0);
    const outputs = original.outputs.map((o): Output => (o.value === null ? o : { ...o, value: nameOf(o.value, renamed) }));
    const { given: _, subgraphs: __, ...rest } = original;
    return {
      graph: { ...rest, nodes: this.nodes, outputs, subgraphs: {} },
      loops: this.loops,
      carries: this.carries,
      notes: [...this.notes],
    };
  } // prettier-ignore

  /** Writes the calls of a graph in a scope; `renamed` says what its names mean outside and is filled. */
  private body(graph: Graph, scope: number, renamed: Map<string, Arg>, prefix: string, depth: number): void {
    if (depth > MAX_DEPTH)
      throw new ShardwrightError('E_LIMIT', `control flow is nested more than ${MAX_DEPTH} deep`, {});
    const results = new Map<string, readonly (Arg | undefined)[]>();
    for (const node of graph.nodes) {
      if (node.kind === 'placeholder' && depth > 0) continue;
      if (node.kind === 'call' && CONTROL.has(node.target)) {
        results.set(node.name, this.control(node, graph, scope, renamed, `${prefix}${node.name}.`, depth));
        continue;
      }
      const [source, index] = node.args;
      const tuple = source !== undefined && isRef(source) ? results.get(source.name) : undefined;
      if (node.target === 'operator.getitem' && tuple !== undefined && typeof index === 'number') {
        const value = tuple[index < 0 ? tuple.length + index : index];
        if (value !== undefined) renamed.set(node.name, value);
        continue;
      }
      const name = depth === 0 ? node.name : this.unique(prefix + node.name);
      const kwargs: Record<string, Arg> = {};
      for (const key of Object.keys(node.kwargs)) setOwn(kwargs, key, replaced(node.kwargs[key], renamed));
      this.emit({ ...node, name, args: node.args.map((arg) => replaced(arg, renamed)), kwargs }, scope);
      if (name !== node.name) renamed.set(node.name, { kind: 'value', name });
    }
  }

  private control(
    node: Node,
    graph: Graph,
    scope: number,
    renamed: ReadonlyMap<string, Arg>,
    prefix: string,
    depth: number,
  ): (Arg | undefined)[] {
    const args = node.args.map((arg) => replaced(arg, renamed));
    const bodyAt = (at: number): Graph => this.graphOf(args[at], graph, node);
    const listAt = (at: number): readonly Arg[] => {
      const list = args[at];
      return list !== undefined && isList(list) ? list : [];
    };
    switch (node.target) {
      case 'cond': {
        const bodies = [bodyAt(1), bodyAt(2)];
        const prob = getOwn(node.kwargs, 'prob');
        const share = typeof prob === 'object' && prob !== null && 'kind' in prob && prob.kind === 'float' ? prob.value : undefined;
        return this.branches(node, bodies, share === undefined ? undefined : [share, 1 - share], listAt(3), args[0], scope, prefix, depth);
      }
      case 'case': {
        const list = listAt(1).map((arg) => this.graphOf(arg, graph, node));
        return this.branches(node, list, undefined, listAt(2), args[0], scope, prefix, depth);
      }
      case 'scan':
        return this.scan(node, bodyAt(0), listAt(1), listAt(2), listAt(3), scope, prefix, depth);
      case 'map':
      case 'map_impl':
        return this.scan(node, bodyAt(0), [], listAt(1), listAt(2), scope, prefix, depth);
      case 'while_loop':
        return this.loop(node, bodyAt(0), bodyAt(1), listAt(2), listAt(3), scope, prefix, depth);
      default:
        throw new ShardwrightError('E_UNSUPPORTED', `'${node.target}' is not planned`, { node: node.name });
    }
  } // prettier-ignore

  /** The bodies of a cond or case, and the meeting of their results. */
  private branches(
    node: Node,
    bodies: readonly Graph[],
    shares: readonly number[] | undefined,
    operands: readonly Arg[],
    which: Arg,
    scope: number,
    prefix: string,
    depth: number,
  ): (Arg | undefined)[] {
    const flops = bodies.map((body) => programFlops(body, this.table).total);
    const heaviest = flops.indexOf(Math.max(...flops));
    const weights = shares ?? bodies.map((_, b) => (b === heaviest ? 1 : RARE));
    if (shares === undefined)
      this.notes.add('Of the branches of a condition the one with the most FLOPs counts whole, the others a thousandth.');
    const idle = this.loops.scope(scope, 0);
    const results = bodies.map((body, b) => {
      const inner = this.bind(body, operands);
      this.body(body, this.loops.scope(scope, weights[b]), inner, `${prefix}${b}.`, depth + 1);
      return body.outputs.map((o) => (o.value === null ? undefined : replaced({ kind: 'value', name: o.value }, inner)));
    });
    // The predicate of a cond; of a case, whether the index is b. The last branch is what remains.
    const choose = (b: number): Arg => {
      if (node.target === 'cond') return which;
      const name = this.unique(`${prefix}is.${b}`);
      const type = tensorType('b8', []);
      this.emit({ name, kind: 'call', target: 'aten.eq.Scalar', args: [which, b], kwargs: {}, type, meta: {} }, idle);
      return { kind: 'value', name };
    };
    const tests = bodies.slice(1).map((_, b) => choose(b));
    return results[0].map((_, k): Arg | undefined => {
      let value = results[results.length - 1][k];
      for (let b = results.length - 2; b >= 0; b--) {
        const other = results[b][k];
        if (value === undefined || other === undefined || !isRef(value) || !isRef(other)) return undefined;
        const type = this.tensor(other.name, node);
        const name = this.unique(`${prefix}out.${k}`);
        this.emit({ name, kind: 'call', target: 'aten.where.self', args: [tests[b], other, value], kwargs: {}, type, meta: {} }, idle);
        value = { kind: 'value', name };
      }
      return value;
    });
  } // prettier-ignore

  private scan(
    node: Node,
    body: Graph,
    init: readonly Arg[],
    xs: readonly Arg[],
    captured: readonly Arg[],
    scope: number,
    prefix: string,
    depth: number,
  ): (Arg | undefined)[] {
    const stated = getOwn(node.kwargs, 'length');
    const [first] = xs;
    const length = first !== undefined && isRef(first) ? sizeOf(this.tensor(first.name, node)) : stated;
    if (typeof length !== 'number')
      throw new ShardwrightError('E_UNSUPPORTED', `the length of ${node.target} is not known`, { node: node.name });
    const inside = this.loops.scope(scope, length);
    const idle = this.loops.scope(inside, 0);
    const carries = init.map((arg, k) => this.carry(arg, idle, `${prefix}carry.${k}`, node));
    const slices = xs.map((x, k): Arg => {
      if (!isRef(x)) return x;
      const { dtype, shape } = this.tensor(x.name, node);
      const name = this.unique(`${prefix}x.${k}`);
      const type = tensorType(dtype, shape.slice(1));
      this.emit({ name, kind: 'call', target: 'aten.select.int', args: [x, 0, 0], kwargs: {}, type, meta: {} }, idle);
      return { kind: 'value', name };
    });
    const inner = this.bind(body, [...carries, ...slices, ...captured]);
    this.body(body, inside, inner, prefix, depth + 1);
    const out = body.outputs.map((o) => (o.value === null ? undefined : replaced({ kind: 'value', name: o.value }, inner)));
    this.close(carries, out);
    return out.map((value, k): Arg | undefined => {
      if (k < init.length) return carries[k];
      if (value === undefined || !isRef(value)) return undefined;
      const { dtype, shape } = this.tensor(value.name, node);
      const one = this.unique(`${prefix}y.${k}`);
      const lifted = tensorType(dtype, [1, ...shape]);
      this.emit({ name: one, kind: 'call', target: 'aten.unsqueeze.default', args: [value, 0], kwargs: {}, type: lifted, meta: {} }, idle);
      const name = this.unique(`${prefix}ys.${k}`);
      const type = tensorType(dtype, [length, ...shape]);
      const sizes = type.shape.map((d): Arg => (typeof d === 'number' ? d : { kind: 'size', size: d }));
      this.emit({ name, kind: 'call', target: 'aten.expand.default', args: [{ kind: 'value', name: one }, sizes], kwargs: {}, type, meta: {} }, idle);
      return { kind: 'value', name };
    });
  } // prettier-ignore

  private loop(
    node: Node,
    test: Graph,
    body: Graph,
    init: readonly Arg[],
    captured: readonly Arg[],
    scope: number,
    prefix: string,
    depth: number,
  ): (Arg | undefined)[] {
    const stated = getOwn(node.kwargs, 'trips') ?? getOwn(node.kwargs, 'max_trips');
    const trips = typeof stated === 'number' ? stated : 1;
    if (typeof stated !== 'number')
      this.notes.add(`The trips of ${node.name} are not known; its body is counted once.`);
    const inside = this.loops.scope(scope, trips);
    const idle = this.loops.scope(inside, 0);
    const carries = init.map((arg, k) => this.carry(arg, idle, `${prefix}carry.${k}`, node));
    const tested = this.bind(test, [...carries, ...captured]);
    this.body(test, inside, tested, `${prefix}test.`, depth + 1);
    const inner = this.bind(body, [...carries, ...captured]);
    this.body(body, inside, inner, prefix, depth + 1);
    this.close(carries, body.outputs.map((o) => (o.value === null ? undefined : replaced({ kind: 'value', name: o.value }, inner))));
    // The test decides on every rank alike: it is read as a predicate, which is replicated.
    const [flag] = test.outputs;
    const pred = flag?.value === null || flag === undefined ? undefined : replaced({ kind: 'value', name: flag.value }, tested);
    return carries.map((carry, k): Arg => {
      if (pred === undefined || !isRef(pred) || !isRef(carry)) return carry;
      const name = this.unique(`${prefix}out.${k}`);
      const type = this.tensor(carry.name, node);
      this.emit({ name, kind: 'call', target: 'aten.where.self', args: [pred, carry, carry], kwargs: {}, type, meta: {} }, idle);
      return { kind: 'value', name };
    });
  } // prettier-ignore

  /** A node that starts as the initial value; numbers are carried as they are. */
  private carry(init: Arg, scope: number, base: string, node: Node): Arg {
    if (!isRef(init) || this.types.get(init.name)?.kind !== 'tensor') return init;
    const name = this.unique(base);
    const type = this.tensor(init.name, node);
    this.emit({ name, kind: 'call', target: 'aten.clone.default', args: [init], kwargs: {}, type, meta: {} }, scope);
    return { kind: 'value', name };
  }

  private close(carries: readonly Arg[], out: readonly (Arg | undefined)[]): void {
    carries.forEach((carry, k) => {
      const value = out[k];
      if (isRef(carry) && value !== undefined && isRef(value) && this.types.get(value.name)?.kind === 'tensor')
        this.carries.push({ value: value.name, carry: carry.name });
    });
  }

  private bind(body: Graph, operands: readonly Arg[]): Map<string, Arg> {
    const renamed = new Map<string, Arg>();
    let position = 0;
    for (const inner of body.nodes) {
      if (inner.kind !== 'placeholder') continue;
      const operand = operands[position++];
      if (operand !== undefined) renamed.set(inner.name, operand);
    }
    return renamed;
  }

  private graphOf(arg: Arg | undefined, graph: Graph, node: Node): Graph {
    const body = arg !== undefined && isGraphRef(arg) ? getOwn(graph.subgraphs, arg.name) : undefined;
    if (body === undefined)
      throw new ShardwrightError('E_UNSUPPORTED', `'${node.target}' has no body to plan`, { node: node.name });
    return body;
  }

  private tensor(name: string, node: Node): TensorType {
    const type = this.types.get(name);
    if (type?.kind !== 'tensor')
      throw new ShardwrightError('E_UNSUPPORTED', `'${name}' of ${node.target} is no tensor`, { node: node.name });
    return tensorType(type.dtype, type.shape);
  }

  private unique(base: string): string {
    let name = base;
    for (let i = 1; this.names.has(name); i++) name = `${base}_${i}`;
    this.names.add(name);
    return name;
  }

  private emit(node: Node, scope: number): void {
    if (this.nodes.length >= MAX_NODES)
      throw new ShardwrightError('E_LIMIT', `the program has more than ${MAX_NODES} nodes with its bodies in line`, {});
    this.nodes.push(node);
    this.names.add(node.name);
    this.types.set(node.name, node.type);
    this.loops.place(node.name, scope);
  }
}

function sizeOf(type: TensorType): number | undefined {
  const [size] = type.shape;
  return typeof size === 'number' ? size : size?.example;
}

function nameOf(name: string, renamed: ReadonlyMap<string, Arg>): string {
  const value = renamed.get(name);
  return value !== undefined && isRef(value) ? value.name : name;
}

function replaced(arg: Arg, renamed: ReadonlyMap<string, Arg>): Arg {
  if (typeof arg !== 'object' || arg === null) return arg;
  if (isList(arg)) return arg.map((member) => replaced(member, renamed));
  switch (arg.kind) {
    case 'value':
      return renamed.get(arg.name) ?? arg;
    case 'slice':
      return {
        ...arg,
        start: replaced(arg.start, renamed),
        stop: replaced(arg.stop, renamed),
        step: replaced(arg.step, renamed),
      };
    default:
      return arg;
  }
}
