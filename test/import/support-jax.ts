import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import type { Infer } from '../../src/import/import.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { inferCall } from '../../src/ops/record/infer.ts';

const ROOT = join(import.meta.dirname, '..', 'fixtures', 'jax');

/** One text and what the fixture index says of it. */
export interface JaxAnswer {
  readonly id: string;
  readonly file: string;
  /** Mnemonics counted in the text; for jaxprs the primitives over all bodies. */
  readonly by_op: Readonly<Record<string, number>>;
  readonly eqns_top?: number;
  readonly dot_flops?: { readonly dot_generals: number; readonly flops_each_once: number };
  readonly trips_flops?: number;
  readonly in_shardings?: readonly string[];
  readonly out_shardings?: readonly string[];
  readonly mesh?: { readonly shape: Readonly<Record<string, number>> };
  readonly note?: string;
}

export function packedJax(name: string): Uint8Array {
  return readFileSync(join(ROOT, name));
}
export function jaxText(name: string): string {
  return gunzipSync(packedJax(name)).toString('utf8');
}
export const jaxAnswers = JSON.parse(jaxText('index.json.gz')) as readonly JaxAnswer[];
export const mlirAnswers = jaxAnswers.filter((a) => a.file.includes('.mlir'));
export const jaxprAnswers = jaxAnswers.filter((a) => a.file.includes('jaxpr'));

export const table = builtinOperators();
export const infer: Infer = (call, typeOf) => inferCall(table, call, typeOf);

/** Placements over the mesh of a PartitionSpec text such as `P(('p', 'q'), None)`. */
export function placementsOf(spec: string, axes: readonly string[]): string {
  const inner = spec.slice(2, -1);
  const entries: string[][] = [];
  for (const [, group, single] of inner.matchAll(/\(([^()]*)\)|('[^']*'|None)/g)) {
    if (group !== undefined) entries.push([...group.matchAll(/'([^']*)'/g)].map((m) => m[1]));
    else entries.push(single === 'None' ? [] : [single.slice(1, -1)]);
  }
  return axes
    .map((axis) => {
      const dim = entries.findIndex((names) => names.includes(axis));
      if (dim < 0) return 'R';
      const names = entries[dim];
      const ordered = names.every(
        (n, i) => i === 0 || axes.indexOf(names[i - 1]) < axes.indexOf(n),
      );
      return `S(${dim})${ordered ? '' : `[${names.indexOf(axis)}]`}`;
    })
    .join('');
}
