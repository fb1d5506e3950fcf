/**
 * Finds the trip counts of `while_loop` calls that depend only on scalars of the graph, by running
 * these scalars.
 */

import type { Arg, Graph, Node } from '../../../graph/types.ts';
import { getOwn, isGraphRef, isList, isRef, setOwn } from '../../../graph/value.ts';

/**
 * Trip counts of `while_loop` calls in the aten vocabulary. A loop whose condition depends only on
 * scalars that the graph itself makes (a counter from `zeros([])`, say) is run on those scalars
 * alone; the count becomes the keyword `trips`. Loops whose condition depends on data stay as they
 * are.
 */
export function withScalarTrips(graph: Graph): Graph {
  return counted(graph, { steps: MAX_STEPS });
}

/**
 * Scalar operations that may still be run, for all loops of the graph together; beyond, trips count
 * as unknown.
 */
interface Budget {
  steps: number;
}
const MAX_STEPS = 5_000_000;

function counted(graph: Graph, budget: Budget): Graph {
  let changed = false;
  const subgraphs: Record<string, Graph> = {};
  for (const name of Object.keys(graph.subgraphs)) {
    const before = getOwn(graph.subgraphs, name)!;
    const after = counted(before, budget);
    changed ||= after !== before;
    setOwn(subgraphs, name, after);
  }
  let outer: Map<string, number> | undefined;
  const nodes = graph.nodes.map((node) => {
    if (node.kind !== 'call' || node.target !== 'while_loop' || Object.hasOwn(node.kwargs, 'trips'))
      return node;
    outer ??= evaluate(graph.nodes, new Map());
    const trips = tripsOf(node, graph, outer, budget);
    if (trips === undefined) return node;
    changed = true;
    return { ...node, kwargs: { ...node.kwargs, trips } };
  });
  return changed ? { ...graph, nodes, subgraphs } : graph;
}

function tripsOf(
  loop: Node,
  graph: Graph,
  outer: ReadonlyMap<string, number>,
  budget: Budget,
): number | undefined {
  const [test, body, carried, captured] = loop.args;
  const condition = bodyOf(test, graph);
  const step = bodyOf(body, graph);
  if (condition === undefined || step === undefined || carried === undefined || !isList(carried))
    return undefined;
  const fixed =
    captured !== undefined && isList(captured) ? captured.map((arg) => valueOf(arg, outer)) : [];
  let state = carried.map((arg) => valueOf(arg, outer));
  const goesOn = condition.outputs[0]?.value ?? null;
  if (goesOn === null) return undefined;
  const cost = condition.nodes.length + step.nodes.length;
  for (let trips = 0; budget.steps >= cost; trips++) {
    budget.steps -= cost;
    const decision = evaluate(condition.nodes, inputsOf(condition, [...state, ...fixed])).get(
      goesOn,
    );
    if (decision === undefined) return undefined;
    if (decision === 0) return trips;
    const made = evaluate(step.nodes, inputsOf(step, [...state, ...fixed]));
    state = step.outputs.map(({ value }) => (value === null ? undefined : made.get(value)));
  }
  return undefined;
}

function bodyOf(arg: Arg | undefined, graph: Graph): Graph | undefined {
  return arg !== undefined && isGraphRef(arg) ? getOwn(graph.subgraphs, arg.name) : undefined;
}

function inputsOf(body: Graph, values: readonly (number | undefined)[]): Map<string, number> {
  const known = new Map<string, number>();
  body.nodes.forEach((node, i) => {
    const value = node.kind === 'placeholder' ? values[i] : undefined;
    if (value !== undefined) known.set(node.name, value);
  });
  return known;
}

/** Values of the scalar nodes that are made from known scalars. */
function evaluate(nodes: readonly Node[], known: Map<string, number>): Map<string, number> {
  for (const node of nodes) {
    if (node.kind !== 'call' || !isScalar(node)) continue;
    const value = scalar(node, known);
    if (value !== undefined && Number.isFinite(value)) known.set(node.name, value);
  }
  return known;
}

function isScalar(node: Node): boolean {
  return node.type.kind === 'sym' || (node.type.kind === 'tensor' && node.type.shape.length === 0);
}

function valueOf(arg: Arg | undefined, known: ReadonlyMap<string, number>): number | undefined {
  if (typeof arg === 'number') return arg;
  if (typeof arg === 'boolean') return arg ? 1 : 0;
  if (arg === null || typeof arg !== 'object' || isList(arg)) return undefined;
  if (arg.kind === 'float') return arg.value;
  return isRef(arg) ? known.get(arg.name) : undefined;
}

function scalar(node: Node, known: ReadonlyMap<string, number>): number | undefined {
  const [, operator = '', overload = ''] =
    /^(?:aten|operator)\.(\w+?)_?(?:\.(\w+))?$/.exec(node.target) ?? [];
  const a = valueOf(node.args[0], known);
  const b = valueOf(node.args[1], known);
  switch (operator) {
    case 'zeros':
      return 0;
    case 'ones':
      return 1;
    case 'full':
      return b;
    case 'scalar_tensor':
    case 'clone':
    case 'detach':
    case 'alias':
    case 'lift_fresh_copy':
      return a;
    case 'logical_not':
      return a === undefined ? undefined : a === 0 ? 1 : 0;
    default:
  }
  if (a === undefined || b === undefined) return undefined;
  // `alpha` scales the second operand of add and sub.
  const alpha = valueOf(
    getOwn(node.kwargs, 'alpha') ?? (overload === 'Scalar' ? node.args[2] : undefined) ?? 1,
    known,
  );
  const integer = node.type.kind === 'tensor' && /^[iu]/.test(node.type.dtype);
  switch (operator) {
    case 'add':
      return alpha === undefined ? undefined : a + alpha * b;
    case 'sub':
      return alpha === undefined ? undefined : a - alpha * b;
    case 'mul':
      return a * b;
    case 'div':
      return integer ? undefined : a / b;
    case 'lt':
      return a < b ? 1 : 0;
    case 'le':
      return a <= b ? 1 : 0;
    case 'gt':
      return a > b ? 1 : 0;
    case 'ge':
      return a >= b ? 1 : 0;
    case 'eq':
      return a === b ? 1 : 0;
    case 'ne':
      return a !== b ? 1 : 0;
    case 'logical_and':
      return a !== 0 && b !== 0 ? 1 : 0;
    case 'logical_or':
      return a !== 0 || b !== 0 ? 1 : 0;
    default:
      return undefined;
  }
}
