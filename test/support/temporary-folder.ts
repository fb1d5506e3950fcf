import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { onTestFinished } from 'vitest';

/**
 * A fresh folder, which goes away with all that is in it: when the running test ends, or, of a
 * `describe`, at its `afterAll`.
 */
export function temporaryFolder(atEnd: (remove: () => void) => void = onTestFinished): string {
  const folder = mkdtempSync(join(tmpdir(), 'shardwright-test-'));
  atEnd(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
