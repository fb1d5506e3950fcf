import { readFileSync } from 'node:fs';

import { describe, expect, it } from 'vitest';

import { presetErrors, presetErrorTable } from '../../../scripts/preset-errors.ts';
import { median } from '../../../src/fidelity/metrics.ts';

describe('what presets are off by', () => {
  it('docs/costs.md has the table that the script makes', () => {
    const cells = (text: string): string => text.replace(/[ -]+/g, '');
    const docs = readFileSync(new URL('../../../docs/costs.md', import.meta.url), 'utf8');
    expect(cells(docs)).toContain(cells(presetErrorTable()));
  });

  it('nccl is nearest to measured collectives it has not seen, on every machine and kind', () => {
    for (const { machine, kind, byPreset } of presetErrors()) {
      const typical = (preset: string): number => median(byPreset[preset].map(Math.abs)) ?? NaN;
      for (const other of ['alpha-beta', 'autoparallel', 'dtensor'])
        expect(typical('nccl'), `${machine} ${kind} ${other}`).toBeLessThan(typical(other));
    }
  });
});
