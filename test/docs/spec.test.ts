import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { expect, test } from 'vitest';

/**
 * The ids that tests name in their titles have a text in docs/spec, and its README lists those that
 * no title names.
 */
const root = fileURLToPath(new URL('../../', import.meta.url));
const ID = /\b(?:CA|CM|FM|LS|OP|PL|SO|ZO)-\d+\b/g;
const filesOf = (folder: string, end: string): readonly string[] =>
  readdirSync(root + folder, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith(end))
    .map((path) => `${folder}/${path}`);

const texts = filesOf('docs/spec', '.md').filter((path) => !path.endsWith('README.md'));
const stated = new Set(texts.flatMap((path) => readFileSync(root + path, 'utf8').match(ID) ?? []));
const named = new Map<string, string>();
for (const path of filesOf('test', '.test.ts'))
  for (const [, , title] of readFileSync(root + path, 'utf8').matchAll(
    /\b(?:it|test|describe)(?:\.\w+)*(?:\([^)\n]*\))?\(\s*(['"`])(.*?)\1/g,
  ))
    for (const id of title.match(ID) ?? []) named.set(id, path);

test('every id in a test title has a text in docs/spec', () => {
  expect(named.size).toBeGreaterThan(300);
  expect([...named].filter(([id]) => !stated.has(id))).toEqual([]);
});

test('docs/spec/README.md lists the ids that no test title names', () => {
  const order = (a: string, b: string): number =>
    a.slice(0, 2).localeCompare(b.slice(0, 2)) || Number(a.slice(3)) - Number(b.slice(3));
  const rest = [...stated].filter((id) => !named.has(id)).sort(order);
  const readme = readFileSync(`${root}docs/spec/README.md`, 'utf8');
  const list = readme.slice(readme.indexOf('## Ids that no test title names'));
  expect(list.match(ID)).toEqual(expect.arrayContaining(rest));
});
