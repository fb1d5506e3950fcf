import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { planInto } from '../cli/plan-folders.ts';
import { cli } from '../cli/support.ts';

/** The report in a real browser: headless Chromium opens the file from disk, and a probe clicks and measures. */
const browser = ['chromium', 'chromium-browser', 'google-chrome'].find(
  (name) => spawnSync(name, ['--version'], { stdio: 'ignore' }).status === 0,
);

interface Probe {
  readonly width: number;
  readonly overflow: number;
  readonly outside: readonly string[];
  readonly themes: readonly string[];
  readonly sorted: readonly string[];
  readonly opened: readonly number[];
  readonly requests: number;
  readonly focusable: number;
  /** Strategies shown for the node that is clicked, and the name shown after an arrow key and Enter. */
  readonly strategies: number;
  readonly chosen: readonly string[];
}

const PROBE = `<script>
const themes = [];
const ground = () => getComputedStyle(document.body).backgroundColor;
themes.push(ground());
document.querySelector('button.theme').click();
themes.push(ground());
const table = [...document.querySelectorAll('table.sortable')].find((t) => t.tHead.textContent.includes('Nodes'));
table.querySelectorAll('th button')[1].click();
const sorted = [...table.tBodies[0].rows].map((r) => r.cells[1].textContent);
const boxes = () => document.querySelectorAll('#program-lines details[open]').length;
const before = boxes();
document.querySelector('button.all').click();
const opened = [before, boxes(), document.querySelectorAll('#program-lines details').length];
const node = document.querySelectorAll('.node')[3];
node.dispatchEvent(new MouseEvent('click', { bubbles: true }));
const strategies = document.querySelectorAll('#strategies tbody tr').length;
const chosen = [document.querySelector('#strategies h3').textContent];
const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
press('ArrowRight');
press('Enter');
chosen.push(document.querySelector('#strategies h3').textContent);
const width = document.documentElement.clientWidth;
const outside = [...document.querySelectorAll('h1,h2,h3,p,dt,dd,summary,.bar,figure,nav')].filter((e) => e.getBoundingClientRect().right > width + 1).map((e) => e.tagName + ' ' + e.textContent.slice(0, 40));
const result = { width, overflow: document.documentElement.scrollWidth - width, outside, themes, sorted, opened, requests: performance.getEntriesByType('resource').length, focusable: document.querySelectorAll('a[href],button:not([hidden]),summary,[tabindex="0"]').length, strategies, chosen };
if (parent !== window) parent.postMessage(JSON.stringify(result), '*');
const out = document.createElement('pre'); out.id = 'probe'; out.textContent = JSON.stringify(result); document.body.append(out);
</script>`;

describe.skipIf(browser === undefined)(
  'ZO-34 the report in headless Chromium (skipped where none is installed)',
  () => {
    let root = '';
    let page = '';
    beforeAll(async () => {
      root = mkdtempSync(join(tmpdir(), 'shardwright-browser-'));
      const folder = await planInto(root, 'plan', '--inputs', 'S(0)R');
      const run = await cli('report', folder);
      page = join(root, 'report.html');
      writeFileSync(page, run.out.replace('</body>', `${PROBE}</body>`));
    });
    afterAll(() => rmSync(root, { recursive: true, force: true }));

    it.each([
      ['light', 390],
      ['light', 500],
      ['light', 1280],
      ['dark', 1280],
    ] as const)('%s, %i px: fits, sorts, folds, switches', (scheme, width) => {
      // prettier-ignore
      const flags = ['--headless', '--no-sandbox', '--disable-gpu', '--virtual-time-budget=3000', `--window-size=${width},900`, '--dump-dom'];
      if (scheme === 'dark') flags.push('--blink-settings=preferredColorScheme=0');
      // A window is never narrower than 500 px; a frame in it is.
      const file = width < 500 ? join(root, 'frame.html') : page;
      if (width < 500)
        writeFileSync(
          file,
          `<pre id="probe"></pre><script>addEventListener('message', (e) => { document.getElementById('probe').textContent = e.data; });</script><iframe src="report.html" style="width:${width}px;height:900px;border:0"></iframe>`,
        );
      const dom = execFileSync(browser ?? '', [...flags, pathToFileURL(file).href], {
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'ignore'],
        maxBuffer: 2 ** 26,
      });
      const [, text] = /<pre id="probe">([^<]*)<\/pre>/.exec(dom) ?? [];
      const probe = JSON.parse((text ?? '').replaceAll('&gt;', '>').replaceAll('&lt;', '<').replaceAll('&amp;', '&')) as Probe; // prettier-ignore
      expect(probe.overflow).toBe(0);
      expect(probe.outside).toEqual([]);
      expect(probe.themes).toEqual(
        scheme === 'light' ? ['rgb(255, 255, 255)', 'rgb(20, 22, 26)'] : ['rgb(20, 22, 26)', 'rgb(255, 255, 255)'],
      );
      const counts = probe.sorted.map((n) => Number(n.replaceAll(',', '')));
      expect(counts).toEqual([...counts].sort((a, b) => b - a));
      expect(counts.length).toBeGreaterThan(3);
      const [before, after, all] = probe.opened;
      expect(before).toBeLessThan(after);
      expect(after).toBe(all);
      expect(probe.requests).toBe(0);
      expect(probe.focusable).toBeGreaterThan(20);
      expect(probe.strategies).toBeGreaterThan(1);
      expect(new Set(probe.chosen).size).toBe(2);
    });
  },
);

