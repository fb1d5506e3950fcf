import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

import { afterAll, expect, test } from 'vitest';

import { RUN_RECORD, runFiles, type RunRecord } from '../export/config-record.ts';
import { hashOf } from '../export/jax-record.ts';
import { runPython } from './support/torch.ts';

/**
 * Trainers run on four processes what two Llama plans export for them: transformers their
 * `distributed_config.json`, torchtitan the `torchtitan_config.py` of the first.
 * `SHARDWRIGHT_RECORD=1` writes the answers.
 */
const files = await runFiles();
const root = mkdtempSync(join(tmpdir(), 'shardwright-recipes-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
for (const { name, text } of files) {
  mkdirSync(dirname(join(root, name)), { recursive: true });
  writeFileSync(join(root, name), text);
}
const folders = [...new Set(files.map(({ name }) => join(root, dirname(name))))];
const answerOf = <T>(script: string, args: readonly string[]): T =>
  JSON.parse(
    runPython(script, args)
      .split('\n')
      .find((line) => line.startsWith('{')) ?? '',
  ) as T;
const known = JSON.parse(readFileSync(RUN_RECORD, 'utf8')) as RunRecord;

/** Compares with the record, or writes it. */
function kept(answer: Partial<RunRecord>): void {
  const record = {
    ...(JSON.parse(readFileSync(RUN_RECORD, 'utf8')) as RunRecord),
    files: hashOf(files),
    ...answer,
  };
  if (process.env['SHARDWRIGHT_RECORD'] === '1')
    writeFileSync(RUN_RECORD, `${JSON.stringify(record, null, 1)}\n`);
  else expect(record).toEqual(known);
}

test('transformers runs a tp_plan: logits and gradients of one process', () => {
  const answer = answerOf<RunRecord['transformers']>('run_tp_plan.py', folders);
  for (const { error } of answer.made) expect(error).toBeLessThan(1e-12);
  kept({ transformers: { ...answer, made: answer.made.map(({ parts }) => ({ parts })) } });
});

test('torchtitan trains two steps of its debug Llama: losses and gradients of one process, in float32', () => {
  const answer = answerOf<{
    version: string;
    losses: number[];
    own: number[];
    gradient: number;
    gradients: number;
  }>('run_torchtitan.py', [folders[0]]);
  answer.losses.forEach((loss, k) =>
    expect(Math.abs(answer.own[k] - loss) / loss).toBeLessThan(1e-6),
  );
  expect(answer.losses[1]).toBeLessThan(answer.losses[0]);
  expect(answer.gradient).toBeLessThan(1e-5);
  kept({
    torchtitan: {
      version: answer.version,
      steps: answer.losses.length,
      gradients: answer.gradients,
    },
  });
});
