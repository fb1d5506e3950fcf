import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import type { Graph } from '../../src/graph/types.ts';
import type { Infer } from '../../src/import/import.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { inferCall } from '../../src/ops/record/infer.ts';
import { type AnswerKey, KEY_DTYPES } from './fixtures.ts';

export const table = builtinOperators();
export const infer: Infer = (call, typeOf) => inferCall(table, call, typeOf);

const HERE = join(import.meta.dirname, '..', 'fixtures');

/** Bytes of a copied fixture, unpacked. */
export function fixture(path: string): Uint8Array {
  const packed = readFileSync(join(HERE, path));
  return new Uint8Array(path.endsWith('.gz') ? gunzipSync(packed) : packed);
}

/**
 * What two formats of one program must agree on; uses of bodies carry the body's name, so its
 * attribute node may differ.
 */
export function content(graph: Graph): unknown {
  return {
    nodes: graph.nodes.map((node) => [
      node.kind === 'get_attr' ? 'get_attr' : node.name,
      node.kind,
      node.target,
      node.args,
      node.kwargs,
      node.type.kind === 'tensor'
        ? [node.type.dtype, node.type.shape.map((d) => (typeof d === 'number' ? d : d.sym))]
        : node.type.kind,
    ]),
    outputs: graph.outputs.map((output) => output.value),
    bodies: Object.entries(graph.subgraphs).map(([name, body]) => [name, content(body)]),
  };
}

/** Types of placeholders from an answer key, as the option `inputs` takes them. */
export function inputTypes(shapes: AnswerKey['shapes']): Record<string, string> {
  const types: Record<string, string> = {};
  for (const [name, entry] of Object.entries(shapes)) {
    if (!Array.isArray(entry)) types[name] = `Sym(${String(entry)})`;
    else if (typeof entry[0] === 'string') {
      const [dtype, shape] = entry as unknown as [string, (number | string)[]];
      types[name] = `${KEY_DTYPES[dtype]}[${shape.join(', ')}]`;
    }
  }
  return types;
}

export { refusal } from '../support/thrown.ts';
