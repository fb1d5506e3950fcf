import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { cli } from './support.ts';

/** What README.md shows is what the program prints: line by line, with `...` for what is left out. */
const README = readFileSync(fileURLToPath(new URL('../../README.md', import.meta.url)), 'utf8');

/** The first fenced block without a language that holds a text. */
function shown(part: string): readonly string[] {
  const block = README.split(/^```/m).find((b) => b.startsWith('\n') && b.includes(part));
  expect(block, part).toBeDefined();
  return block!
    .trim()
    .split('\n')
    .filter((line) => line !== '...');
}

/** The words of a line: columns are as wide as their longest entry, and the solver's seconds differ from run to run. */
const words = (line: string): string => line.replace(/(by [a-z-]+), [^;]*;/, '$1;').replace(/ +/g, ' ').trim(); // prettier-ignore

describe('README.md', () => {
  it('shows what `shardwright demo` prints, in its order', async () => {
    const { code, out } = await cli('demo');
    expect(code).toBe(0);
    const printed = out.split('\n').map(words);
    let from = 0;
    for (const line of shown('step time')) {
      const at = printed.indexOf(words(line), from);
      expect(at, `not printed${from > 0 ? ` below "${printed[from - 1]}"` : ''}: ${line}`).toBeGreaterThanOrEqual(0);
      from = at + (line === '' ? 0 : 1);
    }
  });

  it('shows lines of `--program` as they are, but for the places in the source', async () => {
    const graph = fileURLToPath(new URL('../../examples/llama3-8b-2l-b16.fx.txt.gz', import.meta.url));
    const { out } = await cli('plan', graph, '--mesh', 'dp=8,tp=8', '--cluster', 'dgx-h100', '--program', '--no-recipes'); // prettier-ignore
    const printed = out.replaceAll(/ ; forward source="[^"]*"/g, '');
    const lines = shown('%mm_3 =');
    expect(lines).toHaveLength(4);
    let from = 0;
    for (const line of lines) {
      const at = printed.indexOf(line.trim(), from);
      expect(at, line).toBeGreaterThanOrEqual(0);
      from = at + line.length;
    }
  });
});
