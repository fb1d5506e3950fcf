import { readFileSync } from 'node:fs';

import { describe, expect, it } from 'vitest';

import type { ShardwrightError } from '../../src/errors.ts';
import { stepAgain } from '../../src/fidelity/trainer-step.ts';
import { buildModel } from '../../src/models/build.ts';
import { parseModelConfig } from '../../src/models/families.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import type { PlannedResult } from '../../src/plan/choice/result.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { checkPlan } from '../../src/plan/questions/check-plan.ts';
import { planAnswer, planBand } from '../../src/plan/record/answer.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import type { Answered } from '../../src/recipes/chosen-step.ts';
import { planBandText } from '../../src/report/model/certainty.ts';
import { shard, shardPrepared } from '../../src/shard.ts';
import { input, trace } from '../../src/trace/trace.ts';
import { FULL } from '../support/full.ts';

const TABLE = builtinOperators();
const CONFIG = {
  model_type: 'llama',
  hidden_size: 256,
  intermediate_size: 512,
  num_hidden_layers: 1,
  num_attention_heads: 4,
  num_key_value_heads: 4,
  vocab_size: 1024,
  torch_dtype: 'bfloat16',
};
const GRAPH = buildModel(parseModelConfig(JSON.stringify(CONFIG)), {
  batch: 8,
  seq: 128,
  training: true,
  table: TABLE,
});

const answers = new Map<string | undefined, Promise<Answered>>();
function planned(trainer?: string): Promise<Answered> {
  const known = answers.get(trainer) ?? plannedFor(trainer);
  answers.set(trainer, known);
  return known;
}

async function plannedFor(trainer?: string): Promise<Answered> {
  const request = { mesh: 'tp=4', cluster: 'dgx-h100', ...(trainer && { trainer }) };
  const answer = await shard(GRAPH, request);
  if (answer.status === 'infeasible') throw new Error(answer.conflict.join());
  return answer;
}

/** Paths of what is not as it follows, of a plan that says something else of its step. */
function differences(
  { plan, prepared, certificate }: PlannedResult,
  step: Partial<Plan['step']>,
): readonly string[] {
  const folder = {
    plan: { ...plan, step: { ...plan.step!, ...step } },
    program: prepared.question.program,
    request: prepared.question.request,
    certificate,
  };
  return checkPlan(folder, TABLE, { step: stepAgain }).differences.map(({ path }) => path);
}

it('no known plan of the mesh has a shorter step under its trainer than the plan', async () => {
  for (const trainer of ['megatron', 'torchtitan']) {
    const { plan, fastest } = await planned(trainer);
    expect(plan.step).toMatchObject({ trainer, stepSeconds: expect.any(Number) as number });
    expect(fastest!.recipes.length).toBeGreaterThan(3);
    const steps = [...fastest!.recipes.map(({ step }) => step), fastest!.base!];
    expect(Math.min(...steps.map((s) => s.stepSeconds))).toBe(plan.step!.stepSeconds);
  }
});

it.each(FULL ? [undefined, 'megatron'] : ['megatron'])(
  'a plan whose step was changed by hand is found out (trainer: %s)',
  async (trainer) => {
    const found = await planned(trainer);
    expect(differences(found, {})).toEqual([]);
    const { stepSeconds, peakBytes } = found.plan.step!;
    expect(differences(found, { stepSeconds: 0.5 * stepSeconds })).toEqual(['$.step.stepSeconds']);
    expect(differences(found, { peakBytes: peakBytes - 1024 })).toEqual(['$.step.peakBytes']);
    expect(differences(found, { trainer: 'torchtitan' })).not.toEqual([]);
  },
);

