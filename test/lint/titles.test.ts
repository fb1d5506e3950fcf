/** Titles of tests state a fact. They hold no numbers of specifications, cases or issues of ours. */

import { readdirSync, readFileSync } from 'node:fs';

import ts from 'typescript';
import { expect, test } from 'vitest';

const root = new URL('../../', import.meta.url);

/** `PL-12`, a number in front (`4: ...`), `Issue 7`. An issue of PyTorch is a source and may stay. */
const IDENTIFIER = /\b[A-Z]{2}-\d+\b|^\W*\d+[a-z]?: |(?<!PyTorch )\bissue #?\d+/i;

/** A cheap look at a whole file: one without such a text has no such title. */
const SUSPECT = /\b[A-Z]{2}-\d+\b|['"`]\W*\d+[a-z]?: |\bissue #?\d+/i;

/** The name of the function that a call such as `test.each(rows)(title)` belongs to. */
function called(node: ts.Expression): string {
  if (ts.isPropertyAccessExpression(node) || ts.isCallExpression(node))
    return called(node.expression);
  return ts.isIdentifier(node) ? node.text : '';
}

function titles(text: string): readonly string[] {
  const found: string[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isCallExpression(node) && ['describe', 'it', 'test'].includes(called(node.expression))) {
      const [title] = node.arguments;
      if (title && (ts.isStringLiteralLike(title) || ts.isTemplateExpression(title)))
        found.push(title.getText().slice(1, -1));
    }
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile('test.ts', text, ts.ScriptTarget.Latest, true));
  return found;
}

test('the titles of all tests are free of ids', () => {
  const files = ['test/', 'site/test/'].flatMap((folder) =>
    readdirSync(new URL(folder, root), { recursive: true, encoding: 'utf8' })
      .filter((path) => path.endsWith('.test.ts'))
      .map((path) => folder + path),
  );
  expect(files.length).toBeGreaterThan(300);
  const found = files.flatMap((path) => {
    const text = readFileSync(new URL(path, root), 'utf8');
    const list = SUSPECT.test(text) ? titles(text) : [];
    return list.filter((title) => IDENTIFIER.test(title)).map((title) => ({ path, title }));
  });
  expect(found).toEqual([]);
});

test('an id in the title of a test, a group or a table is found', () => {
  const text = `
    describe('PL-3 texts', () => {
      test.each([[1]])('4: a limit of %i', () => {});
      it(\`issue 7 on \${name}\`, () => {});
      it('keeps the factor (PyTorch issue 171942)', () => {});
      it('2 of 3 ranks agree', () => {});
    });`;
  expect(SUSPECT.test(text)).toBe(true);
  const found = titles(text);
  expect(found.map((title) => IDENTIFIER.test(title))).toEqual([true, true, true, false, false]);
});
