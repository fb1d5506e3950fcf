import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import type { Comparison } from '../../src/recipes/compare/comparison.ts';
import type { Report } from '../../src/report/model/data.ts';
import { comparedDecision } from '../../src/report/sections/decision.ts';
import type { Planning } from '../../src/sweep/planning/planning.ts';
import { cli } from '../cli/support.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { checkHtml, textOf } from './html-reader.ts';

/** The first screen of a report: what whoever decides reads. */

const QUICK = ['--seq', '256', '--plans', 'dp,fsdp', '--threads', '1', '--quiet', '--json'];
const RUN = ['--tokens', '1T', '--price', '2.5USD'];

const folder = temporaryFolder(afterAll);
const asked = async (name: string, ...argv: readonly string[]): Promise<string> => {
  const run = await cli('compare', 'gpt2', ...argv, ...QUICK);
  expect(run.code, run.err).toBe(0);
  const file = join(folder, `${name}.json`);
  writeFileSync(file, run.out);
  return file;
};
const report = async (file: string, ...more: readonly string[]): Promise<string> => {
  const run = await cli('report', file, ...more);
  expect(run.code, run.err).toBe(0);
  return run.out;
};
const written = (name: string, value: unknown): string => {
  const file = join(folder, `${name}.json`);
  writeFileSync(file, JSON.stringify(value));
  return file;
};

let one: Comparison;
let [oneFile, twoFile] = ['', ''];
beforeAll(async () => {
  oneFile = await asked(
    'one',
    ...['--devices', '8', '--cluster', 'dgx-h100', '--layout', 'dp=8,zero=3'],
    ...RUN,
  );
  twoFile = await asked(
    'two',
    ...['--cluster', 'dgx-h100:16', '--cluster', 'dgx-b200:8'],
    ...RUN,
    ...['--price', '4.5USD'],
  );
  one = JSON.parse(readFileSync(oneFile, 'utf8')) as Comparison;
}, 120_000);

const ORIGIN = ['--author', 'J. <b>Doe</b>', '--date', '1 June'];

/** The text of the section that comes first. */
function firstScreen(html: string): string {
  expect(checkHtml(html)).toEqual([]);
  const [, main = ''] = /<main>([^]*?)<\/section>/.exec(html) ?? [];
  expect(main).toContain('aria-label="Decision"');
  return textOf(main);
}

