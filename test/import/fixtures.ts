import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import type { DType, Graph } from '../../src/graph/types.ts';

const ROOT = join(import.meta.dirname, '..', 'fixtures', 'torch');

/** Counts as the fixture index gives them for one graph. */
export interface KeyCounts {
  readonly nodes: number;
  readonly by_kind: Record<string, number>;
  readonly by_op: Record<string, number>;
  readonly subgraphs?: Record<string, { nodes: number; by_op: Record<string, number> }>;
}

export type KeyType = [string, (number | string)[], number[]];

export interface AnswerKey {
  readonly id: string;
  readonly graph: KeyCounts;
  readonly params: { readonly count: number; readonly numel: number };
  readonly forwardOutputs?: number;
  /** Node name -> [dtype, shape, stride]; a list of these for tuples. */
  readonly shapes: Record<string, KeyType | KeyType[]>;
}

export function packed(path: string): Uint8Array {
  return readFileSync(join(ROOT, path));
}

export function text(path: string): string {
  return gunzipSync(packed(path)).toString('utf8');
}

export function answerKey(id: string): AnswerKey {
  return JSON.parse(text(`${id}.key.json.gz`)) as AnswerKey;
}

/** The counts of a graph in the words of the index. */
export function counts(graph: Graph): {
  nodes: number;
  by_kind: Record<string, number>;
  by_op: Record<string, number>;
} {
  const by_kind: Record<string, number> = { output: 1 };
  const by_op: Record<string, number> = {};
  const count = (table: Record<string, number>, key: string): void => {
    table[key] = (table[key] ?? 0) + 1;
  };
  for (const node of graph.nodes) {
    count(by_kind, node.kind === 'call' ? 'call_function' : node.kind);
    if (node.kind === 'call') count(by_op, node.target);
  }
  return { nodes: graph.nodes.length + 1, by_kind, by_op };
}

export const KEY_DTYPES: Readonly<Record<string, DType>> = {
  float32: 'f32',
  bfloat16: 'bf16',
  float16: 'f16',
  float64: 'f64',
  int64: 'i64',
  int32: 'i32',
  bool: 'b8',
  uint8: 'u8',
};

/** The same graph without `meta.line`, which graph text does not carry. */
export function withoutLines(graph: Graph): Graph {
  return {
    ...graph,
    nodes: graph.nodes.map((node) => ({
      ...node,
      meta: Object.fromEntries(Object.entries(node.meta).filter(([key]) => key !== 'line')),
    })),
    subgraphs: Object.fromEntries(
      Object.entries(graph.subgraphs).map(([name, body]) => [name, withoutLines(body)]),
    ),
  };
}
