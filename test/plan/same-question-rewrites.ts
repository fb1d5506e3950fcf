/**
 * Ways to write one program differently. What goes in is a graph, what comes out is a graph that
 * computes the same, so that nothing but the writing differs.
 */
import type { Arg, Graph, GraphRef, Node, Output } from '../../src/graph/types.ts';
import { mapOperands } from '../../src/graph/value.ts';

/** Draws a whole number from 0 to n - 1. */
export type Draw = (n: number) => number;

/** The values that a node reads, found in its arguments. */
function reads({ args, kwargs }: Node): string[] {
  const names: string[] = [];
  const walk = (arg: unknown): void => {
    if (Array.isArray(arg)) arg.forEach(walk);
    else if (typeof arg === 'object' && arg !== null) {
      const { kind, name } = arg as { kind?: string; name?: string };
      if (kind === 'value' && name !== undefined) names.push(name);
      else Object.values(arg).forEach(walk);
    }
  };
  walk(args);
  walk(kwargs);
  return names;
}

/** An order of the calls, drawn among all that respect who reads whom; inputs stay first. */
export function reordered(graph: Graph, draw: Draw): Graph {
  const inputs = graph.nodes.filter(({ kind }) => kind === 'placeholder');
  const made = new Set(inputs.map(({ name }) => name));
  const left = graph.nodes.filter(({ kind }) => kind !== 'placeholder');
  const calls: Node[] = [];
  while (left.length > 0) {
    const ready = left.filter((node) => reads(node).every((name) => made.has(name)));
    const [next] = left.splice(left.indexOf(ready[draw(ready.length)]), 1);
    made.add(next.name);
    calls.push(next);
  }
  return { ...graph, nodes: [...inputs, ...calls] };
}

/** The inputs in another order. */
export function permuted(graph: Graph, draw: Draw): Graph {
  const inputs = graph.nodes.filter(({ kind }) => kind === 'placeholder');
  const order: Node[] = [];
  while (inputs.length > 0) order.push(...inputs.splice(draw(inputs.length), 1));
  return { ...graph, nodes: [...order, ...graph.nodes.filter((n) => n.kind !== 'placeholder')] };
}

/** Every value and every role with another name. */
export function renamed(graph: Graph, rename: (name: string) => string): Graph {
  const arg = (a: Arg): Arg => {
    if (Array.isArray(a)) return a.map(arg);
    if (typeof a !== 'object' || a === null) return a;
    const { kind } = a as { kind: string };
    if (kind === 'value') return { kind: 'value', name: rename((a as GraphRef).name) };
    if (kind !== 'slice') return a;
    const { start, stop, step } = a as { start: Arg; stop: Arg; step: Arg };
    return { kind: 'slice', start: arg(start), stop: arg(stop), step: arg(step) };
  };
  const node = (n: Node): Node => {
    const { roleName, of, repeats, ...meta } = n.meta;
    return {
      ...n,
      name: rename(n.name),
      target: n.kind === 'placeholder' ? rename(n.target) : n.target,
      args: n.args.map(arg),
      kwargs: Object.fromEntries(Object.entries(n.kwargs).map(([key, a]) => [key, arg(a)])),
      meta: {
        ...meta,
        ...(roleName === undefined ? {} : { roleName: rename(roleName) }),
        ...(of === undefined ? {} : { of: rename(of) }),
        ...(repeats === undefined ? {} : { repeats: rename(repeats) }),
      },
    };
  };
  const output = ({ of, value, ...more }: Output): Output => ({
    ...more,
    value: value === null ? null : rename(value),
    ...(of === undefined ? {} : { of: rename(of) }),
  });
  const { ties, ...rest } = graph;
  return {
    ...rest,
    nodes: graph.nodes.map(node),
    outputs: graph.outputs.map(output),
    ...(ties === undefined ? {} : { ties: ties.map((group) => group.map(rename)) }),
  };
}

/** A call more, which reads some value and whose result nobody reads. */
export function withDeadCall(graph: Graph, draw: Draw): Graph {
  const tensors = graph.nodes.filter(
    ({ type, meta }) =>
      type.kind === 'tensor' && /^(f32|f64|bf16)$/.test(type.dtype) && meta.role !== 'tangent',
  );
  const source = tensors[draw(tensors.length)];
  const dead: Node = {
    name: 'nobody_reads_this',
    kind: 'call',
    target: 'aten.exp.default',
    args: [{ kind: 'value', name: source.name }],
    kwargs: {},
    type: source.type,
    meta: { phase: source.meta.phase === 'backward' ? 'backward' : 'forward' },
  };
  return { ...graph, nodes: [...graph.nodes, dead] };
}

/** A value that its readers read through a reshape to the sizes that it has. */
export function reshaped(graph: Graph, name: string): Graph {
  return readThrough(graph, name, (sizes) => [['aten.view.default', [sizes], sizes]]);
}

/** A matrix that its readers read through a transpose of its transpose. */
export function transposedTwice(graph: Graph, name: string): Graph {
  return readThrough(graph, name, (sizes) => [
    ['aten.t.default', [], sizes.toReversed()],
    ['aten.t.default', [], sizes],
  ]);
}

/** A view by its operator, its arguments after the first, and its sizes. */
type View = readonly [target: string, args: readonly Arg[], sizes: readonly number[]];

function readThrough(
  graph: Graph,
  name: string,
  viewsOf: (sizes: readonly number[]) => readonly View[],
): Graph {
  const at = graph.nodes.findIndex((node) => node.name === name);
  const { type, meta } = graph.nodes[at];
  if (type.kind !== 'tensor') throw new Error(`${name} is no tensor`);
  let last = name;
  const views = viewsOf(type.shape as readonly number[]).map(([target, args, sizes], k): Node => {
    const of = last;
    last = `view_of_${name}_${k}`;
    return {
      name: last,
      kind: 'call',
      target,
      args: [{ kind: 'value', name: of }, ...args],
      kwargs: {},
      type: { ...type, shape: sizes },
      meta: { phase: meta.phase ?? 'forward' },
    };
  });
  const through = (node: Node): Node =>
    mapOperands(node, (value) => (value === name ? last : value));
  return {
    ...graph,
    nodes: [...graph.nodes.slice(0, at + 1), ...views, ...graph.nodes.slice(at + 1).map(through)],
  };
}

/** Two programs that share nothing, one after the other. */
export function twice(graph: Graph): Graph {
  const outputs = graph.outputs.filter(({ role }) => role === 'output').length;
  const other = renamed(graph, (name) => `${name}_twin`);
  const nodes = other.nodes.map((node): Node => {
    const { roleIndex } = node.meta;
    return roleIndex === undefined
      ? node
      : { ...node, meta: { ...node.meta, roleIndex: roleIndex + outputs } };
  });
  const moved = other.outputs.map((output): Output =>
    output.index === undefined ? output : { ...output, index: output.index + outputs },
  );
  const isInput = ({ kind }: Node): boolean => kind === 'placeholder';
  return {
    ...graph,
    nodes: [
      ...graph.nodes.filter(isInput),
      ...nodes.filter(isInput),
      ...graph.nodes.filter((n) => !isInput(n)),
      ...nodes.filter((n) => !isInput(n)),
    ],
    outputs: [...graph.outputs, ...moved],
  };
}
