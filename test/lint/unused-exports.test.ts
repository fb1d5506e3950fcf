/** No exported value of src/ is there for tests alone. */

import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { expect, test } from 'vitest';

import { unusedExports } from '../../scripts/lint/unused-exports.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));

function textsOf(folders: readonly string[]): Map<string, string> {
  const texts = new Map<string, string>();
  for (const folder of folders)
    for (const path of readdirSync(`${root}/${folder}`, {
      recursive: true,
      encoding: 'utf8',
    }).sort()) {
      const name = `${folder}/${path.replaceAll('\\', '/')}`;
      if (/\.(ts|mjs)$/.test(path) && !/\/(dist|packed|node_modules|test)\//.test(name))
        texts.set(name, readFileSync(`${root}/${name}`, 'utf8'));
    }
  return texts;
}

test('every exported value of src/ has a use outside of the tests', () => {
  const texts = textsOf(['src', 'site', 'scripts', 'bench', 'examples']);
  expect(texts.size).toBeGreaterThan(1000);
  const { exports } = JSON.parse(readFileSync(`${root}/package.json`, 'utf8')) as {
    exports: Record<string, string | { default: string }>;
  };
  const entries = Object.values(exports).flatMap((entry) =>
    typeof entry === 'string'
      ? []
      : [entry.default.replace('./dist/', 'src/').replace(/\.js$/, '.ts')],
  );
  // Hooks of Node's module loader, functions that rewritten programs call by name, and what the
  // page has in place of platform/node.ts.
  const called = [
    'src/trace/source/loader.ts',
    'src/trace/source/hooks.ts',
    'src/platform/browser.ts',
  ];
  expect(unusedExports(texts, [...entries, ...called])).toEqual([]);
});

test('a value that nobody names is found, one that its own file or another one uses is not', () => {
  const texts = new Map([
    [
      'src/a.ts',
      'export const idle = 1;\n/** As idle as idle. */\nexport function own(): number {\n  return own();\n}\nexport class Far {}\n',
    ],
    [
      'src/b.ts',
      "import {\n  type Far as Near,\n} from './a.ts';\nexport const loaded = (): Near => 1;\n",
    ],
    ['src/c.ts', "import * as all from './d.ts';\nexport const c = import('./b.ts');\n"],
    ['src/d.ts', 'export const d = 1;\n'],
  ]);
  expect(unusedExports(texts, [])).toEqual(['src/a.ts: idle', 'src/c.ts: c']);
  expect(unusedExports(texts, ['src/c.ts'])).toEqual(['src/a.ts: idle']);
});
