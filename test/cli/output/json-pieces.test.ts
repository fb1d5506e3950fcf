import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { answer, jsonPieces } from '../../../src/cli/output/io.ts';

describe('JSON in pieces', () => {
  it('is the text of JSON.stringify, whatever the value', () => {
    const odd = [
      { a: undefined, b: [undefined, () => 1, NaN, 'x'], c: null, d: () => 1, e: [], f: {} },
      [],
      {},
      1,
      'x',
      null,
    ];
    for (const value of [...odd, { toJSON: () => [1] }])
      expect([...jsonPieces(value)].join('')).toBe(JSON.stringify(value));
    fc.assert(
      fc.property(
        fc.jsonValue(),
        (value) => [...jsonPieces(value)].join('') === JSON.stringify(value),
      ),
    );
  });

  it('no piece is much longer than a mebibyte, and lists are read one item at a time', () => {
    let made = 0;
    const list = Array.from({ length: 4000 }, () => ({
      get text() {
        made++;
        return 'x'.repeat(1000);
      },
    }));
    const pieces = jsonPieces({ list, last: 1 });
    const first = pieces.next().value as string;
    expect(made).toBeLessThan(1100);
    const rest = [...pieces];
    expect(Math.max(first.length, ...rest.map((piece) => piece.length))).toBeLessThan(
      2 ** 20 + 2000,
    );
    expect(JSON.parse([first, ...rest].join(''))).toEqual({
      list: list.map(() => ({ text: 'x'.repeat(1000) })),
      last: 1,
    });
  });

  it('an answer ends with one line break', () => {
    let out = '';
    const io = { stdout: (text: string) => void (out += text) };
    answer(io, { json: true }, { a: [1, 2] }, () => 'text');
    answer(io, {}, { a: [1, 2] }, () => 'text');
    expect(out).toBe('{"a":[1,2]}\ntext\n');
  });
});
