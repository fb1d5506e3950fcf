import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { expect, test } from 'vitest';

import { rulesDocument } from '../../scripts/docs-rules.ts';
import { featuresDocument } from '../../scripts/features.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));

test('docs/rules-vs-dtensor.md is current (otherwise: npx tsx scripts/docs-rules.ts)', async () => {
  const document = await rulesDocument();
  expect(readFileSync(`${root}docs/rules-vs-dtensor.md`, 'utf8')).toBe(document);
  expect(document).toContain('wrong: the norm takes absolute values');
});

test('FEATURES.md is current (otherwise: npx tsx scripts/features.ts)', async () => {
  const document = await featuresDocument();
  expect(readFileSync(`${root}FEATURES.md`, 'utf8')).toBe(document);
  expect(document.match(/^\| `/gm)?.length).toBeGreaterThan(600);
});
