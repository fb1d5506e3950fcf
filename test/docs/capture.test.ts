import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { describe, expect, test } from 'vitest';

import { DOCUMENT, fillDocument, printed, verdict } from '../../scripts/docs-capture.ts';
import { outputOf } from './command-output.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
const document = readFileSync(DOCUMENT, 'utf8');

describe('docs/capture.md', () => {
  test('every block prints what stands below it, every refusal has its code (otherwise: npx tsx scripts/docs-capture.ts)', async () => {
    expect(await fillDocument(document, outputOf)).toBe(document);
  });

  test('every block of the page is run', () => {
    const kinds = document.match(/^```.+$/gm) ?? [];
    expect(new Set(kinds)).toEqual(
      new Set(['```ts', '```ts check', '```ts rewrite', '```text', '```console']),
    );
    // What is printed follows what prints it.
    expect(document.match(/^```text$/gm)?.length).toBe(
      document.match(/^```ts( check| rewrite)?$/gm)?.length,
    );
    for (const [, block] of document.matchAll(/^```console\n([^]*?)^```$/gm))
      expect(block).toMatch(/^\$ shardwright /);
  });

  test('a block that prints something else, fails or is not refused would be seen', async () => {
    const shown = (text: string): string =>
      `\`\`\`ts\nconsole.log(1);\n\`\`\`\n\n\`\`\`text\n${text}\n\`\`\`\n`;
    expect(await fillDocument(shown('2'))).toBe(shown('1'));
    await expect(printed('throw new Error("no");', 'plain')).rejects.toThrow('no');
    expect(await verdict('x.add(y)')).toBe('accepted');
    expect(await verdict('x + y')).toBe('E_TRACE_COERCE');
  });

  test('files and documents that it names are there', () => {
    for (const [, path] of document.matchAll(/`(examples\/[\w.-]+)`/g))
      expect(existsSync(root + path), path).toBe(true);
    for (const [, path] of document.matchAll(/\]\(((?!http)[^)#]+)\)/g))
      expect(existsSync(`${root}docs/${path}`), path).toBe(true);
  });
});
