/**
 * Everybody can use the page: axe-core finds no fault in any view, wide or narrow, light or dark, and
 * the keyboard reaches every control.
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

import type axe from 'axe-core';
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';

import { answered, Site } from './browser.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const SMALL = 'model=qwen3-0.6b&layers=1&batch=8&sequence=512&mesh=dp%3D2%2Ctp%3D2&devices=2';

let site: Site;
beforeAll(async () => {
  site = await Site.start();
});
afterEach(() => site.closePages());
afterAll(() => site.close());

const LOOKS = [
  { viewport: { width: 1280, height: 900 }, colorScheme: 'light' },
  { viewport: { width: 390, height: 844 }, colorScheme: 'dark' },
] as const;

const READY: Readonly<Record<string, string>> = {
  plan: '#q-downloads:not([hidden])',
  compare: '#q-downloads:not([hidden])',
  tune: '#q-first:not([hidden])',
  gallery: '#g-runs tr',
  program: '#q-graph:not(:empty)',
  notations: '#n-figure svg',
};

/** The faults that axe finds, each with the elements that have it. */
async function faults(page: Page): Promise<string[]> {
  return page.evaluate(async () => {
    const { run } = (globalThis as unknown as { readonly axe: typeof axe }).axe;
    const { violations } = await run(document, {
      runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'],
    });
    return violations.map(
      ({ id, nodes }) =>
        `${id}: ${nodes
          .slice(0, 3)
          .map(({ html }) => html.slice(0, 160))
          .join(' | ')}`,
    );
  });
}

it.each(Object.keys(READY))(
  'axe finds nothing in the view %s, wide and light or narrow and dark, and nothing is cut',
  async (view) => {
    // The checker is put into the page as a script, which the page's own policy would refuse.
    const { page } = await site.open(`#view=${view}&${SMALL}`, { ...LOOKS[0], bypassCSP: true });
    if (view === 'tune') await page.click('#t-example');
    await page.waitForSelector(READY[view], { timeout: 110_000 });
    if (view === 'plan') {
      await answered(page);
      await page.evaluate(() =>
        document.querySelector<HTMLElement>('#program-lines pre > span')?.click(),
      );
      await page.waitForSelector('#w-panel:not([hidden])');
    }
    await page.addScriptTag({ content: AXE });
    const grounds = new Set<string>();
    for (const { viewport, colorScheme } of LOOKS) {
      await page.setViewportSize(viewport);
      await page.emulateMedia({ colorScheme });
      grounds.add(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
      expect(await faults(page), colorScheme).toEqual([]);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(viewport.width);
    }
    expect(grounds.size).toBe(2);
  },
);

it('the question is reached, changed and stopped by keyboard alone', async () => {
  const { page, strange } = await site.open(`#${SMALL}`);
  await answered(page);
  const order: string[] = [];
  for (let k = 0; k < 14; k++) {
    await page.keyboard.press('Tab');
    order.push(
      await page.evaluate(
        () => document.activeElement?.id || (document.activeElement?.textContent ?? ''),
      ),
    );
  }
  expect(order.slice(0, 10)).toEqual([
    'Skip to the question',
    'Dark',
    'Plan',
    'Compare',
    'Your config',
    'Program',
    'Famous runs',
    'Notations',
    'q-model',
    'q-file',
  ]);
  expect(order).toContain('q-mesh');
  expect(strange).toEqual([]);
});
