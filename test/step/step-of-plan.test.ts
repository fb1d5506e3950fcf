import { describe, expect, it } from 'vitest';

import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { RUN_COLUMNS } from '../../src/fidelity/runs.ts';
import { frameworkSoftware } from '../../src/fidelity/software.ts';
import { trainerFacts, withRoutedRows } from '../../src/fidelity/trainer-step.ts';
import { validateRuns } from '../../src/fidelity/validate.ts';
import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { buildModel } from '../../src/models/build.ts';
import { parseModelConfig } from '../../src/models/families.ts';
import { modelEntry } from '../../src/models/registry.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { Deadline } from '../../src/plan/request/deadline.ts';
import { DEFAULT_REQUEST } from '../../src/plan/request/request.ts';
import { recipeChoice } from '../../src/recipes/recipe-choice.ts';
import { stepOfPlan } from '../../src/step/step-of-plan.ts';
import { parseLayout } from '../../src/sweep/layout/parse-layout.ts';
import { LayoutPricer } from '../../src/sweep/layout/price-layout.ts';
import { FULL } from '../support/full.ts';

const TABLE = builtinOperators();

/** A plan of the whole program, and the layout that says the same. */
interface Pair {
  readonly mesh: string;
  readonly recipe: string;
  readonly layout: string;
}

/** Layouts that plans and sweeps both express, with one microbatch of `each` sequences. */
const pairs = (each: number): readonly Pair[] => [
  { mesh: 'dp=8', recipe: 'dp', layout: `dp=8,mbs=${each}` },
  { mesh: 'dp=8', recipe: 'fsdp', layout: `dp=8,mbs=${each},zero=3` },
  { mesh: 'dp=4,tp=2', recipe: 'dp+tp', layout: `dp=4,tp=2,mbs=${each},sp=0` },
  { mesh: 'dp=4,tp=2', recipe: 'fsdp+tp+sp', layout: `dp=4,tp=2,mbs=${each},zero=3,sp=1` },
];

const MODELS = FULL
  ? [
      'gpt2',
      'gpt2-medium',
      'llama-3.2-1b',
      'llama-3.1-8b',
      'qwen2.5-0.5b',
      'qwen3-0.6b',
      'gemma-3-1b',
      'phi-3-mini-4k',
    ]
  : ['gpt2'];
/** More layers than those that a layout builds, and fewer than the model has. */
const GPT2 = { ...modelEntry('gpt2').config, n_layer: 5 };
const SEQUENCE = 512;
const EACH = 2;

/** A step by the whole program's plan and by the layout, under one trainer. */
async function both(
  model: string | Readonly<Record<string, unknown>>,
  { mesh, recipe, layout }: Pair,
  trainer: string,
): Promise<
  Record<'plan' | 'layout', { readonly stepSeconds: number; readonly peakBytes: number }>
> {
  const name = typeof model === 'string' ? model : 'mixture';
  const text = JSON.stringify(typeof model === 'string' ? modelEntry(model).config : model);
  const config = parseModelConfig(text);
  const ranks = Number(/dp=(\d+)/.exec(layout)?.[1]);
  const batch = ranks * EACH;
  const devices = parseMesh(mesh).size;
  const graph = buildModel(config, { batch, seq: SEQUENCE, training: true, table: TABLE });
  const asked = { ...DEFAULT_REQUEST, mesh, cluster: 'dgx-h100', trainer };
  const request = withRoutedRows(asked, graph);
  const prepared = prepare(graph, request, TABLE);
  const { choice } = await recipeChoice(prepared, recipe, new Deadline(undefined));
  const plan = stepOfPlan(prepared.model, choice, trainerFacts(request)!);
  const cluster = loadCluster('dgx-h100');
  const profile = trainer === 'megatron' ? 'megatron-core' : 'torchtitan';
  const question = {
    model: name,
    config: text,
    devices,
    cluster: 'dgx-h100',
    sequence: SEQUENCE,
    globalBatch: batch,
    cost: 'nccl',
    software: frameworkSoftware(profile, cluster),
  };
  const figures = await new LayoutPricer(TABLE).price(question, parseLayout(layout, devices));
  return { plan, layout: { stepSeconds: figures.seconds, peakBytes: figures.peakBytes } };
}

/** The prediction of `validate` for a run of a model by name in a layout. */
async function validated(
  model: string,
  layout: string,
  framework: string,
): Promise<{ readonly stepSeconds: number; readonly peakBytes: number }> {
  const { shape } = parseModelConfig(JSON.stringify(modelEntry(model).config)).architecture;
  const size = (name: string): number =>
    Number(new RegExp(`\\b${name}=(\\d+)`).exec(layout)?.[1] ?? 1);
  const [dp, tp, cut] = [size('dp'), size('tp'), layout.includes('zero=3')];
  const row: Readonly<Record<string, string | number>> = {
    ...{ id: 'asked', group: 'asked', source: 'asked', model, hf_id: model, framework },
    ...{ layers: shape.layers, hidden: shape.width, heads: shape.heads, vocab: shape.vocabulary },
    ...{ seq: SEQUENCE, gbs: dp * EACH, mbs: EACH, gpus: dp * tp, gpu_type: 'H100-80GB SXM' },
    ...{ dp: cut ? 1 : dp, fsdp: cut ? dp : 1, zero_stage: cut ? 'ZeRO-3' : '0', tp },
    ...{ sp: layout.includes('sp=1') ? 'yes' : 'no', ac_mode: 'none', dtype: 'bf16' },
    ...{ step_time_s: 1, status: 'ok' },
  };
  const columns = [...new Set([...RUN_COLUMNS, ...Object.keys(row)])];
  const text = `${columns.join(',')}\n${columns.map((name) => row[name] ?? '').join(',')}\n`;
  const { predictions, skipped } = await validateRuns(text, TABLE);
  const [found] = predictions;
  if (found === undefined) throw new Error(skipped[0]?.reason);
  return { stepSeconds: found.seconds, peakBytes: found.peakBytes };
}

