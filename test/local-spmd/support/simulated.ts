import { expect } from 'vitest';

import { placeholdersOf } from '../../../src/graph/control.ts';
import { LOCAL_MAP, localMapCall } from '../../../src/graph/local-map.ts';
import type { Graph } from '../../../src/graph/types.ts';
import { isRef } from '../../../src/graph/value.ts';
import { flat, fromFlat, NDArray } from '../../../src/ndarray/array.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { evaluateGraph } from '../../../src/simulate/evaluate.ts';
import type { ExecutedCollective } from '../../../src/simulate/ranks/devices.ts';
import { localMapValues } from '../../../src/simulate/ranks/local-map.ts';

/** Programs of per-device code with numbers in them. */
export const table = builtinOperators();

/** Numbers of a fixed sequence, of no symmetry that a wrong program could hide behind. */
export function drawn(shape: readonly number[], seed: number): NDArray {
  const size = shape.reduce((n, d) => n * d, 1);
  return fromFlat(
    shape,
    Float64Array.from(
      { length: size },
      (_, i) => Math.sin(1.7 * (i + 1) * (seed + 1.3)) + 0.1 * seed,
    ),
    'f64',
  );
}

export function inputsOf(graph: Graph): NDArray[] {
  return placeholdersOf(graph).map(({ type }, i) => {
    if (type.kind !== 'tensor') throw new Error('an input is not a tensor');
    return drawn(type.shape.map(Number), i);
  });
}

const numbers = (value: unknown): number[] => (value instanceof NDArray ? [...flat(value)] : []);

export function expectClose(ours: unknown, theirs: unknown, tolerance = 1e-9): void {
  const [a, b] = [numbers(ours), numbers(theirs)];
  expect(a.length).toBe(b.length);
  expect(a.length).toBeGreaterThan(0);
  a.forEach((x, i) => expect(Math.abs(x - b[i])).toBeLessThan(tolerance * (1 + Math.abs(b[i]))));
}

/** Two programs of the same inputs return the same numbers. */
export function expectSame(ours: Graph, theirs: Graph): void {
  const values = inputsOf(theirs);
  const [a, b] = [ours, theirs].map((graph) => evaluateGraph(table, graph, values).outputs);
  expect(a.length).toBe(b.length);
  b.forEach((value, i) => {
    if (value === null) expect(a[i]).toBeNull();
    else expectClose(a[i], value);
  });
}

/**
 * Collectives that the regions of a program run, region by region, with the axes of their groups.
 */
export function collectivesOf(graph: Graph): string[][] {
  const found: string[][] = [];
  const values = new Map<string, unknown>();
  evaluateGraph(table, graph, inputsOf(graph), {
    onValue: (_run, node, value) => void values.set(node.name, value),
  });
  for (const node of graph.nodes) {
    if (node.target !== LOCAL_MAP) continue;
    const call = localMapCall(node);
    const byName = new Map(
      call.operands.map((arg) => (isRef(arg) ? [arg.name, values.get(arg.name)] : ['', null])),
    );
    const { run } = localMapValues(
      table,
      { node, body: graph.subgraphs[call.body] },
      (name) => byName.get(name) as NDArray,
      0,
    );
    found.push(
      run.collectives.map((c) =>
        textOf(
          c,
          call.axes.map(({ name }) => name),
        ),
      ),
    );
  }
  return found;
}

const SHORT = {
  all_reduce: 'AR',
  all_gather: 'AG',
  reduce_scatter: 'RS',
  all_to_all: 'A2A',
  collective_permute: 'CP',
};

export function textOf({ kind, meshDims }: ExecutedCollective, axes: readonly string[]): string {
  return `${SHORT[kind]} ${meshDims.map((m) => axes[m]).join(',')}`;
}