const MEASURE = `<script>
const width = document.documentElement.clientWidth;
const outside = [...document.querySelectorAll('h1,h2,h3,p,dt,dd,summary,.bar,figure,nav')].filter((e) => e.getBoundingClientRect().right > width + 1).map((e) => e.tagName + ' ' + e.textContent.slice(0, 40));
const passes = [...document.querySelectorAll('.chart .pass')].map((e) => getComputedStyle(e).fill);
document.querySelector('th button').focus();
const result = { overflow: document.documentElement.scrollWidth - width, outside, passes: passes.length, colours: new Set(passes).size, focused: document.activeElement.textContent, requests: performance.getEntriesByType('resource').length };
if (parent !== window) parent.postMessage(JSON.stringify(result), '*');
const out = document.createElement('pre'); out.id = 'probe'; out.textContent = JSON.stringify(result); document.body.append(out);
</script>`;

describe.skipIf(browser === undefined)('ZO-34 in part: the report of a plan with stages in headless Chromium', () => {
  let root = '';
  beforeAll(async () => {
    root = mkdtempSync(join(tmpdir(), 'shardwright-browser-'));
    const config = join(root, 'llama.json');
    writeFileSync(config, JSON.stringify({ model_type: 'llama', hidden_size: 256, intermediate_size: 512, num_attention_heads: 4, num_hidden_layers: 4, vocab_size: 1024 })); // prettier-ignore
    const folder = join(root, 'plan');
    const plan = await cli('plan', config, '--mesh', 'tp=2', '--cluster', 'dgx-h100', '--seq', '128', '--pp', '2', '--no-recipes', '-o', folder); // prettier-ignore
    expect(plan.code, plan.err).toBe(0);
    const { out } = await cli('report', folder, '--no-recipes');
    writeFileSync(join(root, 'report.html'), out.replace('</body>', `${MEASURE}</body>`));
  });
  afterAll(() => rmSync(root, { recursive: true, force: true }));

  it.each([390, 1280])('%i px: nothing is wider than the page, every pass has its colour', (width) => {
    const file = join(root, width < 500 ? 'frame.html' : 'report.html');
    if (width < 500)
      writeFileSync(
        file,
        `<pre id="probe"></pre><script>addEventListener('message', (e) => { document.getElementById('probe').textContent = e.data; });</script><iframe src="report.html" style="width:${width}px;height:900px;border:0"></iframe>`,
      );
    const flags = ['--headless', '--no-sandbox', '--disable-gpu', '--virtual-time-budget=3000', `--window-size=${width},900`, '--dump-dom']; // prettier-ignore
    const dom = execFileSync(browser ?? '', [...flags, pathToFileURL(file).href], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'], maxBuffer: 2 ** 26 }); // prettier-ignore
    const [, text] = /<pre id="probe">([^<]*)<\/pre>/.exec(dom) ?? [];
    const probe = JSON.parse((text ?? '').replaceAll('&gt;', '>').replaceAll('&lt;', '<').replaceAll('&amp;', '&')) as Record<string, unknown>; // prettier-ignore
    expect(probe).toMatchObject({ overflow: 0, outside: [], requests: 0, focused: 'Parameter' });
    expect(probe.passes).toBeGreaterThan(2 * 2 * 8);
    expect(probe.colours).toBeGreaterThanOrEqual(2);
  });
});
