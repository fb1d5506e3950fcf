import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { describe, expect, test } from 'vitest';

import { fillDocument, splitWords } from '../../scripts/docs-placements.ts';
import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { parseSharding } from '../../src/mesh/sharding/parse.ts';
import { toDimView } from '../../src/mesh/views/dim-view.ts';
import {
  gradientState,
  stateName,
  STATES,
  type Vocabulary,
} from '../../src/mesh/views/four-states.ts';
import { ShardedType } from '../../src/mesh/views/sharded-type.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
const document = readFileSync(`${root}docs/placements.md`, 'utf8');

/** Cells of the table whose head starts with some text, without the head. */
function table(head: string): string[][] {
  const lines = document.split('\n');
  const start = lines.findIndex((line) => line.startsWith(`| ${head}`));
  expect(start).toBeGreaterThan(0);
  const rows: string[][] = [];
  for (const line of lines.slice(start + 2)) {
    if (!line.startsWith('|')) break;
    rows.push(
      line
        .split('|')
        .slice(1, -1)
        .map((cell) => cell.trim()),
    );
  }
  return rows;
}

const code = (cell: string): string => /^`(.*)`$/.exec(cell)?.[1] ?? cell;

describe('docs/placements.md', () => {
  test('shows what the tool prints and draws (otherwise: npx tsx scripts/docs-placements.ts)', async () => {
    const filled = await fillDocument(document);
    expect(filled.document).toBe(document);
    expect(filled.pictures.size).toBeGreaterThan(0);
    for (const [path, svg] of filled.pictures)
      expect(readFileSync(root + path, 'utf8'), path).toBe(svg);
  });

  test('every block is run or shown, and every picture is there', () => {
    expect(document.match(/^```.+$/gm)?.every((fence) => fence === '```console')).toBe(true);
    for (const [, block] of document.matchAll(/^```console\n([^]*?)^```$/gm))
      expect(block).toMatch(/^\$ /);
    const shown = [...document.matchAll(/!\[[^\]]+\]\(([^)]+)\)/g)].map(
      ([, path]) => `docs/${path}`,
    );
    const drawn = [...document.matchAll(/--svg (\S+)/g)]
      .map(([, path]) => path)
      .filter((path) => path !== 'FILE`');
    expect(shown.sort()).toEqual(drawn.sort());
    for (const path of shown) expect(existsSync(root + path), path).toBe(true);
  });

  test('the table of the two views is right', () => {
    const mesh = parseMesh('dp=2,tp=2');
    const rows = table('mesh view on');
    expect(rows).toHaveLength(4);
    for (const [list, spec, type] of rows.map((row) => row.map(code))) {
      const view = toDimView(parseSharding(list, mesh), mesh, [16, 8]);
      if ('refused' in view) throw new Error(view.refused);
      expect(view.spec.text).toBe(spec);
      expect(new ShardedType('f32', [16, 8], view.spec).text).toBe(type);
    }
  });

  test('the table of the four states is right', () => {
    const columns: readonly Vocabulary[] = ['dtensor', 'jax-explicit', 'jax-manual'];
    const rows = table('here     | PyTorch DTensor');
    expect(rows).toHaveLength(4);
    STATES.forEach((state, i) => {
      columns.forEach((vocabulary, c) => {
        const name = stateName(state, vocabulary, { axis: 'x', dim: 0, size: 8 });
        const cell = rows[i][c + 1].replace('Shard(d)', 'Shard(0)');
        expect(cell).toContain(
          name === undefined ? 'none' : name === '' ? 'unmarked' : `\`${name}\``,
        );
      });
      expect(code(rows[i][5])[0]).toBe(gradientState(state));
    });
  });
});

describe('the script', () => {
  test('splits words as a shell does', () => {
    expect(splitWords(`draw --placement 'S(0) R' "a 'b'" c`)).toEqual([
      'draw',
      '--placement',
      'S(0) R',
      "a 'b'",
      'c',
    ]);
  });
  test('replaces what stands below a command, and nothing else', async () => {
    const block = (printed: string): string =>
      `text\n\n\`\`\`console\n$ npx shardwright draw --shape 2\n${printed}\n\`\`\`\n\n\`\`\`sh\n$ left alone\n\`\`\`\n`;
    expect((await fillDocument(block('stale\nlines'))).document).toBe(block('0  1'));
  });
  test('a command that fails is not written down', async () => {
    await expect(fillDocument('```console\n$ npx shardwright draw --shape x\n```')).rejects.toThrow(
      /exits with 2/,
    );
    await expect(fillDocument('```console\n$ rm -rf /\n```')).rejects.toThrow(
      /not a command of this tool/,
    );
  });
});
