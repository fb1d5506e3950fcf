/** The map of rooms in CONTRIBUTING.md has every folder of src/, and no other. */

import { readdirSync, readFileSync } from 'node:fs';

import { expect, test } from 'vitest';

const root = new URL('../../', import.meta.url);

test('CONTRIBUTING.md lists the rooms that there are, once each', () => {
  const [, section] =
    /## The rooms\n(.*?)\n## /s.exec(readFileSync(new URL('CONTRIBUTING.md', root), 'utf8')) ?? [];
  const listed = [...(section ?? '').matchAll(/^\| .*?\|/gm)].flatMap(([cell]) =>
    [...cell.matchAll(/`src\/([\w-]+)`/g)].map(([, room]) => room),
  );
  const rooms = readdirSync(new URL('src/', root), { withFileTypes: true }).filter((entry) =>
    entry.isDirectory(),
  );
  expect(listed.sort()).toEqual(rooms.map(({ name }) => name).sort());
});
