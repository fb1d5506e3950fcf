import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import {
  parseCollectiveTable,
  tabledClusterText,
} from '../../../src/cost/hardware/collective-table.ts';
import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import { collectiveModel } from '../../../src/cost/presets/presets.ts';
import { ShardwrightError } from '../../../src/errors.ts';
import { COLLECTIVE_KINDS } from '../../../src/mesh/collective-kinds.ts';
import { parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { cli, fixture } from '../../cli/support.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const SIZES = Array.from({ length: 12 }, (_, i) => 2 ** i);
/** A row whose time is `start` ms and `perMB` ms for each MB. */
const row = (group: string, size: number, name: string, start: number, perMB: number): string =>
  [group, size, name, ...SIZES.map((mb) => (start + perMB * mb).toFixed(4))].join('  ');
const TABLE = [
  `Group  Size  Collective  ${SIZES.map((mb) => `${mb}MB`).join('  ')}`,
  `-----  ----  ----------  ${SIZES.map(() => '-----').join('  ')}`,
  row('intra', 8, 'all_gather', 0.02, 0.01),
  row('intra', 8, 'AllReduce', 0.03, 0.005),
  row('inter', 2, 'reduce-scatter', 0.1, 0.04),
  row('dp', 2, 'all_reduce', 1, 1),
  row('tp', 4, 'all_to_all', 1, 1),
].join('\n');
const MB = 1e6;

const tabled = (mesh: string, table = TABLE, preset = 'nccl', cluster = 'dgx-h100') =>
  collectiveModel(
    preset,
    loadCluster(tabledClusterText(cluster, parseCollectiveTable(table), 'mine.txt')),
    parseMesh(mesh),
  );

describe('cost-memory 6: tables of collectives are importable', () => {
  test('twelve doubling sizes, a line of dashes, times in milliseconds; keyed by group, size and collective', () => {
    const rows = parseCollectiveTable(TABLE);
    expect(rows.map((r) => [r.group, r.devices, r.collective])).toEqual([
      ['intra', 8, 'all_gather'],
      ['intra', 8, 'all_reduce'],
      ['inter', 2, 'reduce_scatter'],
      ['dp', 2, 'all_reduce'],
      ['tp', 4, 'all_to_all'],
    ]);
    expect(rows[0].bytes).toEqual(SIZES.map((mb) => mb * MB));
    // Milliseconds, not microseconds: 0.03 ms for 1 MB.
    expect(rows[0].seconds[0]).toBeCloseTo(0.03e-3, 12);
    expect(rows[0].seconds[11]).toBeCloseTo(20.5e-3, 12);
    // The same with Windows line ends, blank lines, a mark at the start.
    expect(parseCollectiveTable(`\uFEFF\r\n${TABLE.replaceAll('\n', '\r\n\r\n')}\r\n`)).toEqual(
      rows,
    );
    expect(
      parseCollectiveTable(
        TABLE.replace('  1MB', '  1MiB').replace('  2MB', ' 2MiB'),
      )[0].bytes.slice(0, 2),
    ).toEqual([2 ** 20, 2 ** 21]);
  });

  test('below 1 MB the time of 1 MB, linear in between, at the last rate above', () => {
    const model = tabled('dp=2,tp=8');
    const at = (mb: number): number => model.seconds('all_reduce', mb * MB, [1]) * 1e3;
    expect(at(0.001)).toBeCloseTo(0.035, 9);
    expect(at(1)).toBeCloseTo(0.035, 9);
    expect(at(3)).toBeCloseTo(0.03 + 0.005 * 3, 9);
    expect(at(1000)).toBeCloseTo(0.03 + 0.005 * 1000, 9);
    expect(at(4096)).toBeCloseTo(2 * (0.03 + 0.005 * 2048), 9);
  });

  test('sizes are the input of a rank: an all_gather of 80 MB over 8 is the row at 10 MB', () => {
    const model = tabled('dp=2,tp=8');
    expect(model.seconds('all_gather', 80 * MB, [1]) * 1e3).toBeCloseTo(0.02 + 0.01 * 10, 9);
    // What comes out of a reduce_scatter is a piece; what goes in is the row's size.
    expect(model.seconds('reduce_scatter', 10 * MB, [0]) * 1e3).toBeCloseTo(0.1 + 0.04 * 10, 9);
    expect(model.record('all_gather', 80 * MB, [1])).toMatchObject({
      source: 'table of collectives mine.txt',
    });
  });

  test('a row by the name of a mesh dim counts before intra and inter; what no row has is the preset', () => {
    for (const preset of ['nccl', 'alpha-beta']) {
      const model = tabled('dp=2,tp=8', TABLE, preset);
      const own = collectiveModel(preset, loadCluster('dgx-h100'), parseMesh('dp=2,tp=8'));
      expect(model.seconds('all_reduce', 2 * MB, [0]) * 1e3).toBeCloseTo(3, 9);
      expect(model.seconds('all_to_all', 2 * MB, [1])).toBe(own.seconds('all_to_all', 2 * MB, [1]));
      expect(model.seconds('all_gather', 2 * MB, [0, 1])).toBe(
        own.seconds('all_gather', 2 * MB, [0, 1]),
      );
      expect(model.note).toBe(
        "Collectives of the mesh that the table has take its times: 4 of its 5 rows; all others are the preset's. No group of the mesh has the rows tp 4 all_to_all.",
      );
    }
    const merged = tabled('dp=2,tp=8', TABLE.replace('dp  2  all_reduce', 'dp,tp  16  all_reduce'));
    expect(merged.seconds('all_reduce', 2 * MB, [0, 1]) * 1e3).toBeCloseTo(3, 9);
  });

  test('prices rise with bytes where a table falls, and the note says so', () => {
    const noisy = [
      'Group Size Collective 1MB 2MB 4MB',
      '- - - - - -',
      'intra 8 all_reduce 0.05 0.04 0.09',
    ].join('\n');
    const model = tabled('tp=8', noisy);
    expect(model.seconds('all_reduce', 2 * MB, [0])).toBeCloseTo(0.05e-3, 12);
    expect(model.note).toContain('1 time below one of fewer bytes was raised to it.');
    for (const kind of COLLECTIVE_KINDS) {
      let before = 0;
      for (let k = 9; k <= 32; k++)
        for (const bytes of [2 ** k - 1, 2 ** k, 2 ** k + 1]) {
          const seconds = tabled('dp=2,tp=8').seconds(kind, bytes, [1]);
          expect(seconds).toBeGreaterThanOrEqual(before);
          before = seconds;
        }
    }
  });

  test('groups of one device are free, and literal presets do not look at the table', () => {
    expect(tabled('dp=1,tp=8').seconds('all_reduce', MB, [0])).toBe(0);
    for (const preset of ['dtensor', 'autoparallel']) {
      const own = collectiveModel(preset, loadCluster('dgx-h100'), parseMesh('dp=2,tp=8'));
      const model = tabled('dp=2,tp=8', TABLE, preset);
      expect(model.seconds('all_reduce', MB, [1])).toBe(own.seconds('all_reduce', MB, [1]));
      expect(model.note).toBe(`${own.note ?? ''} The table of collectives is not looked at.`);
    }
  });

  const HEAD = 'Group Size Collective 1MB 2MB\n----- ---- ---------- --- ---\n';
  test.each([
    ['', 1, 1, /empty/],
    ['Group Devices Collective 1MB', 1, 7, /column 2 is not size/],
    ['Group Size Collective', 1, 12, /no sizes/],
    ['Group Size Collective 1MB 1MB', 1, 27, /not above/],
    ['Group Size Collective 1MB 2Mb', 1, 27, /'2Mb' is not a size/],
    ['Group Size Collective 1MB\nintra 8 all_gather 1', 2, 1, /no line of dashes/],
    [HEAD, 2, 1, /no rows/],
    [`${HEAD}intra 8 all_gather 1`, 3, 21, /4 cells; the header has 5/],
    [`${HEAD}intra 8 all_gather 1 2 3`, 3, 24, /6 cells; the header has 5/],
    [`${HEAD}intra 1 all_gather 1 2`, 3, 7, /number of devices/],
    [`${HEAD}intra x all_gather 1 2`, 3, 7, /number of devices/],
    [`${HEAD}intra 8 gather 1 2`, 3, 9, /no collective 'gather'/],
    [`${HEAD}intra 8 all_gather 1 -2`, 3, 22, /'-2' is not a time/],
    [`${HEAD}intra 8 all_gather 1 NaN`, 3, 22, /'NaN' is not a time/],
    [`${HEAD}intra 8 all_gather 0 2`, 3, 20, /'0' is not a time/],
    [`${HEAD}intra 8 all_gather 1 1e999`, 3, 22, /'1e999' is not a time/],
    [`${HEAD}intra 8 all_gather 1 2\n\nintra 8 allgather 1 2`, 5, 1, /is on line 3 too/],
  ])('%j is refused with its place', (text, line, column, message) => {
    let thrown: unknown;
    try {
      parseCollectiveTable(text);
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(ShardwrightError);
    const error = thrown as ShardwrightError;
    expect([error.code, error.details.position]).toEqual(['E_COLLECTIVES', { line, column }]);
    expect(error.message).toMatch(message);
  });

  test('a cluster file holds a table of its own; one that does not fit is refused', () => {
    const own = {
      group: 'intra',
      devices: 8,
      collective: 'all_reduce',
      bytes: [1e6, 2e6],
      seconds: [1e-4, 2e-4],
    };
    const file = (rows: object[]): string =>
      JSON.stringify({ base: 'dgx-h100', collectiveTable: rows });
    expect(loadCluster(file([own])).collectiveTable).toHaveLength(1);
    expect(() => loadCluster(file([own, own]))).toThrow(/collective twice/);
    expect(() => loadCluster(file([{ ...own, seconds: [1e-4] }]))).toThrow(
      /as many seconds as bytes/,
    );
    expect(() => loadCluster(file([{ ...own, bytes: [2e6, 1e6] }]))).toThrow(/bytes rise/);
  });

  test('plan, compare and redistribute --collectives price with it; the plan says so; errors name file and place', async () => {
    const path = join(temporaryFolder(), 'table.txt');
    writeFileSync(path, TABLE);
    const plan = (...more: string[]) =>
      cli(
        'plan',
        '-v',
        fixture('mlp'),
        '--mesh',
        'dp=2,tp=8',
        '--cluster',
        'dgx-h100',
        '--quiet',
        '--no-recipes',
        ...more,
      );
    const { code, out } = await plan('--collectives', path);
    expect(code).toBe(0);
    expect(out).toContain(
      'note  Collectives of the mesh that the table has take its times: 4 of its 5 rows',
    );
    const moved = await cli(
      'redistribute',
      'S(0)',
      'R',
      '--mesh',
      'tp=8',
      '--shape',
      '4000,5000',
      '--dtype',
      'f32',
      '--collectives',
      path,
      '--json',
    );
    expect((JSON.parse(moved.out) as { seconds: number }).seconds * 1e3).toBeCloseTo(
      0.02 + 0.01 * 10,
      9,
    );
    const compare = async (...more: string[]) => {
      const { out: text } = await cli(
        'compare',
        fixture('mlp'),
        '--devices',
        '8',
        '--cluster',
        'dgx-h100',
        '--max-dims',
        '1',
        '--plans',
        'dp',
        '--json',
        '--quiet',
        ...more,
      );
      return (JSON.parse(text) as { plans: { communicationSeconds: number }[] }).plans[0]
        .communicationSeconds;
    };
    // Data parallel sums gradients only: the row of small sums has 35 us each, the links a multiple
    // of it less.
    expect(await compare('--collectives', path)).toBeGreaterThan(1.5 * (await compare()));
    writeFileSync(path, TABLE.replace('0.0300', 'fast'));
    const bad = await plan('--collectives', path);
    expect(bad.code).toBe(2);
    expect(bad.err).toContain(
      `${path}:3:23: E_COLLECTIVES 'fast' is not a time in milliseconds above 0`,
    );
    expect((await plan('--collectives', `${path}.none`)).err).toContain(
      'cannot read the table of collectives',
    );
  });
});
