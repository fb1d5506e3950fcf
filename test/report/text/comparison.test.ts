import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import type {
  ComparedLayout,
  ComparedStage,
  Comparison,
} from '../../../src/recipes/compare/comparison.ts';
import type { ComparisonReport } from '../../../src/report/sections/compared.ts';
import { comparisonText as terminalText } from '../../../src/report/text/comparison.ts';
import { secondsText } from '../../../src/units.ts';
import { cli, fixture } from '../../cli/support.ts';
import { checkHtml, textOf } from '../html-reader.ts';

let root = '';
let file = '';
let comparison: Comparison;
beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), 'shardwright-compared-'));
  file = join(root, 'comparison.json');
  const run = await cli(
    'compare',
    fixture('mlp-loss'),
    '--devices',
    '4',
    '--cluster',
    'dgx-h100',
    '--json',
    '--quiet',
  );
  expect(run.code, run.err).toBe(0);
  writeFileSync(file, run.out);
  comparison = JSON.parse(run.out) as Comparison;
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

async function made(format: string): Promise<string> {
  const run = await cli('report', file, '--format', format);
  expect(run.code, run.err).toBe(0);
  return run.out;
}

describe('11.1 report of a comparison', () => {
  it('the page is well-formed, closed to the network, and holds the JSON that --format json prints', async () => {
    const html = await made('html');
    expect(checkHtml(html)).toEqual([]);
    expect(html).toContain('default-src &#39;none&#39;');
    const [, block] =
      /<script type="application\/json" id="shardwright-report">([^]*?)<\/script>/.exec(html)!;
    const report = JSON.parse(await made('json')) as ComparisonReport;
    expect(JSON.parse(block)).toEqual(report);
    expect(report.comparison).toEqual(comparison);
    expect(report.run).toEqual({});
  });

  it('every plan, mesh and refusal stands in it, in HTML, Markdown and text', async () => {
    const page = textOf(await made('html'));
    const text = await made('text');
    const markdown = (await made('md')).replace(/\\([\\`*_{}[\]|#~!])/g, '$1');
    for (const out of [page, text, markdown]) {
      for (const p of comparison.plans) {
        expect(out).toContain(secondsText(p.seconds));
        expect(out).toContain(secondsText(p.stepSeconds ?? NaN));
      }
      for (const m of comparison.meshes) expect(out).toContain(m.mesh);
      for (const r of comparison.refused) expect(out).toContain(r.reason);
      const best = comparison.plans.find((p) => p.name === comparison.best)!;
      expect(out).toContain(
        `${best.plan} on ${best.mesh}: ${secondsText(best.stepSeconds ?? NaN)}`,
      );
    }
    expect(text).not.toMatch(/[\u001b\r]/);
  });

  it('for comparisons: two runs give the same bytes; CSV has a row for each plan', async () => {
    expect(await made('html')).toBe(await made('html'));
    expect((await made('csv')).trimEnd().split('\r\n')).toHaveLength(comparison.plans.length + 1);
  });

  it('a comparison that is none is refused with the place', async () => {
    const bad = join(root, 'bad.json');
    writeFileSync(bad, JSON.stringify({ ...comparison, plans: [{ name: 3 }] }));
    const run = await cli('report', bad);
    expect(run.code).toBe(2);
    expect(run.err).toContain('$.plans.0.name');
  });

  it('a best plan with stages has its pipeline drawn and tabled, with what was asked and what would change the answer', async () => {
    const file = join(root, 'stages.json');
    const [p, chunks, microbatches] = [2, 2, 4];
    const ms = (k: number): number => 1e-3 * (k + 1);
    const stage = (k: number): ComparedStage => ({
      first: 2 * k,
      end: 2 * k + 2,
      embedding: k === 0,
      head: k === 3,
      seconds: ms(k),
      forwardSeconds: 0.25 * ms(k),
      backwardInputSeconds: 0.5 * ms(k),
      backwardWeightSeconds: 0.25 * ms(k),
      peakBytes: 2 ** 30 * (k + 1),
      inFlight: 5 - (k % 2),
      idleShare: 0.1 * (k % 2),
    });
    // The middle boundary is twice as wide: chunk 1 of device 0 follows chunk 0 of device 1.
    const boundaries = [1, 2, 1].map((n) => ({
      bytes: n * 2 ** 20,
      seconds: n * 1e-5,
    }));
    const layout: ComparedLayout = {
      computeSeconds: 1,
      exposedCommunicationSeconds: 2,
      bubbleSeconds: 0.25,
      tokensPerSecond: 12345,
      mfu: 0.4321,
      memory: {
        parameterBytes: 2 ** 30,
        gradientBytes: 2 ** 30,
        optimizerBytes: 2 ** 31,
        activationBytes: 3 * 2 ** 30,
        temporaryBytes: 2 ** 20,
      },
      sizes: { pp: p, dp_replicate: 1, dp_shard: 2, cp: 1, tp: 1, ep: 1 },
      microbatch: 1,
      microbatches,
      schedule: 'interleaved',
      chunks,
      checkpoint: 'none',
      pricedLayers: 2,
      stages: [0, 1, 2, 3].map(stage),
      boundaries,
      pointToPointBytes: 2 * microbatches * 4 * 2 ** 20,
    };
    const plans = comparison.plans.map((plan) =>
      plan.name === comparison.best ? { ...plan, layout } : plan,
    );
    const question = {
      model: 'tiny-llama',
      sequence: 2048,
      globalBatch: 64,
      cost: 'alpha-beta',
      layers: 8,
      pricedLayers: 2,
      layerKinds: 1,
      mfuConvention: 'MFU: by hand',
    };
    const whatIf = [
      { change: 'half the batch', best: 'fsdp', mesh: 'dp=4', seconds: 0.5, same: false },
      { change: 'no memory', best: null, same: false },
    ];
    const told: Comparison = { ...comparison, plans, question, whatIf, notes: ['Priced by hand.'] };
    writeFileSync(file, JSON.stringify(told));
    const html = (await cli('report', file)).out;
    expect(checkHtml(html)).toEqual([]);
    const [, drawing] = /<svg[^>]*aria-labelledby="schedule-title[^>]*>([^]*?)<\/svg>/.exec(html)!;
    // Every pass of every chunk once, and two keys; what the devices are busy with after their
    // passes, and its key.
    expect(drawing.match(/class="pass [fb]( odd)?"/g)).toHaveLength(
      2 * p * chunks * microbatches + 2,
    );
    expect(drawing).toContain('forward, microbatch 0, chunk 0: 250 µs');
    expect(drawing).toContain('backward, microbatch 3, chunk 1: 3.00 ms');
    const text = (await cli('report', file, '--format', 'text')).out;
    // Device 0 sends 1 + 1 MiB forward and 2 MiB back, device 1 2 MiB forward and 1 + 1 MiB back,
    // for each microbatch; 8 MiB both ways.
    const messages = `1.00 MiB to 2.00 MiB each, 8 of them a step over each of 3 boundaries: a device sends up to 16.0 MiB, a row of 2 devices 32.0 MiB`;
    for (const out of [textOf(html), text])
      for (const said of [
        'tiny-llama on 4 devices',
        '12,345 tokens/s',
        'MFU 43.2 % (by hand)',
        '4 microbatches of 1',
        'interleaved by 2 chunks over 2 devices',
        'layers 6-7, head',
        'half the batch',
        'nothing fits',
        'Priced by hand.',
        messages,
      ])
        expect(out).toContain(said);
    expect(text).toMatch(/^ +3 +1 +layers 6-7, head +1\.00 ms +3\.00 ms +4 +4\.00 GiB +10\.0 %$/m);
    expect(text).toMatch(/^ +1 +2 +2\.00 MiB +20\.0 µs +16\.0 MiB$/m);
    // The terminal says the same.
    const said = terminalText(told);
    expect(said).toContain(`messages  ${messages}`);
    expect(said).toMatch(/^ +3 +1 +layers 6-7, head +1\.00 ms +3\.00 ms +4 +4\.00 GiB +10\.0 %$/m);
  });

  it('names from the file are text', async () => {
    const evil = join(root, 'evil.json');
    const plans = comparison.plans.map((p) => ({ ...p, why: '</script><b>x' }));
    writeFileSync(evil, JSON.stringify({ ...comparison, cluster: '<img src=x>', plans }));
    const run = await cli('report', evil);
    expect(checkHtml(run.out)).toEqual([]);
    expect(run.out).not.toContain('<b>x');
    expect(run.out).not.toContain('<img');
  });
});
