import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { expect, test } from 'vitest';

import { EXPORT_TARGETS } from '../../src/export/targets.ts';
import { SHARDY_RECORD, type ShardyAnswer } from '../export/shardy-record.ts';

const page = readFileSync(
  fileURLToPath(new URL('../../docs/export-targets.md', import.meta.url)),
  'utf8',
);

test('the page names every target', () => {
  for (const { name } of EXPORT_TARGETS) expect(page).toContain(`\`${name}\``);
});

test('the table of collectives is what XLA compiled', () => {
  const { cases } = JSON.parse(readFileSync(SHARDY_RECORD, 'utf8')) as {
    cases: Record<string, ShardyAnswer>;
  };
  const counts = (of: Readonly<Record<string, number>>): string =>
    Object.entries(of)
      .sort()
      .map(([kind, n]) => `${n} ${kind}`)
      .join(', ') || 'none';
  // Columns are padded by the formatter.
  const cells = (line: string): string =>
    line
      .split('|')
      .map((cell) => cell.trim())
      .join('|');
  const lines = page.split('\n').map(cells);
  for (const [name, { planned, compiled }] of Object.entries(cases)) {
    if (!name.startsWith('shardy: ')) continue;
    const own = name.slice('shardy: '.length);
    const row = [
      own.replace(', the optimum', ''),
      counts(planned),
      counts(compiled),
      counts(cases[`gspmd: ${own}`].compiled),
    ];
    expect(lines).toContain(`|${row.join('|')}|`);
  }
});
