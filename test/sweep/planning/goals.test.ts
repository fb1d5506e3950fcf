import { describe, expect, it } from 'vitest';

import type { Price } from '../../../src/cost/hardware/operation.ts';
import { goalTexts } from '../../../src/report/text/goals.ts';
import { goalsOf } from '../../../src/sweep/planning/goals.ts';
import type { PlanningPoint } from '../../../src/sweep/planning/planning.ts';

const DAY = 86_400;

/** A point whose run of 1T tokens takes so many days, for so much. */
function point(devices: number, days: number, price?: Price, last = 1.5 * days): PlanningPoint {
  return {
    model: 'm',
    cluster: 'c',
    devices,
    sequence: 4096,
    globalBatch: devices,
    budgetBytes: 1e9,
    best: {
      plan: 'fsdp',
      mesh: `dp=${devices}`,
      seconds: 1,
      peakBytes: 1e8,
      tokensPerSecond: 1,
      tokensPerSecondPerDevice: 1,
      mfu: 0.4,
      microbatch: 1,
      microbatches: 1,
      checkpoint: 'none',
    },
    run: {
      tokens: 1e12,
      steps: 1,
      stepsSeconds: days * DAY,
      wallSeconds: days * DAY,
      wallSecondsBand: [0.9 * days * DAY, last * DAY],
      goodput: 1,
      deviceHours: 24 * days * devices,
      ...(price === undefined ? {} : { price }),
      tokensPerSecond: 1e12 / (days * DAY),
      betweenFailuresSeconds: Infinity,
      checkpointEverySeconds: 1,
      checkpointWriteSeconds: 1,
      restartSeconds: 1,
      assumptions: [],
    },
  };
}
const usd = (amount: number): Price => ({ amount, currency: 'USD' });
const POINTS = [point(64, 40, usd(150)), point(128, 22, usd(165)), point(256, 12, usd(180))];

describe('a run that is to end in time', () => {
  it('takes the cheapest of the points that do, and of those whose whole range does', () => {
    const { within } = goalsOf(POINTS, { withinSeconds: 30 * DAY }) ?? {};
    // 22 and 12 days are in time; the ranges end at 33 and 18.
    expect(within).toEqual({ withinSeconds: 30 * DAY, at: 1, surely: 2 });
    expect(goalTexts(POINTS, { within: within! })).toEqual([
      'in 30.0 days: 128 devices of c, 22.0 days (19.8 days to 33.0 days); the whole range is ' +
        'in time on 256 devices of c',
    ]);
  });

  it('takes the fewest devices where prices are unknown or of several currencies', () => {
    const euros = { amount: 1, currency: 'EUR' };
    const mixed = [point(64, 10, usd(9)), point(128, 5, euros)];
    expect(goalsOf(mixed, { withinSeconds: 20 * DAY })?.within?.at).toBe(0);
    const unpriced = [point(128, 5), point(64, 10)];
    expect(goalsOf(unpriced, { withinSeconds: 20 * DAY })?.within?.at).toBe(1);
  });

  it('speaks of no range where no runs of the kind were measured', () => {
    const points = POINTS.map(({ run, ...p }) => ({
      ...p,
      run: { ...run!, wallSecondsBand: null },
    }));
    const { within } = goalsOf(points, { withinSeconds: 30 * DAY }) ?? {};
    expect(within?.surely).toBeNull();
    expect(goalTexts(points, { within: within! })).toEqual([
      'in 30.0 days: 128 devices of c, 22.0 days',
    ]);
  });

  it('says how many devices would be enough where none is in time', () => {
    const { within } = goalsOf(POINTS, { withinSeconds: 6 * DAY }) ?? {};
    // 256 devices take 12 days: twice as many.
    expect(within).toMatchObject({ at: null, surely: null, wouldTake: { devices: 512 } });
    expect(goalTexts(POINTS, { within: within! })[0]).toContain('about 512 devices of c');
    const none = goalsOf([{ ...point(8, 1), best: null }], { withinSeconds: DAY })?.within;
    expect(none).toEqual({ withinSeconds: DAY, at: null, surely: null });
  });
});

describe('a sum that is to be spent', () => {
  it('trains most tokens where a token is cheapest, and in time where a time is asked', () => {
    const free = goalsOf(POINTS, { spend: usd(75) })?.spend;
    expect(free).toMatchObject({ at: 0, tokens: 5e11, seconds: 20 * DAY });
    // In ten days: 64 devices reach 1/4 of the tokens, 128 their 75/165, 256 their 75/180.
    const quick = goalsOf(POINTS, { spend: usd(75), withinSeconds: 10 * DAY })?.spend;
    expect(quick?.at).toBe(1);
    expect(quick?.tokens).toBeCloseTo((1e12 * 75) / 165, -3);
    expect(quick?.seconds).toBeCloseTo((22 * DAY * 75) / 165, 6);
  });

  it('is spent on no point without a price of its currency', () => {
    const spend = { amount: 5, currency: 'EUR' };
    expect(goalsOf(POINTS, { spend })?.spend).toEqual({ spend, at: null, tokens: 0, seconds: 0 });
    expect(goalsOf(POINTS, {})).toBeUndefined();
  });
});
