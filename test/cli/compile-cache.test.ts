import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import module from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, describe, expect, it } from 'vitest';

import { COMMAND } from '../../scripts/command.ts';

const folder = mkdtempSync(join(tmpdir(), 'kept-code-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('the command line', () => {
  it('keeps compiled code between runs where Node can, and says nothing of it where Node cannot', () => {
    const { NODE_COMPILE_CACHE: _, NODE_DISABLE_COMPILE_CACHE: __, ...env } = process.env;
    // Of a thread of its own too: `solve` runs in one.
    for (const args of [['--version'], ['solve', join(folder, 'none.json')]]) {
      const run = spawnSync(process.execPath, [...COMMAND, ...args], {
        env: { ...env, TMPDIR: folder },
        encoding: 'utf8',
      });
      expect(run.stderr).not.toMatch(/cache/i);
    }
    const kept = join(folder, 'node-compile-cache');
    const files = existsSync(kept) ? readdirSync(kept, { recursive: true }) : [];
    expect(files.length > 0).toBe('enableCompileCache' in module);
  });
});
