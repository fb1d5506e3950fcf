import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';

import { afterAll, expect, test } from 'vitest';

import { runPython } from './support/torch.ts';

const committed = fileURLToPath(new URL('../fixtures/peers/', import.meta.url));
const fresh = mkdtempSync(join(tmpdir(), 'shardwright-engines-'));
afterAll(() => rmSync(fresh, { recursive: true, force: true }));

/**
 * Other archives may lie beside the exported graphs; these are the ones that export_joint.py
 * writes.
 */
const names = readdirSync(committed)
  .filter((name) => /^(ffn|uneven|block|gpt)-\d+\.txt\.gz$/.test(name))
  .sort();

test('PyTorch writes the committed joint graphs again, byte for byte', () => {
  expect(names.length).toBeGreaterThanOrEqual(5);
  runPython('export_joint.py', [fresh, ...names.map((name) => name.replace('.txt.gz', ''))]);
  const text = (folder: string, name: string): string =>
    gunzipSync(readFileSync(join(folder, name))).toString();
  for (const name of names) expect(text(fresh, name), name).toBe(text(committed, name));
});
