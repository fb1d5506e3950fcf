import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import type { Graph } from '../../src/graph/types.ts';
import { importGraph } from '../../src/import/import.ts';
import { build, type ElementType, flat, kindOf, NDArray } from '../../src/ndarray/array.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { inferCall } from '../../src/ops/record/infer.ts';
import type { Value } from '../../src/simulate/evaluate.ts';

export const table = builtinOperators();

/** Real graphs that are evaluated whole: traced by PyTorch, with control flow in the last four. */
export const GRAPHS: readonly string[] = [
  'mlp-loss/joint',
  'llama-tiny/joint',
  'convnet/joint',
  'hop-cond-joint/joint',
  'hop-map-joint/joint',
  'hop-scan-joint/joint',
  'hop-while/export',
];

export function graphText(id: string): string {
  const path = join(import.meta.dirname, '..', 'fixtures', 'torch', `${id}.readable.txt.gz`);
  return gunzipSync(readFileSync(path)).toString('utf8');
}

export function graphOf(id: string): Graph {
  return importGraph(graphText(id), { infer: (node, typeOf) => inferCall(table, node, typeOf) });
}

export interface InputSpec {
  readonly dtype: string;
  readonly shape: readonly number[];
}

function specOf(node: Graph['nodes'][number]): InputSpec {
  if (node.type.kind !== 'tensor') throw new Error(`${node.name} is not a tensor`);
  return {
    dtype: node.type.dtype,
    shape: node.type.shape.map((d) => (typeof d === 'number' ? d : (d.example ?? 1))),
  };
}

export function inputSpecs(graph: Graph): InputSpec[] {
  return graph.nodes.filter((node) => node.kind === 'placeholder').map(specOf);
}

/** Values by position, as scripts/engines/run_graphs.py draws them. */
export function drawnInputs(graph: Graph): NDArray[] {
  return inputSpecs(graph).map(({ dtype, shape }, k) => {
    const type = dtype as ElementType;
    if (kindOf(type) !== 'float') return build(shape, (i) => (7 * i + 3 * k) % 10, type);
    const width = Math.sqrt(shape.at(-1) ?? 1);
    return build(
      shape,
      (i) => {
        const wave = Math.sin(0.7 * i + 1.3 * k + 0.3);
        return shape.length >= 2 ? wave / width : 0.4 * wave + 0.6;
      },
      type,
    );
  });
}

/** Sum, sum of squares and sum weighted by the cosine of the position. */
export function numbersOf(value: Value): [number, number, number] | null {
  if (!(value instanceof NDArray)) return null;
  const out: [number, number, number] = [0, 0, 0];
  flat(value).forEach((v, i) => {
    out[0] += v;
    out[1] += v * v;
    out[2] += v * Math.cos(i);
  });
  return out;
}

/**
 * Texts of wrong numbers. A sum of many values loses digits, so it is measured against the values,
 * not itself.
 */
export function wrongNumbers(
  id: string,
  outputs: readonly Value[],
  want: readonly (readonly number[] | null)[],
): string[] {
  return outputs.flatMap((value, i) => {
    const [got, expected] = [numbersOf(value), want[i] ?? null];
    if (got === null || expected === null)
      return got === expected ? [] : [`${id} output ${i}: one is absent`];
    const size = value instanceof NDArray ? value.size : 1;
    // A gradient that is zero but for rounding, as that of a bias before a batch norm.
    const noise = 1e-12;
    const scale = Math.sqrt(expected[1] * size);
    return got.flatMap((v, k) => {
      const allowed = 1e-9 * (k === 1 ? expected[1] : scale) + noise;
      return Math.abs(v - expected[k]) <= allowed
        ? []
        : [`${id} output ${i}: number ${k} is ${v}, PyTorch has ${expected[k]}`];
    });
  });
}
