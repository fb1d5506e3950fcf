import { describe, expect, it } from 'vitest';

import type { Graph } from '../../src/graph/types.ts';
import { buildModel, countParameters } from '../../src/models/build.ts';
import { type ModelConfig, readModelConfig } from '../../src/models/families.ts';
import type { JsonRecord } from '../../src/models/read-config.ts';
import { knownModelConfig } from '../../src/models/registry.ts';
import { tensorRanks, vocabularyPadding } from '../../src/models/vocabulary.ts';
import { build, flat, type NDArray } from '../../src/ndarray/array.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { leastCostPlanOf } from '../../src/plan/least-cost-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { DEFAULT_REQUEST } from '../../src/plan/request/request.ts';
import { evaluateGraph } from '../../src/simulate/evaluate.ts';
import { drawInputs } from '../../src/simulate/inputs.ts';
import { verify } from '../../src/simulate/verify.ts';
import { TINY } from './tiny.ts';

/** Vocabularies padded as Megatron-LM pads them: counts, loss, and sharded runs. */

const table = builtinOperators();
const SIZES = { batch: 1, seq: 8, layers: 1 } as const;

const tiny = (name: string, more: JsonRecord = {}): ModelConfig =>
  readModelConfig({ ...(TINY[name] as JsonRecord), ...more });
const total = (graph: Graph, config: ModelConfig): number => countParameters(graph, config).total;
const shapeOf = (graph: Graph, roleName: string): unknown =>
  graph.nodes.flatMap((n) =>
    n.meta.roleName === roleName && n.type.kind === 'tensor' ? [n.type.shape] : [],
  )[0];

describe('parameters of a padded vocabulary', () => {
  it('GPT-2, one table: h for each row of padding', () => {
    const config = knownModelConfig('gpt2');
    const one = buildModel(config, { batch: 1, seq: 8, padVocabulary: { multiple: 128 } });
    expect(total(one, config)).toBe(124_439_808 + 768 * (50304 - 50257));
    expect(shapeOf(one, 'transformer.wte.weight')).toEqual([50304, 768]);
    const eight = buildModel(config, {
      batch: 1,
      seq: 8,
      padVocabulary: { multiple: 128, tensor: 8 },
    });
    expect(total(eight, config)).toBe(124_439_808 + 768 * (51200 - 50257));
    expect(vocabularyPadding(config, { multiple: 128, tensor: 8 })).toEqual({
      multiple: 128,
      tensor: 8,
      vocabulary: 50257,
      rows: 51200,
      parameters: 768 * 943,
    });
    expect(eight.notes?.join()).toContain(
      'padded to 51,200, a multiple of 128 x 8 tensor ranks: 724,224 parameters',
    );
  });

  it('Llama-3.1-8B on 8 ranks, a table and an output layer: twice h for each row', () => {
    const config = knownModelConfig('llama-3.1-8b');
    const graph = buildModel(config, {
      batch: 1,
      seq: 8,
      padVocabulary: { multiple: 128, tensor: 8 },
    });
    expect(total(graph, config)).toBe(8_030_261_248 + 2 * 4096 * (129024 - 128256));
    expect(shapeOf(graph, 'lm_head.weight')).toEqual([129024, 4096]);
    expect(shapeOf(graph, 'model.embed_tokens.weight')).toEqual([129024, 4096]);
  });

  it('off by default, and with a multiple of 1 on any number of ranks: the counts of the classes', () => {
    const config = knownModelConfig('gpt2');
    const plain = buildModel(config, { batch: 1, seq: 8 });
    expect(total(plain, config)).toBe(124_439_808);
    expect(
      buildModel(config, { batch: 1, seq: 8, padVocabulary: { multiple: 1, tensor: 8 } }),
    ).toEqual(plain);
    expect(plain.notes?.join()).not.toContain('padd');
  });

  // 512 rows are 600 as a multiple of 200: no other size of these models is 600.
  it.each(Object.keys(TINY).filter((name) => !['vit', 'dit', 'unet2d_condition'].includes(name)))(
    '%s: what is said is what the graph has more',
    (name) => {
      const config = tiny(name);
      const padVocabulary = { multiple: 100, tensor: 2 };
      const plain = buildModel(config, { ...SIZES, training: true });
      const graph = buildModel(config, { ...SIZES, training: true, padVocabulary });
      expect(vocabularyPadding(config, padVocabulary)).toMatchObject({
        rows: 600,
        parameters: total(graph, config) - total(plain, config),
      });
      const sizes = graph.nodes.flatMap((n) => (n.type.kind === 'tensor' ? n.type.shape : []));
      expect(sizes).toContain(600);
      // Nothing is left at the rows of the config: logits, loss and gradients are padded too.
      expect(sizes).not.toContain(512);
    },
  );

  it('refuses a model without a vocabulary, and multiples that are none', () => {
    expect(() => vocabularyPadding(tiny('vit'), { multiple: 128 })).toThrow(/no vocabulary to pad/);
    for (const multiple of [0, -1, 1.5, 2 ** 40])
      expect(() => vocabularyPadding(tiny('llama'), { multiple })).toThrow(
        /a vocabulary of 512 rows padded to/,
      );
  });

  it('the tensor ranks are the mesh dim that goes by a name of them', () => {
    const meshes = ['dp=4,tp=8', 'tp=2,model=4', 'data=2,model=4', 'mp=3', 'dp=16'];
    expect(meshes.map(tensorRanks)).toEqual([8, 2, 4, 3, 1]);
  });
});

