import { describe, expect, it } from 'vitest';

import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { frameworkSoftware } from '../../src/fidelity/software.ts';
import { trainerFacts } from '../../src/fidelity/trainer-step.ts';
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
const SEQUENCE = 512;
const EACH = 2;

/** A step by the whole program's plan and by the layout, under one trainer. */
async function both(
  name: string,
  { mesh, recipe, layout }: Pair,
  trainer: string,
): Promise<
  Record<'plan' | 'layout', { readonly stepSeconds: number; readonly peakBytes: number }>
> {
  const text = JSON.stringify(modelEntry(name).config);
  const config = parseModelConfig(text);
  const ranks = Number(/dp=(\d+)/.exec(mesh)?.[1]);
  const batch = ranks * EACH;
  const graph = buildModel(config, { batch, seq: SEQUENCE, training: true, table: TABLE });
  const request = { ...DEFAULT_REQUEST, mesh, cluster: 'dgx-h100', trainer };
  const prepared = prepare(graph, request, TABLE);
  const { choice } = await recipeChoice(prepared, recipe, new Deadline(undefined));
  const plan = stepOfPlan(prepared.model, choice, trainerFacts(request)!);
  const cluster = loadCluster('dgx-h100');
  const profile = trainer === 'megatron' ? 'megatron-core' : 'torchtitan';
  const question = {
    model: name,
    config: text,
    devices: 8,
    cluster: 'dgx-h100',
    sequence: SEQUENCE,
    globalBatch: batch,
    cost: 'nccl',
    software: frameworkSoftware(profile, cluster),
  };
  const figures = await new LayoutPricer(TABLE).price(question, parseLayout(layout, 8));
  return { plan, layout: { stepSeconds: figures.seconds, peakBytes: figures.peakBytes } };
}

describe('the step of a plan', () => {
  for (const name of MODELS)
    for (const pair of pairs(EACH))
      it(`of ${name} as ${pair.recipe} is that of the layout ${pair.layout}`, async () => {
        const trainer = pair.recipe === 'fsdp' ? 'torchtitan' : 'megatron';
        const { plan, layout } = await both(name, pair, trainer);
        expect(Math.abs(plan.stepSeconds / layout.stepSeconds - 1)).toBeLessThan(0.02);
        expect(Math.abs(plan.peakBytes / layout.peakBytes - 1)).toBeLessThan(0.02);
      });

  it('differs between trainers for one plan', async () => {
    const [pair] = pairs(EACH).slice(1);
    const megatron = await both('gpt2', pair, 'megatron');
    const torchtitan = await both('gpt2', pair, 'torchtitan');
    expect(torchtitan.plan.stepSeconds).toBeGreaterThan(1.1 * megatron.plan.stepSeconds);
  });
});
