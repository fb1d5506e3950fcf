import { readFileSync } from 'node:fs';

import { describe, expect, it } from 'vitest';

import { fidelityPicture, fidelityTables, layoutErrors } from '../../scripts/docs-fidelity.ts';
import { publicPredictions, validationFigures } from '../../scripts/validation-figures.ts';
import { fidelity, nearestPool } from '../../src/cost/error-bands.ts';
import { trustOf } from '../../src/report/analysis/measured.ts';
import { defaultTrainer } from '../../src/trainers/trainers.ts';

const near = (accelerator: string, experts: boolean, hosts = 1): ReturnType<typeof trustOf> =>
  trustOf({ accelerator, experts, hosts });

describe('how far to trust: the bundled errors of the model that decides', () => {
  const predictions = publicPredictions();

  it('are those of the public runs (otherwise: npx tsx scripts/validation-figures.ts)', () => {
    expect(fidelity()).toEqual(validationFigures(predictions));
    // The weighted mean of the devices is the mean over all timed runs.
    const timed = predictions.filter((p) => p.measured !== undefined);
    const all = timed.reduce((n, p) => n + Math.abs(p.seconds / p.measured! - 1), 0) / timed.length;
    const { rows } = fidelity();
    expect(rows.reduce((n, r) => n + r.runs, 0)).toBe(timed.length);
    expect(rows.reduce((n, r) => n + r.runs * (r.mape ?? 0), 0) / timed.length).toBeCloseTo(all, 3);
  });

  it('every family counts the same in a pool, and eight of ten of its runs lie in the range', () => {
    const timed = predictions.filter((p) => p.measured !== undefined);
    const { pools } = fidelity();
    const all = pools.at(-1)!;
    expect([all.accelerator, all.experts, all.hosts]).toEqual([null, null, null]);
    expect(all.runs).toBe(timed.length);
    const share = (inside: (ratio: number) => boolean): number => {
      const families = [...new Set(timed.map((p) => p.family))];
      const of = (family: string): number => {
        const own = timed.filter((p) => p.family === family);
        return (
          own.filter((p) => inside(p.measured! / (p.heldOut ?? p.seconds))).length / own.length
        );
      };
      return families.reduce((sum, family) => sum + of(family), 0) / families.length;
    };
    expect(
      Math.abs(share((ratio) => ratio >= all.step.p10 && ratio <= all.step.p90) - 0.8),
    ).toBeLessThan(0.05);
  });

  it('the range of a question without a trainer holds for runs whatever their trainer', () => {
    const asked = predictions.filter((p) => p.measured !== undefined && p.assumed !== undefined);
    expect(asked.length).toBeGreaterThan(600);
    const inside = (assumed: boolean): number => {
      const found = asked.flatMap(({ run, experts, hosts, measured, assumed: said }) => {
        const { accelerator } = run.system.cluster;
        const trainer = defaultTrainer(accelerator, false);
        const count = hosts === 'one' ? 1 : 2;
        const pool = nearestPool({ accelerator, experts, hosts: count, trainer, assumed });
        const over = measured! / said!;
        return pool === undefined ? [] : [pool.step.p10 <= over && over <= pool.step.p90];
      });
      return found.filter(Boolean).length / found.length;
    };
    expect(Math.abs(inside(true) - 0.8)).toBeLessThan(0.05);
    // By the range of the runs of the default trainer alone, three of five lie outside.
    expect(inside(false)).toBeLessThan(inside(true) / 1.8);
  });

  it('docs/fidelity.md and its picture say the same (otherwise: npx tsx scripts/docs-fidelity.ts)', () => {
    const page = readFileSync(new URL('../../docs/fidelity.md', import.meta.url), 'utf8').replace(
      / +/g,
      ' ',
    );
    for (const table of [...Object.values(fidelityTables(fidelity())), layoutErrors()])
      for (const line of table.split('\n'))
        if (!line.startsWith('| ---'))
          expect(page).toContain(line.replace(/ +/g, ' ').slice(0, 70));
    expect(fidelityPicture()).toBe(
      readFileSync(new URL('../../docs/pictures/fidelity.svg', import.meta.url), 'utf8'),
    );
  });

  it('the nearest rows are those of the accelerator, its own kind of model first', () => {
    const dense = near('H100-SXM5-80GB', false);
    const mixture = near('H100-SXM5-80GB', true);
    expect(dense.nearest[0]).toMatchObject({ accelerator: 'H100-SXM5-80GB', experts: false });
    expect(mixture.nearest[0]).toMatchObject({ accelerator: 'H100-SXM5-80GB', experts: true });
    expect(dense.nearest.length + dense.others.length).toBe(fidelity().rows.length);
    // Another size of the same generation is near, another generation is not.
    expect(
      near('A100-SXM4-40GB', false).nearest.every((r) => r.accelerator.startsWith('A100')),
    ).toBe(true);
    expect(near('A100-SXM4-40GB', false).nearest.length).toBeGreaterThan(0);
    expect(near('TPU-v5p', false).nearest.map((r) => r.accelerator)).toEqual(['TPU-v5p']);
    expect(near('MI300X-192GB', false).nearest).toEqual([]);
  });

  it('the pool is the narrowest of the kind of device, model and trainer, and none where no run is of that kind', () => {
    expect(near('A100-SXM4-80GB', false, 4).pool).toMatchObject({
      accelerator: 'A100',
      experts: false,
      hosts: 'several',
    });
    expect(near('A100-SXM4-80GB', false, 1).pool).toMatchObject({
      accelerator: 'A100',
      experts: false,
    });
    // H100 and H200 are of one architecture, and so are B200 and GB300.
    expect(near('H200-SXM-141GB', false, 2).pool).toEqual(near('H100-SXM5-80GB', false, 2).pool);
    expect(near('GB300-288GB', true).pool).toEqual(near('B200-SXM-180GB', true).pool);
    // No run of an MI300X, and none of experts on an A100.
    expect(near('MI300X-192GB', false, 2).pool).toBeNull();
    expect(near('A100-SXM4-80GB', true, 2).pool).toBeNull();
  });
});
