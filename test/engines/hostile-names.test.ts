import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

import { afterAll, expect, test } from 'vitest';

import { exportFiles } from '../../src/export/export.ts';
import { EXPORT_TARGETS } from '../../src/export/targets.ts';
import { hostileSource } from '../support/hostile-names.ts';
import { runPython } from './support/torch.ts';

const folder = mkdtempSync(join(tmpdir(), 'shardwright-hostile-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Readers of the exported files by their endings. */
const READERS: Readonly<Record<string, string>> = {
  py: 'python',
  json: 'json',
  toml: 'tomllib',
  yaml: 'yaml',
  yml: 'yaml',
  mlir: 'mlir',
};

test('files of every target with hostile names load in Python, PyTorch, JAX, YAML and TOML and run nothing of a name', async () => {
  const source = await hostileSource();
  const written: Record<string, string> = {};
  for (const { name: target, check } of EXPORT_TARGETS)
    for (const { name, text } of exportFiles(source, target, {
      allowLossy: true,
      check: check !== undefined,
    }).files) {
      const path = join(target, name);
      mkdirSync(dirname(join(folder, path)), { recursive: true });
      writeFileSync(join(folder, path), text);
      written[path] = READERS[name.slice(name.lastIndexOf('.') + 1)] ?? 'text';
    }
  const { read, left } = JSON.parse(runPython('load_exported.py', [folder])) as {
    read: Record<string, string>;
    left: string[];
  };
  expect(left).toEqual([]);
  expect(read).toEqual(written);
});
