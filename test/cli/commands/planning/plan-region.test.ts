/**
 * The whole road of `plan` for programs with per-device code: known plans, simulated candidates and
 * budgets, which read the program again and not only the solved problem.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, describe, expect, it } from 'vitest';

import { printGraph } from '../../../../src/graph/text/write.ts';
import { jointGraph } from '../../../../src/passes/autodiff/joint.ts';
import type { Plan } from '../../../../src/plan/record/types.ts';
import { REGIONS } from '../../../plan/region-programs.ts';
import { FULL } from '../../../support/full.ts';
import { cli } from '../../support.ts';

const root = mkdtempSync(join(tmpdir(), 'plan-region-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));

const ON = ['--cluster', 'dgx-h100', '--quiet'];

function written(name: string, mesh: string): string {
  const { program, wrt } = REGIONS[name];
  const file = join(root, 'region.swg');
  writeFileSync(file, printGraph(jointGraph(program(mesh), { wrt, seed: 1 })));
  return file;
}

/** One that cuts a model, and one that makes a dim; the others are planned in the same way. */
const DAILY = new Set(['an MLP with its sequence cut', 'pieces stacked on a new dim']);

describe('a trained program with a region', () => {
  it.each(Object.keys(REGIONS).filter((name) => FULL || DAILY.has(name)))(
    '%s: planned on its own mesh, simulated, checked and run',
    async (name) => {
      const file = written(name, 'tp=2,sp=2');
      const folder = join(root, 'plan');
      const { code, out, err } = await cli('plan', file, ...ON, '--json', '-o', folder);
      expect(err).not.toMatch(/E_/);
      expect(code).toBe(0);
      const plan = JSON.parse(out) as Plan;
      expect(plan.request.mesh).toBe('tp=2,sp=2');
      for (const command of ['check-plan', 'verify', 'simulate'])
        expect((await cli(command, folder)).code, command).toBe(0);
    },
  );

  it.each([
    ['--devices', '8', /local_map is per device over sp=2, and the mesh is \w+=8/],
    ['--mesh', 'dp=4', /local_map is per device over sp=2, and the mesh is dp=4/],
    ['--mesh', 'sp=4', /local_map is per device over sp=2, and the mesh is sp=4/],
  ])('is refused on other axes than it is written for: %s %s', async (flag, value, said) => {
    const file = written('pieces stacked on a new dim', 'tp=2,sp=2');
    const { code, err } = await cli('plan', file, ...ON, flag, value);
    expect(code).toBe(2);
    expect(err).toContain('E_SPMD_TYPE');
    expect(err).toMatch(said);
  });
});
