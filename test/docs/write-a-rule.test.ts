import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { describe, expect, test } from 'vitest';

import { fillDocument } from '../../scripts/docs-capture.ts';
import { FULL } from '../support/full.ts';
import { outputOf } from './command-output.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
const document = readFileSync(`${root}docs/write-a-rule.md`, 'utf8');

describe('docs/write-a-rule.md', () => {
  // Rules are run on simulated ranks, for seconds.
  test.runIf(FULL)(
    'every block prints what stands below it (otherwise: npx tsx scripts/docs-capture.ts docs/write-a-rule.md)',
    async () => {
      expect(await fillDocument(document, outputOf)).toBe(document);
    },
  );

  test('every block is one that is run, and what is printed follows it', () => {
    const kinds = document.match(/^```.+$/gm) ?? [];
    expect(new Set(kinds)).toEqual(new Set(['```ts', '```text', '```console']));
    expect(kinds.filter((k) => k === '```ts').length).toBe(
      kinds.filter((k) => k === '```text').length,
    );
  });

  test('its operator is that of the file which its commands take', () => {
    const text = readFileSync(`${root}examples/own-operator/gated.ts`, 'utf8');
    const operator = text.slice(text.indexOf('const silu'));
    expect(document).toContain(operator.trimEnd());
  });

  test('files and documents that it names are there', () => {
    for (const [, path] of document.matchAll(/\]\(((?!http)[^)#]+)\)/g))
      expect(existsSync(`${root}docs/${path}`), path).toBe(true);
  });
});
