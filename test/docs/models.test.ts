import { readFileSync } from 'node:fs';

import { expect, test } from 'vitest';

import { MODELS_PAGE, modelsPage } from '../../scripts/docs-models.ts';
import { modelEntries } from '../../src/models/registry.ts';

test('docs/models.md is current (otherwise: npx tsx scripts/docs-models.ts)', async () => {
  const page = readFileSync(MODELS_PAGE, 'utf8');
  expect(page).toBe(await modelsPage());
  for (const { name } of modelEntries()) expect(page).toContain(`\`${name}\``);
});
