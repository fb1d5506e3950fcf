import { describe, expect, it } from 'vitest';

import { allocationOf } from '../../src/cost/hardware/topology.ts';
import { checkpointIntervalSeconds, goodput, runCost } from '../../src/cost/training/run-cost.ts';

/** Plays a job with failures at random: seconds until `work` seconds of it have lasted. */
function play(
  work: number,
  every: number,
  between: number,
  write: number,
  restart: number,
  seed: number,
): number {
  let state = seed;
  const random = (): number =>
    ((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) + 1) / 2 ** 32;
  const life = (): number => -between * Math.log(random());
  let [now, done] = [0, 0];
  let fails = life();
  while (done < work) {
    const need = Math.min(every, work - done) + write;
    if (fails >= need) {
      [now, done, fails] = [now + need, done + need - write, fails - need];
      continue;
    }
    now += fails;
    fails = life();
    // A restart fails like anything else.
    while (fails < restart) {
      now += fails;
      fails = life();
    }
    [now, fails] = [now + restart, fails - restart];
  }
  return now;
}

describe('what a run takes', () => {
  it('the share of work that lasts is that of a job that is played with failures', () => {
    for (const [between, write, restart] of [
      [10_000, 60, 600],
      [3000, 120, 300],
      [1500, 20, 900],
      [50_000, 300, 1200],
    ]) {
      const every = checkpointIntervalSeconds(between, write);
      const work = 2000 * between;
      const share = work / play(work, every, between, write, restart, 12345);
      expect(Math.abs(share / goodput(every, between, write, restart) - 1)).toBeLessThan(0.01);
    }
  });

  it('no other interval wastes a thousandth less', () => {
    for (const [between, write] of [
      [10_000, 60],
      [3000, 120],
      [900, 100],
      [200_000, 30],
    ] as const) {
      const own = goodput(checkpointIntervalSeconds(between, write), between, write, 300);
      const best = Math.max(
        ...Array.from({ length: 4000 }, (_, i) =>
          goodput(((i + 1) * between) / 1000, between, write, 300),
        ),
      );
      expect(own).toBeGreaterThan(0.999 * best);
    }
    // Young's rule, where failures are rare.
    expect(checkpointIntervalSeconds(1e9, 10) / Math.sqrt(2 * 10 * 1e9)).toBeCloseTo(1, 3);
  });

  const operation = {
    pricePerDeviceHour: { amount: 2.5, currency: 'USD' },
    deviceWatts: 700,
    hostWatts: 4600,
    pue: 1.25,
    deviceHoursBetweenFailures: 1e12,
    checkpointWriteSeconds: 1e-6,
    restartSeconds: 0,
  };
  const asked = {
    devices: 256,
    stepSeconds: 2,
    tokensPerStep: 1_048_576,
    tokens: 1e12,
    allocation: allocationOf({ devicesPerHost: 8 }, 256),
    operation,
  };

  it('hours, money and energy of a run without failures, by hand', () => {
    const cost = runCost(asked);
    expect(cost.steps).toBe(Math.ceil(1e12 / 1_048_576));
    const hours = (cost.steps * 2) / 3600;
    expect(cost.goodput).toBeCloseTo(1, 6);
    expect(cost.deviceHours / (256 * hours)).toBeCloseTo(1, 6);
    expect((cost.price?.amount ?? 0) / (2.5 * 256 * hours)).toBeCloseTo(1, 6);
    expect((cost.energyMegawattHours ?? 0) / (32 * 10.2e3 * 1.25 * hours * 1e-6)).toBeCloseTo(1, 6);
    expect(cost.kilowatts).toBeCloseTo(32 * 10.2 * 1.25, 9);
    expect(cost.carbonTonnes).toBeUndefined();
    const supplied = { ...operation, gramsCarbonPerKilowattHour: 350 };
    const { carbonTonnes = 0 } = runCost({ ...asked, operation: supplied });
    // 350 g for a kWh are .35 t for a MWh.
    expect(carbonTonnes / (32 * 10.2e-3 * 1.25 * hours * 0.35)).toBeCloseTo(1, 6);
    expect((cost.tokensPerCurrency ?? 0) * (cost.price?.amount ?? 0)).toBeCloseTo(1e12, -3);
    expect(cost.assumptions).toHaveLength(1);
  });

  it('what is not stated is assumed and said; idle devices of a host are paid for', () => {
    const cost = runCost({
      ...asked,
      devices: 12,
      allocation: allocationOf({ devicesPerHost: 8 }, 12, 6),
      operation: {},
    });
    expect(cost.price).toBeUndefined();
    expect(cost.energyMegawattHours).toBeUndefined();
    expect(cost.assumptions).toEqual([
      'a device fails every 50677 hours, as in the training of Llama 3 (arXiv:2407.21783)',
      'a checkpoint stops the job for 60 s',
      'a restart takes 600 s',
    ]);
    expect(cost.deviceHours).toBeCloseTo((16 * cost.wallSeconds) / 3600, 6);
    expect(cost.betweenFailuresSeconds).toBeCloseTo(((16_384 * 54 * 24) / 419 / 12) * 3600, 3);
  });
});
