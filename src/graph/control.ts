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
  readonly bodies: readonly {
    readonly name: string;
    readonly graph: Graph;
    /** Types that the call hands to the body's placeholders. */
    readonly inputs: readonly ValueType[];
  }[];
  readonly result: ValueType;
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
  node: {
    readonly target: string;
    readonly args: readonly Arg[];
    readonly kwargs: Readonly<Record<string, Arg>>;
  },
  subgraphs: Readonly<Record<string, Graph>>,
  typeOf: TypeOf,
): ControlCall | undefined {
  const { target, args } = node;
  if (!CONTROL.has(target)) return undefined;
  const body = (at: number): { name: string; graph: Graph } => {
    const arg: Arg | undefined = args[at];
    if (arg === undefined || !isGraphRef(arg))
      throw new Error(`argument ${at} of ${target} must be a subgraph`);
    const graph = getOwn(subgraphs, arg.name);
    if (graph === undefined) throw new Error(`there is no subgraph @${arg.name}`);
    return { name: arg.name, graph };
  };
  const operands = (at: number): ValueType[] => {
    const arg: Arg | undefined = args[at];
    if (arg === undefined || !isList(arg))
      throw new Error(`argument ${at} of ${target} must be a list of values`);
    return arg.map((member) => operand(member, typeOf));
  };
  switch (target) {
    case 'call': {
      const callee = body(0);
      return {
        bodies: [{ ...callee, inputs: operands(1) }],
        result: { kind: 'tuple', items: bodyResult(callee.graph) },
      };
    }
    case 'case': {
      const list: Arg | undefined = args[1];
      if (list === undefined || !isList(list) || list.length === 0)
        throw new Error('argument 1 of case must be a list of subgraphs');
      const inputs = operands(2);
      const branches = list.map((branch) => {
        const graph = isGraphRef(branch) ? getOwn(subgraphs, branch.name) : undefined;
        if (!isGraphRef(branch) || graph === undefined)
          throw new Error('a branch of case is no subgraph');
        return { name: branch.name, graph, inputs };
      });
      const [first, ...rest] = branches.map((branch) => bodyResult(branch.graph));
      for (const items of rest)
        if (items.length !== first.length || !items.every((type, i) => sameType(type, first[i])))
          throw new Error('the branches return values of different types');
      return { bodies: branches, result: { kind: 'tuple', items: first } };
    }
    case 'cond': {
      const inputs = operands(3);
      const [t, f] = [body(1), body(2)];
      const [a, b] = [bodyResult(t.graph), bodyResult(f.graph)];
      if (a.length !== b.length)
        throw new Error(
          `branches return ${a.length} and ${b.length} values; both must return equally many`,
        );
      return {
        bodies: [
          { ...t, inputs },
          { ...f, inputs },
        ],
        result: { kind: 'tuple', items: a },
      };
    }
    case 'while_loop': {
      const carried = operands(2);
      const inputs = [...carried, ...(args.length > 3 ? operands(3) : [])];
      const step = body(1);
      const items = bodyResult(step.graph);
      if (items.length !== carried.length)
        throw new Error(`the body returns ${items.length} values for a carry of ${carried.length}`);
      return {
        bodies: [
          { ...body(0), inputs },
          { ...step, inputs },
        ],
        result: { kind: 'tuple', items },
      };
    }
    case 'scan':
    case 'map':
    case 'map_impl': {
      const step = body(0);
      const at = scanPositions(target);
      const init = at.init === undefined ? [] : operands(at.init);
      const xs = operands(at.xs);
      const captured = args.length > at.captured ? operands(at.captured) : [];
      const length = scanLength(node.kwargs, xs);
      const inputs = [...init, ...xs.map((x) => sliceOf(x, target)), ...captured];
      const out = bodyResult(step.graph);
      if (out.length < init.length)
        throw new Error(`the body returns ${out.length} values for a carry of ${init.length}`);
      const items = out.map((type, i) => (i < init.length ? type : stacked(type, length)));
      return { bodies: [{ ...step, inputs }], result: { kind: 'tuple', items } };
    }
    case 'wrap_with_set_grad_enabled':
    case 'wrap_with_autocast': {
      const at = target === 'wrap_with_autocast' ? 4 : 1;
      const wrapped = body(at);
      const inputs = args.slice(at + 1).map((arg) => operand(arg, typeOf));
      return {
        bodies: [{ ...wrapped, inputs }],
        result: { kind: 'tuple', items: bodyResult(wrapped.graph) },
      };
    }
    case LOCAL_MAP: {
      const { body: name, operands: given, inSpecs, outSpecs, axes } = localMapCall(node);
      const graph = getOwn(subgraphs, name);
      if (graph === undefined) throw new Error(`there is no subgraph @${name}`);
      const inputs = given.map((arg, i) =>
        localType(operand(arg, typeOf), inSpecs[i], axes, 'cut', `operand ${i}`),
      );
      const items = bodyResult(graph);
      if (items.length !== outSpecs.length)
        throw new Error(`the body returns ${items.length} values for ${outSpecs.length} out_specs`);
      return {
        bodies: [{ name, graph, inputs }],
        result: {
          kind: 'tuple',
          items: items.map((t, i) => localType(t, outSpecs[i], axes, 'join', `result ${i}`)),
        },
      };
    }
    default:
      return undefined;
  }
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
