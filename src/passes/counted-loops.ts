import type { Arg, Graph, Node } from '../graph/types.ts';
import { getOwn, isGraphRef, isList, isRef, setOwn } from '../graph/value.ts';

/** Finds the counter of a loop of a graph; undefined where the number of trips depends on data. */
export type FindCounter = (loop: Node, graph: Graph, byName: ReadonlyMap<string, Node>) => Counter | undefined;

/**
 * Trip counts of `while_loop` calls: a carried integer that starts at a constant, grows by a constant and is compared with a
 * constant. The count becomes the keyword `trips`; other loops stay as they are.
 *
 * @param find the counters of a vocabulary; by default StableHLO's
 */
export function withTripCounts(graph: Graph, find: FindCounter = counterOf): Graph {
  return counted(graph, find, new Map());
}

/** What a counted loop does to its counter. */
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
  const byName = new Map(graph.nodes.map((node) => [node.name, node]));
  const nodes = graph.nodes.map((node) => {
    if (node.target !== 'while_loop' || node.kind !== 'call' || Object.hasOwn(node.kwargs, 'trips')) return node;
    const counter = find(node, graph, byName);
    if (counter === undefined) return node;
    changed = true;
    return { ...node, kwargs: { ...node.kwargs, trips: counter.trips } };
  });
  const result = changed ? { ...graph, nodes, subgraphs } : graph;
  done.set(graph, result);
  return result;
}

/** The counter of a loop in the StableHLO vocabulary. */
export function counterOf(loop: Node, graph: Graph, byName: ReadonlyMap<string, Node>): Counter | undefined {
  const [test, body, carried] = loop.args;
  const condition = bodyOf(test, graph);
  const step = bodyOf(body, graph);
  if (condition === undefined || step === undefined || carried === undefined || !isList(carried)) return undefined;
  const tests = new Map(condition.nodes.map((node) => [node.name, node]));
  const compare = tests.get(condition.outputs[0]?.value ?? '');
  if (compare?.target !== 'stablehlo.compare') return undefined;
  const direction = compare.kwargs.comparison_direction;
  const [left, right] = compare.args;
  const index = inputIndex(left, condition);
  const bound = integer(right, tests);
  if (index < 0 || index >= carried.length || bound === undefined) return undefined;
  const start = integer(carried[index], byName);
  const stepBy = increment(step, index);
  if (start === undefined || stepBy === undefined) return undefined;
  const trips = tripsOf(typeof direction === 'string' ? direction : '', start, bound, stepBy);
  return trips === undefined ? undefined : { index, start, step: stepBy, trips };
}

/** Trips of a loop that goes on while its counter is `LT`, `LE`, `GT`, `GE` or `NE` to the bound. */
export function tripsOf(direction: string, start: number, bound: number, step: number): number | undefined {
  const distance =
    direction === 'LT' || direction === 'NE' ? bound - start : direction === 'LE' ? bound - start + 1 : undefined;
  const up = distance ?? (direction === 'GT' ? start - bound : direction === 'GE' ? start - bound + 1 : undefined);
  if (up === undefined) return undefined;
  const by = distance === undefined ? -step : step;
  if (by <= 0 || (direction === 'NE' && (up < 0 || up % by !== 0))) return undefined;
  const trips = Math.max(0, Math.ceil(up / by));
  return Number.isSafeInteger(trips) ? trips : undefined;
}

/** By how much the body adds to its input `index`. */
function increment(body: Graph, index: number): number | undefined {
  const nodes = new Map(body.nodes.map((node) => [node.name, node]));
  const next = nodes.get(body.outputs[index]?.value ?? '');
  if (next?.target !== 'stablehlo.add' && next?.target !== 'stablehlo.subtract') return undefined;
  const [a, b] = next.args;
  const sign = next.target === 'stablehlo.add' ? 1 : -1;
  const by =
    inputIndex(a, body) === index
      ? integer(b, nodes)
      : sign > 0 && inputIndex(b, body) === index
        ? integer(a, nodes)
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
export function integer(arg: Arg | undefined, nodes: ReadonlyMap<string, Node>): number | undefined {
  if (arg === undefined || !isRef(arg)) return undefined;
  const node = nodes.get(arg.name);
  if (node?.target !== 'stablehlo.constant') return undefined;
  const [value] = node.args;
  return typeof value === 'number' ? value : undefined;
}
