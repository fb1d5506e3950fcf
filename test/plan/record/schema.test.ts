import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { expect, it } from 'vitest';

import { planJsonSchema } from '../../../src/plan/record/schema.ts';

it('docs/plan.schema.json is the schema that reads plans (otherwise: npx tsx scripts/plan-schema.ts)', () => {
  const path = fileURLToPath(new URL('../../../docs/plan.schema.json', import.meta.url));
  expect(JSON.parse(readFileSync(path, 'utf8'))).toEqual(
    JSON.parse(JSON.stringify(planJsonSchema())),
  );
});
