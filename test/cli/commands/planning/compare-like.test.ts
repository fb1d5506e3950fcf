import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import { afterAll, describe, expect, it } from 'vitest';

import type { Comparison } from '../../../../src/recipes/compare/comparison.ts';
import { comparisonText } from '../../../../src/report/text/comparison.ts';
import { cli } from '../../support.ts';

const folder = mkdtempSync(join(tmpdir(), 'like-'));
afterAll(() => rmSync(folder, { recursive: true }));

const [header, ...rows] = gunzipSync(
  readFileSync(new URL('../../../fixtures/runs/measured.csv.gz', import.meta.url)),
)
  .toString('utf8')
  .split('\n');
const at = header.split(',').indexOf('step_time_s');
/** Measured runs of one small model, each so many times as long. */
const table = (times: number): string => {
  const own = rows.filter((row) => /,GPT-16L-1024h,.*A100/.test(row)).map((row) => row.split(','));
  const taken = own
    .filter((cells) => /^(1|2)$/.test(cells[header.split(',').indexOf('pp')]))
    .slice(0, 4);
  const file = join(folder, `runs-${times}.csv`);
  writeFileSync(
    file,
    [
      header,
      ...taken.map((cells) =>
        cells.map((c, i) => (i === at ? String(Number(c) * times) : c)).join(','),
      ),
    ].join('\n'),
  );
  return file;
};
const ASKED = [
  'compare',
  'gpt2',
  '--devices',
  '2',
  '--cluster',
  'dgx-a100-80gb',
  '--seq',
  '512',
  '--plans',
  'dp',
  '--quiet',
  '--threads',
  '1',
] as const;

describe('compare --like', () => {
  it(
    'prices by constants that are fitted on the runs, and says what changed',
    { timeout: 60_000 },
    async () => {
      const plain = await cli(...ASKED, '--json');
      const slow = await cli(...ASKED, '--like', table(3), '--json');
      expect(slow.code, slow.err).toBe(0);
      const [before, after] = [plain, slow].map((run) => JSON.parse(run.out) as Comparison);
      const { refit } = after;
      expect(refit).toMatchObject({
        runs: 4,
        taken: true,
        elsewhere: 0,
        notPriced: [],
        leftOut: { by: 'group' },
      });
      expect(refit?.after.mape).toBeLessThan((refit?.before.mape ?? 0) / 2);
      expect(after.plans[0].seconds).toBeGreaterThan(1.3 * before.plans[0].seconds);
      // The text of -v.
      const text = comparisonText(after);
      expect(text).toMatch(
        /^refit {5}All figures use constants fitted on 4 runs of your own:\n {10}\S.*: \S+.* -> \S/m,
      );
      expect(text).toMatch(
        /^ {10}Mean error on these runs: .* before, .* after; .* left out of the fit, one group at a time\.$/m,
      );
    },
  );

  it.each([
    [['--cost', 'alpha-beta'], 'E_USAGE', /--like goes with --cost nccl/],
    [['--devices', '2,4'], 'E_USAGE', /--like is for one comparison/],
  ])('is refused with %j', async (more, code, message) => {
    const run = await cli(...ASKED, ...more, '--like', table(1));
    expect(run.code).toBe(2);
    expect(run.err).toContain(code);
    expect(run.err).toMatch(message);
  });

  it('a bad table is refused with its file and line', async () => {
    const file = join(folder, 'bad.csv');
    writeFileSync(file, readFileSync(table(1), 'utf8').replace(/\n([^\n]*?),1024,/, '\n$1,wide,'));
    const run = await cli(...ASKED, '--like', file);
    expect(run.code).toBe(2);
    expect(run.err).toMatch(/bad\.csv:2:1: E_CSV column '\w+' holds 'wide'/);
  });
});
