import { describe, expect, it } from 'vitest';

import type { Graph } from '../../src/graph/types.ts';
import { buildModel } from '../../src/models/build.ts';
import { parseModelConfig } from '../../src/models/families.ts';
import { modelEntry } from '../../src/models/registry.ts';
import { decode } from '../../src/plan/choice/decode.ts';
import { leastCostPlanOf } from '../../src/plan/least-cost-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import type { PlanRequest } from '../../src/plan/request/request.ts';
import { type Priced, priceRestriction } from '../../src/recipes/compare/price.ts';
import { applyRecipe, type Part } from '../../src/recipes/recipes.ts';
import { evaluate } from '../../src/solver/check/verify.ts';
import { keyValuePaths } from '../../src/step/read/attention-paths.ts';
import { ringBytes } from '../../src/step/traffic.ts';
import { type CoreCost, coreRequest } from '../../src/sweep/model/types.ts';
import { CoreSolver } from '../../src/sweep/rank/rank-price.ts';
import { load, request, TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';
import { contextBytes, ulyssesBytes } from '../support/parallelism-bytes.ts';

const MIB = 2 ** 20;
const [LAYERS, SEQUENCE, WIDTH] = [1, 2048, 1024];
const decoder = {
  hidden_size: WIDTH,
  intermediate_size: 2048,
  num_attention_heads: 16,
  num_key_value_heads: 4,
  num_hidden_layers: LAYERS,
  vocab_size: 4096,
  torch_dtype: 'bfloat16',
};

/**
 * Models whose query heads share key heads, four each; norms of queries and keys, fused weights;
 * one without groups.
 */
const FAMILIES: Readonly<Record<string, object>> = {
  llama: { ...decoder, model_type: 'llama' },
  qwen3: { ...decoder, model_type: 'qwen3', head_dim: 64 },
  phi3: { ...decoder, model_type: 'phi3' },
  'llama without groups': { ...decoder, model_type: 'llama', num_key_value_heads: 16 },
};

interface Planned {
  readonly prepared: ReturnType<typeof prepare>;
  readonly priced: Priced;
  /**
   * Bytes that a device sends over the dim, by pass and kind; weights and their gradients left out.
   */
  readonly sent: Readonly<Record<string, number>>;
}

async function planned(
  graph: Graph,
  mesh: string,
  parts: readonly Part[],
  dim: string,
  more: Partial<PlanRequest> = {},
): Promise<Planned> {
  const prepared = prepare(graph, request(mesh, { activations: 'off', ...more }), TABLE);
  const { model } = prepared;
  const applied = applyRecipe(model, { name: 'test', parts });
  if ('refused' in applied) throw new Error(applied.refused);
  const priced = await priceRestriction(prepared, applied.restriction);
  if ('refused' in priced) throw new Error(priced.refused);
  const sent: Record<string, number> = {};
  decode(model, priced.choice).nodes.forEach(({ redistributions }, n) => {
    for (const { collectives } of redistributions)
      for (const c of collectives) {
        if (c.meshDims.join() !== dim || c.kind === 'all_reduce') continue;
        const key = `${model.flow.phases[n]} ${c.kind}`;
        sent[key] =
          (sent[key] ?? 0) +
          ringBytes(c.kind, c.bytes, model.space.mesh.sizes[model.space.mesh.indexOf(dim)]);
      }
  });
  return { prepared, priced, sent };
}

const modelOf = (family: string): Graph =>
  buildModel(parseModelConfig(JSON.stringify(FAMILIES[family])), {
    training: true,
    batch: 1,
    seq: SEQUENCE,
    table: TABLE,
  });

describe('keys and values move as many as the model makes, not once for each query head', () => {
  it.each(Object.keys(FAMILIES))(
    '%s, gathered: forward the closed form, the same again scattered backward',
    async (family) => {
      const isGrouped = family !== 'llama without groups';
      const { sent } = await planned(modelOf(family), 'cp=4', ['context'], 'cp');
      const keyBytes = SEQUENCE * (isGrouped ? WIDTH / 4 : WIDTH) * 2;
      const each = LAYERS * contextBytes(4, keyBytes);
      expect(sent).toEqual({
        'forward all_gather': each,
        'backward reduce_scatter': each,
        // A plan has copies for one pass: what is not repeated is gathered once more, what is
        // repeated was kept.
        ...(isGrouped ? {} : { 'backward all_gather': each }),
      });
    },
  );

  // One sequence a device, whose pieces are one run of rows, with SHARDWRIGHT_FULL=1.
  const traced = [
    [
      'dp=2,cp=4',
      ['data', 'context'],
      ['S(0)_S(0, 2), RR -> S(0)_S(0, 2)', 'S(1)_S(1, 2), S(0)_S(0, 2) -> P(sum)P(sum)'],
    ],
    [
      'cp=2,dp=2',
      ['context', 'data'],
      ['_S(0, 4)S(0), RR -> _S(0, 4)S(0)', '_S(1, 4)S(1), _S(0, 4)S(0) -> P(sum)P(sum)'],
    ],
    [
      'dp=4,cp=2',
      ['data', 'context'],
      ['S(0)S(0), RR -> S(0)S(0)', 'S(1)S(1), S(0)S(0) -> P(sum)P(sum)'],
    ],
  ] as const;
  it.each(FULL ? traced : traced.slice(0, 2))(
    'a traced Llama-3 of Hugging Face on %s: rows of several sequences are one dim in its products, cut in strides along the sequence',
    async (mesh, parts, expected) => {
      const cp = Number(/cp=(\d)/.exec(mesh)?.[1]);
      const dp = Number(/dp=(\d)/.exec(mesh)?.[1]);
      const { prepared, priced, sent } = await planned(
        load('torch/llama3-8b-2l/joint.expanded'),
        mesh,
        parts,
        'cp',
        { strided: 'all' },
      );
      const { model } = prepared;
      const { nodes } = decode(model, priced.choice);
      const closed = 2 * contextBytes(cp, (4 / dp) * 4096 * 1024 * 2);
      const paths = keyValuePaths(model);
      expect(paths.map((p) => model.flow.values[p.source].meta.shape)).toEqual(
        Array(4).fill([4, 8, 1, 4096, 128]),
      );
      const gathers = paths
        .flatMap(({ repeats, attention }) => [...repeats, attention])
        .flatMap((n) => nodes[n].redistributions)
        .flatMap((r) => r.collectives);
      expect(gathers.map((c) => c.kind)).toEqual(Array(4).fill('all_gather'));
      expect(gathers.reduce((sum, c) => sum + ringBytes(c.kind, c.bytes, cp), 0)).toBe(closed);
      expect(sent['backward reduce_scatter']).toBe(closed);
      // Each device multiplies its own part of each of its sequences, forward and backward.
      const products = nodes.filter((n) => n.target === 'aten.mm.default');
      expect([
        ...new Set(products.map((n) => `${n.inputs.join(', ')} -> ${n.outputs.join()}`)),
      ]).toEqual(expected);
    },
    30_000,
  );

  it('over tp too each rank moves its own key heads', async () => {
    const { sent } = await planned(
      modelOf('llama'),
      'cp=2,tp=2',
      ['context', 'tensor-sequence'],
      'cp',
    );
    const each = LAYERS * contextBytes(2, (SEQUENCE * WIDTH * 2) / 4 / 2);
    expect(sent).toEqual({ 'forward all_gather': each, 'backward reduce_scatter': each });
  });

  it('Ulysses: forward the closed form; backward queries once more, of which a plan keeps no copy', async () => {
    const { sent } = await planned(modelOf('llama'), 'sp=4', ['ulysses'], 'sp');
    const [query, key] = [SEQUENCE * WIDTH * 2, (SEQUENCE * WIDTH * 2) / 4];
    const each = LAYERS * ulyssesBytes(4, query, key);
    expect(sent).toEqual({
      'forward all_to_all': each,
      'backward all_to_all': each + (LAYERS * (3 / 4) * query) / 4,
    });
  });

  it.each([
    ['torch/gpt2-2l/joint.expanded', 2],
    // Positions are added to the tokens: whole ones are sliced, and the cut goes on.
    ['torch/bert-base/joint.expanded', 12],
  ])(
    'Ulysses in %s: four exchanges forward; backward as many, and queries, keys and values once more',
    async (name, layers) => {
      const { prepared, priced } = await planned(
        load(name),
        'dp=2,sp=2',
        ['data', 'ulysses'],
        'sp',
        { strided: 'rows' },
      );
      const { model } = prepared;
      const count: Record<string, number> = {};
      decode(model, priced.choice).nodes.forEach(({ redistributions }, n) => {
        for (const { input, collectives } of redistributions) {
          // The loss moves labels and logits, which are shifted by a row against each other.
          const { shape } = model.flow.values[model.flow.inputs[n][input]].meta;
          if (shape.length < 3 || shape.at(-1)! > 4096) continue;
          for (const { kind, meshDims } of collectives) {
            if (meshDims.join() !== 'sp') continue;
            const key = `${model.flow.phases[n]} ${kind}`;
            count[key] = (count[key] ?? 0) + 1;
          }
        }
      });
      expect(count).toEqual({
        'forward all_to_all': 4 * layers,
        'backward all_to_all': 7 * layers,
      });
    },
    30_000,
  );

  it('Ulysses with fewer key heads than ranks exchanges them repeated, as heads are kept by several ranks then', async () => {
    const { sent } = await planned(modelOf('llama'), 'sp=8', ['ulysses'], 'sp');
    const query = SEQUENCE * WIDTH * 2;
    expect(sent['forward all_to_all']).toBe(ulyssesBytes(8, query, query));
  });
});

it('both are choices of the problem, and its optimum is not more expensive', async () => {
  const graph = modelOf('llama');
  const found = [
    await planned(graph, 'cp=2', ['context'], 'cp'),
    await planned(graph, 'cp=2', ['ulysses'], 'cp'),
  ];
  const [{ prepared }] = found;
  for (const { priced } of found)
    expect(evaluate(prepared.model.problem, priced.choice).violations).toEqual([]);
  const best = await leastCostPlanOf(prepared, { starts: found.map((f) => f.priced.choice) });
  if (best.status !== 'planned') throw new Error(best.conflict.join());
  expect(best.plan.proof.status).toBe('optimal');
  for (const { priced } of found)
    expect(best.plan.objective.seconds).toBeLessThanOrEqual(priced.seconds * (1 + 1e-12));
});

describe('a sweep', () => {
  const config = JSON.stringify(modelEntry('llama-3.1-8b').config);
  const question = {
    model: 'llama-3.1-8b',
    config,
    devices: 64,
    cluster: 'dgx-h100',
    sequence: 8192,
    globalBatch: 64,
    cost: 'alpha-beta',
  };
  const solver = new CoreSolver(question, TABLE);
  const core = async (context: 'cp' | 'ulysses'): Promise<CoreCost> => {
    const sizes = { pp: 1, dp_replicate: 1, dp_shard: 8, cp: 8, tp: 1, ep: 1 };
    const priced = await solver.price(
      coreRequest(sizes, { mode: 'fsdp', context, sequenceParallel: false }, 1),
    );
    if (priced.status === 'refused') throw new Error(priced.reason);
    return priced.core;
  };
  /** MiB that a device sends in a layer, by kind. */
  const sent = ({ traffic }: CoreCost): Record<string, [number, number]> =>
    Object.fromEntries(
      traffic
        .filter((t) => t.unit === 2)
        .map((t) => [`${t.kind} ${t.axes}`, [t.count, t.sentBytes / MIB]]),
    );

  it('a layer of Llama-3.1-8B: keys and values gathered in both passes, nothing kept of what is gathered', async () => {
    const cp = await core('cp');
    // 28 MiB a direction; frameworks keep the ranks' own rows and gather them again for the
    // gradient of attention.
    expect(sent(cp)).toEqual({ 'all_gather cp': [4, 56], 'reduce_scatter cp': [2, 28] });
    const { context, keptBytes } = cp.units[2];
    expect(context!.backward.seconds).toBeCloseTo(2 * context!.forward.seconds, 6);
    expect(context!.again.selective.seconds).toBe(0);
    expect(context!.again.full.seconds).toBeCloseTo(context!.forward.seconds, 9);
    // Own rows of keys and values before they are repeated: 2 tensors of 8192 / 8 rows of 8 heads
    // instead of 32.
    const ulysses = (await core('ulysses')).units[2];
    expect(ulysses.keptBytes.none - keptBytes.none).toBe((2 * 8192 * (4096 - 1024) * 2) / 8);
    // The same work forward but for the launches of two copies.
    expect(cp.units[2].forward.compute / ulysses.forward.compute).toBeCloseTo(1, 1);
  });

  it('a layer of Llama-3.1-8B: Ulysses exchanges 8 times, 35 MiB in both directions', async () => {
    expect(sent(await core('ulysses'))).toEqual({ 'all_to_all sp': [8, 35] });
  });
});
