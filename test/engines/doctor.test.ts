import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';

import { afterAll, expect, test } from 'vitest';

import { builtinOperators } from '../../src/entries/ops.ts';
import { compareRun } from '../../src/export/torch/run/doctor.ts';
import { lostTime } from '../../src/export/torch/run/lost-time.ts';
import { readTrace, type TraceSpan } from '../../src/export/torch/run/trace.ts';
import { planSchedule } from '../../src/simulate/timeline/from-plan.ts';
import { captureRecord, type RunningPlan, runningPlans } from '../export/running-plans.ts';

/**
 * A fresh trace of four processes beside its plan; `SHARDWRIGHT_RECORD=1` keeps it for `npm test`.
 */
const python = process.env.SHARDWRIGHT_PYTHON ?? 'python3';
const path = (name: string): string => fileURLToPath(new URL(name, import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'shardwright-doctor-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Runs the plan and traces it; `late` makes one rank sleep before each step. */
async function traced(file: string, late: readonly string[] = []): Promise<RunningPlan> {
  const [, ran] = await runningPlans('llama-sdpa', 'dp=2,tp=2', ['FSDP (dp) + Megatron (tp)']);
  for (const { name, text } of ran.files) writeFileSync(join(folder, name), text);
  writeFileSync(join(folder, 'capture.json'), captureRecord('llama-sdpa') ?? '');
  const env = { ...process.env, PYTHONPATH: path('../../python') };
  const args = [path('running/trace.py'), '4', `llama-sdpa=${folder}`, file, ...late];
  execFileSync(python, args, { env, stdio: 'ignore' });
  return ran;
}

const spansOf = (file: string): TraceSpan[] =>
  readTrace(gunzipSync(readFileSync(file)).toString(), file);

test('a traced step is matched with its plan, call by call', async () => {
  const file =
    process.env.SHARDWRIGHT_RECORD === '1'
      ? path('../fixtures/running/llama-sdpa.trace.json.gz')
      : join(folder, 'trace.json.gz');
  const { plan, source } = await traced(file);
  const { collectives } = planSchedule(source.program, plan, builtinOperators());
  const report = compareRun(source, plan, collectives, spansOf(file));
  const rows = JSON.parse(readFileSync(join(folder, 'collectives.json'), 'utf8')) as {
    collectives: { node: string }[];
  };
  expect(report.calls.filter(({ kind }) => kind === 'collective').map(({ node }) => node)).toEqual(
    rows.collectives.map(({ node }) => node),
  );
  for (const { measuredSeconds } of report.calls) expect(measuredSeconds).toBeGreaterThan(0);
}, 300_000);

test('a rank that sleeps before each step is named, by its pause and by those who wait for it', async () => {
  const file = (rank: number): string => join(folder, `late.${rank}.json.gz`);
  const { plan, source } = await traced(join(folder, 'late.{rank}.json.gz'), ['2=1']);
  const { collectives } = planSchedule(source.program, plan, builtinOperators());
  const ranks = [0, 1, 2, 3].map((rank) => {
    const spans = spansOf(file(rank));
    return { rank, spans, report: compareRun(source, plan, collectives, spans) };
  });
  const lost = lostTime(plan, source.lowered().mesh, ranks);
  const pause = lost.find(({ kind }) => kind === 'between steps');
  expect(pause?.what).toContain('rank 2 ');
  expect(pause?.seconds).toBeGreaterThanOrEqual(1);
  const waiting = lost.find(({ kind }) => kind === 'waiting for ranks');
  expect(waiting?.what).toContain('wait for rank 2');
  // Three of four ranks wait for a second, where the batches of all are compared.
  expect(waiting?.seconds).toBeGreaterThan(0.5);
}, 300_000);
