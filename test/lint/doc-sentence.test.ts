/** The lint rule `doc-sentence`: which beginnings of a doc comment it accepts. */

import { Linter } from 'eslint';
import { expect, test } from 'vitest';

import { docSentence } from '../../scripts/lint/doc-sentence.mjs';

const found = (text: string): readonly string[] =>
  new Linter()
    .verify(text, [
      {
        plugins: { house: { rules: { 'doc-sentence': docSentence } } },
        rules: { 'house/doc-sentence': 'error' },
      },
    ])
    .map(({ message }) => /'(\w+)'/.exec(message)?.[1] ?? message);

test('a doc comment that begins with a clause without its noun is refused', () => {
  expect(found('/** What a run costs. */\nlet x;\n')).toEqual(['What']);
  expect(found('/**\n * Whether it fits, activations\n * included.\n */\nlet x;\n')).toEqual([
    'Whether',
  ]);
  expect(found('let x;\n/** Of the best plan. */\nlet y;\n')).toEqual(['Of']);
});

test('nouns, verbs and comments that document nothing may begin as they like', () => {
  expect(found('/** The price of a run. */\nlet x;\n')).toEqual([]);
  expect(found('/** What-if questions on a request. */\nlet x;\n')).toEqual([]);
  expect(found('/** Tells whether it fits. */\nlet x;\n')).toEqual([]);
  expect(found('// What follows is sorted.\nlet x;\n')).toEqual([]);
});
