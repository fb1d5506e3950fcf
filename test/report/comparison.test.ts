import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ComparisonReport } from '../../src/report/compared.ts';
import { secondsText } from '../../src/units.ts';
import type { Comparison } from '../../src/zoo/comparison.ts';
import { cli, fixture } from '../cli/support.ts';
import { checkHtml, textOf } from './html-reader.ts';

let root = '';
let file = '';
let comparison: Comparison;
beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), 'shardwright-compared-'));
  file = join(root, 'comparison.json');
  const run = await cli('compare', fixture('mlp-loss'), '--devices', '4', '--cluster', 'dgx-h100', '--json', '--quiet');
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
    const [, block] = /<script type="application\/json" id="shardwright-report">([^]*?)<\/script>/.exec(html)!;
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
      for (const p of comparison.plans) expect(out).toContain(secondsText(p.seconds));
      for (const m of comparison.meshes) expect(out).toContain(m.mesh);
      for (const r of comparison.refused) expect(out).toContain(r.reason);
      const best = comparison.plans.find((p) => p.name === comparison.best)!;
      expect(out).toContain(`${best.plan} on ${best.mesh}: ${secondsText(best.seconds)}`);
    }
    expect(text).not.toMatch(/[\u001b\r]/);
  });

  it('ZO-35 for comparisons: two runs give the same bytes; CSV has a row for each plan', async () => {
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
