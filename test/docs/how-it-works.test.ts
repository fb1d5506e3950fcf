import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { expect, test } from 'vitest';

import { DOCUMENT, fillDocument } from '../../scripts/docs-how-it-works.ts';

const document = readFileSync(DOCUMENT, 'utf8');

test('docs/how-it-works.md shows what the steps give (otherwise: npx tsx scripts/docs-how-it-works.ts)', async () => {
  expect(await fillDocument(document)).toBe(document);
});

test('docs/how-it-works.md names files that exist', () => {
  const paths = [...document.matchAll(/`((?:src|scripts)\/[^`]*)`/g)].map((match) => match[1]);
  expect(paths.length).toBeGreaterThan(10);
  for (const path of paths)
    expect(existsSync(fileURLToPath(new URL(`../../${path}`, import.meta.url))), path).toBe(true);
});
