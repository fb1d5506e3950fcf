import { readFileSync } from 'node:fs';

import { expect, test } from 'vitest';

import { PLANNING_PAGE, planningPage, QUESTIONS, STORY } from '../../scripts/docs-planning.ts';
import { parseQuestions } from '../../src/sweep/planning/questions.ts';

const page = readFileSync(PLANNING_PAGE, 'utf8');

test('docs/planning.md has its commands and its questions', () => {
  for (const command of Object.values(STORY))
    expect(page).toContain(`$ npx shardwright ${command}\n`);
  expect(page).toContain(QUESTIONS);
  const { models, clusters } = parseQuestions(QUESTIONS, 'questions.yaml');
  expect([models.length, clusters.length]).toEqual([2, 2]);
});

test.runIf(process.env.SHARDWRIGHT_FULL)(
  'docs/planning.md is current (otherwise: npx tsx scripts/docs-planning.ts)',
  async () => expect(page).toBe(await planningPage()),
  900_000,
);
