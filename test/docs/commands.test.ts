import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { afterAll, describe, expect, test } from 'vitest';

import { GROUPS } from '../../scripts/docs-pages.mjs';
import { cli } from '../cli/support.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

/**
 * The tutorial and the how-tos print what their commands print: lines in their order, with `...` for
 * what is left out. Commands that search take seconds and run under SHARDWRIGHT_FULL; of those the
 * flags are read here.
 */
const root = fileURLToPath(new URL('../../', import.meta.url));
const read = (path: string): string => readFileSync(join(root, path), 'utf8');
const folder = temporaryFolder(afterAll);

/** Names of the files that commands write, and that later ones take. */
const WRITTEN = /^(?:plan\/?|tuned\.toml|cluster\.json|all_reduce_perf\.txt)$/;
/** Commands that search for seconds. */
const SEARCHES = /^(?:tune|compare|inference|validate) |^plan .* pp=/;

interface Shown {
  readonly command: string;
  readonly lines: readonly string[];
}

/** The commands of a page, with the lines below each. */
function shown(page: string): Shown[] {
  return [...page.matchAll(/^```console\n\$ npx shardwright (.*)\n([^]*?)^```$/gm)].map(
    ([, command = '', lines = '']) => ({ command, lines: lines.trimEnd().split('\n') }),
  );
}

/** Files that a page shows, by the name that its next command has for them. */
function writeShownFiles(page: string): void {
  for (const [, text = '', name = ''] of page.matchAll(
    /^```\n((?:#|\{)[^]*?)^```\n+```console\n\$ npx shardwright [^\n]*?(\S+\.(?:txt|json))/gm,
  ))
    writeFileSync(join(folder, name), text);
}

const words = (line: string): string => line.replace(/ +/g, ' ').trim();

describe.each(['docs/tutorial.md', 'docs/how-to.md'])('%s', (path) => {
  const page = read(path);
  writeShownFiles(page);
  const all = shown(page);

  test('has a command for each task', () => {
    expect(all.length).toBeGreaterThan(2);
  });

  test.each(all)('shows what $command prints', { timeout: 120_000 }, async ({ command, lines }) => {
    const argv = command
      .split(' ')
      .map((word, k) => (k > 0 && WRITTEN.test(word) ? join(folder, word) : word));
    if (SEARCHES.test(command) && process.env.SHARDWRIGHT_FULL === undefined) {
      const [name = ''] = argv;
      const help = (await cli(name, '--help-all')).out + (await cli(name, '--help')).out;
      for (const word of argv.filter((one) => one.startsWith('-'))) expect(help).toContain(word);
      return;
    }
    const run = await cli(...argv);
    const printed = (run.out === '' ? run.err : run.out)
      .replaceAll(`${folder}/`, '')
      .split('\n')
      .map(words);
    let from = 0;
    for (const line of lines.filter((one) => one !== '' && one !== '...')) {
      const at = printed.indexOf(words(line), from);
      expect(at, `not printed: ${line}`).toBeGreaterThanOrEqual(0);
      from = at + 1;
    }
  });
});

test('every figure beside other systems stands in the page that it links to', () => {
  const page = read('docs/beside-others.md');
  const linked = [
    ...page.matchAll(/\[([^\]]*\d[^\]]*)\]\((\.\.\/bench\/[\w-]+\.md|[\w-]+\.md)\)/g),
  ];
  expect(linked.length).toBeGreaterThan(15);
  for (const [, figure = '', to = ''] of linked) {
    const source = read(join('docs', to)).replace(/\s+/g, ' ');
    for (const part of figure.split(', and ')) expect(source, `${part} in ${to}`).toContain(part);
  }
});

test('errors beside Calculon are those of the table of bench/validate.md', () => {
  const rows = read('bench/validate.md')
    .split('\n')
    .map((line) => line.split('|').map((cell) => cell.trim()));
  const [, table = ''] = /## The predicted step\n([^]*?)\n## /.exec(read('docs/beside-others.md'))!;
  const claims = [...table.matchAll(/^\| (\w[^|]*runs) +\| \[([^\]]*)\][^|]*\| \[([^\]]*)\]/gm)];
  expect(claims).toHaveLength(3);
  for (const [, runs = '', ours = '', calculon = ''] of claims) {
    const at = rows.findIndex(([, set = '', who]) => set.startsWith(runs) && who === 'ours');
    expect(at, runs).toBeGreaterThan(0);
    expect(rows[at].at(-2)).toBe(ours);
    expect(rows[at + 1][2]).toBe('Calculon, A100 file, as published');
    expect(rows[at + 1].at(-2)).toBe(calculon);
  }
});

test('the site has every document, once', () => {
  const listed = Object.values(GROUPS).flat();
  expect(new Set(listed).size).toBe(listed.length);
  const documents = readdirSync(join(root, 'docs')).filter((name) => name.endsWith('.md'));
  expect(listed.filter((path) => path.startsWith('docs/')).sort()).toEqual(
    documents.map((name) => `docs/${name}`).sort(),
  );
  for (const path of listed) expect(read(path)).toMatch(/^# /m);
});
