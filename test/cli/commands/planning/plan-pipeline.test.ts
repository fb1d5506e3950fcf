import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import type { Plan, StepFigures } from '../../../../src/plan/record/types.ts';
import type { PlanPipeline } from '../../../../src/sweep/pipeline/plan.ts';
import { FULL } from '../../../support/full.ts';
import { cli } from '../../support.ts';

const LLAMA = {
  model_type: 'llama',
  hidden_size: 256,
  intermediate_size: 512,
  num_attention_heads: 4,
  num_hidden_layers: 3,
  vocab_size: 1024,
  torch_dtype: 'bfloat16',
};
let folder = '';
let config = '';
let tied = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'shardwright-'));
  [config, tied] = [join(folder, 'llama.json'), join(folder, 'tied.json')];
  writeFileSync(config, JSON.stringify(LLAMA));
  writeFileSync(tied, JSON.stringify({ ...LLAMA, tie_word_embeddings: true }));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

type Cut = Plan &
  StepFigures & {
    readonly pipeline: PlanPipeline;
    readonly fitProbability: number;
    readonly warnings?: readonly string[];
  };

async function cut(model: string, mesh: string, ...more: string[]): Promise<Cut> {
  const run = await cli(
    'plan',
    model,
    '--mesh',
    mesh,
    '--cluster',
    'dgx-h100',
    '--seq',
    '256',
    ...(more.includes('--batch') ? [] : ['--batch', '8']),
    '--no-recipes',
    '--json',
    ...more,
  );
  expect(run.code, run.err).toBe(0);
  return JSON.parse(run.out) as Cut;
}

