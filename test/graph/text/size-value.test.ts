import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { sizeNames, sizeValue } from '../../../src/graph/text/size-value.ts';
import { SizeExpression } from '../../../src/trace/sizes/size-expression.ts';

const values = new Map([
  ['s0', 7],
  ['s77', 12],
  ['u0', 3],
]);

describe('values of size expressions', () => {
  // As Python evaluates them, with s0 = 7, s77 = 12, u0 = 3.
  it.each([
    ['s0', 7],
    ['12', 12],
    ['2*((s77//2))', 12],
    ['s77 + 2*s0 - 1', 25],
    ['(s0 + 1)//2', 4],
    ['s0//2*2', 6],
    ['s77 - s0//2', 9],
    ['s77%5', 2],
    ['(1 - s0)%4', 2],
    ['Max(1, u0)', 3],
    ['Min(s0, u0, s77)', 3],
    ['max(s0, min(u0, 2))', 7],
    ['FloorDiv(s77, 5)', 2],
    ['Mod(s77, 5)', 2],
    ['floordiv(s77, 5) + mod(s77, 5)', 4],
    ['u0**2', 9],
    ['s77/4', 3],
    ['-s0 + s77', 5],
  ])('%s = %i', (text, value) => {
    expect(sizeValue(text, values)).toBe(value);
  });

  it.each([
    's1',
    's77/5',
    's0 - s77',
    's0//0',
    's0 +',
    '(s0',
    's0)',
    'foo(s0, 2)',
    's0 2',
    '',
    '9007199254740993*s0',
    '('.repeat(5000) + '1' + ')'.repeat(5000),
  ])('no value: %.30s', (text) => {
    expect(sizeValue(text, values)).toBeUndefined();
  });

  it('names, without those of functions', () => {
    expect(sizeNames('Max(s0, 2*u0) + FloorDiv(s0, min_1)')).toEqual(['s0', 'u0', 'min_1']);
    expect(sizeNames('12')).toEqual([]);
  });

  it('the texts of traced size expressions have the values that the expressions have', () => {
    const leaf = fc.oneof(
      fc.constantFrom('s0', 's77', 'u0').map((name) => SizeExpression.dim(name)),
      fc.integer({ min: 1, max: 9 }).map((n) => SizeExpression.constant(n)),
    );
    const tree = fc.letrec<{ node: SizeExpression }>((tie) => ({
      node: fc.oneof(
        { maxDepth: 4 },
        leaf,
        fc
          .tuple(
            fc.constantFrom(
              'plus' as const,
              'times' as const,
              'minus' as const,
              'min' as const,
              'max' as const,
            ),
            tie('node'),
            tie('node'),
          )
          .map(([op, a, b]) => a[op](b)),
        // A divisor that is a leaf is not zero.
        fc
          .tuple(fc.constantFrom('floordiv' as const, 'mod' as const), tie('node'), leaf)
          .map(([op, a, b]) => a[op](b)),
      ),
    })).node;
    fc.assert(
      fc.property(tree, (expression) => {
        const value = expression.evaluate(values);
        const expected = Number.isSafeInteger(value) && value >= 0 ? value : undefined;
        expect(sizeValue(expression.text, values)).toBe(expected);
      }),
      { numRuns: 2000 },
    );
  });
});