describe('the report of a comparison begins with the decision', () => {
  it('what to run, its step, run and memory as ranges, the next step, and who asked when', async () => {
    const said = firstScreen(await report(oneFile, ...ORIGIN)).replaceAll('\u00a0', ' ');
    const best = one.plans.find(({ name }) => name === one.best)!;
    for (const words of [
      `Run ${best.plan} on ${best.mesh}`,
      'cut the batch over dp=8',
      'in eight of ten measured runs',
      '1T tokens in ',
      ' USD (',
      'fits with 99 %',
      'shardwright doctor',
      'by J. <b>Doe</b>, 1 June',
    ])
      expect(said).toContain(words);
    expect(said).not.toContain('(--');
  });

  it('has the same bytes in each run, and no date of its own', async () => {
    const [a, b] = [await report(oneFile), await report(oneFile)];
    expect(a).toBe(b);
    expect(firstScreen(a)).not.toMatch(/\b20\d\d-\d\d-\d\d\b/);
  });

  it('a plan that may not fit is a red sentence', async () => {
    const plans = one.plans.map((p) => (p.name === one.best ? { ...p, fitProbability: 0.57 } : p));
    const file = written('risky', { ...one, plans });
    const html = await report(file);
    const [, said = ''] = /<dd class="bad">([^<]*)</.exec(html) ?? [];
    expect(said.replaceAll('\u00a0', ' ')).toBe(
      '57 % to fit: with 43 % the run ends out of memory',
    );
    expect((await report(file, '--format', 'md')).replace(/\\/g, '')).toContain(
      '**Risk**: 57 % to',
    );
    expect(await report(oneFile)).not.toContain('class="bad"');
  });

  it('the options have the run of the stated layout as it is priced by itself', async () => {
    // fsdp on dp=8 is an option of the comparison, and the layout: two ways to the same figures.
    const same = one.plans.find((p) => p.plan === 'fsdp' && p.mesh === one.layout!.mesh)!;
    expect(same.seconds).toBeCloseTo(one.layout!.seconds, 9);
    const rows = (await report(oneFile, '--format', 'text'))
      .split('\n')
      .filter((line) => line.includes('fsdp on dp=8') && line.includes(' MWh'));
    expect(rows).toHaveLength(2);
    const figures = rows.map((line) =>
      line.slice(line.indexOf('fsdp on dp=8')).replace(/ +/g, ' '),
    );
    expect(figures[0]).toBe(figures[1]);
  });

  it('cells carry their headings, and the figure its axis and the recommended option', async () => {
    const html = await report(oneFile);
    for (const head of ['Plan', 'Step', 'Time', 'Money', 'Energy', 'Memory', 'Fits with'])
      expect(html).toContain(`data-label="${head}"`);
    const [, figure = ''] = /(<svg[^>]*aria-labelledby="ranges-title[^]*?<\/svg>)/.exec(html) ?? [];
    for (const title of ['>money in USD<', '>option<']) expect(figure).toContain(title);
    expect(figure.match(/>recommended</g)).toHaveLength(1);
    const [, front = ''] = /(<svg[^>]*aria-labelledby="pareto-title[^]*?<\/svg>)/.exec(html) ?? [];
    for (const words of ['>step time<', '>peak memory per device<', '>recommended<'])
      expect(front).toContain(words);
  });

  it('where nothing fits, that is the decision', () => {
    const [decision] = comparedDecision({ ...one, best: null, plans: [], pareto: [] });
    expect(decision).toMatchObject({ label: 'Decision', tone: 'bad' });
    expect(decision.text).toContain('no plan fits the budget');
  });
});

describe('the report of one plan begins with the decision, too', () => {
  const MODEL = ['gpt2', '--layers', '2', '--seq', '256', '--cluster', 'dgx-h100'];
  let plan = '';
  beforeAll(async () => {
    plan = join(folder, 'one-plan');
    const run = await cli('plan', ...MODEL, '--mesh', 'dp=8', '-o', plan, '--quiet');
    expect(run.code, run.err).toBe(0);
  }, 60_000);

  it('what to run, the time and the money of a run, what to type, and who asked when', async () => {
    const run = ['--tokens', '2T', '--price', '2.5USD'];
    const html = await report(plan, ...run, ...ORIGIN);
    const said = firstScreen(html).replaceAll('\u00a0', ' ');
    const { plan: read, tokens } = JSON.parse(await report(plan, '--json')) as Report;
    for (const words of [
      'Run it on dp=8 by Megatron-LM',
      'in eight of ten measured runs',
      '2T tokens in ',
      `shardwright export ${plan} --target megatron`,
      `shardwright doctor ${plan} --run`,
      'on 8 devices of dgx-h100, 2,048 tokens a step',
      'by J. <b>Doe</b>, 1 June',
    ])
      expect(said).toContain(words);
    // One host of eight, its steps alone, at 2.5 USD: failures and checkpoints add a few per cent.
    const hours = ((2e12 / tokens!) * read.step!.stepSeconds * 8) / 3600;
    const [, money] = /([\d,]+) USD/.exec(said)!;
    const more = Number(money.replaceAll(',', '')) / (2.5 * hours);
    expect(more).toBeGreaterThan(1);
    expect(more).toBeLessThan(1.05);
    const [, figure = ''] = /(<svg[^>]*aria-labelledby="ranges-title[^]*?<\/svg>)/.exec(html) ?? [];
    for (const title of ['>money in USD<', '>option<']) expect(figure).toContain(title);
    expect(figure.match(/>recommended</g)).toHaveLength(1);
    for (const [id, title] of [
      ['roofline', 'FLOPS reached'],
      ['memory-curve', 'memory of a device'],
      ['pareto', 'costs one after another'],
    ] as const)
      expect(html).toMatch(new RegExp(`aria-labelledby="${id}-title[^]*?>${title}<`));
  });

  it('a plan that nothing was held to says so in red', async () => {
    const alone = join(folder, 'alone.json');
    const { hashes: _, ...bare } = JSON.parse(readFileSync(join(plan, 'plan.json'), 'utf8')) as {
      readonly hashes?: unknown;
    };
    writeFileSync(alone, JSON.stringify(bare));
    const [, said = ''] = /<dd class="bad">([^<]*)</.exec(await report(alone)) ?? [];
    expect(said).toContain('its figures are claims');
    expect(await report(plan)).not.toContain('class="bad"');
  });

  it('refuses the run of a comparison, which has its own', async () => {
    const { code, err } = await cli('report', oneFile, '--tokens', '1T');
    expect([code, err]).toEqual([2, expect.stringContaining('a comparison has the run')]);
  });
});

describe('the report of two clusters', () => {
  it('takes the cheaper one, and the break-even price makes both cost the same', async () => {
    const { points } = JSON.parse(readFileSync(twoFile, 'utf8')) as Planning;
    const [least, most] = [...points].sort((a, b) => a.run!.price!.amount - b.run!.price!.amount);
    const said = firstScreen(await report(twoFile, ...ORIGIN)).replaceAll('\u00a0', ' ');
    expect(said).toContain(`Take ${least.devices} devices of ${least.cluster}: the cheapest run`);
    const [, at] = /cost the same at ([\d.]+) USD a device-hour/.exec(said)!;
    expect((Number(at) * most.run!.deviceHours) / least.run!.price!.amount).toBeCloseTo(1, 2);
    expect(said).toContain('1T tokens in ');
  });

  it('has curves with names, and titles on both axes', async () => {
    const file = await asked(
      'curve',
      '--cluster',
      'dgx-h100',
      '--cluster',
      'dgx-b200',
      '--devices',
      '2,4',
    );
    const html = await report(file);
    const [, figure = ''] =
      /(<svg[^>]*aria-labelledby="scaling-title[^]*?<\/svg>)/.exec(html) ?? [];
    for (const words of ['>dgx-h100<', '>dgx-b200<', '>tokens a second<', '>devices<'])
      expect(figure).toContain(words);
  }, 60_000);
});
