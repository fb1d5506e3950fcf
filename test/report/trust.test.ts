import { describe, expect, it } from 'vitest';
import { publicRuns, validationFigures } from '../../scripts/validation-figures.ts';
import { measuredErrors, trustOf } from '../../src/report/analysis/measured.ts';
import { validateRuns } from '../../src/cost/validation/validate.ts';

describe('11.1 how far to trust: the bundled errors of validate', () => {
  it('are those of the public runs (otherwise: npx tsx scripts/validation-figures.ts)', () => {
    const csv = publicRuns();
    expect(measuredErrors()).toEqual(validationFigures(csv));
    // The weighted mean of the groups is the mean over all timed runs.
    const timed = validateRuns(csv).predictions.filter(({ run }) => !run.outOfMemory && run.stepSeconds !== undefined);
    const all = timed.reduce((n, p) => n + Math.abs(p.seconds / p.run.stepSeconds! - 1), 0) / timed.length;
    const { rows } = measuredErrors();
    expect(rows.reduce((n, r) => n + r.runs, 0)).toBe(timed.length);
    expect(rows.reduce((n, r) => n + r.runs * (r.mape ?? 0), 0) / timed.length).toBeCloseTo(all, 3);
  });

  it('the nearest rows are those of the accelerator, its own kind of model first', () => {
    const dense = trustOf('H100-SXM5-80GB', false);
    const mixture = trustOf('H100-SXM5-80GB', true);
    expect(dense.nearest[0]).toMatchObject({ accelerator: 'H100-SXM5-80GB', experts: false });
    expect(mixture.nearest[0]).toMatchObject({ accelerator: 'H100-SXM5-80GB', experts: true });
    expect(dense.nearest.length + dense.others.length).toBe(measuredErrors().rows.length);
    // Another size of the same generation is near, another generation is not.
    expect(trustOf('A100-SXM4-40GB', false).nearest.every((r) => r.accelerator.startsWith('A100'))).toBe(true);
    expect(trustOf('A100-SXM4-40GB', false).nearest.length).toBeGreaterThan(0);
    expect(trustOf('TPU-v5p', false).nearest.map((r) => r.accelerator)).toEqual(['TPU-v5p']);
    expect(trustOf('MI300X-192GB', false).nearest).toEqual([]);
  });
});
