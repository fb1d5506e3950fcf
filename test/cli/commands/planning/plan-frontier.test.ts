import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { expect, it } from 'vitest';

import { readPlan } from '../../../../src/plan/record/schema.ts';
import { cli, fixture } from '../../support.ts';

const MLP = ['plan', fixture('mlp'), '--mesh', 'dp=2,tp=2', '--cluster', 'dgx-h100'] as const;

interface Printed {
  readonly points: readonly {
    readonly seconds: number;
    readonly peakBytes: number;
    readonly boundSeconds: number;
  }[];
  readonly knee: number;
  readonly asked: number;
}

it('plan --frontier: a table with the knee, progress on stderr, a plan folder a point', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'shardwright-'));
  try {
    const run = await cli(...MLP, '--frontier', '2', '--gap', '20%', '-o', folder);
    expect(run.code, run.err).toBe(0);
    expect(run.out).toMatch(
      /^time against memory: .* on dp=2,tp=2\nasked      gap 20\.0 %\ndefaults   optimizer adam, 16 bytes a parameter in f32; budget 75\.7 GiB for peak memory, /,
    );
    expect(run.out.match(/^\d  .* µs .*$/gm)).toHaveLength(2);
    expect(run.out).toContain('knee');
    expect(run.err).toMatch(/^budget 1: .* 1 of 2 points\nbudget 2: /);
    const record = JSON.parse(readFileSync(join(folder, 'frontier.json'), 'utf8')) as Printed;
    expect(record.points).toHaveLength(2);
    record.points.forEach((point, i) => {
      const plan = readPlan(readFileSync(join(folder, `${i + 1}`, 'plan.json'), 'utf8'));
      expect(plan.objective.seconds).toBe(point.seconds);
      expect(plan.memory.timeline?.peakBytes).toBe(point.peakBytes);
    });
    // A written point is a plan like any other.
    const simulated = await cli('simulate', join(folder, '2'), '--json');
    expect(simulated.code, simulated.err).toBe(0);
    expect(existsSync(join(folder, '3'))).toBe(false);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

it('a frontier is refused what is said of one plan, and a budget without plans exits 3', async () => {
  const range = await cli(...MLP, '--frontier', '--range');
  expect(range.code).toBe(2);
  expect(range.err).toContain('--range is of one');
  expect((await cli(...MLP, '--frontier', '1')).code).toBe(2);
  const none = await cli(...MLP, '--frontier', '--memory', '4KiB', '--json', '--quiet');
  expect(none.code).toBe(3);
  expect(none.err).toBe('');
  expect(JSON.parse(none.out)).toMatchObject({
    mesh: 'dp=2,tp=2',
    points: [],
    knee: null,
    asked: 1,
  });
});
