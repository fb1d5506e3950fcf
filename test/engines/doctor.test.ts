import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';

import { afterAll, expect, test } from 'vitest';

import { builtinOperators } from '../../src/entries/ops.ts';
import { compareRun } from '../../src/export/torch/run/doctor.ts';
import { readTrace } from '../../src/export/torch/run/trace.ts';
import { planSchedule } from '../../src/simulate/timeline/from-plan.ts';
import { captureRecord, runningPlans } from '../export/running-plans.ts';

/**
 * A fresh trace of four processes beside its plan; `SHARDWRIGHT_RECORD=1` keeps it for `npm test`.
 */
const python = process.env.SHARDWRIGHT_PYTHON ?? 'python3';
const path = (name: string): string => fileURLToPath(new URL(name, import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'shardwright-doctor-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test('a traced step is matched with its plan, call by call', async () => {
  const [, { plan, source, files }] = await runningPlans('llama-sdpa', 'dp=2,tp=2', [
    'FSDP (dp) + Megatron (tp)',
  ]);
  for (const { name, text } of files) writeFileSync(join(folder, name), text);
  writeFileSync(join(folder, 'capture.json'), captureRecord('llama-sdpa') ?? '');
  const file =
    process.env.SHARDWRIGHT_RECORD === '1'
      ? path('../fixtures/running/llama-sdpa.trace.json.gz')
      : join(folder, 'trace.json.gz');
  const env = { ...process.env, PYTHONPATH: path('../../python') };
  execFileSync(python, [path('running/trace.py'), '4', `llama-sdpa=${folder}`, file], {
    env,
    stdio: 'ignore',
  });
  const { collectives } = planSchedule(source.program, plan, builtinOperators());
  const report = compareRun(
    source,
    plan,
    collectives,
    readTrace(gunzipSync(readFileSync(file)).toString(), file),
  );
  const rows = JSON.parse(readFileSync(join(folder, 'collectives.json'), 'utf8')) as {
    collectives: { node: string }[];
  };
  expect(report.calls.filter(({ kind }) => kind === 'collective').map(({ node }) => node)).toEqual(
    rows.collectives.map(({ node }) => node),
  );
  for (const { measuredSeconds } of report.calls) expect(measuredSeconds).toBeGreaterThan(0);
}, 300_000);
