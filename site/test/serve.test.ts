/**
 * `shardwright serve`: who may ask, what it gives, and that the planner of the machine plans what
 * the page sends.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request as ask } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';

import { answered, root, Site, text } from './browser.ts';

let server: ChildProcess;
let address: URL;
let cookie = '';
let site: Site;
beforeAll(async () => {
  server = spawn(process.execPath, [join(root, 'dist/cli/main.js'), 'serve', '--port', '0'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  address = new URL(
    await new Promise<string>((resolve) =>
      server.stdout?.once('data', (line: Buffer) => resolve(line.toString().trim())),
    ),
  );
  cookie = await new Promise((resolve) =>
    ask(address, ({ headers }) => resolve(headers['set-cookie']?.[0].split(';')[0] ?? '')).end(),
  );
  site = await Site.start();
});
afterEach(() => site.closePages());
afterAll(async () => {
  server.kill('SIGTERM');
  await site.close();
});

/** Status and text of an answer to who has the cookie; Host may be that of a stranger. */
const answer = (
  path: string,
  headers: Record<string, string> = {},
  method = 'GET',
  body = '',
): Promise<{ readonly status: number; readonly text: string }> =>
  new Promise((resolve, reject) => {
    const sent = ask(
      { host: '127.0.0.1', port: address.port, path, method, headers: { cookie, ...headers } },
      (response) => {
        let content = '';
        response.setEncoding('utf8').on('data', (piece: string) => (content += piece));
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text: content }));
      },
    );
    sent.on('error', reject);
    sent.end(body);
  });

it('the page that leads from the address on asks for no icon that is not there', async () => {
  const leading = await fetch(address);
  expect(await leading.text()).toContain('<link rel="icon" href="data:,">');
});

it('a file that leads to the address, as --open writes it, opens the page', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'shardwright-open-'));
  const file = join(folder, 'open.html');
  writeFileSync(file, `<meta http-equiv="refresh" content="0; url=${address.href}">`);
  const { page } = await site.open('', {}, pathToFileURL(file).href);
  await page.waitForURL(`${address.origin}/`);
  await page.waitForSelector('#q-mesh');
  await page.close();
  rmSync(folder, { recursive: true });
});

describe('who asks', () => {
  it('hears on this machine alone, under its own names alone', async () => {
    expect(address.hostname).toBe('127.0.0.1');
    expect((await answer('/')).status).toBe(200);
    expect((await answer('/', { host: `localhost:${address.port}` })).status).toBe(200);
    for (const host of ['evil.example', `evil.example:${address.port}`, '127.0.0.1'])
      expect((await answer('/', { host })).status, host).toBe(421);
    expect((await answer('/', { origin: 'http://evil.example' })).status).toBe(403);
  });

  it('gives files of the page and no others', async () => {
    for (const path of [
      '/../package.json',
      '/%2e%2e/package.json',
      '/..%2fpackage.json',
      '/assets/../../vite.config.ts',
      '/assets',
      '/none.js',
    ])
      expect((await answer(path)).status, path).toBe(404);
    expect((await answer('/', {}, 'PUT')).status).toBe(405);
  });

  it('plans for its own page only, and no question that it cannot read', async () => {
    expect((await answer('/plan', { cookie: '' }, 'POST', 'x')).status).toBe(403);
    expect((await answer('/plan', { 'x-question': '%7B' }, 'POST', 'x')).status).toBe(400);
    const question = {
      name: '../x',
      mesh: '--help',
      cluster: '../../etc/passwd',
      memory: '',
      batch: '',
      sequence: '',
      layers: '',
      pins: [],
    };
    const asked = (q: object) => ({ 'x-question': encodeURIComponent(JSON.stringify(q)) });
    expect((await answer('/plan', asked(question), 'POST', 'x')).status).toBe(400);
    const { text: said } = await answer(
      '/plan',
      asked({ ...question, cluster: 'dgx-h100' }),
      'POST',
      'x',
    );
    expect((await answer('/ask', { cookie: '' }, 'POST')).status).toBe(403);
    const about = (q: object) => answer('/ask', asked(q), 'POST');
    expect((await about({ kind: 'run', plan: 'x' })).status).toBe(400);
    const force = { kind: 'force', plan: 'x', node: 'mm', placement: 'RR' };
    expect((await about(force)).status).toBe(400);
    expect((await about({ ...force, before: ['mm_1=RR'] })).text).toContain('no longer kept');
    expect((await about({ kind: 'explain', plan: '../../x', node: 'mm' })).text).toContain(
      'this plan is no longer kept',
    );
    expect(said).toMatch(/"fault":\{"code":"E_PLAN","message":"E_\w+ .*--help/);
  });
});

it('the page gives a file to the planner of the machine, and shows its report', async () => {
  const { page, strange } = await site.open(
    '#model=qwen3-0.6b&layers=1&batch=8&sequence=512&mesh=dp%3D2%2Ctp%3D2',
    {},
    address.href,
  );
  await answered(page);
  await page.check('#q-local');
  const buffer = readFileSync(join(root, 'test/fixtures/torch/llama-tiny/joint.expanded.txt.gz'));
  await page.setInputFiles('#q-file', {
    name: 'llama.fx.txt.gz',
    mimeType: 'application/gzip',
    buffer,
  });
  await page.waitForFunction(
    () =>
      document
        .getElementById('q-step')
        ?.textContent?.startsWith('Done by the planner of this machine') === true,
    undefined,
    { timeout: 90_000 },
  );
  expect(await text(page, '#q-summary')).toContain('4 devices of dgx-h100');
  expect(await page.locator('#q-document #graph').count()).toBe(1);
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#q-folder')]);
  expect(download.suggestedFilename()).toBe('plan.zip');
  // What is asked of the plan goes to the machine, too.
  await page
    .locator('#program-lines pre > span', { hasText: '%mm' })
    .first()
    .evaluate((line: HTMLElement) => line.click());
  await page.waitForFunction(
    () => document.getElementById('w-answer')?.textContent?.includes('CHOSEN') === true,
    undefined,
    { timeout: 90_000 },
  );
  await page.fill('#w-placement', 'RR');
  await page.click('#w-form button[type=submit]');
  await page.waitForSelector('#w-keep:not([hidden])', { timeout: 90_000 });
  expect(await text(page, '#w-answer')).toMatch(/^force RR: global [+-]?\S+ /);
  const first = await text(page, '#w-answer');
  await page.click('#w-undo');
  expect(await text(page, '#w-answer')).toBe('no other placement is asked for: the plan as it is');
  await page.click('#w-redo');
  expect(await text(page, '#w-answer')).toBe(first);
  await page.selectOption('#q-target', 'shardy');
  const [files] = await Promise.all([page.waitForEvent('download'), page.click('#q-export')]);
  expect(files.suggestedFilename()).toBe('shardy.zip');
  await page.fill('#w-placement', '--json');
  await page.click('#w-form button[type=submit]');
  await page.waitForFunction(
    () => /E_\w+ .*--json/.test(document.getElementById('w-answer')?.textContent ?? ''),
    undefined,
    { timeout: 90_000 },
  );
  expect(strange).toEqual([]);
});
