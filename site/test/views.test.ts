/**
 * What the page does beyond a plan: the configuration of a trainer, clusters side by side with the
 * money of a run, links that hold a program, cards, and the gallery of published runs. Answers are
 * those of the command line.
 */
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';

import { validateRuns } from '../../src/fidelity/validate.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { secondsText } from '../../src/units.ts';
import { FAMOUS_RUNS } from '../famous-runs.ts';
import { PREVIEW, previewTags } from '../link-preview.ts';
import { answered, root, Site, text } from './browser.ts';

let site: Site;
beforeAll(async () => {
  site = await Site.start();
});
afterEach(() => site.closePages());
afterAll(() => site.close());

const PHONE = { viewport: { width: 390, height: 844 } };

/** What the command line prints. */
function printed(words: readonly string[], cwd = root): string {
  const main = join(root, 'dist/cli/main.js');
  const run = spawnSync(process.execPath, [main, ...words, '--quiet'], { cwd, encoding: 'utf8' });
  expect([0, 4], run.stderr).toContain(run.status);
  return run.stdout;
}

const oneLine = (printed: string): string => printed.replaceAll(/\s+/g, ' ').trim();

/** The command that the page copies. */
async function copiedCommand(page: Page): Promise<string[]> {
  await page.click('#q-command');
  await page.waitForFunction(
    () => document.getElementById('q-copied')?.textContent?.startsWith('Copied') === true,
  );
  const command = await page.evaluate(() => navigator.clipboard.readText());
  return command.split(' ').slice(1);
}

/** Pixels from the top of the page to the end of an element. */
const endOf = async (page: Page, selector: string): Promise<number> => {
  const { y, height } = (await page.locator(selector).boundingBox())!;
  return y + height;
};

it('a pasted configuration is tuned as the command tunes its file, first on a phone', async () => {
  const { page, strange } = await site.open('#view=tune', {
    ...PHONE,
    permissions: ['clipboard-read', 'clipboard-write'],
  });
  await page.waitForFunction(() =>
    document.getElementById('q-step')?.textContent?.startsWith('Paste'),
  );
  await page.click('#t-example');
  await answered(page);
  expect(await endOf(page, '#q-first')).toBeLessThan(PHONE.viewport.height);
  const folder = mkdtempSync(join(tmpdir(), 'site-tune-'));
  try {
    copyFileSync(join(root, 'examples/torchtitan-llama3-8b.toml'), join(folder, 'config'));
    const command = printed(await copiedCommand(page), folder);
    const shown = `config: ${await text(page, '#q-first dd')} ${await text(page, '#q-summary')}`;
    expect(oneLine(shown)).toBe(oneLine(command));
  } finally {
    rmSync(folder, { recursive: true });
  }
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#q-edited')]);
  const edited = readFileSync(await download.path(), 'utf8');
  expect(edited).toMatch(/mode = "none"/);
  // A link to it holds the configuration.
  const other = await site.open(new URL(page.url()).hash, PHONE);
  await answered(other.page);
  expect(await text(other.page, '#q-first')).toBe(await text(page, '#q-first'));
  await page.fill('#q-config', 'nothing that a trainer reads');
  await page.waitForFunction(() => document.getElementById('q-fault')?.hidden === false);
  expect(await text(page, '#q-fault')).toMatch(/config names no model\nchoose it under Model/);
  expect(strange).toEqual([]);
});

