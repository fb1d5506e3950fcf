import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import type { Report } from '../../src/report/model/data.ts';
import { playPipeline } from '../../src/simulate/pipeline/play.ts';
import type { PlanPipeline } from '../../src/sweep/pipeline/plan.ts';
import { bytesText, percentText, secondsText } from '../../src/units.ts';
import { cli } from '../cli/support.ts';
import { FULL } from '../support/full.ts';
import { checkHtml, textOf } from './html-reader.ts';

const LLAMA = {
  model_type: 'llama',
  hidden_size: 256,
  intermediate_size: 512,
  num_attention_heads: 4,
  num_hidden_layers: 4,
  vocab_size: 1024,
  torch_dtype: 'bfloat16',
};
const [MICROBATCHES, SEQUENCE] = [8, 256];

/**
 * The pipeline section of a report, against the folder's own figures, closed forms and a replay
 * from the JSON alone.
 */
let root = '';
let config = '';
let folder = '';
let said: PlanPipeline;
let report: Report;
let html = '';
beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), 'shardwright-stages-'));
  config = join(root, 'llama.json');
  writeFileSync(config, JSON.stringify(LLAMA));
  folder = await planInto('plan', '--mesh', 'tp=1', '--pp', '3');
  said = JSON.parse(readFileSync(join(folder, 'pipeline.json'), 'utf8')) as PlanPipeline;
  report = JSON.parse(await made(folder, 'json')) as Report;
  html = await made(folder, 'html');
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

async function planInto(name: string, ...flags: string[]): Promise<string> {
  const out = join(root, name);
  const run = await cli(
    'plan',
    '-v',
    config,
    '--cluster',
    'dgx-h100',
    '--batch',
    '16',
    '--microbatches',
    String(MICROBATCHES),
    '--seq',
    String(SEQUENCE),
    '--no-recipes',
    '-o',
    out,
    ...flags,
  );
  expect(run.code, run.err).toBe(0);
  return out;
}

async function made(path: string, format: string): Promise<string> {
  const run = await cli('report', path, '--no-recipes', '--format', format);
  expect(run.code, run.err).toBe(0);
  expect(run.err).not.toContain('Pipeline');
  return run.out;
}

const sum = (numbers: readonly number[]): number => numbers.reduce((n, x) => n + x, 0);