const HEADS = { num_attention_heads: 8, num_key_value_heads: 8, hidden_size: 1024 };
const SIZES = { num_hidden_layers: 2, vocab_size: 4096, torch_dtype: 'bfloat16' };
/** Few layers of mixtures of two families; that of Qwen has experts as narrow as the real one. */
const MIXTURES = {
  mixtral: {
    model_type: 'mixtral',
    ...HEADS,
    ...SIZES,
    intermediate_size: 3072,
    num_local_experts: 8,
    num_experts_per_tok: 2,
  },
  qwen: { ...modelEntry('qwen3-30b-a3b').config, num_hidden_layers: FULL ? 4 : 1 },
} as const;

/** Layouts of experts: over data ranks that FSDP cuts, and each cut by tensor ranks as well. */
const EXPERT_PAIRS: readonly (Pair & { readonly trainer: string })[] = [
  {
    mesh: 'ep=4',
    recipe: 'FSDP (ep), experts (ep)',
    layout: `dp=4,ep=4,mbs=${EACH},zero=3`,
    trainer: 'torchtitan',
  },
  {
    mesh: 'ep=2,tp=2',
    recipe: 'data parallel (ep), experts (ep) + Megatron (tp)',
    layout: `dp=2,tp=2,ep=2,etp=2,mbs=${EACH},sp=1`,
    trainer: 'megatron',
  },
  ...(FULL
    ? [
        {
          mesh: 'dp=2,ep=4',
          recipe: 'FSDP (dp+ep), experts (ep)',
          layout: `dp=8,ep=4,mbs=${EACH},zero=3`,
          trainer: 'torchtitan',
        },
        { mesh: 'dp=8', recipe: 'dp', layout: `dp=8,mbs=${EACH}`, trainer: 'megatron' },
      ]
    : []),
];

describe('the step of a plan of a mixture', () => {
  it('is that of its own cluster, whatever the same program was asked before', async () => {
    const [pair] = EXPERT_PAIRS;
    const make = (): ReturnType<typeof buildModel> =>
      buildModel(parseModelConfig(JSON.stringify(MIXTURES.mixtral)), {
        ...{ batch: 4, seq: SEQUENCE, training: true, table: TABLE },
      });
    const stepOn = async (graph: ReturnType<typeof make>, cluster: string): Promise<number> => {
      const asked = { ...DEFAULT_REQUEST, mesh: pair?.mesh ?? '', cluster, trainer: 'torchtitan' };
      const request = withRoutedRows(asked, graph);
      const prepared = prepare(graph, request, TABLE);
      const deadline = new Deadline(undefined);
      const { choice } = await recipeChoice(prepared, pair?.recipe ?? '', deadline);
      return stepOfPlan(prepared.model, choice, trainerFacts(request)!).stepSeconds;
    };
    const graph = make();
    const fast = await stepOn(graph, 'dgx-h100');
    const slow = await stepOn(graph, 'dgx-a100-80gb');
    expect(slow).toBe(await stepOn(make(), 'dgx-a100-80gb'));
    expect(slow).toBeGreaterThan(fast);
  });

  // In every run one family for each layout: Mixtral's with whole experts, Qwen's with cut ones.
  const each = Object.entries(MIXTURES).flatMap(([name, config], m) =>
    EXPERT_PAIRS.map((pair, p) => ({ name, config, pair, isDaily: m === p })),
  );
  for (const {
    name,
    config,
    pair: { trainer, ...pair },
    isDaily,
  } of each)
    if (FULL || isDaily)
      it(`of ${name} as ${pair.recipe} is that of the layout ${pair.layout}`, async () => {
        const { plan, layout } = await both(config, pair, trainer);
        expect(Math.abs(plan.stepSeconds / layout.stepSeconds - 1)).toBeLessThan(0.02);
        expect(Math.abs(plan.peakBytes / layout.peakBytes - 1)).toBeLessThan(0.02);
      });
});

describe('the step of a plan', () => {
  for (const name of MODELS)
    for (const pair of pairs(EACH).filter(({ recipe }) => FULL || recipe.startsWith('fsdp')))
      it(`of ${name} as ${pair.recipe} is that of the layout ${pair.layout}`, async () => {
        const trainer = pair.recipe === 'fsdp' ? 'torchtitan' : 'megatron';
        const { plan, layout } = await both(FULL ? name : GPT2, pair, trainer);
        expect(Math.abs(plan.stepSeconds / layout.stepSeconds - 1)).toBeLessThan(0.02);
        expect(Math.abs(plan.peakBytes / layout.peakBytes - 1)).toBeLessThan(0.02);
        if (!FULL) return;
        // `validate` knows the run by the name of its model.
        const profile = trainer === 'megatron' ? 'megatron-core' : trainer;
        const run = await validated(name, pair.layout, profile);
        expect(Math.abs(run.stepSeconds / layout.stepSeconds - 1)).toBeLessThan(0.02);
        expect(Math.abs(run.peakBytes / layout.peakBytes - 1)).toBeLessThan(0.02);
      });

  it('differs between trainers for one plan', async () => {
    const [pair] = pairs(EACH).slice(1);
    const megatron = await both('gpt2', pair, 'megatron');
    const torchtitan = await both('gpt2', pair, 'torchtitan');
    expect(torchtitan.plan.stepSeconds).toBeGreaterThan(1.1 * megatron.plan.stepSeconds);
  });
});
