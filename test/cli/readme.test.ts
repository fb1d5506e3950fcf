import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { describe, expect, it } from 'vitest';

import { temporaryFolder } from '../support/temporary-folder.ts';
import { cli } from './support.ts';

/**
 * What README.md shows is what the program prints: line by line, with `...` for what is left out.
 */
const file = (path: string): string =>
  readFileSync(fileURLToPath(new URL(`../../${path}`, import.meta.url)), 'utf8');
const README = file('README.md');

/** The first fenced block without a language that holds a text. */
function shown(part: string): readonly string[] {
  const block = README.split(/^```/m).find((b) => b.startsWith('\n') && b.includes(part));
  expect(block, part).toBeDefined();
  return block!
    .trim()
    .split('\n')
    .filter((line) => line !== '...');
}

/**
 * The words of a line: columns are as wide as their longest entry, and the solver's seconds differ
 * from run to run.
 */
const words = (line: string): string =>
  line
    .replace(/(by [a-z-]+), [^;]*;/, '$1;')
    .replace(/ +/g, ' ')
    .trim();

describe('README.md', () => {
  it('shows what `shardwright demo` and `-v` print, in their order', async () => {
    const folder = join(temporaryFolder(), 'plan');
    const { code, out } = await cli('demo', '-v', '-o', folder);
    expect(code).toBe(0);
    expect(existsSync(join(folder, 'plan.json'))).toBe(true);
    // The last lines are what goes on from the folder.
    const next = [`verify ${folder}`, `export ${folder} --target torch --check -o program`];
    for (const command of [...next, `report ${folder} -o report.html`])
      expect(out.slice(out.indexOf('\nnext'))).toContain(`shardwright ${command} `);
    const printed = out.split('\n').map(words);
    let from = 0;
    for (const line of [...shown('proof      optimal'), ...shown('model.lm_head.weight')]) {
      const at = printed.indexOf(words(line), from);
      expect(
        at,
        `not printed${from > 0 ? ` below "${printed[from - 1]}"` : ''}: ${line}`,
      ).toBeGreaterThanOrEqual(0);
      from = at + (line === '' ? 0 : 1);
    }
  });

  it('shows what `shardwright tune` prints for the bundled configuration', async () => {
    const config = fileURLToPath(
      new URL('../../examples/torchtitan-llama3-8b.toml', import.meta.url),
    );
    const run = await cli('tune', config, '--devices', '16', '--cluster', 'h100', '--quiet');
    expect(run.code, run.err).toBe(0);
    const printed = new Set(run.out.split('\n').map(words));
    // The diff alone is as wide as its file.
    for (const line of run.out.split('\n'))
      if (!/^[-+ @]\S/.test(line)) expect(line.length, line).toBeLessThanOrEqual(80);
    const lines = shown('slower than the best of 86');
    expect(lines.filter((line) => !printed.has(words(line)))).toEqual([]);
    // The block shows the diff whole.
    for (const line of run.out.split('\n')) if (/^[+-]/.test(line)) expect(lines).toContain(line);
  }, 60_000);

  it('begins with a figure that `tune` prints, two commands and a picture, then one section a language', () => {
    const [, first = ''] = README.split('\n\n');
    const [, share] = /reports a step \*\*(.*) slower\*\* than the best/.exec(first)!;
    expect(shown('slower than the best of 86')[0]).toContain(`.toml: ${share} slower than`);
    const at = [
      'npm ci && npm start',
      'npx shardwright tune examples/torchtitan-llama3-8b.toml --devices 16 --cluster h100',
      '](docs/pictures/report.png)',
      '## From TypeScript',
      '## From Python',
      '## From the command line',
    ].map((text) => README.indexOf(text));
    expect(at).toEqual([...at].sort((a, b) => a - b));
    expect(README.slice(0, at[2]).split('\n').length).toBeLessThan(16);
  });

  it('has no table of more than eight rows, and pictures below 200 kB', () => {
    const tables = README.match(/(?:^\|.*\n)+/gm) ?? [];
    expect(tables.length).toBeGreaterThan(3);
    for (const table of tables) expect(table.trim().split('\n').length - 2).toBeLessThan(9);
    const pictures = [...README.matchAll(/!\[[^\]]*\]\((docs\/pictures\/[^)]*)\)/g)];
    expect(pictures.length).toBeGreaterThan(1);
    for (const [, path = ''] of pictures)
      expect(statSync(new URL(`../../${path}`, import.meta.url)).size).toBeLessThan(200_000);
  });

  it('shows a TypeScript program that is an example, and lines that it prints', () => {
    const example = file('examples/train-mlp.ts').split('*/\n')[1].trim();
    expect(README).toContain(`\`\`\`ts\n${example}\n\`\`\``);
    const printed = file('examples/train-mlp.out.txt').replaceAll(/ ; forward source="[^"]*"/g, '');
    let from = 0;
    for (const line of shown('%mm_1 =')) {
      const at = printed.indexOf(line.trimEnd(), from);
      expect(at, line).toBeGreaterThanOrEqual(0);
      from = at + line.length;
    }
  });

  /** `test/engines/road.test.ts` runs it on four processes. */
  it('shows a Python program that is an example', () => {
    expect(README).toContain(`\`\`\`python\n${file('examples/train_mlp.py')}\`\`\``);
  });

  it('names commands and flags that exist', async () => {
    const commands = new Set(
      [
        ...README.matchAll(
          /(?:npx shardwright |`)([a-z][a-z-]+) (?:[A-Z]{4}\b|[a-z./0-9-]+ --|plan\/|--[a-z])([^`\n]*)/g,
        ),
      ].map((m) => m[1]),
    );
    expect([...commands]).toEqual(
      expect.arrayContaining(['plan', 'verify', 'report', 'simulate', 'audit', 'rules', 'solve']),
    );
    const help = new Map<string, string>();
    for (const command of commands) {
      const [some, all] = [await cli(command, '--help'), await cli(command, '--help-all')];
      expect(some.code, command).toBe(0);
      help.set(command, all.code === 0 ? all.out : some.out);
    }
    for (const [, command, rest] of README.matchAll(
      /(?:npx shardwright |`)([a-z][a-z-]+) ([^`\n#]*)/g,
    ))
      for (const [flag] of rest.matchAll(/(?<![\w-])--[a-z][a-z-]*/g))
        if (help.has(command)) expect(help.get(command), `${command} ${flag}`).toContain(flag);
  });

  it('links to files that exist', () => {
    for (const [, path] of README.matchAll(/\]\(([^)#:]+)\)/g))
      expect(existsSync(new URL(`../../${path}`, import.meta.url)), path).toBe(true);
  });
});