describe('numbers of a padded model', () => {
  const padVocabulary = { multiple: 8, tensor: 2 };
  const sizes = { batch: 2, seq: 6, layers: 1, dtype: 'f32' } as const;

  it.each([
    ['gpt2', ['transformer.wte.weight']],
    ['llama', ['model.embed_tokens.weight', 'lm_head.weight']],
  ] as const)(
    '%s: the padded classes take part in the softmax of the loss, and in nothing else',
    (name, tables) => {
      const config = tiny(name, { vocab_size: 50 });
      const padded = buildModel(config, { ...sizes, padVocabulary, training: true });
      const plain = buildModel(config, { ...sizes, training: false });
      const placeholders = (graph: Graph) => graph.nodes.filter((n) => n.kind === 'placeholder');
      const nameOf = (node: Graph['nodes'][number]): string => node.meta.roleName ?? node.name;
      // Rows of padding that are zero give logits of zero.
      const values = new Map<string, NDArray>();
      drawInputs(table, padded, 3, { rows: 64, stated: 50 }).forEach((value, i) => {
        const role = nameOf(placeholders(padded)[i]);
        const width = value.shape.at(-1) ?? 1;
        const isTable = tables.some((t) => t === role);
        values.set(
          role,
          isTable
            ? build(value.shape, (k) => (k < 50 * width ? flat(value)[k] : 0), value.dtype)
            : value,
        );
      });
      const of = (role: string): NDArray => {
        const value = values.get(role);
        if (value === undefined) throw new Error(`no ${role}`);
        return value;
      };
      const real = placeholders(plain).map((node) => {
        const value = of(nameOf(node));
        if (!tables.some((t) => t === nameOf(node))) return value;
        return build([50, value.shape[1]], (k) => flat(value)[k], value.dtype);
      });
      const logits = evaluateGraph(table, plain, real).outputs[0] as NDArray;
      const labels = flat(of('labels'));
      expect(Math.max(...labels, ...flat(of('input_ids')))).toBeLessThan(50);
      const scores = flat(logits);
      const losses = [...labels].map((label, t) => {
        const row = [...scores.slice(t * 50, t * 50 + 50)];
        return Math.log(row.reduce((sum, x) => sum + Math.exp(x), 14)) - row[label];
      });
      const inputs = placeholders(padded).map((node) => of(nameOf(node)));
      const loss = evaluateGraph(table, padded, inputs).outputs[0] as NDArray;
      expect(loss.item()).toBeCloseTo(losses.reduce((a, b) => a + b, 0) / losses.length, 10);
    },
  );

  it('token ids are drawn below the real vocabulary', () => {
    const graph = buildModel(tiny('gpt2', { vocab_size: 9 }), {
      ...sizes,
      padVocabulary,
      training: true,
    });
    const most = (vocabulary?: { rows: number; stated: number }): number =>
      Math.max(
        ...drawInputs(table, graph, 0, vocabulary).flatMap((x) =>
          x.kind === 'integer' ? [...flat(x)] : [],
        ),
      );
    expect(most({ rows: 16, stated: 9 })).toBeLessThan(9);
    expect(most()).toBeGreaterThanOrEqual(9);
  });

  it.each([
    ['gpt2', 'transformer.wte.weight'],
    ['llama', 'lm_head.weight'],
  ])('%s: forward and backward on 2 ranks that cut the vocabulary evenly', async (name, cut) => {
    const config = tiny(name, { vocab_size: 50 });
    const graph = buildModel(config, { ...sizes, padVocabulary, training: true });
    const padding = vocabularyPadding(config, padVocabulary);
    expect(padding?.rows).toBe(64);
    const request = {
      ...DEFAULT_REQUEST,
      mesh: 'tp=2',
      cluster: 'dgx-h100',
      uneven: 'forbid',
      pins: [{ node: cut, spec: 'S(0)' }],
      ...(padding === undefined ? {} : { padVocabulary: padding }),
    } as const;
    const result = await leastCostPlanOf(prepare(graph, request, table));
    if (result.status === 'infeasible') throw new Error('no plan');
    expect(result.plan.paddedParameters).toBe(padding?.parameters);
    expect(result.plan.parameters.find((p) => p.name === cut)).toMatchObject({
      shape: [64, 64],
      placement: 'S(0)',
    });
    const options = { seed: 0, tolerance: 1e-9, vocabulary: { rows: 64, stated: 50 } };
    const ran = verify(result.prepared.question.program, result.plan, { ...options, table });
    expect(ran.mismatches).toEqual([]);
    expect(ran.outputsCompared).toBeGreaterThan(10);
    expect(Object.values(ran.collectives).reduce((a, b) => a + b, 0)).toBeGreaterThan(0);
  });
});
