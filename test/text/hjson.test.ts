import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { readHjson } from '../../src/text/hjson.ts';
import { refusal } from '../support/thrown.ts';

describe('Hjson', () => {
  it('JSON is read as JSON.parse reads it', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 3 })), (value) => {
        const text = JSON.stringify(value);
        const plain = JSON.stringify(JSON.parse(text));
        expect(JSON.stringify(readHjson(text))).toBe(plain);
        expect(JSON.stringify(readHjson(JSON.stringify(value, null, 2)))).toBe(plain);
      }),
    );
  });

  it('has comments, commas that may be left out, names and texts without quotes', () => {
    // The values of `hjson.loads` of Python's hjson 3.1.
    const text = `# head
{
  // one
  a: 1 # two
  "b": [1, 2,], /* three */ c: true, d: text with , and # in it
  'e': 'single', f: -1.5e3
  g: null
  h: '''
  lines
  '''
}
`;
    expect(readHjson(text)).toEqual({
      a: 1,
      b: [1, 2],
      c: true,
      d: 'text with , and # in it',
      e: 'single',
      f: -1500,
      g: null,
      h: 'lines',
    });
  });

  it.each([
    ['{"a": 1', 1, 8],
    ['{"a" 1}', 1, 6],
    ['{\n "a": "x\n}', 2, 7],
    ['{"a": 1} x', 1, 10],
    ['{"a": ,}', 1, 7],
    ['{a: 1, a: 2}', 1, 8],
    [`{"a": ${'['.repeat(300)}`, 1, 263],
  ])('refuses %j with line and column', (text, line, column) => {
    expect(refusal(() => readHjson(text)).details.position).toEqual({ line, column });
  });
});
