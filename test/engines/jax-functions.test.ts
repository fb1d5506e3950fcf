import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import type { ExportResult, ExportSource } from '../../src/backend/target.ts';
import { jaxTarget } from '../../src/export/jax/target.ts';
import { shardyTarget } from '../../src/export/shardy/target.ts';
import type { Graph } from '../../src/graph/types.ts';
import { importGraph } from '../../src/import/import.ts';
import { inferCall } from '../../src/ops/record/infer.ts';
import { randomSource, solvedSource } from '../export/programs.ts';
import { TABLE } from '../plan/support.ts';
import { runPython } from './support/torch.ts';

/**
 * Functions that JAX wrote as StableHLO and as jaxprs, planned at random and exported: what four
 * devices of JAX give beside what JAX gives on one. Draws are compared, too: the exported program
 * draws JAX's own numbers.
 */
type Numbers = readonly (number | string)[];

interface Written {
  readonly stablehlo: string;
  readonly jaxpr: string;
  readonly inputs: readonly { readonly shape: readonly number[]; readonly dtype: string }[];
  readonly types: readonly unknown[];
  readonly outputs: readonly Numbers[];
}

const FORMS = ['stablehlo', 'jaxpr'] as const;
const NAMES = [
  'argsort',
  'argsort descending',
  'sort by two keys with a payload',
  'lexsort',
  'gradient of max pooling',
  'gradient of min pooling',
  'Fourier transforms',
  'reads outside',
  'writes outside',
  'factors and triangles',
  'dropout',
  'noise from keys of rows',
  'keys of rbg',
  'keys of unsafe_rbg',
];
/** Those of which XLA has a text of Shardy in calls that nothing else tries. */
const IN_SHARDY = new Set([
  'argsort',
  'sort by two keys with a payload',
  'gradient of max pooling',
  'keys of rbg',
]);
/** Functions whose StableHLO calls LAPACK, which has no rules, or draws by plain sums and shifts. */
const AS_JAXPR = new Set([
  'factors and triangles',
  'dropout',
  'noise from keys of rows',
  'keys of unsafe_rbg',
]);
const CASES = NAMES.flatMap((name) =>
  FORMS.filter((form) => form === 'jaxpr' || !AS_JAXPR.has(name)).map((form) => ({
    name,
    form,
  })),
);

const infer = {
  infer: (node: Parameters<typeof inferCall>[1], typeOf: Parameters<typeof inferCall>[2]) =>
    inferCall(TABLE, node, typeOf),
};
const folder = mkdtempSync(join(tmpdir(), 'shardwright-jax-functions-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** The largest difference, relative to the largest number. */
function difference(want: Numbers, got: Numbers): number {
  if (want.length !== got.length) return Infinity;
  const [a, b] = [want, got].map((list) => list.map(Number));
  const scale = a.reduce((m, v) => (Number.isFinite(v) ? Math.max(m, Math.abs(v)) : m), 1e-9);
  return a.reduce((worst, v, i) => {
    const off = v === b[i] || (Number.isNaN(v) && Number.isNaN(b[i])) ? 0 : Math.abs(v - b[i]);
    return Math.max(worst, Number.isNaN(off) ? Infinity : off / scale);
  }, 0);
}

/**
 * A plan drawn at random that gives all devices equally many rows, as JAX needs it; of programs of
 * so many calls that none does the optimum on slow devices.
 */
async function evenPlan(
  graph: Graph,
  seed: number,
): Promise<{ source: ExportSource; files: ExportResult['files'] }> {
  for (let k = seed; k < seed + 10; k++) {
    const source = randomSource(graph, 'a=2,b=2', k);
    const { files, losses } = jaxTarget.write(source);
    if (losses.length === 0) return { source, files };
  }
  const source = await solvedSource(graph, 'a=2,b=2');
  const { files, losses } = jaxTarget.write(source);
  if (losses.length > 0) throw new Error(`${graph.name} loses ${losses[0].item}`);
  return { source, files };
}

let functions: Readonly<Record<string, Written>>;
let runs: Readonly<Record<string, { readonly error?: string; readonly sharded: Numbers[] }>>;
/** Shardy's texts of the functions, and what XLA gave for them. */
let shardy: Readonly<Record<string, { readonly error?: string; readonly outputs: Numbers[] }>>;

beforeAll(async () => {
  ({ functions } = JSON.parse(runPython('jax_functions.py', [])) as {
    functions: Readonly<Record<string, Written>>;
  });
  const asked: unknown[] = [];
  const texts: unknown[] = [];
  for (const [i, { name, form }] of CASES.entries()) {
    const { inputs, types, [form]: text } = functions[name];
    const graph = importGraph(text, infer);
    const { source, files } = await evenPlan(graph, 100 * i);
    const at = join(folder, String(i));
    for (const { name: file, text: content } of files) {
      mkdirSync(dirname(join(at, file)), { recursive: true });
      writeFileSync(join(at, file), content);
    }
    asked.push({ name: `${name} ${form}`, folder: at, inputs });
    if (form === 'jaxpr' || !IN_SHARDY.has(name)) continue;
    const { files: own } = shardyTarget.write(source);
    const { inputs: stated } = JSON.parse(own[1].text) as { inputs: { spec: string }[] };
    texts.push({
      name,
      text: own[0].text,
      mesh: source.mesh.names.map((dim, m) => [dim, source.mesh.sizes[m]]),
      specs: stated.map(({ spec }) => spec),
      shardy: true,
      inputs,
      outputs: types,
    });
  }
  ({ cases: runs } = JSON.parse(runPython('run_jax.py', [], JSON.stringify({ cases: asked }))) as {
    cases: typeof runs;
  });
  ({ cases: shardy } = JSON.parse(
    runPython('run_stablehlo.py', [], JSON.stringify({ cases: texts })),
  ) as { cases: typeof shardy });
}, 600_000);

describe('functions of JAX, planned and exported', () => {
  test.each(CASES)(
    '$name from its $form gives on four devices what it gives on one',
    ({ name, form }) => {
      const { error, sharded } = runs[`${name} ${form}`];
      expect(error).toBeUndefined();
      const off = functions[name].outputs.map((want, k) => difference(want, sharded[k]));
      expect(Math.max(...off)).toBeLessThan(1e-5);
    },
  );

  test.each([...IN_SHARDY])('%s as a text of Shardy: XLA gives what one device gives', (name) => {
    const { error, outputs } = shardy[name];
    expect(error).toBeUndefined();
    const off = functions[name].outputs.map((want, k) => difference(want, outputs[k]));
    expect(Math.max(...off)).toBeLessThan(1e-5);
  });

  test('are all that the script has', () => {
    expect(Object.keys(functions)).toEqual(NAMES);
  });
});
