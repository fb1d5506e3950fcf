/**
 * Writes site/public/preview.png, which links to the page show: a torchtitan configuration and what
 * to change in it.
 *
 * Usage: npm run site && npx tsx site/preview-picture.ts (needs a Chromium:
 * scripts/install-chromium.sh)
 */
import { fileURLToPath } from 'node:url';

import { PREVIEW } from './link-preview.ts';
import { answered, Site } from './test/browser.ts';

async function writePreview(): Promise<void> {
  const site = await Site.start();
  try {
    const { page } = await site.open('#view=tune', { viewport: PREVIEW });
    await page.click('#t-example');
    await answered(page);
    const path = fileURLToPath(new URL('public/preview.png', import.meta.url));
    await page.screenshot({ path });
  } finally {
    await site.close();
  }
}

await writePreview();
