/** Reads control-flow calls: which bodies run, on which inputs, and what they return. */

import { LOCAL_MAP, localMapCall, localType } from './local-map.ts';
import type { Arg, Dim, Graph, Node, TensorType, ValueType } from './types.ts';
import {
  getOwn,
  isGraphRef,
  isList,
  isRef,
  NONE_TYPE,
  sameType,
  tensorType,
  typeText,
} from './value.ts';

/**
 * Control-flow calls: which bodies a call runs, on which inputs, and what it returns. This is
 * structure, not operator knowledge: conventions of torch.ops.higher_order, which tracing follows
 * too.
 */
interface ControlCall {
  readonly bodies: readonly (Body & {
    /** Types that the call hands to the body's placeholders. */
    readonly inputs: readonly ValueType[];
  })[];
  readonly result: ValueType;
}

/** A subgraph under its name. */
interface Body {
  readonly name: string;
  readonly graph: Graph;
}

/** Targets that this module understands. */
export const CONTROL_TARGETS: readonly string[] = [
  'call',
  'cond',
  'case',
  'while_loop',
  'scan',
  'map',
  'map_impl',
  'wrap_with_set_grad_enabled',
  'wrap_with_autocast',
  LOCAL_MAP,
];

const CONTROL = new Set(CONTROL_TARGETS);

/** Tells whether a program has loops, branches or calls of bodies; bodies of operators are none. */
export function runsBodies({ nodes }: Pick<Graph, 'nodes'>): boolean {
  return nodes.some(({ kind, target }) => kind === 'call' && CONTROL.has(target));
}

/** Positions of a scan's or a map's arguments: the body is 0, a map carries nothing. */
export function scanPositions(target: string): {
  readonly init?: number;
  readonly xs: number;
  readonly captured: number;
} {
  return target === 'scan' ? { init: 1, xs: 2, captured: 3 } : { xs: 1, captured: 2 };
}

/** Type of a name that the graph in hand defines. */
type TypeOf = (name: string) => ValueType;

/**
 * Bodies and result of a control-flow call; undefined for any other call.
 *
 * @throws Error (plain, one sentence) when the call does not have the form that its target requires
 */
export function controlCall(
  node: CallOfBodies,
  subgraphs: Readonly<Record<string, Graph>>,
  typeOf: TypeOf,
): ControlCall | undefined {
  if (!CONTROL.has(node.target)) return undefined;
  return new ControlReader(node, subgraphs, typeOf).read();
}

interface CallOfBodies {
  readonly target: string;
  readonly args: readonly Arg[];
  readonly kwargs: Readonly<Record<string, Arg>>;
}

/** Reads one control-flow call: a method for each form of the arguments. */
class ControlReader {
  constructor(
    private readonly node: CallOfBodies,
    private readonly subgraphs: Readonly<Record<string, Graph>>,
    private readonly typeOf: TypeOf,
  ) {}

  read(): ControlCall | undefined {
    switch (this.node.target) {
      case 'call':
        return this.wrapped(this.body(0), this.operands(1));
      case 'case':
        return this.branches();
      case 'cond':
        return this.cond();
      case 'while_loop':
        return this.whileLoop();
      case 'scan':
      case 'map':
      case 'map_impl':
        return this.scan();
      case 'wrap_with_set_grad_enabled':
        return this.wrappedAt(1);
      case 'wrap_with_autocast':
        return this.wrappedAt(4);
      case LOCAL_MAP:
        return this.localMap();
      default:
        return undefined;
    }
  }

  private body(at: number): Body {
    const arg: Arg | undefined = this.node.args[at];
    if (arg === undefined || !isGraphRef(arg))
      throw new Error(`argument ${at} of ${this.node.target} must be a subgraph`);
    return this.subgraph(arg.name);
  }

  private subgraph(name: string): Body {
    const graph = getOwn(this.subgraphs, name);
    if (graph === undefined) throw new Error(`there is no subgraph @${name}`);
    return { name, graph };
  }

  private operands(at: number): ValueType[] {
    const arg: Arg | undefined = this.node.args[at];
    if (arg === undefined || !isList(arg))
      throw new Error(`argument ${at} of ${this.node.target} must be a list of values`);
    return arg.map((member) => operand(member, this.typeOf));
  }

  /** A body that runs once, and whose results are those of the call. */
  private wrapped(callee: Body, inputs: readonly ValueType[]): ControlCall {
    return { bodies: [{ ...callee, inputs }], result: tupleOf(bodyResult(callee.graph)) };
  }

  /** A body at a position, with the arguments after it as its inputs. */
  private wrappedAt(at: number): ControlCall {
    const callee = this.body(at);
    const rest = this.node.args.slice(at + 1);
    return this.wrapped(
      callee,
      rest.map((arg) => operand(arg, this.typeOf)),
    );
  }

  private branches(): ControlCall {
    const list: Arg | undefined = this.node.args[1];
    if (list === undefined || !isList(list) || list.length === 0)
      throw new Error('argument 1 of case must be a list of subgraphs');
    const inputs = this.operands(2);
    const bodies = list.map((branch) => {
      const graph = isGraphRef(branch) ? getOwn(this.subgraphs, branch.name) : undefined;
      if (!isGraphRef(branch) || graph === undefined)
        throw new Error('a branch of case is not a subgraph');
      return { name: branch.name, graph, inputs };
    });
    const [first, ...rest] = bodies.map(({ graph }) => bodyResult(graph));
    for (const items of rest)
      if (items.length !== first.length || !items.every((type, i) => sameType(type, first[i])))
        throw new Error('the branches return values of different types');
    return { bodies, result: tupleOf(first) };
  }

