/**
 * Writes docs/plan.schema.json, the JSON Schema of plan files, from the schema that reads them.
 * Run: npx tsx scripts/plan-schema.ts
 */
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { planJsonSchema } from '../src/plan/record/schema.ts';

const path = fileURLToPath(new URL('../docs/plan.schema.json', import.meta.url));
writeFileSync(path, `${JSON.stringify(planJsonSchema(), null, 2)}\n`);
