/**
 * Finds how exact the results of a program can be: the coarsest floating dtype that each is
 * computed from.
 */
import type { DType, Graph, Node, Output, ValueType } from '../../graph/types.ts';
import { eachOperand, isGraphRef } from '../../graph/value.ts';

/** Floating dtypes from the coarsest to the finest, as PyTorch calls them. */
const COARSEST_FIRST: readonly (readonly [DType, string])[] = [
  ['bf16', 'bfloat16'],
  ['f16', 'float16'],
  ['f32', 'float32'],
  ['c64', 'float32'],
];

/**
 * By role and name of an output: the coarsest dtype of what it is computed from, where that is
 * coarser than float64. A float32 loss of bfloat16 logits is as exact as these.
 */
export function precisionOf(graph: Graph): Readonly<Record<string, string>> {
  const whole = COARSEST_FIRST.length;
  const at = (dtype: DType): number => {
    const place = COARSEST_FIRST.findIndex(([own]) => own === dtype);
    return place < 0 ? whole : place;
  };
  const ofType = (type: ValueType): number => {
    if (type.kind === 'tuple') return Math.min(whole, ...type.items.map(ofType));
    return type.kind === 'tensor' ? at(type.dtype) : whole;
  };
  const ofBodies = ({ nodes, subgraphs }: Pick<Graph, 'nodes' | 'subgraphs'>): number =>
    Math.min(
      whole,
      ...nodes.map(({ type }) => ofType(type)),
      ...Object.values(subgraphs).map(ofBodies),
    );
  const bodies = Math.min(whole, ...Object.values(graph.subgraphs).map(ofBodies));
  const found = new Map<string, number>();
  const coarsestOf = (node: Node): number => {
    let coarsest = ofType(node.type);
    if (node.args.some(isGraphRef)) coarsest = Math.min(coarsest, bodies);
    eachOperand(node, (name) => (coarsest = Math.min(coarsest, found.get(name) ?? whole)));
    return coarsest;
  };
  for (const node of graph.nodes) found.set(node.name, coarsestOf(node));
  const keyOf = ({ role, of, index }: Output): string => `${role} ${of ?? index ?? ''}`;
  return Object.fromEntries(
    graph.outputs.flatMap((output) => {
      const place = output.value === null ? whole : (found.get(output.value) ?? whole);
      return place === whole ? [] : [[keyOf(output), COARSEST_FIRST[place][1]]];
    }),
  );
}