it('the range of a step is that of measured runs of its trainer, and none where none was measured', async () => {
  const { pools } = JSON.parse(readFileSync('data/validation.json', 'utf8')) as {
    readonly pools: readonly (Record<string, unknown> & {
      readonly step: { readonly p10: number; readonly p90: number };
    })[];
  };
  const { plan } = await planned('torchtitan');
  const own = pools.find(
    (p) => p.accelerator === 'Hopper' && p.trainer === 'torchtitan' && p.hosts === null,
  );
  const [low, high] = planBand(plan)!;
  expect(low).toBeCloseTo(plan.step!.stepSeconds * own!.step.p10, 12);
  expect(high).toBeCloseTo(plan.step!.stepSeconds * own!.step.p90, 12);
  // Megatron by default on one host: those who measured there ran slower trainers.
  const request = { ...plan.request, trainerAssumed: true as const };
  expect(planBand({ ...plan, request })![0]).toBeGreaterThan(plan.step!.stepSeconds);
  expect(planBandText({ ...plan, request })).toContain('nine of ten of them took longer');
  expect(planBandText(plan)).not.toContain('nine of ten of them');
  for (const trainer of [undefined, 'deepspeed'])
    expect(planAnswer((await planned(trainer)).plan)).toMatchObject({
      stepBand: null,
      trainer: trainer ?? 'shardwright',
    });
});

it('a prepared request is answered by the step of its trainer', async () => {
  const request = { mesh: 'tp=4', cluster: 'dgx-h100', trainer: 'torchtitan' };
  const answer = await shardPrepared(prepare(GRAPH, request, TABLE));
  const whole = await planned('torchtitan');
  expect(answer).toMatchObject({ plan: { step: whole.plan.step, nodes: whole.plan.nodes } });
  const forward = trace((x) => x.relu(), [input([8, 8])]);
  await expect(shardPrepared(prepare(forward, request, TABLE))).rejects.toThrow(
    'the program is not a training step',
  );
});

it.each([
  [{ trainer: 'torchtitn' }, 'torchtitan'],
  [{ trainer: 'torchtitan', cost: 'alpha-beta' }, 'goes with --cost nccl'],
  [{ trainer: 'torchtitan', overlap: true }, '--overlap plays the exported program'],
  [{ trainer: 'torchtitan', objective: 'serial' }, 'not chosen by its step'],
] as const)('%o is refused, and not planned otherwise', async (more, why) => {
  const asked = shard(GRAPH, { mesh: 'tp=4', cluster: 'dgx-h100', ...more });
  const error = await asked.then(
    () => undefined,
    (one: unknown) => one as ShardwrightError,
  );
  expect(error?.code).toBe('E_USAGE');
  expect(`${error?.message} ${error?.details.hint}`).toContain(why);
});

describe('a step whose activations do not fit', () => {
  /** On one device nothing is cut, so that recomputation alone makes room. */
  const request = { mesh: 'dp=1', cluster: 'dgx-h100', trainer: 'megatron' };
  const deep = buildModel(
    parseModelConfig(JSON.stringify({ ...CONFIG, num_hidden_layers: 3, intermediate_size: 1024 })),
    { batch: 8, seq: 256, training: true, table: TABLE },
  );

  it('recomputes what its trainer can, and is checked again so', async () => {
    const kept = await shard(deep, request);
    if (kept.status === 'infeasible') throw new Error(kept.conflict.join());
    const memoryBytes = Math.round(0.8 * kept.plan.memory.peakBytes);
    const found = await shard(deep, { ...request, memoryBytes });
    if (found.status === 'infeasible') throw new Error(found.conflict.join());
    const { step, request: asked } = found.plan;
    expect(asked.activations).toBe('trainer');
    expect(step?.recomputes).toEqual(expect.any(String));
    expect(step!.peakBytes).toBeLessThan(memoryBytes);
    expect(step!.stepSeconds).toBeGreaterThan(kept.plan.step!.stepSeconds);
    expect(differences(found, {})).toEqual([]);
    expect(differences(found, { recomputes: 'core_attn' })).not.toEqual([]);
  });

  it('is refused with the least that is known to be enough', async () => {
    const answer = await shard(deep, { ...request, memoryBytes: 2 ** 26 });
    expect(answer).toMatchObject({ status: 'infeasible', conflict: ['the step of megatron'] });
  });

  it('has no trainer where none is named', async () => {
    const error = expect.objectContaining({ code: 'E_USAGE' }) as Error;
    const asked = { mesh: 'dp=1', cluster: 'dgx-h100', activations: 'trainer' } as const;
    await expect(shard(deep, asked)).rejects.toEqual(error);
    await expect(shard(deep, { ...asked, trainer: 'shardwright' })).rejects.toEqual(error);
  });
});