it('two clusters are compared for a run of tokens at their prices, as the command does', async () => {
  const { page, strange } = await site.open(
    '#view=compare&model=qwen3-0.6b&devices=2&sequence=512&clusters=dgx-b200&tokens=300B' +
      '&price=2.5USD%2C4.5USD&optimizer=sgd',
    { ...PHONE, permissions: ['clipboard-read', 'clipboard-write'] },
  );
  await answered(page, 110_000);
  expect(await text(page, '#q-fault')).toBe('');
  expect(await endOf(page, '#q-first')).toBeLessThan(PHONE.viewport.height);
  const words = await copiedCommand(page);
  expect(words.join(' ')).toBe(
    'compare qwen3-0.6b --devices 2 --cluster dgx-h100 --cluster dgx-b200 --seq 512 ' +
      '--optimizer sgd --tokens 300B --price 2.5USD --price 4.5USD',
  );
  const { points } = JSON.parse(printed([...words, '--json'])) as {
    points: { cluster: string; best: { stepSeconds: number; plan: string; mesh: string } }[];
  };
  const first = await text(page, '#q-first');
  const chosen = points.find(({ cluster }) => first.includes(`2 devices of ${cluster}`));
  expect(first).toContain(`${chosen?.best.plan} on ${chosen?.best.mesh}`);
  expect(first).toContain(secondsText(chosen!.best.stepSeconds));
  expect(first).toMatch(/300B tokens in .* USD/);
  await page.fill('#q-tokens', '');
  await page.waitForFunction(() => document.getElementById('q-fault')?.hidden === false);
  expect(await text(page, '#q-fault')).toContain('no tokens are given');
  expect(strange).toEqual([]);
});

describe('pipeline stages', () => {
  it('of a model by name are those of the command', async () => {
    const { page, strange } = await site.open(
      '#model=qwen3-0.6b&layers=2&batch=8&sequence=512&mesh=pp%3D2%2Cdp%3D2&microbatches=4' +
        '&schedule=1f1b&optimizer=sgd',
      { ...PHONE, permissions: ['clipboard-read', 'clipboard-write'] },
    );
    await answered(page);
    expect(await text(page, '#q-fault')).toBe('');
    expect(await endOf(page, '#q-first')).toBeLessThan(PHONE.viewport.height);
    const words = await copiedCommand(page);
    expect(words).toContain('pp=2,dp=2');
    const { stepSeconds } = JSON.parse(printed([...words, '--json'])) as { stepSeconds: number };
    expect(await text(page, '#q-first')).toContain(secondsText(stepSeconds));
    expect(await text(page, '#q-summary')).toContain('1f1b, 4 microbatches');
    expect(await page.locator('#q-document #pipeline').count()).toBe(1);
    expect(strange).toEqual([]);
  });

  it('of a program are cut by its dataflow, as the command cuts its file', async () => {
    const { page, strange } = await site.open('#view=program&mesh=pp%3D2%2Cdp%3D2');
    await page.waitForFunction(() => document.getElementById('q-graph')?.textContent !== '');
    await page.click('#q-plan-program');
    await answered(page);
    const file = 'site/programs/small-mlp.ts';
    const command = printed(['plan', file, '--mesh', 'pp=2,dp=2', '--cluster', 'dgx-h100']);
    const shown = oneLine(await text(page, '#q-summary'));
    expect(shown.replace('model program,', 'model small-mlp,')).toBe(oneLine(command));
    expect(strange).toEqual([]);
  });
});

