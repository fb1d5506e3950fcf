import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';

import { afterAll, expect, test } from 'vitest';

import { builtinOperators } from '../../src/entries/ops.ts';
import { compareRun } from '../../src/export/torch/run/doctor.ts';
import { lostTime, type TracedRank } from '../../src/export/torch/run/lost-time.ts';
import { readTrace } from '../../src/export/torch/run/trace.ts';
import { planSchedule } from '../../src/simulate/timeline/from-plan.ts';
import { captureRecord, type RunningPlan, runningPlans } from '../export/running-plans.ts';

/**
 * A fresh trace of four processes beside its plan; `SHARDWRIGHT_RECORD=1` keeps it for `npm test`.
 */
const python = process.env.SHARDWRIGHT_PYTHON ?? 'python3';
const path = (name: string): string => fileURLToPath(new URL(name, import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'shardwright-doctor-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

let ran: Promise<RunningPlan> | undefined;

/** The plan, run and traced on four ranks of which rank 2 sleeps a second before each step. */
const traced = (): Promise<RunningPlan> =>
  (ran ??= (async () => {
    const [, plan] = await runningPlans('llama-sdpa', 'dp=2,tp=2', ['FSDP (dp) + Megatron (tp)']);
    for (const { name, text } of plan.files) writeFileSync(join(folder, name), text);
    writeFileSync(join(folder, 'capture.json'), captureRecord('llama-sdpa') ?? '');
    const env = { ...process.env, PYTHONPATH: path('../../python') };
    const run = (...args: readonly string[]): void => {
      const all = [path('running/trace.py'), '4', `llama-sdpa=${folder}`, ...args];
      execFileSync(python, all, { env, stdio: 'ignore' });
    };
    run(fileOf('{rank}'), '2=1');
    if (process.env.SHARDWRIGHT_RECORD === '1')
      run(path('../fixtures/running/llama-sdpa.trace.json.gz'));
    return plan;
  })());

const fileOf = (rank: number | string): string => join(folder, `trace.${rank}.json.gz`);

/** The traces of all ranks, each matched with the program. */
async function matched(): Promise<{ readonly plan: RunningPlan; readonly ranks: TracedRank[] }> {
  const { plan, source } = await traced();
  const { collectives } = planSchedule(source.program, plan, builtinOperators());
  const ranks = [0, 1, 2, 3].map((rank) => {
    const spans = readTrace(gunzipSync(readFileSync(fileOf(rank))).toString(), fileOf(rank));
    return { rank, spans, report: compareRun(source, plan, collectives, spans) };
  });
  return { plan: await traced(), ranks };
}

test('a traced step is matched with its plan, call by call', async () => {
  const { ranks } = await matched();
  const rows = JSON.parse(readFileSync(join(folder, 'collectives.json'), 'utf8')) as {
    collectives: { node: string }[];
  };
  for (const { report } of ranks) {
    const moved = report.calls.filter(({ kind }) => kind === 'collective');
    expect(moved.map(({ node }) => node)).toEqual(rows.collectives.map(({ node }) => node));
    for (const { measuredSeconds } of report.calls) expect(measuredSeconds).toBeGreaterThan(0);
  }
}, 300_000);

test('a rank that sleeps before each step is named, by its pause and by those who wait for it', async () => {
  const { plan, ranks } = await matched();
  const lost = lostTime(plan.plan, plan.source.lowered().mesh, ranks);
  const pause = lost.find(({ kind }) => kind === 'between steps');
  expect(pause?.what).toContain('rank 2 ');
  expect(pause?.seconds).toBeGreaterThanOrEqual(1);
  const waiting = lost.find(({ kind }) => kind === 'waiting for ranks');
  expect(waiting?.what).toContain('wait for rank 2');
  // Three of four ranks wait for a second, where the batches of all are compared.
  expect(waiting?.seconds).toBeGreaterThan(0.5);
}, 300_000);
