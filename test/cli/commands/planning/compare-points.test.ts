import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { describe, expect, it } from 'vitest';

import { planningScreenText } from '../../../../src/report/text/planning-screen.ts';
import type { Planning } from '../../../../src/sweep/planning/planning.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';
import { cli } from '../../support.ts';

const ASKED = [
  'compare',
  'gpt2',
  '--seq',
  '512',
  '--plans',
  'fsdp',
  '--quiet',
  '--threads',
  '1',
] as const;
const JSON_OF = async (...more: string[]): Promise<Planning> =>
  JSON.parse((await cli(...ASKED, ...more, '--json')).out) as Planning;

describe('compare with lists', () => {
  it('each point is what compare says of it alone; report draws them', async () => {
    const planning = await JSON_OF(
      '--cluster',
      'dgx-h100',
      '--devices',
      '8,16',
      '--global-batch',
      '32',
    );
    expect(planning.points.map((p) => [p.devices, p.globalBatch])).toEqual([
      [8, 32],
      [16, 32],
    ]);
    const alone = await cli(
      ...ASKED,
      '--cluster',
      'dgx-h100',
      '--devices',
      '16',
      '--global-batch',
      '32',
      '--json',
    );
    const { plans, best } = JSON.parse(alone.out) as {
      plans: { name: string; seconds: number }[];
      best: string;
    };
    expect(planning.points[1].best?.seconds).toBe(plans.find((p) => p.name === best)?.seconds);
    expect(planning.curves[0]).toMatchObject({ scaling: 'strong', points: [0, 1] });
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'points.json'), JSON.stringify(planning));
    for (const format of ['html', 'md', 'txt', 'csv', 'json']) {
      const { code, err } = await cli(
        'report',
        join(folder, 'points.json'),
        '-o',
        join(folder, `report.${format}`),
      );
      expect(code, err).toBe(0);
    }
    const html = readFileSync(join(folder, 'report.html'), 'utf8');
    expect(html).toContain('Tokens a second over devices');
    expect(html).not.toMatch(/https?:\/\/(?!www\.w3\.org)/);
  }, 60_000);

  it('a time and a sum are answered on the first screen, in JSON and in the report', async () => {
    const run = [
      '--cluster',
      'dgx-h100',
      '--devices',
      '8,16',
      '--tokens',
      '100B',
      '--price',
      '$2.5',
    ];
    const asked = [...run, '--within', '30d', '--spend', '$1k', '--carbon', '350'];
    const planning = await JSON_OF(...asked);
    const { within, spend } = planning.goals ?? {};
    const at = within?.at ?? -1;
    expect(planning.points[at].run?.wallSeconds).toBeLessThan(30 * 86_400);
    const tokens = planning.points.map(({ run: r }) => (1e11 * 1000) / (r?.price?.amount ?? 0));
    expect(spend?.tokens).toBeLessThanOrEqual(Math.max(...tokens) * (1 + 1e-9));
    for (const { run: r } of planning.points)
      expect(r?.carbonTonnes).toBeCloseTo((r?.energyMegawattHours ?? 0) * 0.35, 9);
    // What is printed without --json; first-screens.test.ts runs it.
    const out = planningScreenText(planning);
    expect(out).toMatch(/MWh \([\d.]+\s+kW\), [\d.]+\s+t of\s+CO2/);
    expect(out).toMatch(/answer +in 30\.0 days: \d+ devices of dgx-h100/);
    expect(out).toMatch(/for 1,000 USD: [\d.]+B tokens on \d+ devices of dgx-h100/);
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'points.json'), JSON.stringify(planning));
    const report = await cli('report', join(folder, 'points.json'), '-o', join(folder, 'r.txt'));
    expect(report.code, report.err).toBe(0);
    const text = readFileSync(join(folder, 'r.txt'), 'utf8');
    expect(text).toContain('for 1,000 USD');
    expect(text).toMatch(
      /Take \d+ devices of dgx-h100: the cheapest run of those that end in time/,
    );
  }, 60_000);

  it.each([
    [['--within', '30d'], '--within needs --tokens'],
    [['--carbon', '350'], '--carbon needs --tokens'],
    [['--tokens', '1B', '--spend', '0USD'], 'wanted a sum of money'],
    [
      ['--tokens', '1B', '--within', '1h', '--layout', 'dp=8'],
      '--layout is for one comparison, and --within asks about points side by side',
    ],
    [['--tokens', '1B', '--spend', '3EUR'], '--spend needs the price of a device-hour'],
    [
      ['--tokens', '1B', '--spend', '3EUR', '--price', '1USD'],
      '--spend is in EUR, and devices are paid in USD',
    ],
    [['--tokens', '1B', '--within', '3 weeks'], "--within '3 weeks' is not a time above zero"],
  ])('%j is refused before anything is priced', async (flags, says) => {
    const asked = ['--cluster', 'dgx-h100', '--devices', '8', ...flags];
    const { code, err } = await cli(...ASKED, ...asked);
    expect(code).toBe(2);
    expect(err).toContain(says);
  });

  it('a file of questions refuses a time or a sum, which are of one model', async () => {
    const { code, err } = await cli('compare', '--sweep', 'q.yaml', '-o', 'a', '--within', '3d');
    expect(code).toBe(2);
    expect(err).toContain(
      '--within is for questions about one model, and --sweep asks about several',
    );
  });

  it('clusters side by side: their own devices, prices in their order, equal cost', async () => {
    const two = [
      '--cluster',
      'dgx-h100:16',
      '--cluster',
      'dgx-b200:8',
      '--global-batch',
      '32',
      '--tokens',
      '1T',
      '--price',
      '2USD',
      '--price',
      '4USD',
    ];
    const planning = await JSON_OF(...two);
    const { points } = planning;
    expect(points.map((p) => [p.cluster, p.devices])).toEqual([
      ['dgx-h100', 16],
      ['dgx-b200', 8],
    ]);
    for (const { run, devices } of points)
      expect((run?.deviceHours ?? 0) * 3600).toBeCloseTo(devices * (run?.wallSeconds ?? 0), 3);
    expect((points[1].run?.price?.amount ?? 0) / (points[1].run?.deviceHours ?? 1)).toBeCloseTo(
      4,
      9,
    );
    expect(planningScreenText(planning)).toMatch(/cheapest: 8 devices of dgx-b200, [\d,]+ USD/);
    const equal = await JSON_OF(
      '--cluster',
      'dgx-h100',
      '--cluster',
      'dgx-b200',
      '--devices',
      '40',
      '--global-batch',
      '80',
      '--equal',
      'cost',
      '--price',
      '2USD',
      '--price',
      '4USD',
      '--tokens',
      '1T',
    );
    // 20 devices would cost the same: two hosts of 8.
    expect(equal.points.map((p) => p.devices)).toEqual([40, 16]);
  }, 60_000);

  it.each([
    [
      ['--cluster', 'dgx-h100', '--cluster', 'dgx-b200'],
      'no number of devices for dgx-h100',
      '--cluster dgx-h100:64',
    ],
    [
      ['--cluster', 'dgx-h100', '--devices', '8,8'],
      "--devices '8,8' is not a list of different numbers",
      '64,128,256',
    ],
    [
      ['--cluster', 'dgx-h100', '--devices', '8,16', '--layout', 'dp=8'],
      '--layout is for one comparison',
      'name one cluster',
    ],
    [
      ['--cluster', 'dgx-h100:8', '--cluster', 'dgx-b200:8', '--equal', 'cost'],
      '--equal cost needs the price of a device-hour of dgx-b200',
      'operation.pricePerDeviceHour',
    ],
    [
      ['--cluster', 'dgx-h100:8', '--equal', 'cost'],
      '--equal cost needs several clusters',
      '--cluster dgx-h100 --cluster dgx-b200',
    ],
    [['--cluster', 'dgx-h100:8', '--cluster', 'dgx-b201:8'], 'dgx-b201', 'did you mean'],
    [
      ['--cluster', 'dgx-h100', '--devices', '8,x'],
      "--devices '8,x' is not a list of different numbers of 1 or more",
      '64,128,256',
    ],
    [
      ['--cluster', 'dgx-h100:8', '--price', '1USD', '--price', '2USD', '--tokens', '1T'],
      '--price is given 2 times, and --cluster 1 times',
      'one price for all',
    ],
  ])('%s is refused', async (more, found, fix) => {
    const { code, err } = await cli(...ASKED, ...more);
    expect(code).toBe(2);
    expect(err).toContain(found);
    expect(err).toContain(fix);
  });
});
