import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { expect, test } from 'vitest';

/**
 * A room may grow by this share, and by so many lines, before somebody records it (`npm run size --
 * --write`).
 */
const SHARE = 0.3;
const LINES = 500;

test('no room of src has grown by more than 30 % and 500 lines since its size was recorded', () => {
  const script = fileURLToPath(new URL('../scripts/size.mjs', import.meta.url));
  const { stdout, status } = spawnSync(process.execPath, [script], { encoding: 'utf8' });
  expect(status).toBe(0);
  const recorded = JSON.parse(
    readFileSync(new URL('../scripts/size.json', import.meta.url), 'utf8'),
  ) as Record<string, number>;
  const rows = [...stdout.matchAll(/^(\S+) +\d+ +(\d+) +(\d+|-)$/gm)];
  expect(rows.length).toBeGreaterThan(15);
  const grown = rows.filter(
    ([, room, lines]) =>
      Number(lines) > Math.max((recorded[room] ?? 0) * (1 + SHARE), (recorded[room] ?? 0) + LINES),
  );
  expect(grown.map(([row]) => row)).toEqual([]);
});
