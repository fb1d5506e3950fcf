import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';

import { parseJson } from '../../src/text/json.ts';
import { jsonFault } from '../../src/text/json-fault.ts';
import { refusal } from '../support/thrown.ts';

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Single characters that JSON gives a meaning, or that it refuses. */
const CHARS = ['{', '}', '[', ']', ',', ':', '"', '\\', '0', '1', '-', '+', '.', 'e', 'E', 'u', 't']
  .concat(['n', 'true', 'null', ' ', '\n', '\t', '\u00a0', '\u0000', '//', '#', 'é', '٣', '\u2028'])
  .concat(['\ufeff', '😀', '\ud800', 'NaN', 'Infinity', '\\u12', '\\x', "'"]);

describe('the place where a text stops being JSON', () => {
  test('there is one exactly where JSON.parse refuses', () => {
    fc.assert(
      fc.property(
        fc.json(),
        fc.array(fc.tuple(fc.nat(), fc.nat(2), fc.constantFrom(...CHARS)), { maxLength: 3 }),
        (json, edits) => {
          let text = json;
          for (const [at, removed, added] of edits) {
            const k = at % (text.length + 1);
            text = text.slice(0, k) + added + text.slice(k + removed);
          }
          expect([text, jsonFault(text) === undefined]).toEqual([text, isJson(text)]);
        },
      ),
      { numRuns: 2000 },
    );
  });

  test('JSON up to there can be continued, and is none with what stands there', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...CHARS), { maxLength: 12 }), (parts) => {
        const text = parts.join('');
        const fault = jsonFault(text);
        if (fault === undefined || fault.why.includes('string')) return;
        // Nothing is wrong before the place: what is missing there is the end, or a next token.
        const before = jsonFault(text.slice(0, fault.at));
        if (before !== undefined) expect(before.why).toContain('found the end of the text');
      }),
      { numRuns: 2000 },
    );
  });

  it.each<[string, number, string]>([
    ['', 0, 'expected a value, found the end of the text'],
    ['{"a": 1,}', 8, "expected a name in double quotes, found '}'"],
    ['[1 2]', 3, "expected ',' or ']', found '2'"],
    ['{"a" 1}', 5, "expected ':', found '1'"],
    ['{"a": NaN}', 6, "expected a value, found 'NaN'"],
    ['// no\n1', 0, "expected a value, found '//' (JSON has no comments)"],
    ['01', 1, "expected the end of the text, found '1'"],
    ['"a\nb"', 2, 'a string holds a line break or another control character'],
    [String.raw`"\x"`, 1, 'a string holds an unknown escape'],
    ['["a', 3, `expected '"' at the end of a string, found the end of the text`],
  ])('%j', (text, at, why) => {
    expect(jsonFault(text)).toEqual({ at, why });
  });

  test('a million brackets are read', () => {
    expect(jsonFault('['.repeat(1e6))?.at).toBe(1e6);
  });
});

test('an error names the file, line and column, and shows the line', () => {
  const { headline, details } = refusal(() => parseJson('{\n  "a": oops\n}', { file: 'x.json' }));
  expect(headline).toBe("x.json:2:8: E_SYNTAX not JSON: expected a value, found 'oops'");
  expect(details).toMatchObject({ excerpt: '  "a": oops', position: { line: 2, column: 8 } });
});

test('a byte order mark is no part of the text', () => {
  expect(parseJson('\ufeff{"a": 1}')).toEqual({ a: 1 });
});
