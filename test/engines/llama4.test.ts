import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

import { beforeAll, expect, test } from 'vitest';

import { roleName } from '../../src/graph/nodes.ts';
import { buildModel } from '../../src/models/build.ts';
import { readModelConfig } from '../../src/models/families.ts';
import type { JsonRecord } from '../../src/models/read-config.ts';
import { copyFlat, fromFlat } from '../../src/ndarray/array.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { evaluateGraph } from '../../src/simulate/evaluate.ts';
import { TINY } from '../models/tiny.ts';

/**
 * The logits of a small Llama 4 against transformers, with its chunks of keys, layers that do not
 * turn, and queries that grow.
 */

const python = process.env.SHARDWRIGHT_PYTHON ?? 'python3';

interface Said {
  readonly ids: readonly (readonly number[])[];
  readonly weights: Readonly<Record<string, readonly [readonly number[], readonly number[]]>>;
  readonly logits: readonly number[];
}

const CASES: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  'as Scout': TINY.llama4_text,
  'as Maverick': { ...TINY.llama4_text, use_qk_norm: false, num_experts_per_tok: 2 },
};
/** What transformers says of each, from one start of Python. */
const said = new Map<string, Said>();
beforeAll(() => {
  const sample = fileURLToPath(new URL('samples/llama4.py', import.meta.url));
  const configs = Object.values(CASES).map(({ model_type: _, ...config }) =>
    JSON.stringify(config),
  );
  const run = spawnSync(python, [sample, ...configs], { encoding: 'utf8', maxBuffer: 2 ** 28 });
  expect(run.status, run.stderr).toBe(0);
  const lines = run.stdout.trim().split('\n');
  Object.keys(CASES).forEach((name, k) => said.set(name, JSON.parse(lines[k]) as Said));
}, 120_000);

test.each(Object.keys(CASES))('logits of a Llama 4, %s, are those of transformers', (name) => {
  const { ids, weights, logits } = said.get(name) as Said;
  const model = readModelConfig(CASES[name] as JsonRecord);
  const graph = buildModel(model, { batch: 2, seq: 16, dtype: 'f32' });
  const given = graph.nodes
    .filter(({ kind }) => kind === 'placeholder')
    .map((node) => {
      const name = roleName(node);
      if (name === 'input_ids') return fromFlat([2, 16], Float64Array.from(ids.flat()), 'i64');
      const [shape, values] = weights[name];
      return fromFlat(shape, Float64Array.from(values), 'f32');
    });
  const [made] = evaluateGraph(builtinOperators(), graph, given).outputs;
  const found = copyFlat(made as Parameters<typeof copyFlat>[0]);
  expect(found).toHaveLength(logits.length);
  // Norms and shares are computed in float32 there.
  const worst = found.reduce((most, x, i) => Math.max(most, Math.abs(x - logits[i])), 0);
  expect(worst).toBeLessThan(1e-5);
});
