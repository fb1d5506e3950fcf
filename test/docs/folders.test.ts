/** The table of folders in CONTRIBUTING.md has every folder of src/, and no other. */

import { readdirSync, readFileSync } from 'node:fs';

import { expect, test } from 'vitest';

const root = new URL('../../', import.meta.url);

test('CONTRIBUTING.md lists the folders that there are, once each', () => {
  const [, section] =
    /## The folders\n(.*?)\n## /s.exec(readFileSync(new URL('CONTRIBUTING.md', root), 'utf8')) ??
    [];
  const listed = [...(section ?? '').matchAll(/^\| .*?\|/gm)].flatMap(([cell]) =>
    [...cell.matchAll(/`src\/([\w-]+)`/g)].map(([, folder]) => folder),
  );
  const folders = readdirSync(new URL('src/', root), { withFileTypes: true }).filter((entry) =>
    entry.isDirectory(),
  );
  expect(listed.sort()).toEqual(folders.map(({ name }) => name).sort());
});
