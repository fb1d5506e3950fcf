import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import type { SimulateReport } from '../../../../src/cli/commands/written-plan/simulate.ts';
import { readPlan } from '../../../../src/plan/record/schema.ts';
import type { Plan } from '../../../../src/plan/record/types.ts';
import type { TraceFile } from '../../../../src/simulate/timeline/trace.ts';
import { planModelInto } from '../../plan-folders.ts';
import { cli, fixture } from '../../support.ts';

let root = '';
let folder = '';
let plan: Plan;
beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), 'shardwright-simulate-'));
  folder = await planModelInto(fixture('mlp-loss'), root, 'plan', '--inputs', 'S(0)S(0)');
  plan = readPlan(readFileSync(join(folder, 'plan.json'), 'utf8'));
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

async function simulated(...argv: string[]): Promise<SimulateReport> {
  const run = await cli('simulate', folder, ...argv, '--json');
  expect(run.code, run.err).toBe(0);
  return JSON.parse(run.out) as SimulateReport;
}

describe('simulate', () => {
  it('prints the seconds, the exposed communication and the peak of a plan folder', async () => {
    const report = await simulated();
    expect(report.objectiveSeconds).toBe(plan.objective.seconds);
    expect(report.seconds).toBeLessThanOrEqual(report.serialSeconds);
    expect(report.seconds).toBeGreaterThanOrEqual(report.computeSeconds);
    expect(report.exposedCommunicationSeconds).toBeLessThanOrEqual(report.communicationSeconds);
    expect(report.seconds).toBeLessThanOrEqual(
      report.computeSeconds + report.exposedCommunicationSeconds + 1e-12,
    );
    expect(report.peakBytes).toBeGreaterThan(
      plan.memory.parameterBytes + plan.memory.optimizerBytes,
    );
    expect(Object.values(report.memoryByKind).reduce((a, b) => a + b, 0)).toBe(report.peakBytes);
    expect(report.mfu).toBeGreaterThan(0);
    expect(report.mfu).toBeLessThan(1);
    expect(report.mfuConvention).toMatch(/full attention .* TFLOPS dense peak/);
  });

  it('--trace writes what the report says', async () => {
    const file = join(root, 'trace.json');
    const report = await simulated('--trace', file);
    const { traceEvents } = JSON.parse(readFileSync(file, 'utf8')) as TraceFile;
    const ends = traceEvents.filter((e) => e.ph === 'X').map((e) => e.ts! + e.dur!);
    expect(Math.max(...ends)).toBeCloseTo(report.seconds * 1e6, 6);
    const memory = traceEvents.filter((e) => e.ph === 'C').map((e) => Number(e.args?.MiB));
    expect(Math.max(...memory) * 2 ** 20).toBe(report.peakBytes);
    const compute = traceEvents
      .filter((e) => e.ph === 'X' && e.tid === 0)
      .reduce((sum, e) => sum + e.dur!, 0);
    expect(Math.abs(compute / 1e6 - report.computeSeconds)).toBeLessThanOrEqual(
      1e-9 * report.computeSeconds,
    );
  });

  it('takes the passes from its options, the same bytes each time', async () => {
    const first = await cli('simulate', folder, '--json');
    expect((await cli('simulate', folder, '--json')).out).toBe(first.out);
    const bare = await simulated('--prefetch', '0', '--bucket', '0');
    expect(bare.passes).toEqual([
      'no buckets',
      'gathers at most 0 calls and 2000000000 bytes ahead',
    ]);
    expect((await simulated()).seconds).toBeLessThanOrEqual(bare.seconds);
    const packed = await simulated('--bucket', '1MiB', '--async-tp', '--slowdown', '1.2');
    expect(packed.passes[0]).toBe('asynchronous tensor parallelism');
    expect(packed.passes[1]).toBe('buckets of at most 1048576 bytes');
    const text = (await cli('simulate', folder)).out;
    for (const word of ['step', 'communication', 'MFU', 'memory', 'passes', 'note'])
      expect(text).toContain(word);
  });

  it('keeps the peak within the budget of the plan or the limit given, and says what waits for it', async () => {
    const report = await simulated();
    expect(report).toMatchObject({
      memoryBoundBytes: plan.memory.budgetBytes,
      delayedTasks: 0,
      delayedSeconds: 0,
      unboundedPeakBytes: report.peakBytes,
    });
    expect(await simulated('--memory', 'none')).toMatchObject({
      memoryBoundBytes: null,
      seconds: report.seconds,
    });
    const tight = await simulated('--memory', `${plan.memory.timeline?.peakBytes ?? NaN}B`);
    expect(tight.peakBytes).toBeLessThanOrEqual(plan.memory.timeline?.peakBytes ?? NaN);
    expect(tight.unboundedPeakBytes).toBeGreaterThanOrEqual(tight.peakBytes);
    const none = await simulated('--memory', '1KiB');
    expect(none.memoryBoundBytes).toBeNull();
    expect(none.notes.join(' ')).toMatch(/more than 1.00 KiB/);
  });

  it('refuses what it cannot read, with one JSON value', async () => {
    const lonely = await cli('simulate', join(root, 'nowhere'), '--json');
    expect(lonely.code).toBe(2);
    expect(JSON.parse(lonely.out)).toMatchObject({ error: { code: 'E_IO' } });
    for (const wrong of [
      ['--prefetch', '-1'],
      ['--prefetch', 'some'],
      ['--bucket', '64'],
      ['--slowdown', '0.5'],
      ['--slowdown', 'x'],
      ['--memory', 'much'],
    ]) {
      const run = await cli('simulate', folder, ...wrong, '--json');
      expect(run.code, wrong.join(' ')).toBe(2);
      expect(JSON.parse(run.out)).toMatchObject({ error: { code: 'E_USAGE' } });
    }
    const unwritable = join(root, 'no', 'such', 'folder', 't.json');
    expect((await cli('simulate', folder, '--trace', unwritable)).code).toBe(2);
    expect(existsSync(unwritable)).toBe(false);
  });
});
