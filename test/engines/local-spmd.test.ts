import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import {
  isRefusal,
  readAnswers,
  type SpmdAnswers,
  writeAnswers,
} from '../local-spmd/support/recorded.ts';
import { questions } from '../local-spmd/support/spmd-questions.ts';
import { askTorch, runPython } from './support/torch.ts';

/**
 * What spmd_types on PyTorch and shard_map of JAX say of typed per-device programs. The answers are
 * kept in files, which `npm test` holds this library to; `SHARDWRIGHT_RECORD=1` writes them, else
 * they are compared with what the packages say now.
 */
const file = (name: string): string =>
  fileURLToPath(new URL(`../fixtures/local-spmd/${name}`, import.meta.url));
const RECORD = process.env['SHARDWRIGHT_RECORD'] === '1';

let folder = '';
beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), 'shardwright-gloo-'))));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const say = (name: string, answer: unknown): void => {
  if (RECORD) writeFileSync(file(name), writeAnswers(answer));
  expect(existsSync(file(name))).toBe(true);
  expect(answer).toEqual(readAnswers(readFileSync(file(name))));
};

describe('typed per-device programs', () => {
  test('the recorded answers are those of spmd_types 0.3.1', () => {
    const answer = askTorch<SpmdAnswers>('run_spmd_types.py', questions);
    expect(answer.cells.length).toBe(questions.cells.length);
    say('spmd-types.json.gz', answer);
  });

  test('processes that really talk (gloo, 2 to 4 of them) hold what the simulated ranks hold', () => {
    process.env['GLOO_OUT'] = folder;
    const real = JSON.parse(
      runPython('run_spmd_types.py', ['gloo'], JSON.stringify(questions)),
    ) as Pick<SpmdAnswers, 'cells'>;
    const kept = readAnswers<SpmdAnswers>(readFileSync(file('spmd-types.json.gz')));
    const different = questions.cells.filter((_, i) => {
      const [a, b] = [kept.cells[i], real.cells[i]];
      // Without the checker an operand has no type, so a wrong `src` is found by its name alone.
      if (isRefusal(a) || isRefusal(b)) return isRefusal(a) !== isRefusal(b);
      return JSON.stringify([a.output, a.back]) !== JSON.stringify([b.output, b.back]);
    });
    expect(different).toEqual([]);
    expect(real.cells.filter((c) => !isRefusal(c)).length).toBeGreaterThan(300);
  });

  test('the recorded answers are those of JAX 0.10.2', () => {
    say('shard-map.json.gz', JSON.parse(runPython('run_shard_map.py', [])));
  });

  test('the recorded types of explicit shardings are those of JAX 0.10.2', () => {
    const answer: unknown = JSON.parse(runPython('run_explicit.py', []));
    expect(answer).toEqual(JSON.parse(readFileSync(file('explicit.json'), 'utf8')));
  });
});
