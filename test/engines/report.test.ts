import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { planInto } from '../cli/plan-folders.ts';
import { cli } from '../cli/support.ts';

/**
 * The report in a real browser: headless Chromium opens the file from disk, and a probe clicks and
 * measures.
 */
const browser = [process.env.CHROMIUM ?? '', 'chromium', 'chromium-browser', 'google-chrome'].find(
  (name) => name !== '' && spawnSync(name, ['--version'], { stdio: 'ignore' }).status === 0,
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
  /**
   * Strategies shown for the node that is clicked, and the name shown after an arrow key and Enter.
   */
  readonly strategies: number;
  readonly chosen: readonly string[];
  /** Right edge of the placements of the parameters. */
  readonly placement: number;
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
const placement = [...document.querySelectorAll('th')].find((t) => t.textContent.startsWith('Placement')).getBoundingClientRect().right;
const result = { placement, width, overflow: document.documentElement.scrollWidth - width, outside, themes, sorted, opened, requests: performance.getEntriesByType('resource').length, focusable: document.querySelectorAll('a[href],button:not([hidden]),summary,[tabindex="0"]').length, strategies, chosen };
if (parent !== window) parent.postMessage(JSON.stringify(result), '*');
const out = document.createElement('pre'); out.id = 'probe'; out.textContent = JSON.stringify(result); document.body.append(out);
</script>`;

describe.skipIf(browser === undefined)(
  'the report in headless Chromium (skipped where none is installed)',
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
      ['dark', 390],
      ['light', 1280],
      ['dark', 1280],
    ] as const)('%s, %i px: fits, sorts, folds, switches', (scheme, width) => {
      const flags = [
        '--headless',
        '--no-sandbox',
        '--disable-gpu',
        '--virtual-time-budget=3000',
        `--window-size=${width},900`,
        '--dump-dom',
      ];
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
      const probe = JSON.parse(
        (text ?? '').replaceAll('&gt;', '>').replaceAll('&lt;', '<').replaceAll('&amp;', '&'),
      ) as Probe;
      expect(probe.overflow).toBe(0);
      expect(probe.placement).toBeLessThanOrEqual(probe.width);
      expect(probe.outside).toEqual([]);
      expect(probe.themes).toEqual(
        scheme === 'light'
          ? ['rgb(255, 255, 255)', 'rgb(20, 22, 26)']
          : ['rgb(20, 22, 26)', 'rgb(255, 255, 255)'],
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

/**
 * What lies over what: texts of one drawing, blocks of the page, cells and their text;
 * `data-paper`: everything unfolded.
 */
const MEASURE = `<script>
if (document.documentElement.dataset.paper !== undefined) for (const box of document.querySelectorAll('details')) box.open = true;
const covers = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
const name = (e) => e.tagName + ' ' + e.textContent.slice(0, 40);
const overlaps = [];
for (const svg of document.querySelectorAll('svg')) {
  const texts = [...svg.querySelectorAll('text')].map((t) => [t, t.getBoundingClientRect()]).filter(([, r]) => r.width > 0);
  texts.forEach(([a, x], i) => texts.slice(i + 1).forEach(([b, y]) => { if (covers(x, y)) overlaps.push(name(a) + ' | ' + name(b)); }));
}
const isShown = (e) => e.getClientRects().length > 0 && (e.closest('details:not([open])') === null || e.matches('details:not([open]) > summary'));
const blocks = [...document.querySelectorAll('h1,header button,nav a,main h2,main h3,main p,main li,main dt,main dd,main tr,main figcaption,main summary,main pre,main svg,main .bar')].filter(isShown).map((e) => [e, e.getBoundingClientRect()]);
blocks.sort((a, b) => a[1].top - b[1].top);
blocks.forEach(([e, r], i) => {
  for (let k = i + 1; k < blocks.length && blocks[k][1].top < r.bottom; k++) {
    const [f, s] = blocks[k];
    // What scrolls inside itself may be behind what follows it.
    const apart = e.closest('.scroll,.graph') !== f.closest('.scroll,.graph');
    if (!apart && !e.contains(f) && !f.contains(e) && covers(r, s)) overlaps.push(name(e) + ' | ' + name(f));
  }
});
const spilled = [...document.querySelectorAll('td,th')].filter((c) => c.clientWidth > 0 && c.scrollWidth > c.clientWidth + 1).map(name);
const width = document.documentElement.clientWidth;
const outside = [...document.querySelectorAll('h1,h2,h3,p,dt,dd,summary,.bar,figure,nav')].filter((e) => e.getBoundingClientRect().right > width + 1).map(name);
const result = { overflow: document.documentElement.scrollWidth - width, outside, overlaps, spilled, requests: performance.getEntriesByType('resource').length, blocks: blocks.length };
if (parent !== window) parent.postMessage(JSON.stringify(result), '*');
const out = document.createElement('pre'); out.id = 'probe'; out.textContent = JSON.stringify(result); document.body.append(out);
</script>`;

/** Between the margins that browsers leave on a sheet of 210 mm. */
const A4 = 718;

describe.skipIf(browser === undefined)(
  'nothing lies over anything (skipped where no browser is installed)',
  () => {
    let root = '';
    let pages: Readonly<Record<string, string>> = {};
    beforeAll(async () => {
      root = mkdtempSync(join(tmpdir(), 'shardwright-browser-'));
      const config = join(root, 'llama.json');
      writeFileSync(
        config,
        JSON.stringify({
          model_type: 'llama',
          hidden_size: 256,
          intermediate_size: 512,
          num_attention_heads: 4,
          num_hidden_layers: 4,
          vocab_size: 1024,
        }),
      );
      const staged = join(root, 'staged');
      const plan = await cli(
        'plan',
        '-v',
        config,
        '--mesh',
        'tp=2',
        '--cluster',
        'dgx-h100',
        '--seq',
        '128',
        '--pp',
        '2',
        '--no-recipes',
        '-o',
        staged,
      );
      expect(plan.code, plan.err).toBe(0);
      const whole = await planInto(root, 'plan', '--inputs', 'S(0)R');
      const compared = join(root, 'comparison.json');
      const comparison = await cli(
        'compare',
        config,
        '--devices',
        '8',
        '--cluster',
        'dgx-h100',
        '--seq',
        '128',
        '--plans',
        'pp+fsdp+tp+sp,pp+hsdp,hsdp+tp,fsdp',
        '--for',
        'shardwright',
        '--threads',
        '1',
        '--quiet',
        '--json',
      );
      expect(comparison.code, comparison.err).toBe(0);
      writeFileSync(compared, comparison.out);
      const made = async (path: string): Promise<string> => (await cli('report', path)).out;
      pages = {
        plan: await made(whole),
        stages: await made(staged),
        comparison: await made(compared),
      };
    });
    afterAll(() => rmSync(root, { recursive: true, force: true }));

    const cases = ['plan', 'stages', 'comparison'].flatMap((name) =>
      (
        [
          ['light', 390],
          ['dark', 390],
          ['light', 1280],
          ['dark', 1280],
          ['paper', A4],
        ] as const
      ).map(([scheme, width]) => [name, scheme, width] as const),
    );
    it.each(cases)('%s, %s, %i px', (name, scheme, width) => {
      const html = pages[name].replace('</body>', `${MEASURE}</body>`);
      const paper = scheme === 'paper';
      // The rules for paper for every medium, and everything unfolded, as the page does before it
      // is printed.
      const shown = paper
        ? html.replace('@media print', '@media all').replace('<html', '<html data-paper=""')
        : html;
      writeFileSync(join(root, 'report.html'), shown);
      // A window is never narrower than 500 px; a frame in it is.
      const file = join(root, width < 1000 ? 'frame.html' : 'report.html');
      if (width < 1000)
        writeFileSync(
          file,
          `<pre id="probe"></pre><script>addEventListener('message', (e) => { document.getElementById('probe').textContent = e.data; });</script><iframe src="report.html" style="width:${width}px;height:900px;border:0"></iframe>`,
        );
      const flags = [
        '--headless',
        '--no-sandbox',
        '--disable-gpu',
        '--virtual-time-budget=3000',
        `--window-size=${Math.max(800, width)},900`,
        '--dump-dom',
      ];
      if (scheme === 'dark') flags.push('--blink-settings=preferredColorScheme=0');
      const dom = execFileSync(browser ?? '', [...flags, pathToFileURL(file).href], {
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'ignore'],
        maxBuffer: 2 ** 26,
      });
      const [, text] = /<pre id="probe">([^<]*)<\/pre>/.exec(dom) ?? [];
      const probe = JSON.parse(
        (text ?? '').replaceAll('&gt;', '>').replaceAll('&lt;', '<').replaceAll('&amp;', '&'),
      ) as Record<string, unknown>;
      expect(probe).toMatchObject({
        overflow: 0,
        outside: [],
        overlaps: [],
        spilled: [],
        requests: 0,
      });
      expect(probe.blocks).toBeGreaterThan(40);
    });

    it('prints: every section that begins a sheet has one', () => {
      writeFileSync(join(root, 'report.html'), pages.plan);
      const pdf = join(root, 'report.pdf');
      execFileSync(
        browser ?? '',
        [
          '--headless',
          '--no-sandbox',
          '--disable-gpu',
          `--print-to-pdf=${pdf}`,
          pathToFileURL(join(root, 'report.html')).href,
        ],
        { stdio: 'ignore' },
      );
      const sheets = [...readFileSync(pdf, 'latin1').matchAll(/\/Type \/Page\b/g)].length;
      expect(sheets).toBeGreaterThan([...pages.plan.matchAll(/class="sheet"/g)].length);
    });
  },
);
