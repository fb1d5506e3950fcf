import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { describe, expect, test } from 'vitest';

import { fillDocument } from '../../scripts/docs-capture.ts';
import {
  primitive,
  type PrimitiveName,
  primitiveText,
  transposeOf,
} from '../../src/mesh/local-types/primitives.ts';
import { gradientType, isAxisType } from '../../src/mesh/local-types/types.ts';
import { outputOf } from './command-output.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
const document = readFileSync(`${root}docs/local-spmd.md`, 'utf8');

/** Cells of the table that starts with a head, without head and rule. */
function rows(head: string): string[][] {
  const lines = document.split('\n');
  const start = lines.findIndex((line) => line.startsWith(`| ${head}`));
  const end = lines.findIndex((line, i) => i > start && !line.startsWith('|'));
  return lines.slice(start + 2, end).map((line) =>
    line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
}

describe('docs/local-spmd.md', () => {
  test('every block prints what stands below it (otherwise: npx tsx scripts/docs-capture.ts docs/local-spmd.md)', async () => {
    expect(await fillDocument(document, outputOf)).toBe(document);
    const kinds = document.match(/^```.+$/gm) ?? [];
    expect(new Set(kinds)).toEqual(new Set(['```ts', '```text', '```console']));
    expect(kinds.filter((k) => k === '```ts').length).toBe(
      kinds.filter((k) => k === '```text').length,
    );
  });

  test('the table of types has their gradients', () => {
    const types = rows('type').map(([type, , gradient]) =>
      [type, gradient].map((t) => t.replaceAll('`', '').replace('(d)', '(1)')),
    );
    expect(types).toHaveLength(5);
    for (const [type, gradient] of types)
      expect(isAxisType(type) && gradientType(type)).toBe(gradient);
  });

  test('the table of verbs has their gradients', () => {
    const verb = (cell: string): string =>
      cell
        .replace(/,.*/, '')
        .replaceAll('(d)', '(2)')
        .replaceAll('(i)', '(2)')
        .replaceAll('(j)', '(3)');
    const table = rows('forward').map(([forward, gradient]) => [verb(forward), verb(gradient)]);
    expect(table).toHaveLength(9);
    for (const [forward, gradient] of table) {
      const [, op, src, dst] = /^`(\w+)` (.+)→(.+)$/.exec(forward) ?? [];
      if (!isAxisType(src) || !isAxisType(dst)) throw new Error(forward);
      const found = transposeOf(primitive(op as PrimitiveName, src, dst)).map(primitiveText);
      expect(found).toEqual([gradient.replace(/^`(\w+)` (.+)$/, '$1($2)')]);
    }
  });

  test('files and documents that it names are there', () => {
    for (const [, path] of document.matchAll(/`((?:examples|test)\/[\w./-]+)`/g))
      expect(existsSync(root + path), path).toBe(true);
    for (const [, path] of document.matchAll(/\]\(((?!http)[^)#]+)\)/g))
      expect(existsSync(`${root}docs/${path}`), path).toBe(true);
  });
});
