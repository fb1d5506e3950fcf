import { beforeAll, describe, expect, it } from 'vitest';

import { importGraph } from '../../src/import/import.ts';
import { buildModel } from '../../src/models/build.ts';
import { parseModelConfig } from '../../src/models/families.ts';
import { decode } from '../../src/plan/choice/decode.ts';
import { leastCostPlanOf } from '../../src/plan/least-cost-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import type { Prepared } from '../../src/plan/prepare/prepared.ts';
import type { PlanRequest } from '../../src/plan/request/request.ts';
import { type Priced, priceRestriction } from '../../src/recipes/compare/price.ts';
import { applyRecipe, meshRecipes } from '../../src/recipes/recipes.ts';
import { verify } from '../../src/simulate/verify.ts';
import { evaluate } from '../../src/solver/check/verify.ts';
import { ringBytes } from '../../src/step/traffic.ts';
import { load, request, TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';
import { contextBytes, ulyssesBytes } from '../support/parallelism-bytes.ts';

const sequenceNames = ({ model }: Prepared): string[] =>
  meshRecipes(model).flatMap(({ name }) => (/context|Ulysses/.test(name) ? [name] : []));

async function priced(prepared: Prepared, name: string): Promise<Priced> {
  const recipe = meshRecipes(prepared.model).find((r) => r.name === name);
  if (recipe === undefined) throw new Error(`no recipe ${name}`);
  const applied = applyRecipe(prepared.model, recipe);
  if ('refused' in applied) throw new Error(applied.refused);
  const found = await priceRestriction(prepared, applied.restriction);
  if ('refused' in found) throw new Error(found.refused);
  return found;
}

describe('recipes of a sequence dim are listed where a program can be cut along it', () => {
  const named = (model: string, mesh: string, more: Partial<PlanRequest> = {}): string[] =>
    sequenceNames(prepare(load(model), request(mesh, more), TABLE));

  it('on the innermost mesh dim, the batch on the others', () => {
    // Three mesh dims take a second to be expanded.
    const [mesh, outer, inner] = FULL ? ['a=2,b=2,c=2', 'a+b', 'c'] : ['a=2,b=2', 'a', 'b'];
    expect(named('torch/llama-tiny/joint.expanded', mesh)).toEqual([
      `data parallel (${outer}) + context parallel (${inner})`,
      `FSDP (${outer}+${inner}) + context parallel (${inner})`,
      `data parallel (${outer}) + Ulysses (${inner})`,
      `FSDP (${outer}+${inner}) + Ulysses (${inner})`,
    ]);
    expect(named('torch/llama-tiny/joint.expanded', 'a=2')).toEqual([
      'context parallel (a)',
      'FSDP (a) + context parallel (a)',
      'Ulysses (a)',
      'FSDP (a) + Ulysses (a)',
    ]);
  });

  // Of a perceiver the queries are weights, of a memory the keys and values.
  it.each([
    ['queries', 'q', 16],
    ['keys and values', 'kv', 12],
  ])('where the sequence becomes the rows of %s alone', (_, role, rows) => {
    const shape = (length: number): string => `f32[8, 4, ${length}, 16]`;
    const other = role === 'q' ? 12 : 16;
    const made = `%view = aten.view.default(%x, [8, ${rows}, 4, 16]): f32[8, ${rows}, 4, 16]
  %heads = aten.transpose.int(%view, 1, 2): ${shape(rows)}
  %wide = aten.expand.default(%w, [8, 4, ${other}, 16]): ${shape(other)}`;
    const [q, k] = role === 'q' ? ['heads', 'wide'] : ['wide', 'heads'];
    const graph = importGraph(`swgraph 1
graph @main {
  in %w: f32[4, ${other}, 16] parameter "w"
  in %x: f32[8, ${rows}, 64] input "x"
  ${made}
  %attention = aten._scaled_dot_product_flash_attention_for_cpu.default(%${q}, %${k}, %${k}): (${shape(16)}, f32[8, 4, 16])
  %seen = operator.getitem(%attention, 0): ${shape(16)}
  out %seen output 0
}
`);
    expect(sequenceNames(prepare(graph, request('a=2,b=2'), TABLE))).toContain(
      'data parallel (a) + context parallel (b)',
    );
  });

  it.each([
    ['strides are off', 'torch/llama-tiny/joint.expanded', 'a=2,b=2', { strided: 'off' }],
    ['the innermost mesh dim has one device', 'torch/llama-tiny/joint.expanded', 'a=2,b=1', {}],
    ['there is no attention', 'torch/mlp-loss/joint.expanded', 'a=2,b=2', {}],
    ['dim 1 of the images is not a sequence', 'torch/vit-tiny/joint.expanded', 'a=2,b=2', {}],
  ] as const)('not where %s', (_, model, mesh, more) =>
    expect(named(model, mesh, more)).toEqual([]),
  );

  it.each([
    [
      'Ulysses (a)',
      'the 4 heads of attention (_scaled_dot_product_flash_attention_for_cpu) cannot be cut 8 ways',
    ],
    [
      'FSDP (a) + Ulysses (a)',
      'the 4 heads of attention (_scaled_dot_product_flash_attention_for_cpu) cannot be cut 8 ways',
    ],
  ])('what the sizes do not admit says why: %s', (name, reason) => {
    const { model } = prepare(load('torch/llama-tiny/joint.expanded'), request('a=8'), TABLE);
    const recipe = meshRecipes(model).find((r) => r.name === name)!;
    expect(applyRecipe(model, recipe)).toEqual({ refused: reason });
  });
});

describe('two layers of Llama-3 8B, 16 sequences of 8192, on 8 x 8: what a device sends over the sequence dim in a layer', () => {
  const [RANKS, LAYERS, SEQUENCES, ROWS, HIDDEN, KEYS] = [8, 2, 16 / 8, 8192, 4096, 1024];
  const queryBytes = SEQUENCES * ROWS * HIDDEN * 2;
  const keyBytes = SEQUENCES * ROWS * KEYS * 2;
  let prepared: Prepared;
  beforeAll(() => {
    prepared = prepare(load('torch/llama3-8b-2l-b16/joint.expanded'), request('dp=8,tp=8'), TABLE);
  });

  /**
   * By pass and kind: exchanges of [batch, heads, rows, channels] in a layer, and the bytes that
   * they send.
   */
  function sentInLayer(choice: Int32Array): Record<string, [count: number, bytes: number]> {
    const { model } = prepared;
    const sent: Record<string, [number, number]> = {};
    decode(model, choice).nodes.forEach(({ redistributions }, n) => {
      for (const { input, collectives } of redistributions) {
        if (model.flow.values[model.flow.inputs[n][input]].meta.shape.length < 4) continue;
        for (const { kind, meshDims, bytes } of collectives) {
          expect(meshDims).toEqual(['tp']);
          const sum = (sent[`${model.flow.phases[n]} ${kind}`] ??= [0, 0]);
          sum[0] += 1 / LAYERS;
          sum[1] += ringBytes(kind, bytes, RANKS) / LAYERS;
        }
      }
    });
    return sent;
  }

  it.each(['data parallel (dp) + context parallel (tp)', 'FSDP (dp+tp) + context parallel (tp)'])(
    '%s: keys and values gathered, their gradients scattered',
    async (name) => {
      const each = [2, contextBytes(RANKS, keyBytes)];
      const { choice } = await priced(prepared, name);
      expect(sentInLayer(choice)).toEqual({
        'forward all_gather': each,
        'backward reduce_scatter': each,
      });
    },
  );

  it.each(['data parallel (dp) + Ulysses (tp)', 'FSDP (dp+tp) + Ulysses (tp)'])(
    '%s: queries, keys, values and output forward, their gradients backward, and queries of which a plan keeps no copy',
    async (name) => {
      const each = ulyssesBytes(RANKS, queryBytes, keyBytes);
      const { choice } = await priced(prepared, name);
      expect(sentInLayer(choice)).toEqual({
        'forward all_to_all': [4, each],
        'backward all_to_all': [5, each + ulyssesBytes(RANKS, queryBytes, 0) / 2],
      });
    },
  );

  it('they are choices of the problem, and its optimum is not more expensive', async () => {
    const found = await Promise.all(sequenceNames(prepared).map((name) => priced(prepared, name)));
    expect(found).toHaveLength(4);
    const best = await leastCostPlanOf(prepared);
    if (best.status !== 'planned') throw new Error(best.conflict.join());
    expect(best.plan.proof.status).toBe('optimal');
    for (const { choice, seconds, fits } of found) {
      expect(evaluate(prepared.model.problem, choice).violations).toEqual([]);
      expect(fits).toBe(true);
      expect(best.plan.objective.seconds).toBeLessThanOrEqual(seconds * (1 + 1e-12));
    }
  }, 60_000);
});

const ONE_LAYER = buildModel(
  parseModelConfig(
    JSON.stringify({
      model_type: 'llama',
      hidden_size: 32,
      intermediate_size: 64,
      num_attention_heads: 4,
      num_key_value_heads: 2,
      num_hidden_layers: 1,
      vocab_size: 64,
    }),
  ),
  { training: true, batch: 2, seq: 16, table: TABLE },
);

describe('each runs on virtual devices as the unsharded program does', () => {
  it.each(FULL ? ['cp=2', 'dp=2,cp=2'] : ['cp=2'])(
    'on %s',
    async (mesh) => {
      const graph = FULL ? load('torch/llama-tiny/joint.expanded') : ONE_LAYER;
      const prepared = prepare(graph, request(mesh), TABLE);
      const names = sequenceNames(prepared);
      // Keys gathered, and heads sent, by the first and the last.
      for (const name of FULL ? names : [names[0], names[names.length - 1]]) {
        const { nodes, outputs } = decode(prepared.model, (await priced(prepared, name)).choice);
        // Two sequences on a device: its rows are a piece of each.
        expect(nodes.some((n) => n.inputs.some((spec) => spec.includes('_S(0, 2)')))).toBe(
          mesh === 'cp=2',
        );
        const verified = verify(
          graph,
          { request: prepared.question.request, nodes, outputs },
          { table: TABLE },
        );
        expect(verified.mismatches, name).toEqual([]);
        expect(verified.maxRelativeError).toBeLessThan(1e-9);
        expect(verified.collectives).toEqual(verified.promised);
        expect(
          verified.collectives[name.includes('Ulysses') ? 'all_to_all' : 'all_gather'],
        ).toBeGreaterThan(0);
      }
    },
    60_000,
  );
});
