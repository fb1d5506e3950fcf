import type { Arg, Graph, Node } from '../graph/types.ts';
import { isList, isRef } from '../graph/value.ts';
import { bodyOf, inputIndex, tripsOf, type Counter } from './counted-loops.ts';

/**
 * The counter of a `while_loop` in the aten vocabulary, as tracing and torch.export write it: `i.lt(5)` as the condition,
 * `i.add(1)` in the body, a constant before the loop.
 */
export function atenCounter(loop: Node, graph: Graph, byName: ReadonlyMap<string, Node>): Counter | undefined {
  const [test, body, carried] = loop.args;
  const condition = bodyOf(test, graph);
  const step = bodyOf(body, graph);
  if (condition === undefined || step === undefined || carried === undefined || !isList(carried)) return undefined;
  const tests = new Map(condition.nodes.map((node) => [node.name, node]));
  const compare = tests.get(condition.outputs[0]?.value ?? '');
  const direction = COMPARISONS.get(compare?.target ?? '');
  if (compare === undefined || direction === undefined) return undefined;
  const index = inputIndex(compare.args[0], condition);
  const bound = constant(compare.args[1], tests);
  if (index < 0 || index >= carried.length || bound === undefined) return undefined;
  const start = constant(carried[index], byName);
  const by = increment(step, index);
  if (start === undefined || by === undefined) return undefined;
  const trips = tripsOf(direction, start, bound, by);
  return trips === undefined ? undefined : { index, start, step: by, trips };
}

const COMPARISONS: ReadonlyMap<string, string> = new Map(
  ['lt', 'le', 'gt', 'ge', 'ne'].flatMap((name) =>
    ['Scalar', 'Tensor'].map((form): [string, string] => [`aten.${name}.${form}`, name.toUpperCase()]),
  ),
);

function increment(body: Graph, index: number): number | undefined {
  const nodes = new Map(body.nodes.map((node) => [node.name, node]));
  const next = nodes.get(body.outputs[index]?.value ?? '');
  const sign = /^aten\.(add|sub)\.(Tensor|Scalar)$/.exec(next?.target ?? '')?.[1];
  // `alpha` multiplies the second operand.
  if (next === undefined || sign === undefined || next.args.length !== 2 || Object.keys(next.kwargs).length > 0)
    return undefined;
  const [a, b] = next.args;
  if (inputIndex(a, body) === index) {
    const by = constant(b, nodes);
    return by === undefined || sign === 'add' ? by : -by;
  }
  return sign === 'add' && inputIndex(b, body) === index ? constant(a, nodes) : undefined;
}

/** A whole number, as a literal or as a scalar that a factory makes. */
function constant(arg: Arg | undefined, nodes: ReadonlyMap<string, Node>): number | undefined {
  if (typeof arg === 'number') return Number.isSafeInteger(arg) ? arg : undefined;
  if (arg === undefined || !isRef(arg)) return undefined;
  const node = nodes.get(arg.name);
  if (node?.type.kind !== 'tensor' || node.type.shape.length > 0) return undefined;
  switch (node.target) {
    case 'aten.full.default':
      return constant(node.args[1], nodes);
    case 'aten.zeros.default':
      return 0;
    case 'aten.ones.default':
      return 1;
    case 'aten.scalar_tensor.default':
      return constant(node.args[0], nodes);
    default:
      return undefined;
  }
}
