import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { afterAll, describe, expect, it } from 'vitest';

import { runCli } from '../../src/cli/program.ts';
import type { Comparison } from '../../src/recipes/compare/comparison.ts';
import type { SweepQuestion } from '../../src/sweep/model/question.ts';
import { withRun } from '../../src/sweep/planning/run-question.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

/** A product of a batch of 8 rows. */
const GRAPH = `swgraph 1
graph @main {
  in %w: f32[256, 256] parameter "w"
  in %x: f32[8, 256] input "x"
  %mm = aten.mm.default(%x, %w): f32[8, 256] ; forward
  out %mm output 0
}
`;
const file = join(temporaryFolder(afterAll), 'batch-of-eight.swg');
writeFileSync(file, GRAPH);

async function planned(
  mesh: string,
  ...more: readonly string[]
): Promise<{ warnings: readonly string[]; err: string }> {
  let out = '';
  let err = '';
  const code = await runCli(
    [
      'plan',
      file,
      '--mesh',
      mesh,
      '--cluster',
      'dgx-h100',
      '--cost',
      'alpha-beta',
      '--json',
      ...more,
    ],
    { stdout: (text) => (out += text), stderr: (text) => (err += text), isTerminal: false },
  );
  expect(code).toBe(0);
  return { warnings: (JSON.parse(out) as { warnings?: string[] }).warnings ?? [], err };
}

describe('what plan warns of, on stderr and in its JSON', () => {
  it('a mesh of a million devices for a batch of 8', async () => {
    const { warnings, err } = await planned('d=1000000');
    expect(warnings).toHaveLength(1);
    expect(warnings[0]).toContain('The mesh has 1,000,000 devices, and the plan cuts no tensor');
    expect(err).toContain(`warning: ${warnings[0]}\n`);
  });

  it('a budget that no device has', async () => {
    const { warnings, err } = await planned('d=2', '--memory', '200GiB');
    expect(warnings).toEqual([
      'The budget of 200 GiB is more than a device of dgx-h100 has: 75.7 GiB are usable. Leave ' +
        'out --memory, or name the cluster that has it.',
    ]);
    expect(err).toContain('warning: The budget of 200 GiB');
    expect((await planned('d=2', '--memory', '70GiB')).warnings).toEqual([]);
  });

  it('tp across hosts while devices of them stay idle', async () => {
    const { warnings, err } = await planned('tp=6,dp=2');
    expect(warnings).toEqual([
      'tp=6 crosses 2 hosts while 4 devices of 2 hosts stay idle (6 of 8 are used), so its ' +
        'collectives take the links between hosts. Give tp the innermost place and a size that ' +
        'divides 8.',
    ]);
    expect(err).toContain('warning: tp=6 crosses 2 hosts');
  });

  it.each(['dp=2,tp=6', 'dp=2,tp=2', 'tp=8,dp=2', 'tp=2,dp=2'])('nothing on %s', async (mesh) => {
    const { warnings, err } = await planned(mesh);
    expect([warnings, err.includes('warning')]).toEqual([[], false]);
  });
});

describe('what compare warns of a run', () => {
  const question = { devices: 8, cluster: 'dgx-h100', globalBatch: 8, sequence: 4096 };
  const warned = (tokens: number): readonly string[] => {
    const sizes = { pp: 1, dp_replicate: 1, dp_shard: 8, cp: 1, tp: 1, ep: 1, etp: 1 };
    const best = { name: 'a', seconds: 1, layout: { sizes } };
    const comparison = { plans: [best], best: 'a' } as unknown as Comparison;
    return withRun(comparison, question as SweepQuestion, { tokens }).warnings ?? [];
  };

  it('fewer tokens than one step takes, with the unit that may be missing', () => {
    expect(warned(15)).toEqual([
      '15 tokens are not a whole number of steps of 32,768 (8 x 4096): the run is priced as 1 step ' +
        'of 32,768 tokens. Give the unit of --tokens: 15T is 15e12.',
    ]);
  });

  it('steps that do not divide the run, where they add more than a hundredth to it', () => {
    expect(warned(40_000)).toEqual([
      '40,000 tokens are not a whole number of steps of 32,768 (8 x 4096): the run is priced as ' +
        '2 steps of 65,536 tokens.',
    ]);
    expect(warned(15e12)).toEqual([]);
    expect(warned(32_768)).toEqual([]);
  });
});
