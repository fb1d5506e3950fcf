/**
 * Titles of tests state a fact: with the titles of their groups they are sentences, and they hold no
 * numbers of specifications, cases or issues of ours.
 */

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

/** A title of a group or a test; `sentence`: after those of the groups around it. */
interface Title {
  readonly own: string;
  readonly sentence: string;
  readonly isGroup: boolean;
}

function titles(text: string): readonly Title[] {
  const found: Title[] = [];
  const source = ts.createSourceFile('test.ts', text, {
    languageVersion: ts.ScriptTarget.Latest,
    jsDocParsingMode: ts.JSDocParsingMode.ParseNone,
  });
  const visit = (node: ts.Node, around: string): void => {
    let inside = around;
    if (ts.isCallExpression(node) && ['describe', 'it', 'test'].includes(called(node.expression))) {
      const [title] = node.arguments;
      if (title && (ts.isStringLiteralLike(title) || ts.isTemplateExpression(title))) {
        const own = title.getText(source).slice(1, -1);
        const sentence = `${around} ${own}`.trim();
        const isGroup = called(node.expression) === 'describe';
        found.push({ own, sentence, isGroup });
        if (isGroup) inside = sentence;
      }
    }
    ts.forEachChild(node, (child) => visit(child, inside));
  };
  visit(source, '');
  return found;
}

/** The least words of a sentence; a value of a table is one. */
const LEAST_WORDS = 3;
const isSentence = ({ sentence, isGroup }: Title): boolean =>
  isGroup || sentence.replace(/\$\{[^}]*\}/g, 'value').split(/\s+/).length >= LEAST_WORDS;

const files = ['test/', 'site/test/'].flatMap((folder) =>
  readdirSync(new URL(folder, root), { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.test.ts'))
    .map((path) => [folder + path, readFileSync(new URL(folder + path, root), 'utf8')] as const),
);

test('the titles of all tests are free of ids', () => {
  expect(files.length).toBeGreaterThan(300);
  const found = files.flatMap(([path, text]) => {
    const list = SUSPECT.test(text) ? titles(text) : [];
    return list.filter(({ own }) => IDENTIFIER.test(own)).map(({ own }) => ({ path, own }));
  });
  expect(found).toEqual([]);
});

test('the title of every test is a sentence with those of its groups', () => {
  const found = files.flatMap(([path, text]) =>
    titles(text)
      .filter((title) => !isSentence(title))
      .map(({ sentence }) => ({ path, sentence })),
  );
  expect(found).toEqual([]);
});

test('a title of two words, or of a group and a value, is found', () => {
  const text = `
    describe('texts', () => {
      test.each(rows)('%s', () => {});
      test('are read', () => {});
    });
    test('three operands', () => {});
    test(\`every \${kindOf('thing')} adds\`, () => {});`;
  const found = titles(text).filter((title) => !isSentence(title));
  expect(found.map(({ sentence }) => sentence)).toEqual(['texts %s', 'three operands']);
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
  const isId = found.map(({ own }) => IDENTIFIER.test(own));
  expect(isId).toEqual([true, true, true, false, false]);
});
