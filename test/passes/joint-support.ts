import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import type { Graph } from '../../src/graph/types.ts';
import { importGraph } from '../../src/import/import.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { inferCall } from '../../src/ops/record/infer.ts';

export const table = builtinOperators();

/** A graph of the fixtures by model and kind: `llama-tiny`, `joint`. */
export function graphOf(model: string, kind: string): Graph {
  const places = [`joint/${model}/${kind}.txt.gz`, `torch/${model}/${kind}.readable.txt.gz`];
  const path = places
    .map((p) => join(import.meta.dirname, '../fixtures', p))
    .find((p) => existsSync(p));
  if (path === undefined) throw new Error(`no fixture ${model}/${kind}`);
  return importGraph(readFileSync(path), {
    infer: (node, typeOf) => inferCall(table, node, typeOf),
  });
}

/** Calls by target, in order of name. */
export function targets(graph: Graph): Record<string, number> {
  const counts = new Map<string, number>();
  for (const node of graph.nodes)
    if (node.kind === 'call') counts.set(node.target, (counts.get(node.target) ?? 0) + 1);
  return Object.fromEntries([...counts].sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Role names of the placeholders whose gradient a graph returns. */
export function withGradient(graph: Graph): string[] {
  return graph.outputs.flatMap(({ role, of, value }) =>
    role === 'grad' && value !== null && of !== undefined ? [of] : [],
  );
}

/**
 * Roles and types of the inputs, roles and presence of the outputs: what a caller of the graph
 * sees.
 */
export function signature(graph: Graph): unknown {
  const inputs = graph.nodes.filter((node) => node.kind === 'placeholder');
  return {
    inputs: inputs.map(({ meta, type }) => [
      meta.role,
      meta.roleName ?? meta.roleIndex,
      type.kind === 'tensor' ? [type.dtype, type.shape] : type.kind,
    ]),
    outputs: graph.outputs.map(({ role, of, index, value }) => [role, of ?? index, value !== null]),
  };
}
