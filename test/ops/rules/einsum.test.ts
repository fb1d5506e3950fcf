import { describe, expect, test } from 'vitest';

import { ruleText } from '../../../src/ops/record/rule.ts';
import { einsumFlops, einsumRules } from '../../../src/ops/rules/einsum.ts';
import { classify } from '../../../src/ops/rules/equation.ts';

describe('einsum rules', () => {
  test('letters are sorted into batch, contracting and free ones', () => {
    const dims = (equation: string): string => {
      const { batch, contraction, free } = classify(equation);
      return [batch, contraction, ...free].map((letters) => letters.join('')).join('|');
    };
    expect(dims('bmk,bkn->bmn')).toBe('b|k|m|n');
    expect(dims('abc,ab->abc')).toBe('ab||c|');
    expect(dims('abd,bf->abfd')).toBe('b||ad|f');
    expect(dims('bcmk,bckn->bcmn')).toBe('bc|k|m|n');
  });

  test.each([
    ['mk,kn->mn', 4, 16],
    ['bmk,bkn->bmn', 5, 25],
    ['bmk,kn->bmn', 5, 25],
    ['bmk,k->bm', 4, 16],
    ['abcd,abcd->abcd', 5, 25],
    ['bcd,abcd->abcd', 5, 25],
  ])('%s has %i rules without linearity, %i on two mesh dims', (equation, count, squared) => {
    const rules = einsumRules(equation, { linear: false }).length + 1; // the all-replicate rule
    expect(rules).toBe(count);
    expect(rules ** 2).toBe(squared);
  });

  test('jointly linear functions add one rule per linear kind', () => {
    const texts = einsumRules('abcd,abcd->abcd', { jointlyLinear: true }).map(ruleText);
    expect(texts.filter((t) => t.startsWith('P'))).toEqual([
      'P(sum), P(sum) -> P(sum)',
      'P(avg), P(avg) -> P(avg)',
    ]);
  });

  test('a product never takes two pending sums', () => {
    for (const equation of ['mk,kn->mn', 'ab,ab->ab', 'i,i->']) {
      expect(
        einsumRules(equation)
          .map(ruleText)
          .filter((t) => /^P\(\w+\), P/.test(t)),
      ).toEqual([]);
    }
  });

  test('the rules of mm, in the order that breaks ties', () => {
    expect(einsumRules('mk,kn->mn').map(ruleText)).toEqual([
      'S(1), S(0) -> P(sum)',
      'S(0), R -> S(0)',
      'R, S(1) -> S(1)',
      'P(sum), R -> P(sum)',
      'R, P(sum) -> P(sum)',
      'P(avg), R -> P(avg)',
      'R, P(avg) -> P(avg)',
    ]);
  });

  test.each([
    ['(n)', [16], ['P(sum), S(1), S(0) -> P(sum)', 'R, S(0), R -> S(0)', 'S(0), R, S(1) -> S(1)']],
    [
      '(1, n)',
      [1, 16],
      ['P(sum), S(1), S(0) -> P(sum)', 'R, S(0), R -> S(0)', 'S(1), R, S(1) -> S(1)'],
    ],
    [
      '(m, 1)',
      [8, 1],
      ['P(sum), S(1), S(0) -> P(sum)', 'S(0), S(0), R -> S(0)', 'R, R, S(1) -> S(1)'],
    ],
    ['()', [], ['P(sum), S(1), S(0) -> P(sum)', 'R, S(0), R -> S(0)', 'R, R, S(1) -> S(1)']],
  ])('a bias of shape %s follows the output', (_, shape, expected) => {
    const rules = einsumRules('mk,kn->mn', { linear: false, bias: { shape, output: [8, 16] } });
    expect(rules.map(ruleText)).toEqual(expected);
  });

  test('a letter that one operand alone carries and nobody returns is a plain sum; a diagonal stays whole', () => {
    expect(einsumRules('mk,n->mn', { linear: false }).map(ruleText)).toEqual([
      'S(1), R -> P(sum)',
      'S(0), R -> S(0)',
      'R, S(0) -> S(1)',
    ]);
    expect(einsumRules('ii->i', { linear: false })).toEqual([]);
  });

  test('an einsum of three operands has a rule for each letter', () => {
    expect(einsumRules('ab,bc,cd->ad', { linear: false }).map(ruleText)).toEqual([
      'S(1), S(0), R -> P(sum)',
      'R, S(1), S(0) -> P(sum)',
      'S(0), R, R -> S(0)',
      'R, R, S(1) -> S(1)',
    ]);
  });

  test('FLOPs are two per multiply-add', () => {
    expect(einsumFlops('mk,kn->mn', [3, 5], [5, 7])).toBe(2 * 3 * 5 * 7);
    expect(einsumFlops('bmk,bkn->bmn', [2, 3, 5], [2, 5, 7])).toBe(2 * 2 * 3 * 5 * 7);
  });
});
