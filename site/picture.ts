/**
 * Writes docs/pictures/site.png, which README.md and docs/site.md show: the answer of the demo, its
 * question, and below it what another placement of a value costs and why.
 *
 * Usage: npm run site && npx tsx site/picture.ts (needs a Chromium: scripts/install-chromium.sh)
 */
import { fileURLToPath } from 'node:url';

import { answered, Site } from './test/browser.ts';

/** The value that the picture asks about, and where it would lie. */
const ASKED = { value: 'mm_1', placement: 'S(0)R' };

async function writePicture(): Promise<void> {
  const site = await Site.start();
  try {
    const { page } = await site.open('', { viewport: { width: 1240, height: 980 } });
    await answered(page);
    await page.locator('#q-document').getByText(ASKED.value, { exact: true }).first().click();
    await page.fill('#w-node', ASKED.value);
    await page.fill('#w-placement', ASKED.placement);
    await page.click('#w-form button[type=submit]');
    await page.waitForSelector('#w-keep:not([hidden])');
    await page.evaluate(() => {
      window.scrollTo(0, 0);
      (document.activeElement as HTMLElement | null)?.blur();
    });
    const path = fileURLToPath(new URL('../docs/pictures/site.png', import.meta.url));
    await page.screenshot({ path });
  } finally {
    await site.close();
  }
}

await writePicture();
