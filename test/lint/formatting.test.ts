/** The formatter decides: it is switched off for a few tables of constants alone. */
import { readdirSync, readFileSync } from 'node:fs';

import { expect, test } from 'vitest';

const MOST_TABLES = 20;
const FOLDERS = ['src', 'test', 'bench', 'scripts', 'examples'];
const root = new URL('../../', import.meta.url);
const WORD = ['prettier', 'ignore'].join('-');

test(`the formatter is switched off at most ${MOST_TABLES} times, each before a table of constants`, () => {
  const files = FOLDERS.flatMap((folder) =>
    readdirSync(new URL(`${folder}/`, root), { recursive: true, encoding: 'utf8' })
      .filter((file) => /\.(ts|mjs|cjs)$/.test(file) && !file.startsWith('fixtures'))
      .map((file) => `${folder}/${file}`),
  );
  const marks = files.flatMap((file) => {
    const lines = readFileSync(new URL(file, root), 'utf8').split('\n');
    return lines.flatMap((line, k) => (line.includes(WORD) ? [lines[k + 1] ?? ''] : []));
  });
  expect(marks.length).toBeLessThanOrEqual(MOST_TABLES);
  for (const next of marks) expect(next).toMatch(/^(export )?const [A-Z\d_]+\b.*= (\[|\{|new )/);
});
