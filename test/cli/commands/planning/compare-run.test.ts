import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { describe, expect, it } from 'vitest';

import type { Comparison } from '../../../../src/recipes/compare/comparison.ts';
import { comparisonText } from '../../../../src/report/text/comparison.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';
import { cli } from '../../support.ts';

const ASKED = [
  'compare',
  'gpt2',
  '--devices',
  '8',
  '--cluster',
  'dgx-h100',
  '--seq',
  '512',
  '--global-batch',
  '16',
  '--plans',
  'fsdp',
  '--quiet',
  '--threads',
  '1',
] as const;

interface Answer {
  readonly best: string;
  readonly plans: readonly {
    readonly name: string;
    readonly seconds: number;
    readonly stepBand: readonly [number, number];
  }[];
  readonly run: {
    readonly wallSeconds: number;
    readonly wallSecondsBand: readonly [number, number];
    readonly priceBand: readonly [number, number];
    readonly goodput: number;
    readonly steps: number;
    readonly deviceHours: number;
    readonly price: { readonly amount: number };
    readonly energyMegawattHours: number;
    readonly kilowatts: number;
  };
  readonly layout: { readonly run: { readonly wallSeconds: number }; readonly seconds: number };
}

describe('compare --tokens', () => {
  it('time, device-hours, money and energy of the best plan and of the stated layout; in the text and the JSON', async () => {
    const more = ['--tokens', '1T', '--price', '2.5USD', '--layout', 'dp=8,zero=3,recompute=full'];
    const { out, code, err } = await cli(...ASKED, ...more, '--json');
    expect(code, err).toBe(0);
    const { run, plans, best, layout } = JSON.parse(out) as Answer;
    const first = plans.find((p) => p.name === best);
    const { seconds: step, stepBand } = first ?? { seconds: NaN, stepBand: [NaN, NaN] };
    expect(run.steps).toBe(Math.ceil(1e12 / (16 * 512)));
    expect(run.wallSeconds * run.goodput).toBeCloseTo(run.steps * step, 3);
    expect(run.deviceHours).toBeCloseTo((8 * run.wallSeconds) / 3600, 6);
    expect(run.price.amount).toBeCloseTo(2.5 * run.deviceHours, 6);
    // Days and money have the range of the step.
    const [low, high] = stepBand;
    // Nobody named a trainer: the range is that of runs by any, which may all be slower.
    expect(low).toBeLessThan(high);
    expect(step).toBeLessThan(high);
    expect(run.wallSecondsBand).toEqual([
      expect.closeTo((run.wallSeconds * low) / step, 3),
      expect.closeTo((run.wallSeconds * high) / step, 3),
    ]);
    expect(run.priceBand).toEqual([
      expect.closeTo((run.price.amount * low) / step, 3),
      expect.closeTo((run.price.amount * high) / step, 3),
    ]);
    // One host of 10.2 kW.
    expect(run.energyMegawattHours).toBeCloseTo((10.2e-3 * run.wallSeconds) / 3600, 6);
    expect(run.kilowatts).toBeCloseTo(10.2, 6);
    expect(layout.run.wallSeconds / run.wallSeconds).toBeCloseTo(layout.seconds / step, 9);
    // The text of -v.
    const text = comparisonText(JSON.parse(out) as Comparison);
    expect(text).toMatch(
      /\nrun {7}1T tokens in 122,070,313 steps: .* days \(.* days to .* days\), .* device-hours, .* USD \(.* to .*\), .* MWh \([\d.]+ kW\)\n/,
    );
    expect(text).toMatch(
      /\n {10}goodput \d.*: a failure every .*, a checkpoint of 60.0 s every .*, 10.0 min to restart\n/,
    );
    expect(text).toContain('assumed: a device fails every 50677 hours');
  }, 60_000);

  it('takes what the cluster file states', async () => {
    const file = join(temporaryFolder(), 'own.json');
    const operation = {
      pricePerDeviceHour: '3EUR',
      pue: 1.5,
      deviceHoursBetweenFailures: 1000,
      checkpointWriteSeconds: 30,
      restartSeconds: 0,
    };
    writeFileSync(file, JSON.stringify({ base: 'dgx-h100', operation }));
    const asked = ASKED.map((word) => (word === 'dgx-h100' ? file : word));
    const { out } = await cli(...asked, '--tokens', '300B', '-v');
    expect(out).toMatch(/ EUR \(.* to .*\), .* MWh \([\d.]+ kW\)\n/);
    expect(out).toContain('a failure every 5.21 days, a checkpoint of 30.0 s');
    expect(out).not.toContain('assumed: a device fails');
  });

  it.each([
    [
      ['--tokens', '1T', '--price', 'cheap'],
      "--price 'cheap' is not an amount with its currency",
      '--price 2.5USD',
    ],
    [['--price', '2.5USD'], '--price needs --tokens', '--tokens 15T'],
    [['--tokens', 'many'], "--tokens 'many' is not a number of tokens", '15T'],
  ])('%s is refused', async (more, found, fix) => {
    const { code, err } = await cli(...ASKED, ...more);
    expect(code).toBe(2);
    expect(err).toContain(found);
    expect(err).toContain(fix);
  });
});
