/** The folders of test/ are those of src/, or in a short list with what they are for. */

import { existsSync, readdirSync } from 'node:fs';
import { dirname } from 'node:path';

import { expect, test } from 'vitest';

const root = new URL('../../', import.meta.url);

/** Folders whose tests are about no folder of src/. CONTRIBUTING.md names them. */
const OTHERS: Readonly<Record<string, string>> = {
  docs: 'pages, their tables and their examples',
  engines: 'comparisons with PyTorch and JAX',
  fuzz: 'random search for faults',
  golden: 'recorded plans of whole requests',
  lint: 'rules of the code',
  package: 'the packed package on Node',
  peers: 'comparisons with other planners',
  support: 'what tests share',
};

test('a folder with tests has the name of a folder of src/, or is one of the few others', () => {
  const tests = readdirSync(new URL('test/', root), { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.test.ts') && !path.startsWith('fixtures/'))
    .map((path) => dirname(path));
  const folders = [...new Set(tests)].filter((folder) => folder !== '.').sort();
  expect(folders.length).toBeGreaterThan(40);
  const isOther = (folder: string): boolean => Object.hasOwn(OTHERS, folder.split('/')[0]);
  const strange = folders.filter(
    (folder) => !isOther(folder) && !existsSync(new URL(`src/${folder}`, root)),
  );
  expect(strange).toEqual([]);
  const unused = Object.keys(OTHERS).filter(
    (name) => !folders.some((f) => f.split('/')[0] === name),
  );
  expect(unused).toEqual([]);
});