  private cond(): ControlCall {
    const inputs = this.operands(3);
    const [t, f] = [this.body(1), this.body(2)];
    const [a, b] = [bodyResult(t.graph), bodyResult(f.graph)];
    if (a.length !== b.length)
      throw new Error(
        `branches return ${a.length} and ${b.length} values; both must return equally many`,
      );
    const bodies = [
      { ...t, inputs },
      { ...f, inputs },
    ];
    return { bodies, result: tupleOf(a) };
  }

  private whileLoop(): ControlCall {
    const carried = this.operands(2);
    const inputs = [...carried, ...(this.node.args.length > 3 ? this.operands(3) : [])];
    const step = this.body(1);
    const items = bodyResult(step.graph);
    if (items.length !== carried.length)
      throw new Error(`the body returns ${items.length} values for a carry of ${carried.length}`);
    const bodies = [
      { ...this.body(0), inputs },
      { ...step, inputs },
    ];
    return { bodies, result: tupleOf(items) };
  }

  private scan(): ControlCall {
    const { target, args, kwargs } = this.node;
    const step = this.body(0);
    const at = scanPositions(target);
    const init = at.init === undefined ? [] : this.operands(at.init);
    const xs = this.operands(at.xs);
    const captured = args.length > at.captured ? this.operands(at.captured) : [];
    const length = scanLength(kwargs, xs);
    const inputs = [...init, ...xs.map((x) => sliceOf(x, target)), ...captured];
    const out = bodyResult(step.graph);
    if (out.length < init.length)
      throw new Error(`the body returns ${out.length} values for a carry of ${init.length}`);
    const items = out.map((type, i) => (i < init.length ? type : stacked(type, length)));
    return { bodies: [{ ...step, inputs }], result: tupleOf(items) };
  }

  private localMap(): ControlCall {
    const { body, operands, inSpecs, outSpecs, axes } = localMapCall(this.node);
    const callee = this.subgraph(body);
    const inputs = operands.map((arg, i) =>
      localType(operand(arg, this.typeOf), inSpecs[i], axes, 'cut', `operand ${i}`),
    );
    const items = bodyResult(callee.graph);
    if (items.length !== outSpecs.length)
      throw new Error(`the body returns ${items.length} values for ${outSpecs.length} out_specs`);
    return {
      bodies: [{ ...callee, inputs }],
      result: tupleOf(items.map((t, i) => localType(t, outSpecs[i], axes, 'join', `result ${i}`))),
    };
  }
}

function tupleOf(items: readonly ValueType[]): ValueType {
  return { kind: 'tuple', items };
}

/** How often the predicate of a `cond` is stated to be true, 0 to 1. */
export function statedProbability({
  kwargs,
}: {
  readonly kwargs: Readonly<Record<string, Arg>>;
}): number | undefined {
  const prob = getOwn(kwargs, 'prob');
  return prob !== undefined &&
    prob !== null &&
    typeof prob === 'object' &&
    !isList(prob) &&
    prob.kind === 'float'
    ? prob.value
    : undefined;
}

/**
 * Trips of a `while_loop` for its costs: those that are known, else the most, else those that the
 * program expects.
 */
export function statedTrips({
  kwargs,
}: {
  readonly kwargs: Readonly<Record<string, Arg>>;
}): number | undefined {
  const stated =
    getOwn(kwargs, 'trips') ?? getOwn(kwargs, 'max_trips') ?? getOwn(kwargs, 'expected_trips');
  return typeof stated === 'number' ? stated : undefined;
}

/** Types that a graph returns, in order; `none` where it returns none. */
export function bodyResult(graph: Graph): ValueType[] {
  const wanted = new Map<string, ValueType>();
  for (const node of graph.nodes) wanted.set(node.name, node.type);
  return graph.outputs.map((o) =>
    o.value === null ? NONE_TYPE : (wanted.get(o.value) ?? NONE_TYPE),
  );
}

/** Inputs of a graph, in order. */
export function placeholdersOf(graph: Graph): readonly Node[] {
  const { nodes } = graph;
  let n = 0;
  while (n < nodes.length && nodes[n].kind === 'placeholder') n++;
  return nodes.slice(0, n);
}

function operand(arg: Arg, typeOf: TypeOf): ValueType {
  if (isRef(arg)) return typeOf(arg.name);
  // Integers and symbolic sizes may be carried as well.
  if (typeof arg === 'number' || typeof arg === 'bigint') return { kind: 'sym' };
  if (arg !== null && typeof arg === 'object' && !isList(arg) && arg.kind === 'size')
    return { kind: 'sym' };
  return NONE_TYPE;
}

function scanLength(kwargs: Readonly<Record<string, Arg>>, xs: readonly ValueType[]): Dim {
  for (const x of xs) if (x.kind === 'tensor' && x.shape.length > 0) return x.shape[0];
  const stated = getOwn(kwargs, 'length');
  if (typeof stated === 'number') return stated;
  throw new Error('a scan without scanned tensors needs a length');
}

function sliceOf(type: ValueType, target: string): ValueType {
  if (type.kind !== 'tensor') return type;
  if (type.shape.length === 0)
    throw new Error(`${target} cannot slice a scalar of type ${typeText(type)}`);
  return tensorType(type.dtype, type.shape.slice(1));
}

function stacked(type: ValueType, length: Dim): ValueType {
  if (type.kind !== 'tensor') return type;
  return tensorType((type satisfies TensorType).dtype, [length, ...type.shape]);
}
