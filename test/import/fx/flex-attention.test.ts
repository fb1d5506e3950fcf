import { readFileSync } from 'node:fs';

import { describe, expect, test } from 'vitest';

import { importGraph } from '../../../src/import/import.ts';
import { build } from '../../../src/ndarray/array.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { programFlops } from '../../../src/ops/program-flops.ts';
import { leastCostPlan } from '../../../src/plan/least-cost-plan.ts';
import { DEFAULT_REQUEST } from '../../../src/plan/request/request.ts';
import { evaluateGraph } from '../../../src/simulate/evaluate.ts';
import { verify } from '../../../src/simulate/verify.ts';
import { refusal } from '../../support/thrown.ts';

/**
 * Attention in the form in which PyTorch 2.13 prints `flex_attention`: grouped heads, values
 * narrower than keys, a slope for each head, and a causal mask within documents.
 */
const TEXT = readFileSync(new URL('../../fixtures/flex-attention.fx.txt', import.meta.url), 'utf8');
const table = builtinOperators();
const graph = importGraph(TEXT);

const wave = (shape: readonly number[], by: number) => build(shape, (i) => Math.sin(i * by), 'f32');
const DOCUMENTS = [0, 0, 1, 1, 1, 2, 0, 1, 1, 1, 2, 2];
const [q, k, v] = [wave([2, 4, 6, 4], 0.7), wave([2, 2, 6, 4], 1.3), wave([2, 2, 6, 3], 2.1)];
const slopes = build([4], (i) => (i + 1) / 8, 'f32');
const INPUTS = [
  q,
  k,
  v,
  slopes,
  wave([2, 4, 6, 3], 0.3),
  build([2, 6], (i) => DOCUMENTS[i], 'i32'),
];

/** Attention of one row by its definition. */
function written(b: number, h: number, i: number): number[] {
  const at = (x: typeof q, head: number, row: number): number[] => {
    const width = x.shape[3];
    const start = ((b * x.shape[1] + head) * 6 + row) * width;
    return x.toArray().slice(start, start + width);
  };
  const kept = [0, 1, 2, 3, 4, 5].filter(
    (j) => j <= i && DOCUMENTS[b * 6 + i] === DOCUMENTS[b * 6 + j],
  );
  const row = at(q, h, i);
  const group = Math.floor(h / 2);
  const scores = kept.map((j) => {
    const other = at(k, group, j);
    const product = row.reduce((sum, value, c) => sum + value * other[c], 0);
    return Math.exp(0.5 * product + ((h + 1) / 8) * (j - i));
  });
  const total = scores.reduce((sum, value) => sum + value, 0);
  return [0, 1, 2].map((c) =>
    kept.reduce((sum, j, n) => sum + (scores[n] / total) * at(v, group, j)[c], 0),
  );
}

describe('flex_attention of an FX text', () => {
  test('is one operator with its functions as bodies, and gives the numbers of its definition', () => {
    expect(graph.nodes.filter(({ target }) => target === 'flex_attention')).toHaveLength(1);
    const [out] = evaluateGraph(table, graph, INPUTS).outputs;
    const expected = [0, 1].flatMap((b) =>
      [0, 1, 2, 3].flatMap((h) => [0, 1, 2, 3, 4, 5].flatMap((i) => written(b, h, i))),
    );
    const found = (out as typeof q).toArray();
    expected.forEach((value, n) => expect(found[n]).toBeCloseTo(value, 12));
  });

  test.each(['S(0)S(1)', 'S(1)S(0)', 'S(0)R', 'RS(1)'])(
    'is cut on batch and heads with its block mask and its bodies: %s',
    async (cut) => {
      const pins = ['getitem', 'getitem_3'].map((node) => ({ node, spec: cut }));
      const request = { ...DEFAULT_REQUEST, mesh: 'dp=2,tp=2', cluster: 'dgx-h100', pins };
      const planned = await leastCostPlan(graph, request);
      if (planned.status !== 'planned') throw new Error(planned.status);
      const read = planned.plan.nodes.find(({ name }) => name === 'getitem');
      expect(read?.outputs).toEqual([cut]);
      const found = verify(planned.graph, planned.plan);
      expect(found.mismatches).toEqual([]);
    },
  );

  test('is priced by the share of pairs that its block mask keeps', () => {
    const flops = (text: string): number => programFlops(importGraph(text), table).total;
    const all = flops(TEXT.replaceAll("'SHARDWRIGHT_KEPT': 0.75", "'OTHER': 1"));
    // Forward: q kᵀ and p v; backward: five products.
    const pairs = 2 * 4 * 6 * 6;
    expect(all).toBe(2 * pairs * (4 + 3) + 2 * pairs * (3 * 4 + 2 * 3));
    expect(flops(TEXT)).toBe(0.75 * all);
  });

  test('a dictionary of another operator is refused with what to write', () => {
    const error = refusal(() =>
      importGraph(TEXT.replaceAll('torch.ops.higher_order.flex_attention', 'torch.ops.a.b')),
    );
    expect(error.code).toBe('E_UNSUPPORTED');
    expect(error.details.hint).toContain('pass its members');
  });
});
