/**
 * Attributes the difference of two choices of a model to the terms of the objective, in seconds.
 */
import { nameOfValue } from '../choice/decode.ts';
import type { Model } from '../model/model.ts';

/** One term of the objective under two choices, in seconds; `delta` is `after - before`. */
export interface Term {
  readonly term: string;
  readonly before: number;
  readonly after: number;
  readonly delta: number;
}

/**
 * Every term of the objective that two choices disagree on, largest change first, ties by name. The
 * problem is pairwise and its costs are integers, so the deltas sum to the difference of the
 * objectives exactly (in units of the problem).
 *
 * @throws Error when either choice takes something that is forbidden
 */
export function attribute(model: Model, before: Int32Array, after: Int32Array): Term[] {
  const units = new Map<string, [number, number]>();
  const add = (term: string, a: number, b: number): void => {
    if (a === b) return;
    if (a === Infinity || b === Infinity)
      throw new Error(`internal: ${term} is forbidden in one of the choices`);
    const sum = units.get(term);
    if (sum === undefined) units.set(term, [a, b]);
    else {
      sum[0] += a;
      sum[1] += b;
    }
  };
  const { problem, variables } = model;
  variables.forEach((_, v) => {
    const costs = problem.vectors[problem.unary[v]];
    if (costs[before[v]] !== costs[after[v]])
      add(variableName(model, v), costs[before[v]], costs[after[v]]);
  });
  for (let e = 0; e < problem.edges.first.length; e++) {
    const a = edgeCost(model, e, before[problem.edges.first[e]], before[problem.edges.second[e]]);
    const b = edgeCost(model, e, after[problem.edges.first[e]], after[problem.edges.second[e]]);
    if (a !== b) add(edgeName(model, e), a, b);
  }
  const seconds = (n: number): number => n / model.unitsPerSecond;
  return [...units]
    .filter(([, [a, b]]) => a !== b)
    .map(([term, [a, b]]) => ({
      term,
      before: seconds(a),
      after: seconds(b),
      delta: seconds(b - a),
    }))
    .sort((a, b) => Math.abs(b.delta) - Math.abs(a.delta) || (a.term < b.term ? -1 : 1));
}

/** Cost of edge e, in units of the problem, when its ends take these values. */
export function edgeCost(model: Model, e: number, first: number, second: number): number {
  const { edges, tables, maps } = model.problem;
  const table = tables[edges.table[e]];
  const row = edges.firstMap[e] < 0 ? first : maps[edges.firstMap[e]][first];
  const column = edges.secondMap[e] < 0 ? second : maps[edges.secondMap[e]][second];
  return table.costs[row * table.columns + column];
}

/** The meaning of a variable, in words. */
function variableName(model: Model, variable: number): string {
  const v = model.variables[variable];
  if (v.kind === 'node') return `run ${model.graph.nodes[v.node].name}`;
  if (v.kind === 'output')
    return `return ${model.flow.outputs[v.output].output.value ?? `output ${v.output}`}`;
  return `shared copy of ${nameOfValue(model, model.copies[v.copy].value)}`;
}

/**
 * The meaning of an edge: the making of a shared copy, a move from a producer to a use, or a tie.
 */
export function edgeName(model: Model, e: number): string {
  const { copies, uses, edges, problem } = model;
  const edge = edges[e];
  if (edge.kind === 'copy') return `shared copy of ${nameOfValue(model, copies[edge.copy].value)}`;
  if (edge.kind === 'use') {
    const { value, at } = uses[edge.use];
    return `move ${nameOfValue(model, value)} -> ${consumerName(model, at)}`;
  }
  return (
    `tie ${variableName(model, problem.edges.first[e])} = ` +
    `${variableName(model, problem.edges.second[e])}`
  );
}

function consumerName(model: Model, at: Model['uses'][number]['at']): string {
  if (at.kind === 'output') {
    const { output } = model.flow.outputs[at.output];
    return output.role === 'grad' ? `gradient of ${output.of ?? '?'}` : `result ${at.output}`;
  }
  return at.kind === 'carry'
    ? `next ${model.graph.nodes[at.node].name}`
    : model.graph.nodes[at.node].name;
}