describe('plan --pp', () => {
  it('one stage and one microbatch take as long as the plan, and hold its states', async () => {
    for (const mesh of ['tp=2', 'dp=2']) {
      const { objective, memory, pipeline } = await cut(
        config,
        mesh,
        '--pp',
        '1',
        '--microbatches',
        '1',
        '--batch',
        '2',
      );
      // The plan rounds each price to a quantum.
      expect(Math.abs(pipeline.seconds / objective.seconds - 1)).toBeLessThan(1e-6);
      expect(pipeline.stages).toHaveLength(1);
      expect(pipeline.stages[0]).toMatchObject({
        layers: [0, 2],
        embedding: true,
        head: true,
        inFlight: 1,
      });
      expect(pipeline.stages[0].peakBytes).toBeGreaterThan(memory.peakBytes);
      expect(pipeline.bubbleSeconds).toBe(0);
    }
  });

  it('adds the keys of the pipeline: stages cover the layers, their seconds are those of the plan', async () => {
    const { objective, pipeline, warnings } = await cut(
      config,
      'tp=2',
      ...['--pp', '3', '--microbatches', '8'],
    );
    // The memory of three stages together is no budget of one device.
    expect(warnings).toBeUndefined();
    expect(pipeline).toMatchObject({ schedule: '1f1b', microbatches: 8, virtual: 1, fits: true });
    expect(
      pipeline.stages.flatMap(({ layers }) =>
        layers === null
          ? []
          : Array.from({ length: layers[1] - layers[0] + 1 }, (_, i) => layers[0] + i),
      ),
    ).toEqual([0, 1, 2]);
    expect(pipeline.stages.map((s) => s.inFlight)).toEqual([3, 2, 1]);
    // Over tp alone no gradient is summed, so that stages add up to the plan of one microbatch.
    const seconds = pipeline.stages.map((s) => s.seconds);
    const sum = seconds.reduce((a, b) => a + b, 0);
    expect(Math.abs(sum / objective.seconds - 1)).toBeLessThan(1e-6);
    // 1F1B: all stages once, and the longest for each further microbatch; messages are on top.
    const least = sum + 7 * Math.max(...seconds);
    expect(pipeline.seconds).toBeLessThan(least * 1.05);
    expect(pipeline.seconds).toBeGreaterThanOrEqual(8 * Math.max(...seconds));
    expect(pipeline.bubbleSeconds).toBeCloseTo(pipeline.seconds - 8 * Math.max(...seconds), 12);
    pipeline.stages.forEach((s) =>
      expect(s.idleShare).toBeCloseTo(1 - (8 * s.seconds) / pipeline.seconds, 12),
    );
  });

  it('schedules: zero-bubble and interleaving wait less than 1F1B, gpipe keeps every microbatch', async () => {
    const at = (...more: string[]): Promise<PlanPipeline> =>
      cut(config, 'tp=2', '--pp', '2', '--microbatches', '8', ...more).then((p) => p.pipeline);
    const plain = await at();
    const zero = await at('--schedule', 'zb-h1');
    const chunks = await at('--schedule', 'ScheduleInterleaved1F1B', '--virtual', '2');
    const gpipe = await at('--schedule', 'gpipe');
    expect(zero.bubbleSeconds).toBeLessThan(plain.bubbleSeconds);
    expect(chunks).toMatchObject({ schedule: 'interleaved', virtual: 2 });
    expect(chunks.stages).toHaveLength(4);
    // Chunk 2 lies on device 0, beside chunk 0.
    expect(chunks.stages[2].peakBytes).toBe(chunks.stages[0].peakBytes);
    expect(gpipe.stages.map((s) => s.inFlight)).toEqual([8, 8]);
    expect(gpipe.stages[0].peakBytes).toBeGreaterThan(plain.stages[0].peakBytes);
  });

  it('ZL14 both ends hold a tied table, and sum its gradient', async () => {
    const one = (await cut(tied, 'tp=2', '--pp', '1')).pipeline;
    const two = (await cut(tied, 'tp=2', '--pp', '2')).pipeline;
    const own = (await cut(config, 'tp=2', '--pp', '2')).pipeline;
    const total = (p: PlanPipeline): number => p.stages.reduce((n, s) => n + s.seconds, 0);
    // The sum comes once, after the microbatches: the stages themselves take no longer.
    expect(total(two)).toBeCloseTo(total(one), 9);
    expect(two.seconds).toBeGreaterThan(own.seconds);
  });

  const LAYOUTS = [
    ['dp=2', 'dp', '2', 'pp=2,dp=2,mbs=1,zero=0', 'megatron', false],
    ['dp=2', 'fsdp', '2', 'pp=2,dp=2,mbs=1,zero=3', 'torchtitan', false],
    ['dp=2', 'dp', '2', 'pp=2,dp=2,mbs=1,zero=0', 'megatron', true],
    ['tp=2', 'tp+sp', '3', 'pp=3,tp=2,sp=1,mbs=2,dp=1', 'megatron', false],
  ] as const;
  it.each(FULL ? LAYOUTS : LAYOUTS.slice(2, 3))(
    'on %s by %s in %s stages has the step and the bytes of the layout %s under %s',
    async (mesh, recipe, stages, layout, trainer, isTied) => {
      const [model, sizes] = [isTied ? tied : config, ['--for', trainer, '--quiet']];
      const own = ['--pp', stages, '--recipe', recipe, '--microbatches', '4', '--batch', '8'];
      const planned = await cut(model, mesh, ...own, ...sizes);
      // Any plan that the devices have: 4 heads are not cut 6 ways.
      const beside = stages === '3' ? 'pp+tp+sp' : 'tp';
      const run = await cli(
        ...['compare', model, '--cluster', 'dgx-h100', '--seq', '256', '--json', ...sizes],
        ...['--global-batch', '8', '--plans', beside, '--layout', layout],
        ...['--devices', String(2 * Number(stages)), '--threads', '1'],
      );
      expect(run.code, run.err).toBe(0);
      const stated = (JSON.parse(run.out) as { layout: StepFigures }).layout;
      expect(planned.stepSeconds / stated.stepSeconds).toBeCloseTo(1, 2);
      expect(planned.peakBytes / stated.peakBytes).toBeCloseTo(1, 2);
      expect(planned.fitProbability).toBeGreaterThan(0.9);
      expect(planned.trainer).toBe(trainer);
    },
  );

  it('what does not fit is cut otherwise, then said, exit 3; -o writes the stages beside the plan', async () => {
    const out = join(folder, 'plan');
    const args = [
      'plan',
      config,
      '--mesh',
      'tp=2',
      '--cluster',
      'dgx-h100',
      '--seq',
      '256',
      '--batch',
      '8',
      '--no-recipes',
      '--pp',
      '2',
    ];
    const text = await cli(...args, '-v', '-o', out);
    expect(text.code, text.err).toBe(0);
    expect(text.out).toMatch(/pipeline +\S+ ms a step call by call: 1f1b, 8 microbatches/);
    expect(text.out).toContain('the plan is of one microbatch; its stages make the step');
    // The budget of a device, not that of all stages together.
    expect(text.out).toMatch(
      /^defaults {3}.*; budget 75\.7 GiB for peak memory, the 79\.6 GiB of a device less 5\.00 % headroom; /m,
    );
    const written = JSON.parse(readFileSync(join(out, 'pipeline.json'), 'utf8')) as PlanPipeline;
    const { pipeline } = await cut(config, 'tp=2', '--pp', '2');
    expect(written).toEqual(pipeline);
    const most = Number(pipeline.step?.peakBytes);
    // States of both stages together still fit, their activations do not.
    const over = await cli(...args, '--memory', `${Math.floor(0.8 * most)}B`);
    expect(over.code, over.err).toBe(3);
    expect(over.out).toContain('does not fit');
  });

  it.each([
    [['--pp', '0'], /--pp 0 is not 1 or more/],
    // One sequence a device of both stages.
    [['--pp', '2', '--microbatches', '3'], /3 microbatches do not divide a batch of 4/],
    [['--pp', '2', '--forward'], /--forward does not go with --pp/],
    [['--pp', '2', '--schedule', '1f2b'], /1f1b/],
    [['--pp', '2', '--virtual', '2', '--schedule', '1f1b'], /only interleaved/],
    [['--pp', '9'], /cannot fill 9 pipeline stages/],
    [['--pp', '2', '--checkpoint', 'full'], /--checkpoint does not go with --pp/],
    [['--pp', '2', '--schedule', 'zb-h1', '--for', 'megatron'], /runs the schedules .*not zb-h1/],
    [['--microbatches', '2'], /--microbatches is for pipelines/],
  ])('%j is bad input', async (flags, says) => {
    const run = await cli(
      'plan',
      '-v',
      config,
      '--mesh',
      'tp=2',
      '--cluster',
      'dgx-h100',
      '--seq',
      '64',
      '--no-recipes',
      ...flags,
    );
    expect(run.code).toBe(2);
    expect(run.err).toMatch(says);
  });
});
