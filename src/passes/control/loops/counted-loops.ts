/** Finds the trip counts of `while_loop` calls that count with constants. */

import { nodesByName } from '../../../graph/nodes.ts';
import type { Arg, Graph, Node } from '../../../graph/types.ts';
import { getOwn, isGraphRef, isList, isRef, setOwn } from '../../../graph/value.ts';

/** Finds the counter of a loop of a graph; undefined where the number of trips depends on data. */
export type FindCounter = (
  loop: Node,
  graph: Graph,
  byName: ReadonlyMap<string, Node>,
) => Counter | undefined;

/**
 * Trip counts of `while_loop` calls: a carried integer that starts at a constant, grows by a
 * constant and is compared with a constant. The count becomes the keyword `trips`; other loops stay
 * as they are.
 *
 * @param find the counters of a vocabulary; by default StableHLO's
 */
export function withTripCounts(graph: Graph, find: FindCounter = counterOf): Graph {
  return counted(graph, find, new Map());
}

/** The effect of a counted loop on its counter. */
export interface Counter {
  /** Position among the carried values. */
  readonly index: number;
  readonly start: number;
  readonly step: number;
  readonly trips: number;
}

/** Bodies that are one object stay one object. */
function counted(graph: Graph, find: FindCounter, done: Map<Graph, Graph>): Graph {
  const known = done.get(graph);
  if (known !== undefined) return known;
  let changed = false;
  const subgraphs: Record<string, Graph> = {};
  for (const name of Object.keys(graph.subgraphs)) {
    const before = getOwn(graph.subgraphs, name)!;
    const after = counted(before, find, done);
    changed ||= after !== before;
    setOwn(subgraphs, name, after);
  }
  let byName: ReadonlyMap<string, Node> | undefined;
  const nodes = graph.nodes.map((node) => {
    if (node.target !== 'while_loop' || node.kind !== 'call' || Object.hasOwn(node.kwargs, 'trips'))
      return node;
    const counter = find(node, graph, (byName ??= nodesByName(graph)));
    if (counter === undefined) return node;
    changed = true;
    return { ...node, kwargs: { ...node.kwargs, trips: counter.trips } };
  });
  const result = changed ? { ...graph, nodes, subgraphs } : graph;
  done.set(graph, result);
  return result;
}

/** How a vocabulary writes what a counted loop is made of. */
interface CounterWords {
  /** The whole number that an argument is a constant of. */
  readonly constant: (arg: Arg | undefined, nodes: ReadonlyMap<string, Node>) => number | undefined;
  /**
   * The relation that a comparison of its first two arguments tests, `LT`, `LE`, `GT`, `GE` or
   * `NE`; undefined for any other node.
   */
  readonly comparison: (node: Node) => string | undefined;
  /** 1 for the sum of two arguments, -1 for their difference; undefined for any other node. */
  readonly sign: (node: Node) => 1 | -1 | undefined;
}

/** Finds the counters of a vocabulary. */
export function counterIn(words: CounterWords): FindCounter {
  return (loop, graph, byName) => {
    const [test, body, carried] = loop.args;
    const condition = bodyOf(test, graph);
    const step = bodyOf(body, graph);
    if (condition === undefined || step === undefined || carried === undefined || !isList(carried))
      return undefined;
    const tests = nodesByName(condition);
    const compare = tests.get(condition.outputs[0]?.value ?? '');
    const direction = compare === undefined ? undefined : words.comparison(compare);
    if (compare === undefined || direction === undefined) return undefined;
    const [left, right] = compare.args;
    const index = inputIndex(left, condition);
    const bound = words.constant(right, tests);
    if (index < 0 || index >= carried.length || bound === undefined) return undefined;
    const start = words.constant(carried[index], byName);
    const by = increment(step, index, words);
    if (start === undefined || by === undefined) return undefined;
    const trips = tripsOf(direction, start, bound, by);
    return trips === undefined ? undefined : { index, start, step: by, trips };
  };
}

/** The counter of a loop in the StableHLO vocabulary. */
export const counterOf: FindCounter = counterIn({
  constant: integer,
  comparison: ({ target, kwargs: { comparison_direction: direction } }) =>
    target === 'stablehlo.compare' && typeof direction === 'string' ? direction : undefined,
  sign: ({ target }) =>
    target === 'stablehlo.add' ? 1 : target === 'stablehlo.subtract' ? -1 : undefined,
});

/**
 * Trips of a loop that goes on while its counter is `LT`, `LE`, `GT`, `GE` or `NE` to the bound.
 */
function tripsOf(
  direction: string,
  start: number,
  bound: number,
  step: number,
): number | undefined {
  const distance =
    direction === 'LT' || direction === 'NE'
      ? bound - start
      : direction === 'LE'
        ? bound - start + 1
        : undefined;
  const up =
    distance ??
    (direction === 'GT' ? start - bound : direction === 'GE' ? start - bound + 1 : undefined);
  if (up === undefined) return undefined;
  const by = distance === undefined ? -step : step;
  if (by <= 0 || (direction === 'NE' && (up < 0 || up % by !== 0))) return undefined;
  const trips = Math.max(0, Math.ceil(up / by));
  return Number.isSafeInteger(trips) ? trips : undefined;
}

/** By how much the body adds to its input `index`. */
function increment(body: Graph, index: number, words: CounterWords): number | undefined {
  const nodes = nodesByName(body);
  const next = nodes.get(body.outputs[index]?.value ?? '');
  const sign = next === undefined ? undefined : words.sign(next);
  if (next === undefined || sign === undefined) return undefined;
  const [a, b] = next.args;
  const by =
    inputIndex(a, body) === index
      ? words.constant(b, nodes)
      : sign > 0 && inputIndex(b, body) === index
        ? words.constant(a, nodes)
        : undefined;
  return by === undefined ? undefined : sign * by;
}

export function bodyOf(arg: Arg | undefined, graph: Graph): Graph | undefined {
  return arg !== undefined && isGraphRef(arg) ? getOwn(graph.subgraphs, arg.name) : undefined;
}

/** Position of the input that an argument reads, -1 for anything else. */
export function inputIndex(arg: Arg | undefined, graph: Graph): number {
  if (arg === undefined || !isRef(arg)) return -1;
  const at = graph.nodes.findIndex((node) => node.name === arg.name);
  return at >= 0 && graph.nodes[at].kind === 'placeholder' ? at : -1;
}

/** The integer that an argument is a constant of. */
export function integer(
  arg: Arg | undefined,
  nodes: ReadonlyMap<string, Node>,
): number | undefined {
  if (arg === undefined || !isRef(arg)) return undefined;
  const node = nodes.get(arg.name);
  if (node?.target !== 'stablehlo.constant') return undefined;
  const [value] = node.args;
  return typeof value === 'number' ? value : undefined;
}
