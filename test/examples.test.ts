import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { describe, expect, it } from 'vitest';

import { FULL } from './support/full.ts';
import { OwnProcess } from './support/own-process.ts';

const folder = fileURLToPath(new URL('../examples/', import.meta.url));
const printed = (file: string): string =>
  readFileSync(`${folder}${file.replace(/\.ts$/, '.out.txt')}`, 'utf8');

describe('examples print what is committed beside them', () => {
  const other = OwnProcess.shared();

  for (const file of readdirSync(folder).filter((f) => f.endsWith('.ts'))) {
    // Budgets on the peak of two real layers take seconds to plan.
    it.skipIf(!FULL && file === 'checkpointing.ts')(file, async () => {
      expect(existsSync(`${folder}${file.replace(/\.ts$/, '.out.txt')}`)).toBe(true);
      const run = await other.program(`${folder}${file}`);
      expect(run.out).toBe(printed(file));
    });
  }
});

// The process above is such a one; each further one loads the sources again.
it.runIf(FULL)('an example is run as its first lines say, in a process of its own', () => {
  const text = execFileSync(process.execPath, ['--import', 'tsx', `${folder}mlp.ts`], {
    encoding: 'utf8',
  });
  expect(text).toBe(printed('mlp.ts'));
});
