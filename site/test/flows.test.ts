/**
 * Each flow of the page once, in a Chromium: planning, stopping, asking, downloading, comparing,
 * writing a program, drawing.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { strFromU8, unzipSync } from 'fflate';
import type { Download, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';

import { answered, root, Site, text } from './browser.ts';
import { HOSTILE, SCRIPT } from './hostile.ts';

let site: Site;
beforeAll(async () => {
  site = await Site.start();
});
afterEach(() => site.closePages());
afterAll(() => site.close());

const SMALL = '#model=qwen3-0.6b&layers=2&batch=8&sequence=512&mesh=dp%3D2%2Ctp%3D2';

const bytesOf = async (download: Download): Promise<Buffer> => readFileSync(await download.path());
const downloaded = async (page: Page, button: string): Promise<Download> => {
  const [download] = await Promise.all([page.waitForEvent('download'), page.click(button)]);
  return download;
};

/** Waits until the panel of what-if questions holds a text. */
const shows = async (page: Page, answer: string): Promise<void> => {
  await page.waitForFunction(
    (wanted) => document.getElementById('w-answer')?.textContent === wanted,
    answer,
  );
};

describe('a plan', () => {
  it('appears without a press of a button, with the bytes that the command line writes', async () => {
    const { page, strange } = await site.open();
    await answered(page);
    expect(await text(page, '#q-summary')).toMatch(/^step time {2}\S+ ms/m);
    expect(await text(page, '#q-gap')).toMatch(/^0\s?%$/);
    for (const section of ['time', 'memory', 'graph', 'program', 'proof'])
      expect(await page.locator(`#q-document #${section}`).count(), section).toBe(1);
    const folder = unzipSync(await bytesOf(await downloaded(page, '#q-folder')));
    const out = mkdtempSync(join(tmpdir(), 'site-'));
    try {
      const cli = [
        'plan',
        join(root, 'examples/llama3-8b-2l-b16.fx.txt.gz'),
        '--mesh',
        'dp=8,tp=8',
        '--cluster',
        'dgx-h100',
        '--quiet',
        '-o',
        out,
      ];
      execFileSync(process.execPath, [join(root, 'dist/cli/main.js'), ...cli]);
      for (const name of ['plan.json', 'graph.swg', 'request.json'])
        expect(strFromU8(folder[name]) === readFileSync(join(out, name), 'utf8'), name).toBe(true);
    } finally {
      rmSync(out, { recursive: true });
    }
    const report = (await bytesOf(await downloaded(page, '#q-report'))).toString();
    expect(report).toMatch(/^<!doctype html>[\s\S]*llama3-8b-2l-b16/);
    await page.selectOption('#q-target', 'shardy');
    const exported = unzipSync(await bytesOf(await downloaded(page, '#q-export')));
    expect(strFromU8(exported['program.mlir'])).toContain('sdy.mesh');
    // A trainer that would run another plan gets no files.
    await page.selectOption('#q-target', 'megatron');
    await page.click('#q-export');
    await page.waitForFunction(() => document.getElementById('q-losses')?.textContent !== '');
    expect(await text(page, '#q-losses')).toMatch(
      /Megatron-LM would not run this plan: dp=8 cuts .* no weight of a layer/,
    );
    expect(strange).toEqual([]);
  });

  it('is that of the address, which follows what is typed', async () => {
    const { page, strange } = await site.open(SMALL);
    await answered(page);
    expect(await text(page, '#q-summary')).toContain('4 devices of dgx-h100: dp=2');
    await page.click('button[aria-label="×2: double tp"]');
    await page.waitForFunction(
      () => document.getElementById('q-summary')?.textContent?.includes('8 devices') === true,
    );
    expect(new URLSearchParams(new URL(page.url()).hash.slice(1)).get('mesh')).toBe('dp=2,tp=4');
    expect(strange).toEqual([]);
  });

  it(
    'is of the mesh that was drawn: dims named, sized, moved, added and removed, its devices ' +
      'in their hosts',
    async () => {
      const { page, strange } = await site.open('#view=notations');
      await page.waitForSelector('#n-figure svg');
      await page.evaluate((hash) => (location.hash = hash), SMALL);
      await answered(page);
      const mesh = (): Promise<string> => page.inputValue('#q-mesh');
      const words = (): Promise<string> => text(page, '#q-mesh-words');
      expect(await words()).toMatch(
        /^4 devices in 1 host\. Devices of one colour exchange along tp/,
      );
      const framed = (): Promise<string[]> =>
        page.locator('#q-devices-drawn .with-first').allInnerTexts();
      expect(await framed()).toEqual(['0', '1']);
      await page.check('[aria-label="Colour the groups of dp"]');
      expect(await framed()).toEqual(['0', '2']);
      await page.click('text=Add a mesh dim');
      expect(await mesh()).toBe('dp=2,tp=2,pp=2');
      await page.fill('[aria-label="Name of mesh dim 3"]', 'cp');
      await page.fill('[aria-label="Size of mesh dim 3"]', '4');
      expect(await mesh()).toBe('dp=2,tp=2,cp=4');
      expect(await words()).toMatch(/^16 devices in 2 hosts/);
      expect(await page.locator('.host').count()).toBe(2);
      expect(await framed()).toEqual(['0', '8']);
      // A button is drawn anew, and keeps its focus.
      await page.click('[aria-label="Move tp outwards"]');
      expect(await mesh()).toBe('tp=2,dp=2,cp=4');
      await page.click('[aria-label="÷2: halve cp"]');
      await page.keyboard.press('Enter');
      expect(await mesh()).toBe('tp=2,dp=2,cp=1');
      await page.click('[aria-label="Remove cp"]');
      expect(await mesh()).toBe('tp=2,dp=2');
      await page.waitForFunction(
        () =>
          document
            .getElementById('q-summary')
            ?.textContent?.match(/4 devices of dgx-h100: tp=2.*dp=2/) !== null,
        undefined,
        { timeout: 60_000 },
      );
      await page.fill('#q-mesh', 'no mesh');
      expect(await page.locator('#q-devices-drawn').isHidden()).toBe(true);
      expect(strange).toEqual([]);
    },
  );

  it('of a dropped file is made, and one that cannot be read is refused with its place', async () => {
    const { page } = await site.open(SMALL);
    await answered(page);
    await page.setInputFiles('#q-file', {
      name: 'x.fx.txt',
      mimeType: 'text/plain',
      buffer: Buffer.from(HOSTILE.replaceAll(SCRIPT, 'model')),
    });
    await page.waitForFunction(
      () => document.getElementById('q-summary')?.textContent?.startsWith('plan       x ') === true,
    );
    await page.setInputFiles('#q-file', {
      name: 'y.fx.txt',
      mimeType: 'text/plain',
      buffer: Buffer.from(HOSTILE.replace('mm.default(x, w)', 'mm.default(x, v)')),
    });
    await page.waitForFunction(() => document.getElementById('q-fault')?.hidden === false);
    expect(await text(page, '#q-fault')).toMatch(/y\.fx\.txt:4:\d+: E_\w+ /);
  });

  it('of a mesh that is typed while the page loads is of that mesh', async () => {
    const { page } = await site.open('', {}, undefined, async (loading) => {
      await loading.locator('#q-mesh').fill('dp=2,tp=2');
    });
    await answered(page);
    expect(await page.inputValue('#q-mesh')).toBe('dp=2,tp=2');
    expect(await text(page, '#q-document')).toContain('dp=2,tp=2');
  });

  it('stands above the form, and dims when the question after it fails', async () => {
    const { page } = await site.open(SMALL, { viewport: { width: 390, height: 844 } });
    await answered(page);
    expect(await text(page, '#q-best-name')).toBe('Sum of compute and communication');
    expect(await text(page, '#q-first')).toMatch(/^Do\s+cut .*\s+Step time\s+[\d.]+ [mµ]?s /s);
    const box = await page.locator('#q-best').boundingBox();
    expect(box!.y).toBeLessThan(844);
    const opacity = (): Promise<string> =>
      page.locator('#q-answer').evaluate((answer) => getComputedStyle(answer).opacity);
    expect(await opacity()).toBe('1');
    await page.fill('#q-mesh', 'dp8');
    await page.waitForFunction(() => document.getElementById('q-fault')?.hidden === false);
    expect(Number(await opacity())).toBeLessThan(0.6);
    await page.fill('#q-mesh', 'dp=2');
    await page.waitForFunction(() => document.querySelector('#q-answer.stale') === null);
    await answered(page);
    expect(await opacity()).toBe('1');
  });

  it('is copied as the command that asks the same', async () => {
    const { page } = await site.open(`${SMALL}&memory=60GiB`, {
      permissions: ['clipboard-read', 'clipboard-write'],
    });
    await answered(page);
    await page.click('#q-command');
    await page.waitForFunction(() => document.getElementById('q-copied')?.textContent !== '');
    const command = await page.evaluate(() => navigator.clipboard.readText());
    expect(command).toMatch(/^shardwright plan \S+ --mesh \S+ --cluster dgx-h100 --memory 60GiB/);
    const [, ...words] = command.split(' ');
    const main = join(root, 'dist/cli/main.js');
    const run = spawnSync(process.execPath, [main, ...words, '--json', '--quiet'], {
      encoding: 'utf8',
    });
    expect([0, 4]).toContain(run.status);
    const { mesh } = JSON.parse(run.stdout) as { mesh: { name: string; size: number }[] };
    const typed = await page.inputValue('#q-mesh');
    expect(mesh.map(({ name, size }) => `${name}=${size}`).join(',')).toBe(typed);
  });

  it('that does not exist says what is in the way', async () => {
    const { page } = await site.open(`${SMALL}&memory=1MiB`);
    await answered(page);
    expect(await text(page, '#q-fault')).toMatch(
      /no plan exists; in the way: .*memory\nnone needs less than \S+ [MG]iB; a plan of \S+ [MG]iB is known; the budget was 1\.00 MiB/,
    );
  });

  it('can be asked what another placement of a value costs, and pinned to it', async () => {
    const { page, strange } = await site.open(SMALL);
    await answered(page);
    const line = page.locator('#program-lines pre > span', { hasText: '%mm' }).first();
    await line.evaluate((element) => {
      for (let at: Element | null = element; at !== null; at = at.parentElement)
        if (at instanceof HTMLDetailsElement) at.open = true;
    });
    await line.click();
    expect(await page.inputValue('#w-node')).toMatch(/^mm/);
    await page.waitForFunction(() =>
      /strategies|CHOSEN/.test(document.getElementById('w-answer')?.textContent ?? ''),
    );
    await page.fill('#w-placement', 'RR');
    await page.click('#w-form button[type=submit]');
    await page.waitForSelector('#w-keep:not([hidden])', { timeout: 60_000 });
    expect(await text(page, '#w-answer')).toMatch(
      /^force RR: global [+-]?\S+ .*\n[\s\S]*other nodes that change: \d+/,
    );
    const first = await text(page, '#w-answer');
    const canMove = async (): Promise<boolean[]> => [
      await page.isEnabled('#w-undo'),
      await page.isEnabled('#w-redo'),
    ];
    expect(await canMove()).toEqual([true, false]);
    const other = await page
      .locator('#w-nodes option')
      .evaluateAll(
        (all, taken) =>
          all
            .map((option) => (option as HTMLOptionElement).value)
            .find((name) => name.startsWith('mm') && name !== taken) ?? '',
        await page.inputValue('#w-node'),
      );
    await page.fill('#w-node', other);
    await page.fill('#w-placement', 'RR');
    await page.click('#w-form button[type=submit]');
    await page.waitForFunction(
      () => document.getElementById('w-answer')?.textContent?.includes('2 together') === true,
    );
    const both = await text(page, '#w-answer');
    await page.click('#w-undo');
    await shows(page, first);
    expect(await canMove()).toEqual([true, true]);
    // A key takes the first back, too, outside of a field.
    await page.focus('#w-answer');
    await page.keyboard.press('Control+z');
    await shows(page, 'no other placement is asked for: the plan as it is');
    expect(await canMove()).toEqual([false, true]);
    expect(await page.locator('#w-keep').isHidden()).toBe(true);
    await page.keyboard.press('Control+Shift+z');
    await shows(page, first);
    await page.keyboard.press('Control+y');
    await shows(page, both);
    expect(await canMove()).toEqual([true, false]);
    await page.keyboard.press('Control+z');
    await shows(page, first);
    await page.click('#w-keep');
    await page.waitForURL(/pin=mm\w*%3DRR/);
    expect(await page.locator('#q-pins .pin').count()).toBe(1);
    await answered(page);
    expect(await text(page, '#q-fault')).toBe('');
    expect(strange).toEqual([]);
  });

  it('stops when asked, with the best that there is', async () => {
    // Peak memory in view takes many rounds: there is time to stop.
    const { page } = await site.open('#model=llama-3.1-8b&mesh=dp%3D4%2Ctp%3D8%2Ccp%3D2&layers=16');
    await page.waitForSelector('#q-stop:not([hidden])');
    await page.click('#q-stop');
    await answered(page, 20_000);
    expect(await text(page, '#q-step')).toMatch(/^(Stopped|Done)/);
    expect(await page.locator('#q-stop').isHidden()).toBe(true);
  });
});