describe('11.1 pipeline', () => {
  it('the stages are those of the plan, split into passes and into what fills the memory', () => {
    const { stages, seconds, bubbleSeconds, devices } = report.pipeline!;
    expect({ seconds, bubbleSeconds, devices }).toEqual({
      seconds: said.seconds,
      bubbleSeconds: said.bubbleSeconds,
      devices: 3,
    });
    expect(stages).toHaveLength(said.stages.length);
    stages.forEach((stage, k) => {
      expect(stage).toMatchObject(said.stages[k]);
      const passes =
        stage.forwardSeconds + stage.backwardInputSeconds + stage.backwardWeightSeconds;
      expect(passes / stage.seconds).toBeCloseTo(1, 12);
      const bytes = stage.stateBytes + stage.activationBytes + stage.temporaryBytes;
      expect(Math.abs(bytes - stage.peakBytes)).toBeLessThanOrEqual(1);
      // Weights and their gradients are two products for one of the forward pass.
      expect(stage.backwardInputSeconds + stage.backwardWeightSeconds).toBeGreaterThan(
        stage.forwardSeconds,
      );
    });
    // States by hand: 16 bytes for each parameter (bf16, mixed precision), on one device a stage
    // holds them whole.
    const [h, f, v] = [LLAMA.hidden_size, LLAMA.intermediate_size, LLAMA.vocab_size];
    const layer = 4 * h * h + 3 * h * f + 2 * h;
    const elements = stages.map(
      (s) =>
        (s.embedding ? v * h : 0) +
        (s.head ? v * h + h : 0) +
        (s.layers === null ? 0 : s.layers[1] - s.layers[0] + 1) * layer,
    );
    // Frequencies of the rotary embedding are a buffer of the first stage: half a head in float32.
    const buffer = (4 * h) / LLAMA.num_attention_heads / 2;
    expect(stages.map((s) => s.stateBytes)).toEqual(
      elements.map((n, k) => 16 * n + (k === 0 ? buffer : 0)),
    );
  });

  it('(report) a message between stages is b x s x h elements, sent each way for every microbatch', () => {
    const bytes = (16 / MICROBATCHES) * SEQUENCE * LLAMA.hidden_size * 2;
    const { boundaries } = report.pipeline!;
    expect(boundaries.map((b) => [b.from, b.to, b.bytes, b.stepBytes])).toEqual([
      [0, 1, bytes, 2 * MICROBATCHES * bytes],
      [1, 2, bytes, 2 * MICROBATCHES * bytes],
    ]);
    for (const b of boundaries) expect(b.seconds).toBeGreaterThan(0);
  });

  it('for stages: the step and its bubble are played again from the JSON alone', () => {
    const { schedule, devices, microbatches, stages, boundaries, afterSeconds, seconds } =
      report.pipeline!;
    const run = playPipeline(
      schedule,
      { devices, microbatches },
      {
        stages: stages.map((s) => ({
          forward: s.forwardSeconds,
          backwardInput: s.backwardInputSeconds,
          backwardWeight: s.backwardWeightSeconds,
        })),
        hopSeconds: boundaries.map((b) => b.seconds),
      },
    );
    const ends = run.devices.map((d, i) => d.spans.at(-1)!.end + afterSeconds[i]);
    expect(Math.max(...ends) / seconds).toBeCloseTo(1, 9);
  });

  it('the answer and the tables say it in every format, with the same rounding', async () => {
    const [page, text] = [textOf(html), await made(folder, 'text')];
    const markdown = (await made(folder, 'md')).replace(/\\([\\`*_{}[\]|#~!])/g, '$1');
    for (const out of [page, text, markdown]) {
      expect(out).toContain(
        `${secondsText(said.seconds)} for ${MICROBATCHES} microbatches by 1f1b`,
      );
      expect(out).toContain(percentText(said.bubbleSeconds / said.seconds));
      for (const s of said.stages) expect(out).toContain(bytesText(s.peakBytes));
      for (const { label, text: line } of report.answer)
        expect(out).toContain(out === text ? line : label);
      expect(out).toContain('This section is about one microbatch');
    }
    expect(checkHtml(html)).toEqual([]);
    expect(html).toContain('<a href="#pipeline">Pipeline</a>');
    // Tokens and FLOPs of a step are those of all its microbatches.
    const rate = Math.round((16 * SEQUENCE) / said.seconds);
    const step = report.answer.find(({ label }) => label === 'Step time');
    expect(step?.text).toContain(`${rate.toLocaleString('en-US')} tokens/s`);
  });

  it('the drawing has every pass once, in its device’s lane, and ends where the step ends', () => {
    const [, drawing] = /<svg[^>]*aria-labelledby="schedule-title[^>]*>([^]*?)<\/svg>/.exec(html)!;
    // The first box of a kind is its key.
    for (const kind of ['f', 'b'])
      expect([...drawing.matchAll(new RegExp(`class="pass ${kind}"`, 'g'))]).toHaveLength(
        3 * MICROBATCHES + 1,
      );
    const lanes = new Map<string, number>();
    for (const [, x, y, width] of drawing.matchAll(
      /<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"[^>]*class="pass [fb]"><title>/g,
    )) {
      // Passes of one device stand one after another.
      expect(Number(x)).toBeGreaterThanOrEqual((lanes.get(y) ?? 0) - 0.11);
      lanes.set(y, Number(x) + Number(width));
    }
    expect(lanes.size).toBe(3);
    expect(Math.max(...lanes.values())).toBeGreaterThan(840);
  });

  it('chunks: an interleaved plan has its stages on their devices, and what a device keeps is counted once', async () => {
    const chunked = await planInto(
      'chunked',
      '--mesh',
      'tp=1',
      '--pp',
      '2',
      '--schedule',
      'interleaved',
    );
    const { pipeline } = JSON.parse(await made(chunked, 'json')) as Report;
    expect(pipeline!.stages.map((s) => s.device)).toEqual([0, 1, 0, 1]);
    expect(pipeline!.boundaries).toHaveLength(3);
    const states = pipeline!.stages.slice(0, 2).map((s) => s.stateBytes);
    expect(sum(states)).toBe(sum(report.pipeline!.stages.map((s) => s.stateBytes)));
    if (FULL) expect(checkHtml(await made(chunked, 'html'))).toEqual([]);
  });

  it('stages that do not follow from the plan are named, field by field; a broken file is refused with its place', async () => {
    const other = join(root, 'other');
    cpSync(folder, other, { recursive: true });
    const file = join(other, 'pipeline.json');
    expect((await cli('check-plan', other)).out).toContain('the plan is what it says');
    const [first, ...rest] = said.stages;
    const forged: readonly (readonly [string, object])[] = [
      ['$.seconds', { seconds: said.seconds * 0.9 }],
      [
        '$.stages[0].seconds',
        { stages: [{ ...first, seconds: first.seconds * (1 - 1e-6) }, ...rest] },
      ],
      [
        '$.stages[0].peakBytes',
        { stages: [{ ...first, peakBytes: first.peakBytes - 1e6 }, ...rest] },
      ],
      ['$.budgetBytes', { budgetBytes: said.budgetBytes * 2 }],
      ['$.stages', { stages: rest, microbatches: 8 }],
      ['$.fits', { fits: false }],
      ['$.moved', { moved: ['nothing'] }],
      ['$.step.stepSeconds', { step: { ...said.step, stepSeconds: said.seconds } }],
      // Another request would give other figures: they are the first to differ.
      ['$.', { microbatches: 2 * said.microbatches }],
      ['$.', { schedule: 'gpipe' }],
    ];
    for (const [path, change] of forged.filter((_, i) => FULL || i % 2 === 0)) {
      writeFileSync(file, JSON.stringify({ ...said, ...change }, null, 1));
      // Both read the folder by one function: the report is asked for the first of them alone.
      for (const command of ['check-plan', ...(FULL || path === '$.seconds' ? ['report'] : [])]) {
        const run = await cli(
          command,
          other,
          ...(command === 'report' ? ['--no-recipes', '--json'] : []),
        );
        expect([path, run.code]).toEqual([path, 5]);
        expect(run.out + run.err).toContain(`pipeline.json ${path}`);
      }
    }
    // Numbers that are equal, in other bytes.
    writeFileSync(file, JSON.stringify(said));
    const respelled = await cli('check-plan', other);
    expect([respelled.code, respelled.out]).toEqual([
      5,
      expect.stringContaining('$.hashes.pipeline'),
    ]);
    rmSync(file);
    const missing = await cli('check-plan', other);
    expect([missing.code, missing.err]).toEqual([
      2,
      expect.stringContaining('pipeline.json is not next to the plan'),
    ]);
    writeFileSync(file, JSON.stringify({ ...said, stages: [{ layers: 3 }] }));
    const broken = await cli('report', other, '--no-recipes');
    expect(broken.code).toBe(2);
    expect(broken.err).toContain('$.stages.0');
    writeFileSync(file, '{');
    expect((await cli('report', other, '--no-recipes')).err).toContain('not JSON');
  });

  it('a model by name carries no place in a program: the folder is the same wherever the library lies', () => {
    expect(readFileSync(join(folder, 'graph.swg'), 'utf8')).not.toContain('source=');
  });
});
