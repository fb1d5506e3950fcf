import type { Arg, Dim, Graph, Node, ValueType } from '../graph/types.ts';
import { isList, setOwn } from '../graph/value.ts';

/** The graph with its symbolic sizes fixed at their examples, and a note that says so; as it is where there are none. */
export function atExampleSizes(graph: Graph): Graph {
  const fixed = new Set<string>();
  const result = fix(graph, fixed);
  if (fixed.size === 0) return graph;
  const note = `Symbolic sizes are fixed at their examples: ${[...fixed].sort().join(', ')}.`;
  return { ...result, notes: [...(graph.notes ?? []), note] };
}

function fix(graph: Graph, fixed: Set<string>): Graph {
  const subgraphs: Record<string, Graph> = {};
  for (const [name, body] of Object.entries(graph.subgraphs)) setOwn(subgraphs, name, fix(body, fixed));
  return { ...graph, nodes: graph.nodes.map((node) => fixNode(node, fixed)), subgraphs };
}

function fixNode(node: Node, fixed: Set<string>): Node {
  const kwargs: Record<string, Arg> = {};
  for (const [key, arg] of Object.entries(node.kwargs)) setOwn(kwargs, key, fixArg(arg, fixed));
  return { ...node, type: fixType(node.type, fixed), args: node.args.map((arg) => fixArg(arg, fixed)), kwargs };
}

/** A size without an example stays, and whatever reads it says so. */
function fixDim(dim: Dim, fixed: Set<string>): Dim {
  if (typeof dim === 'number' || dim.example === undefined) return dim;
  fixed.add(`${dim.sym} = ${dim.example}`);
  return dim.example;
}

function fixType(type: ValueType, fixed: Set<string>): ValueType {
  if (type.kind === 'tuple') return { ...type, items: type.items.map((item) => fixType(item, fixed)) };
  if (type.kind !== 'tensor' || type.shape.every((d) => typeof d === 'number')) return type;
  const stride = type.stride === undefined ? {} : { stride: type.stride.map((d) => fixDim(d, fixed)) };
  return { ...type, shape: type.shape.map((d) => fixDim(d, fixed)), ...stride };
}

function fixArg(arg: Arg, fixed: Set<string>): Arg {
  if (isList(arg)) return arg.map((member) => fixArg(member, fixed));
  if (arg === null || typeof arg !== 'object') return arg;
  if (arg.kind === 'size') {
    const size = fixDim(arg.size, fixed);
    return typeof size === 'number' ? size : arg;
  }
  if (arg.kind !== 'slice') return arg;
  const [start, stop, step] = [arg.start, arg.stop, arg.step].map((part) => fixArg(part, fixed));
  return { kind: 'slice', start, stop, step };
}
