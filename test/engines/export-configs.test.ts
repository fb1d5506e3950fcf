import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { CONFIG_RECORD, CONFIG_TARGETS, configFiles, type ConfigRecord } from '../export/config-record.ts';
import { hashOf } from '../export/jax-record.ts';
import { megatronSource } from '../export/recipe-plans.ts';
import { runPython } from './support/torch.ts';

/**
 * Configurations of a Llama plan (data parallel over dp, Megatron over tp) read by the packages that they are for, which
 * `scripts/test-engines.sh` installs. Under another Python, a package that it does not have is named and left out;
 * `SHARDWRIGHT_RECORD=1` writes the answers when all are there.
 */
type Answer =
  { readonly version: string; readonly made: unknown } | { readonly missing: string } | { readonly error: string };

const folder = mkdtempSync(join(tmpdir(), 'shardwright-configs-'));
const source = await megatronSource();
const files = configFiles(source);
for (const { name, text } of files) {
  mkdirSync(dirname(join(folder, name)), { recursive: true });
  writeFileSync(join(folder, name), text);
}
writeFileSync(join(folder, 'world'), String(source.mesh.size));
const answers = JSON.parse(runPython('read_configs.py', [folder]).split('\n').at(-1) ?? '') as Record<string, Answer>;
rmSync(folder, { recursive: true, force: true });
const missing = Object.entries(answers).flatMap(([name, answer]) => ('missing' in answer ? [`${name} (no ${answer.missing})`] : [])); // prettier-ignore
if (process.env['SHARDWRIGHT_RECORD'] === '1' && missing.length === 0)
  writeFileSync(CONFIG_RECORD, `${JSON.stringify({ files: hashOf(files), answers }, null, 1)}\n`);
const record = JSON.parse(readFileSync(CONFIG_RECORD, 'utf8')) as ConfigRecord;

describe('configurations read by their packages', () => {
  for (const [name, answer] of Object.entries(answers))
    test.skipIf('missing' in answer)(`${name}${'missing' in answer ? ` (this Python has no ${answer.missing})` : ''}`, () => {
      expect(answer).toEqual(record.answers[name]);
    });

  test('the record is of every target', () => {
    expect(Object.keys(record.answers).length).toBe(CONFIG_TARGETS.length);
  });
}); // prettier-ignore
