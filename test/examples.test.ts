import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const folder = fileURLToPath(new URL('../examples/', import.meta.url));

describe('examples print what is committed beside them', () => {
  for (const file of readdirSync(folder).filter((f) => f.endsWith('.ts'))) {
    it(file, () => {
      const expected = `${folder}${file.replace(/\.ts$/, '.out.txt')}`;
      expect(existsSync(expected)).toBe(true);
      const printed = execFileSync(process.execPath, ['--import', 'tsx', `${folder}${file}`], { encoding: 'utf8' });
      expect(printed).toBe(readFileSync(expected, 'utf8'));
    });
  }
});