it('compares all plans of a model in several workers', async () => {
  const { page, strange } = await site.open(
    '#view=compare&model=qwen3-0.6b&devices=4&sequence=512',
  );
  let most = 0;
  page.on('worker', () => (most = Math.max(most, page.workers().length)));
  await answered(page, 110_000);
  expect(await text(page, '#q-fault')).toBe('');
  expect(await text(page, '#q-document')).toMatch(/fsdp/);
  expect(strange).toEqual([]);
});

describe('the editor', () => {
  it('traces a program as it is typed, with errors of types and of tracing at their lines', async () => {
    const { page, strange } = await site.open('#view=program');
    await page.waitForFunction(
      () => document.getElementById('q-graph')?.textContent?.includes('aten.mm') === true,
    );
    expect(await text(page, '#q-graph')).toContain('source="program.ts:11:12"');
    expect(await text(page, '#q-findings')).toBe('');
    await page.click('.cm-content');
    await page.keyboard.press('Control+End');
    await page.keyboard.type('const wrong: number = inputs;');
    await page.waitForFunction(() => document.getElementById('q-findings')?.textContent !== '');
    expect(await text(page, '#q-findings')).toMatch(
      /^line 13: Type .* is not assignable to type 'number'/,
    );
    expect(await page.locator('.cm-lintRange-error').count()).toBe(1);
    await page.selectOption('#q-example', { index: 1 });
    await page.waitForSelector('#q-types:not([hidden])');
    expect(await text(page, '#q-types')).toContain('%einsum_1: f64[8@dp,16]{U:tp}');
    await page.click('#q-plan-program');
    await answered(page);
    expect(await text(page, '#q-fault')).toBe('');
    expect(await text(page, '#q-summary')).toContain('step time');
    expect(strange).toEqual([]);
  });

  it('says at which line a program throws', async () => {
    const { page } = await site.open('#view=program');
    await page.waitForFunction(() => document.getElementById('q-graph')?.textContent !== '');
    await page.click('.cm-content');
    await page.keyboard.press('Control+End');
    await page.keyboard.type("\nthrow new Error('by hand');");
    await page.waitForFunction(
      () => document.getElementById('q-findings')?.textContent?.includes('by hand') === true,
    );
    expect(await text(page, '#q-findings')).toContain(
      'line 14: E_INPUT the program fails: Error: by hand',
    );
  });
});

