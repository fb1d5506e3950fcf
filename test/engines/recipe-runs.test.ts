import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { RUN_RECORD, runFiles, type RunRecord } from '../export/config-record.ts';
import { hashOf } from '../export/jax-record.ts';
import { runPython } from './support/torch.ts';

/**
 * Trainers run what a plan exports for them: transformers reads `distributed_config.json` of two Llama plans on four processes.
 * `SHARDWRIGHT_RECORD=1` writes the answers.
 */
test('transformers runs a tp_plan on four processes: logits and gradients of one process', async () => {
  const files = await runFiles();
  const root = mkdtempSync(join(tmpdir(), 'shardwright-recipes-'));
  try {
    const folders = files.map(({ name, text }) => {
      const [plan, file] = name.split('/');
      mkdirSync(join(root, plan));
      writeFileSync(join(root, plan, file), text);
      return join(root, plan);
    });
    const answer = JSON.parse(runPython('run_tp_plan.py', folders).split('\n').find((line) => line.startsWith('{')) ?? '') as RunRecord['transformers']; // prettier-ignore
    for (const { error } of answer.made) expect(error).toBeLessThan(1e-12);
    const record = { files: hashOf(files), transformers: { ...answer, made: answer.made.map(({ parts }) => ({ parts })) } };
    if (process.env['SHARDWRIGHT_RECORD'] === '1') writeFileSync(RUN_RECORD, `${JSON.stringify(record, null, 1)}\n`);
    expect(record).toEqual(JSON.parse(readFileSync(RUN_RECORD, 'utf8')));
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}); // prettier-ignore
