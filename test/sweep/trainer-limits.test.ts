import { describe, expect, test } from 'vitest';

import { builtinOperators } from '../../src/ops/builtin.ts';
import type { ComparedPlan, Comparison } from '../../src/recipes/compare/comparison.ts';
import { compareModel } from '../../src/sweep/compare-model.ts';
import { checkLayout } from '../../src/sweep/layout/compare-layout.ts';
import { parseLayout } from '../../src/sweep/layout/parse-layout.ts';
import type { SweepQuestion } from '../../src/sweep/model/question.ts';
import { TRAINER_NAMES, trainerNamed } from '../../src/trainers/trainers.ts';
import { FULL } from '../support/full.ts';

const CONFIG = JSON.stringify({
  model_type: 'llama',
  hidden_size: 512,
  intermediate_size: 1024,
  num_attention_heads: 8,
  num_key_value_heads: 8,
  num_hidden_layers: 8,
  vocab_size: 1024,
  torch_dtype: 'bfloat16',
});
const QUESTION: SweepQuestion = {
  model: 'small',
  config: CONFIG,
  devices: 4,
  cluster: 'dgx-h100',
  sequence: 256,
  globalBatch: 4,
  cost: 'nccl',
};
const table = builtinOperators();
const asked = new Map<string, Promise<Comparison>>();
const compared = (trainer: string): Promise<Comparison> => {
  const options = { table, threads: 1, whatIf: false, exhaustive: true };
  const known = asked.get(trainer) ?? compareModel({ ...QUESTION, trainer }, options);
  asked.set(trainer, known);
  return known;
};

/** What the documents of each trainer say, written down apart from its record. */
const FACTS: Readonly<
  Record<string, { readonly schedules: readonly string[]; readonly parts: readonly string[] }>
> = {
  // schedules.py of megatron-core: without interleaving, and with it.
  megatron: {
    schedules: ['1f1b', 'interleaved'],
    parts: 'pp dp zero1 zero2 fsdp hsdp cp ring ulysses tp sp'.split(' '),
  },
  torchtitan: {
    schedules: ['1f1b', 'gpipe', 'interleaved'],
    parts: 'pp dp fsdp hsdp cp tp sp'.split(' '),
  },
  deepspeed: { schedules: [], parts: 'dp zero1 zero2 fsdp hsdp ulysses tp'.split(' ') },
  accelerate: { schedules: [], parts: 'dp fsdp hsdp cp ring tp'.split(' ') },
  maxtext: { schedules: ['gpipe'], parts: 'pp dp zero1 fsdp hsdp cp ring tp sp'.split(' ') },
};

describe('plans for a trainer', () => {
  // Schedules by chunks and without them, and no stages; all trainers with SHARDWRIGHT_FULL.
  const DAILY = ['megatron', 'torchtitan', 'deepspeed'];
  test.each(Object.entries(FACTS).filter(([name]) => FULL || DAILY.includes(name)))(
    'of %s have its schedules and its parts, and each part is among them',
    async (trainer, { schedules, parts }) => {
      const { plans } = await compared(trainer);
      const piped = plans.filter(({ plan }) => plan.split('+').includes('pp'));
      const used = (of: (plan: ComparedPlan) => readonly string[], some = plans): string[] =>
        [...new Set(some.flatMap(of))].sort();
      const scheduled = used((plan) => [plan.layout?.schedule ?? ''], piped);
      expect(scheduled.filter((name) => !schedules.includes(name))).toEqual([]);
      expect(scheduled.length > 0).toBe(schedules.length > 0);
      expect(used(({ plan }) => plan.split('+'))).toEqual([...parts].sort());
    },
    60_000,
  );

  test('of shardwright are those without a trainer', async () => {
    const options = {
      table,
      threads: 1,
      whatIf: false,
      plans: ['pp+zero1', 'zero1+tp', 'optimum'],
    };
    const own = await compareModel({ ...QUESTION, trainer: 'shardwright' }, options);
    const any = await compareModel(QUESTION, options);
    expect(any.plans.map(({ origin }) => origin)).toContain('ilp');
    expect(own.plans.map(({ name }) => name)).toEqual(any.plans.map(({ name }) => name));
  }, 60_000);

  test('recompute all layers or none, and lie on the stages that the trainer makes', async () => {
    const { plans } = await compared('torchtitan');
    for (const { layout, plan } of plans) {
      if (layout === undefined) throw new Error(plan);
      expect([undefined, 10], plan).toContain(layout.unitsAgain);
      // Embedding and head count as a layer each (`_generate_llm_fqn_per_model_part`).
      if (layout.sizes.pp === 2 && layout.chunks === 1)
        expect(layout.stages.map(({ first, end }) => end - first)).toEqual([4, 4]);
      if (layout.sizes.pp === 4 && layout.chunks === 1)
        expect(layout.stages.map(({ first, end }) => end - first)).toEqual([2, 3, 2, 1]);
    }
  }, 60_000);

  test.each([
    ['megatron', 'pp=2,dp=4,schedule=zb-h1', /schedule=zb-h1/, /schedule=1f1b/],
    ['megatron', 'pp=2,dp=4,zero=3', /pp=2 with zero=3/, /zero=1, pp=1/],
    ['nemo', 'dp=8,recompute=operators', /recompute=operators/, /recompute=full/],
    ['torchtitan', 'dp=8,zero=1', /zero=1/, /zero=0/],
    ['torchtitan', 'dp=4,cp=2,zero=3,context=ring', /context=ring/, /context=cp/],
    ['torchtitan', 'dp=4,cp=2,zero=0,context=cp', /zero=0 with cp=2/, /zero=3, cp=1/],
    ['accelerate', 'dp=4,tp=2,zero=3,sp=1', /sp=1/, /sp=0/],
    ['accelerate', 'dp=4,tp=2,sp=0', /zero=0 with tp=2/, /zero=3/],
    ['deepspeed', 'pp=2,dp=4', /pp=2/, /pp=1/],
    ['maxtext', 'dp=8,zero=2', /zero=2/, /zero=3, zero=1/],
    ['megatron', 'dp=8,zero=3,reshard=0', /reshard=0/, /reshard=1/],
  ])('%s refuses %s by the name of the setting', (trainer, text, setting, nearest) => {
    const check = (): void =>
      checkLayout({ ...QUESTION, devices: 8, trainer }, parseLayout(text, 8));
    expect(check).toThrow(setting);
    try {
      check();
    } catch (error) {
      expect((error as { details: { hint: string } }).details.hint).toMatch(nearest);
    }
  });
});

test('a trainer is found by its name, and by that of a generation', () => {
  expect(TRAINER_NAMES.map((name) => trainerNamed(name, '--for').trainer.id)).toEqual(
    TRAINER_NAMES,
  );
  const { trainer, profile } = trainerNamed('megatron-lm', '--for');
  expect([trainer.id, profile]).toEqual(['megatron', 'megatron-lm']);
  expect(trainerNamed('megatron', '--for').profile).toBe('megatron-core');
  expect(() => trainerNamed('torchtitn', '--for')).toThrow('no such trainer');
});
