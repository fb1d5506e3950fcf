import { expect } from 'vitest';

import { CONTROL_TARGETS } from '../../src/graph/control.ts';
import { lintGraph } from '../../src/graph/lint.ts';
import { parseGraph } from '../../src/graph/text/parse.ts';
import { printGraph } from '../../src/graph/text/write.ts';
import type { Graph, Node } from '../../src/graph/types.ts';
import { fromList, NDArray } from '../../src/ndarray/array.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { inferCall } from '../../src/ops/record/infer.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { evaluateGraph } from '../../src/simulate/evaluate.ts';

export const table = builtinOperators();

/** Values by the name of an input: numbers in row-major order. */
export type Values = Readonly<Record<string, readonly number[]>>;

export const placeholders = (graph: Graph): Node[] =>
  graph.nodes.filter((node) => node.kind === 'placeholder');

function arrays(graph: Graph, values: Values): NDArray[] {
  return placeholders(graph).map(({ type, meta, name }) => {
    if (type.kind !== 'tensor') throw new Error(`${name} is not a tensor`);
    const shape = type.shape.map((dim) => (typeof dim === 'number' ? dim : (dim.example ?? 1)));
    return fromList(shape, values[meta.roleName ?? name], type.dtype);
  });
}

/** What the graph returns, each as a flat list; null for none. */
export function run(graph: Graph, values: Values): (number[] | null)[] {
  lintGraph(graph, (node, typeOf) => inferCall(table, node, typeOf));
  const { outputs } = evaluateGraph(table, graph, arrays(graph, values));
  return outputs.map((value) => (value instanceof NDArray ? value.toArray() : null));
}

/** Gradients of the one scalar output by input name; undefined for none. */
export function gradients(
  graph: Graph,
  values: Values,
  wrt: readonly string[],
): Record<string, number[] | undefined> {
  const joint = jointGraph(graph, { wrt, seed: 1 });
  expect(printGraph(parseGraph(printGraph(joint)))).toBe(printGraph(joint));
  const results = run(joint, values);
  const found: Record<string, number[] | undefined> = {};
  joint.outputs.forEach((output, i) => {
    if (output.role === 'grad' && wrt.includes(output.of ?? ''))
      found[output.of ?? ''] = results[i] ?? undefined;
  });
  return found;
}

/** Central differences of the one scalar output. */
export function differences(
  graph: Graph,
  values: Values,
  wrt: readonly string[],
  step = 1e-6,
): Record<string, number[]> {
  const at = (name: string, i: number, by: number): number => {
    const moved = values[name].map((v, k) => (k === i ? v + by : v));
    return run(graph, { ...values, [name]: moved })[0]?.[0] ?? NaN;
  };
  return Object.fromEntries(
    wrt.map((name) => [
      name,
      values[name].map((_, i) => (at(name, i, step) - at(name, i, -step)) / (2 * step)),
    ]),
  );
}

/** Gradients agree with central differences to a relative error of 1e-6. */
export function expectGradients(graph: Graph, values: Values, wrt: readonly string[]): void {
  const ours = gradients(graph, values, wrt);
  const truth = differences(graph, values, wrt);
  for (const name of wrt) expectClose(ours[name] ?? [], truth[name], 1e-6, name);
}

export function expectClose(
  got: readonly number[],
  wanted: readonly number[],
  tolerance: number,
  what = '',
): void {
  expect(got.length, what).toBe(wanted.length);
  const scale = Math.max(1, ...wanted.map(Math.abs));
  got.forEach((value, i) => {
    expect(Number.isFinite(value), `${what}[${i}] is ${value}`).toBe(true);
    expect(
      Math.abs(value - wanted[i]) / scale,
      `${what}[${i}]: ${value}, not ${wanted[i]}`,
    ).toBeLessThan(tolerance);
  });
}

const CONTROL = new Set(CONTROL_TARGETS);

/** Names of control-flow calls, bodies included. */
export function controlCalls(graph: Graph): string[] {
  const own = graph.nodes
    .filter((n) => n.kind === 'call' && CONTROL.has(n.target))
    .map((n) => n.target);
  return [...own, ...Object.values(graph.subgraphs).flatMap(controlCalls)];
}

/** Some numbers, the same every time, in (-1, 1). */
export function numbers(count: number, seed = 1): number[] {
  let state = seed;
  return Array.from({ length: count }, () => {
    state = (state * 48271) % 2147483647;
    return (state / 2147483647) * 2 - 1;
  });
}
