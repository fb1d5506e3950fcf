import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { Arg, ValueType } from '../../../src/graph/types.ts';
import { tensorType } from '../../../src/graph/value.ts';
import { inferSymbolic } from '../../../src/import/complete/symbolic.ts';
import { readJson } from '../../../src/import/file/json.ts';
import { Place } from '../../../src/import/pt2/place.ts';
import { sizeExpression } from '../../../src/import/pt2/sympy.ts';
import { infer, refusal } from '../twins.ts';

describe('the JSON reader', () => {
  test('agrees with JSON.parse on any value that both hold', () => {
    const plain = (value: unknown): unknown =>
      typeof value === 'bigint'
        ? Number(value)
        : typeof value !== 'object' || value === null
          ? value
          : Array.isArray(value)
            ? value.map(plain)
            : Object.fromEntries(Object.entries(value).map(([k, v]) => [k, plain(v)]));
    fc.assert(
      fc.property(fc.json({ maxDepth: 6 }), (text) => {
        const wanted: unknown = JSON.parse(text, (_key, value: unknown) =>
          Object.is(value, -0) ? 0 : value,
        );
        expect(plain(readJson(text))).toEqual(plain(wanted));
      }),
    );
  });

  test('integers are exact beyond 2^53, and keys cannot reach a prototype', () => {
    expect(readJson('[9007199254740993, -9223372036854775808, 1.5, 1e3, 0]')).toEqual([
      9007199254740993n,
      -9223372036854775808n,
      1.5,
      1000,
      0,
    ]);
    const hostile = readJson('{"__proto__": {"x": 1}, "constructor": 2}') as Record<
      string,
      unknown
    >;
    expect(Object.keys(hostile)).toEqual(['__proto__', 'constructor']);
    expect(Object.getPrototypeOf(hostile)).toBeNull();
    expect(Object.prototype).not.toHaveProperty('x');
  });

  test.each([
    ['{"a": 1,\n "a": 2}', '2:2: E_DUP the key "a" occurs twice in one object'],
    ['[1, 2', `1:6: E_SYNTAX expected ',' or ']', found the end of the text`],
    ['[01]', `1:2: E_SYNTAX expected a number, found '01]'`],
    ['[1.]', '1:4: E_SYNTAX digits must follow the decimal point'],
    ['"\n"', '1:2: E_SYNTAX a control character in a string must be written as \\u00XX'],
    ['"\\x"', '1:1: E_SYNTAX an escape in the string is none of JSON'],
    ['{} x', `1:4: E_SYNTAX expected the end of the text, found 'x'`],
    ['', '1:1: E_SYNTAX expected a value, found the end of the text'],
  ])('%j', (text, headline) => {
    expect(refusal(() => readJson(text)).headline).toBe(headline);
  });

  test('100,000 nested brackets of JSON are refused with the limit', () => {
    expect(refusal(() => readJson('['.repeat(100_000))).headline).toBe(
      '1:257: E_LIMIT lists and objects nest deeper than 256',
    );
  });
});

describe('size expressions of torch.export', () => {
  const root = new Place(undefined, '$');
  test.each([
    [`Symbol('s77', positive=True, integer=True)`, 's77'],
    [`Add(Symbol('s77', positive=True, integer=True), Integer(1))`, 's77 + 1'],
    [`Add(Symbol('s77'), Integer(-1))`, 's77 - 1'],
    [`Mul(Integer(2), Symbol('s0'))`, '2*s0'],
    [`Mul(Integer(2), Add(Symbol('s0'), Integer(3)))`, '2*(s0 + 3)'],
    [`Mul(Integer(2), FloorDiv(Symbol('s77'), Integer(2)))`, '2*((s77//2))'],
    [`Max(Integer(1), Symbol('u0'))`, 'Max(1, u0)'],
    [`Pow(Symbol('s0'), Integer(2))`, 's0**2'],
  ])('%s', (source, wanted) => {
    expect(sizeExpression(source, root)).toBe(wanted);
  });
  test.each([
    [`Integer(`, 'E_SYNTAX'],
    [`Evil(1)`, 'E_UNSUPPORTED'],
    [`Symbol(s)`, 'E_SYNTAX'],
    [`Add(`.repeat(80), 'E_LIMIT'],
    [`${'x'.repeat(5000)}`, 'E_LIMIT'],
    [`Integer(1) 2`, 'E_SYNTAX'],
  ])('%s is refused', (source, code) => {
    expect(refusal(() => sizeExpression(source, root)).code).toBe(code);
  });
});

describe('types with symbolic sizes', () => {
  const s = { sym: 's0', example: 8 };
  const types: Record<string, ValueType> = {
    x: tensorType('f32', [s, 6]),
    w: tensorType('f32', [6, 5]),
    two: tensorType('f32', [{ sym: 's0 + 1' }, 6]),
    turned: tensorType('f32', [6, { sym: 'm' }]),
    n: { kind: 'sym', expr: 's0' },
  };
  const ref = (name: string): Arg => ({ kind: 'value', name });
  const shape = (target: string, args: Arg[]): unknown => {
    const type = inferSymbolic(
      infer,
      { target, args, kwargs: {}, name: 'y' },
      (name) => types[name],
    );
    return type?.kind === 'tensor' ? type.shape : type?.kind;
  };
  test('a size that grows with one of an operand is that size, a multiple, a shift or a product', () => {
    expect(shape('aten.mm.default', [ref('x'), ref('w')])).toEqual([s, 5]);
    expect(shape('aten.view.default', [ref('x'), [-1]])).toEqual([{ sym: '6*s0', example: 48 }]);
    expect(shape('aten.view.default', [ref('x'), [ref('n'), 2, 3]])).toEqual([s, 2, 3]);
    expect(refusal(() => shape('aten.cat.default', [[ref('x'), ref('w')]])).code).toBe('E_TYPE');
    // 2*s0 + 1 is none of these.
    expect(shape('aten.cat.default', [[ref('x'), ref('two')]])).toBe(undefined);
    expect(shape('aten.slice.Tensor', [ref('x'), 0, 1, 9223372036854775807n])).toEqual([
      { sym: 's0 - 1', example: 7 },
      6,
    ]);
    expect(shape('aten.matmul.default', [ref('x'), ref('w')])).toEqual([s, 5]);
    expect(shape('aten.matmul.default', [ref('x'), ref('turned')])).toEqual([s, { sym: 'm' }]);
  });
});