describe('a link', () => {
  it('holds the program that was written, which runs when its reader says so', async () => {
    const { page } = await site.open('#view=program');
    await page.waitForFunction(() => /TypeScript/.test(document.body.innerText));
    await page.waitForFunction(() => document.getElementById('q-graph')?.textContent !== '');
    await page.click('.cm-content');
    await page.keyboard.press('Control+End');
    await page.keyboard.type('\nexport const mine = 1;');
    await page.waitForURL(/program=/);
    const { page: other, strange } = await site.open(new URL(page.url()).hash);
    await other.waitForSelector('#q-trace:not([hidden])');
    expect(await text(other, '.cm-content')).toContain('export const mine = 1;');
    expect(await text(other, '#q-findings')).toContain('has not run');
    expect(await other.isDisabled('#q-plan-program')).toBe(true);
    // Nor does another mesh run it.
    await other.fill('#q-mesh', 'dp=2');
    await other.waitForTimeout(800);
    expect(await text(other, '#q-graph')).toBe('');
    expect(await other.isHidden('#q-answer')).toBe(true);
    await other.click('#q-trace');
    await other.waitForFunction(
      () => document.getElementById('q-graph')?.textContent?.includes('aten.mm') === true,
    );
    expect(strange).toEqual([]);
  });

  it('that was cut off says so', async () => {
    const { page } = await site.open('#view=program&program=bZCxbsMwDER3f');
    await page.waitForFunction(() => document.getElementById('q-fault')?.hidden === false);
    expect(await text(page, '#q-fault')).toMatch(/program that cannot be read\ncopy the whole/);
  });

  it('has a picture where the address of the page is known', () => {
    const tags = previewTags('https://example.org/plan/');
    expect(Object.fromEntries(tags.map(({ attrs }) => [attrs?.property, attrs?.content]))).toEqual(
      expect.objectContaining({
        'og:url': 'https://example.org/plan/',
        'og:image': 'https://example.org/plan/preview.png',
      }),
    );
    expect(previewTags(undefined)).toEqual([]);
    const picture = readFileSync(join(root, 'site/dist/preview.png'));
    expect([picture.readUInt32BE(16), picture.readUInt32BE(20)]).toEqual([
      PREVIEW.width,
      PREVIEW.height,
    ]);
    expect(readFileSync(join(root, 'site/dist/index.html'), 'utf8')).not.toMatch(/(src|href)="\//);
  });
});

it('a card shows the answer alone, with a link to the whole page', async () => {
  const { page } = await site.open(
    '#model=qwen3-0.6b&layers=1&batch=8&sequence=512&mesh=dp%3D2%2Ctp%3D2',
    { permissions: ['clipboard-read', 'clipboard-write'] },
  );
  await answered(page);
  await page.click('#q-card');
  await page.waitForFunction(() => document.getElementById('q-copied')?.textContent !== '');
  const html = await page.evaluate(() => navigator.clipboard.readText());
  const [, src = '', height = ''] = /^<iframe src="([^"]*)".*height: (\d+)px/.exec(html) ?? [];
  const hash = new URL(src.replaceAll('&amp;', '&')).hash;
  const { page: card } = await site.open(hash, {
    viewport: { width: 600, height: Number(height) },
  });
  await answered(card);
  expect(await text(card, '#q-first')).toBe(await text(page, '#q-first'));
  expect(await endOf(card, '#q-first')).toBeLessThanOrEqual(Number(height));
  for (const hidden of ['#q-form', '#q-views', '#q-answer', 'footer'])
    expect(await card.isHidden(hidden), hidden).toBe(true);
  expect(await text(card, '#q-whole')).toBe(
    'qwen3-0.6b on dp=2,tp=2 of dgx-h100: open in Shardwright',
  );
  expect(await card.locator('#q-whole').getAttribute('href')).toBe(hash.replace('card=1&', ''));
});

describe('the gallery', () => {
  const tables = ['measured', 'others'].map((name) =>
    gunzipSync(readFileSync(join(root, `test/fixtures/runs/${name}.csv.gz`)))
      .toString()
      .split('\n'),
  );
  const rowOf = (id: string): string | undefined =>
    tables.flat().find((line) => line.startsWith(`${id},`));

  it('has twelve runs of the tables, with their sources and what was published', async () => {
    const { page, strange } = await site.open('#view=gallery');
    const [id] = Object.keys(FAMOUS_RUNS);
    const table = [tables[0][0], rowOf(id)].join('\n');
    await page.waitForFunction(() =>
      /\d %$/.test(document.querySelector('#g-runs td:last-child')?.textContent ?? ''),
    );
    const rows = await page.locator('#g-runs tr').all();
    expect(rows).toHaveLength(12);
    const columns = tables[0][0].split(',');
    const source = columns.indexOf('source_ref');
    expect(source).toBeGreaterThan(0);
    for (const [k, [of, name]] of Object.entries(FAMOUS_RUNS).entries()) {
      const link = rows[k].locator('th a');
      expect(await link.innerText()).toBe(name);
      expect(rowOf(of)).toContain(await link.getAttribute('title'));
      expect(await link.getAttribute('href')).toMatch(/^https:\/\/(arxiv|github)\.\w+\/\w+/);
      const published = /^[\d.]+/.exec(await rows[k].locator('td').nth(2).innerText());
      expect(rowOf(of)?.split(','), name).toContain(published?.[0]);
    }
    const { predictions } = await validateRuns(`${table}\n`, builtinOperators());
    expect(await rows[0].locator('td').nth(4).innerText()).toBe(
      secondsText(predictions[0].seconds),
    );
    expect(strange).toEqual([]);
  });
});