it('draws notations while one types', async () => {
  const { page, strange } = await site.open('#view=notations');
  await page.waitForSelector('#n-figure svg');
  await page.fill('#n-text', 'P(sum)S(1)');
  await page.waitForFunction(
    () =>
      document.querySelector('#n-figure svg title')?.textContent?.includes('P(sum)S(1)') === true,
  );
  expect(await text(page, '#n-words')).toContain('a pending sum');
  await page.fill('#n-text', 'a b -> a2 b4');
  await page.fill('#n-mesh', '8');
  await page.waitForFunction(
    () => document.querySelector('#n-figure svg title')?.textContent?.includes('a2 b4') === true,
  );
  await page.fill('#n-text', 'S(9)R');
  await page.waitForFunction(() => document.querySelector('#n-figure svg') === null);
  expect((await text(page, '#n-words')).length).toBeGreaterThan(10);
  await page.selectOption('#n-notation', 'layout');
  await page.waitForFunction(
    () => document.querySelector('#n-figure svg title')?.textContent?.startsWith('Layout') === true,
  );
  expect(strange).toEqual([]);
});

describe('a file of a stranger', () => {
  it('with scripts in its names does nothing', async () => {
    const { page, strange } = await site.open(SMALL);
    await answered(page);
    await page.setInputFiles('#q-file', {
      name: `${SCRIPT.replaceAll('/', '')}.fx.txt`,
      mimeType: 'text/plain',
      buffer: Buffer.from(HOSTILE),
    });
    await page.waitForFunction(
      () => document.getElementById('q-summary')?.textContent?.includes('<img') === true,
    );
    await answered(page);
    expect(
      await page
        .locator('#q-document img, #q-document script:not([type="application/json"])')
        .count(),
    ).toBe(0);
    expect(await text(page, '#q-document')).toContain('<img src=x onerror=alert(1)>');
    expect(strange).toEqual([]);
  });

  it('in the address does nothing', async () => {
    const { page, strange } = await site.open(
      `#model=${encodeURIComponent(SCRIPT)}&pin=${encodeURIComponent(`${SCRIPT}=R`)}`,
    );
    await answered(page);
    expect(await page.locator('main img, main script').count()).toBe(0);
    expect(await text(page, '#q-fault')).toContain('<img');
    expect(strange).toEqual([]);
  });
});

