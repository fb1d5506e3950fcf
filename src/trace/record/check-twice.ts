/**
 * The backstop: the function is traced a second time and the two graphs must agree. What differs
 * was read from somewhere that tracing cannot see: random numbers, clocks, counters, host state.
 */

import { defined } from '../../defined.ts';
import { printGraph } from '../../graph/text/write.ts';
import type { Arg, Dim, Graph, Node, ValueType } from '../../graph/types.ts';
import { mapOperands } from '../../graph/value.ts';
import { refusal } from '../errors/refusal.ts';
import { type DimScope, holds } from '../sizes/sizes.ts';
import { admissible } from './spec.ts';

/** Another admissible size for each dim, where the guards of the first trace leave one. */
export function otherSizes(dims: DimScope): Map<string, number> {
  const sizes = new Map(dims.examples);
  for (const range of dims.ranges.values()) {
    const { name, example, multiple } = range;
    for (let step = 1; step <= 64; step++) {
      const size = [example + step * multiple, example - step * multiple].find(
        (s) =>
          s >= 2 &&
          admissible(range, s) &&
          dims.guards.every((g) => holds(g, new Map(sizes).set(name, s))),
      );
      if (size === undefined) continue;
      sizes.set(name, size);
      break;
    }
  }
  return sizes;
}

/** @throws E_TRACE_UNSTABLE naming the first node that differs */
export function checkStable(first: Graph, second: Graph): void {
  const [a, b] = [first, second].map((graph) =>
    printGraph(withoutExamples(graph), { source: false }).split('\n'),
  );
  const at = a.findIndex((line, i) => line !== b[i]);
  if (at < 0 && a.length === b.length) return;
  const line = at < 0 ? a.length : at;
  const [was, is] = [a[line] ?? 'nothing more', b[line] ?? 'nothing more'].map((text) =>
    text.trim(),
  );
  const name = /^%([\w.]+) =/.exec(was)?.[1] ?? /^%([\w.]+) =/.exec(is)?.[1];
  const node =
    first.nodes.find((n) => n.name === name) ?? second.nodes.find((n) => n.name === name);
  throw refusal(
    'E_TRACE_UNSTABLE',
    `two traces of the same function differ: first ${was}, then ${is}`,
    node?.meta ?? {},
    {
      ...defined({ node: name }),
      hint:
        'what changes between runs (random numbers, clocks, counters) must be an input, or ' +
        'read through guardOn().',
    },
  );
}

/** The graph with symbolic sizes by name alone, so that traces at different sizes compare. */
function withoutExamples(graph: Graph): Graph {
  if (graph.dims === undefined && graph.subgraphs === undefined) return graph;
  const subgraphs = Object.fromEntries(
    Object.entries(graph.subgraphs).map(([k, body]) => [k, withoutExamples(body)]),
  );
  return { ...graph, nodes: graph.nodes.map(plainNode), subgraphs };
}

function plainNode(node: Node): Node {
  const kept = mapOperands(node, (name) => name);
  return {
    ...kept,
    args: kept.args.map(plainArg),
    kwargs: Object.fromEntries(
      Object.entries(kept.kwargs).map(([key, arg]) => [key, plainArg(arg)]),
    ),
    type: plainType(node.type),
  };
}

function plainArg(arg: Arg): Arg {
  if (Array.isArray(arg)) return arg.map(plainArg);
  if (typeof arg === 'object' && arg !== null && 'kind' in arg && arg.kind === 'size')
    return { kind: 'size', size: { sym: arg.size.sym } };
  return arg;
}

function plainType(type: ValueType): ValueType {
  if (type.kind === 'tensor') return { ...type, shape: type.shape.map(plainDim) };
  if (type.kind === 'tuple') return { ...type, items: type.items.map(plainType) };
  return type;
}

function plainDim(dim: Dim): Dim {
  return typeof dim === 'number' ? dim : { sym: dim.sym };
}
