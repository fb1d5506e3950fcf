/** Runs the `@example` of each main function of the library. */

import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import ts from 'typescript';
import { describe, expect, test } from 'vitest';

import { printed } from '../../scripts/docs-capture.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
const read = (file: string): string => readFileSync(`${root}${file}`, 'utf8');

/** The functions that README.md lists. */
const FUNCTIONS = [
  ...read('README.md')
    .split('| function ')[1]
    .split('\n\n')[0]
    .matchAll(/^\| (`[^|]*`) *\|/gm),
].flatMap(([, cell]) => [...cell.matchAll(/`(\w+)`/g)].map(([, name]) => name));

/** The file that declares a name of the main entry, and the name that it has there. */
function declared(name: string): { readonly file: string; readonly own: string } {
  const entry = read('src/index.ts');
  const exported = new RegExp(
    `^export \\{[^}]*?(?:(\\w+) as )?\\b${name}\\b[^}]*\\} from '\\./([^']+)'`,
    'm',
  );
  const [, own = name, file] = exported.exec(entry) ?? [];
  return { file: `src/${file}`, own };
}

/** Programs in the docstring of a function. */
function examples(name: string): string[] {
  const { file, own } = declared(name);
  const source = ts.createSourceFile(file, read(file), ts.ScriptTarget.ES2023, true);
  const found = source.statements.find(
    (statement) => ts.isFunctionDeclaration(statement) && statement.name?.text === own,
  );
  const tags = found === undefined ? [] : ts.getJSDocTags(found);
  return tags
    .filter((tag) => tag.tagName.text === 'example')
    .map((tag) => /```ts\n([^]*?)```/.exec(ts.getTextOfJSDocComment(tag.comment) ?? '')?.[1] ?? '');
}

/** What the comments behind its calls of `console.log` say that a program prints. */
function promised(program: string): string {
  return [...program.matchAll(/console\.log\(.*\); \/\/ (.*)$/gm)]
    .map(([, text]) => text)
    .join('\n');
}

describe('the example of a main function prints what its comments say', () => {
  test.each(FUNCTIONS)('%s', async (name) => {
    const programs = examples(name);
    expect(programs.length).toBeGreaterThan(0);
    for (const program of programs) {
      expect(program).toMatch(
        new RegExp(`import \\{[^}]*\\b${name}\\b[^}]*\\} from 'shardwright'`),
      );
      expect(promised(program)).not.toBe('');
      expect(await printed(program, 'plain')).toBe(promised(program));
    }
  });
});