/** With the peak of memory in view two mesh dims take half a minute, 64 devices minutes. */
const MESHES = process.env.SHARDWRIGHT_FULL === undefined ? ['dp=8'] : ['dp=2,tp=4', 'dp=8,tp=8'];
it.each(MESHES)(
  'a file of 32 layers is planned on %s, in less than 1.5 GB, and says how far it is',
  { timeout: 600_000 },
  async (mesh) => {
    const { page, strange } = await site.open('#view=notations');
    await page.waitForSelector('#n-figure svg');
    const { models } = JSON.parse(readFileSync(join(root, 'data/models.json'), 'utf8')) as {
      readonly models: readonly { readonly name: string; readonly config: object }[];
    };
    const config = models.find(({ name }) => name === 'llama-3.1-8b')?.config;
    expect(config).toMatchObject({ num_hidden_layers: 32 });
    await page.click('#q-views [data-view=plan]');
    await page.fill('#q-mesh', mesh);
    await page.fill('#q-batch', '16');
    await page.fill('#q-sequence', mesh === 'dp=8,tp=8' ? '4096' : '1024');
    await page.evaluate(() => {
      const [said, step] = [new Set<string>(), document.getElementById('q-step')];
      Object.assign(globalThis, { said });
      new MutationObserver(() => said.add(step?.textContent ?? '')).observe(step!, {
        childList: true,
      });
    });
    await page.setInputFiles('#q-file', {
      name: 'config.json',
      mimeType: 'application/json',
      buffer: Buffer.from(JSON.stringify(config)),
    });
    await page.waitForFunction(
      () => document.getElementById('q-summary')?.textContent?.includes('8,030,261,248') === true,
      undefined,
      { timeout: 500_000 },
    );
    expect(await text(page, '#q-summary')).toContain(`${mesh.slice(0, 4)} `);
    // The plan to take has the shortest step of the default trainer, as for the command.
    const summary = await text(page, '#q-summary');
    expect(summary).toMatch(/step time {2}.* \(whole training step, run by megatron\)/);
    expect(summary).toMatch(/proof {6}(optimal|feasible)/);
    await answered(page);
    const said = await page.evaluate(() => [
      ...(globalThis as unknown as { readonly said: ReadonlySet<string> }).said,
    ]);
    expect(said).toEqual(
      expect.arrayContaining([
        'Reading the model',
        'Writing down what every placement costs',
        'Looking for the cheapest plan',
        'Writing the report',
      ]),
    );
    const peak = await site.mostRendererBytes();
    expect(peak).toBeGreaterThan(1e8);
    expect(peak).toBeLessThan(1.5e9);
    expect(strange).toEqual([]);
  },
);
