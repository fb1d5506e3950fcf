import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import { describe, expect, it } from 'vitest';

import { GALLERY, galleryList, galleryPage, PAGES, stillPage } from '../../scripts/gallery.ts';
import { checkHtml } from '../report/html-reader.ts';

const committed = (name: string): string => readFileSync(join(GALLERY, name), 'utf8');

describe('docs/gallery is current (otherwise: npx tsx scripts/gallery.ts)', () => {
  for (const page of PAGES) {
    const skip = !page.small && process.env.SHARDWRIGHT_FULL !== '1';
    it.skipIf(skip)(`${page.name}.html${page.small ? '' : ' (SHARDWRIGHT_FULL=1)'}`, async () => {
      expect(stillPage(committed(`${page.name}.html`)) === stillPage(await galleryPage(page))).toBe(
        true,
      );
    });
  }

  it('the list says what the pages say, and every page is well-formed', async () => {
    const pages = new Map(PAGES.map(({ name }) => [name, committed(`${name}.html`)]));
    expect(committed('README.md')).toBe(await galleryList(pages));
    for (const html of pages.values()) expect(checkHtml(html)).toEqual([]);
  });
});
