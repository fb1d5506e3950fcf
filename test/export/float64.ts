import type { Arg, DType, Graph, Node, ValueType } from '../../src/graph/types.ts';
import { isList } from '../../src/graph/value.ts';

const WIDE: Readonly<Partial<Record<DType, DType>>> = {
  f32: 'f64',
  bf16: 'f64',
  f16: 'f64',
  c64: 'c128',
};

const widened = (dtype: DType): DType => WIDE[dtype] ?? dtype;

function typeOf(type: ValueType): ValueType {
  if (type.kind === 'tuple') return { ...type, items: type.items.map(typeOf) };
  return type.kind === 'tensor' ? { ...type, dtype: widened(type.dtype) } : type;
}

function argOf(arg: Arg): Arg {
  if (isList(arg)) return arg.map(argOf);
  if (arg !== null && typeof arg === 'object' && arg.kind === 'dtype')
    return { ...arg, dtype: widened(arg.dtype) };
  return arg;
}

/** The same program in float64, so that what differs by more than its rounding is wrong. */
export function inFloat64(graph: Graph): Graph {
  const nodes = graph.nodes.map((node): Node => ({
    ...node,
    args: node.args.map(argOf),
    kwargs: Object.fromEntries(Object.entries(node.kwargs).map(([key, arg]) => [key, argOf(arg)])),
    type: typeOf(node.type),
  }));
  const bodies = Object.entries(graph.subgraphs).map(
    ([name, body]) => [name, inFloat64(body)] as const,
  );
  return { ...graph, nodes, subgraphs: Object.fromEntries(bodies) };
}
