/** The lint rule `file-head`: which texts of a file it accepts as an opening paragraph. */

import { Linter } from 'eslint';
import { expect, test } from 'vitest';

import { fileHead } from '../../scripts/lint/file-head.mjs';

const found = (text: string): readonly string[] =>
  new Linter()
    .verify(text, [
      {
        plugins: { house: { rules: { 'file-head': fileHead } } },
        rules: { 'house/file-head': ['error', { words: 5 }] },
      },
    ])
    .map(({ messageId, message }) => messageId ?? message);

test('a file opens with a paragraph before its imports', () => {
  expect(found('/** Takes a mesh and gives its devices. */\nimport "x";\n')).toEqual([]);
  expect(
    found('#!/usr/bin/env node\n/** Takes a mesh and gives its devices. */\nimport "x";\n'),
  ).toEqual([]);
  expect(found('/** Takes a mesh and gives its devices. */\n')).toEqual([]);
});

test('a comment behind the imports, of another form, or of too few words is none', () => {
  expect(found('import "x";\n/** Takes a mesh and gives its devices. */\n')).toEqual(['missing']);
  expect(found('// Takes a mesh and gives its devices.\nimport "x";\n')).toEqual(['missing']);
  expect(found('/* Takes a mesh and gives its devices. */\nimport "x";\n')).toEqual(['missing']);
  expect(found('import "x";\n')).toEqual(['missing']);
  expect(found('/** Makes, - * devices. */\nimport "x";\n')).toEqual(['short']);
});
