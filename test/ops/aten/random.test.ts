/** Rules of multinomial, whose draws depend on a whole row of weights. */

import { expect, test } from 'vitest';

import { builtinOperators } from '../../../src/ops/builtin.ts';
import { ruleText } from '../../../src/ops/record/rule.ts';
import { bindText, parseCall } from '../../../src/ops/samples/call-text.ts';
import { validateRules } from '../../../src/simulate/rule-check/check.ts';

const operators = builtinOperators();

function rulesOf(text: string): readonly string[] {
  const { record, ctx } = bindText(operators, parseCall(text));
  return record.shard(ctx).map(ruleText);
}

test('multinomial may cut the rows of its weights, and never a row', () => {
  expect(rulesOf('multinomial(f32[8,6], 3)')).toEqual(['S(0) -> S(0)']);
  expect(rulesOf('multinomial(f32[8], 3)')).toEqual([]);
});

test('every rule of every random operator holds on virtual devices', () => {
  const names = operators.records.filter(({ cls }) => cls === 'random').map(({ name }) => name);
  expect(names).toContain('aten.multinomial.default');
  const found = validateRules(operators, { operators: names, complete: false });
  expect(found.rulesChecked).toBeGreaterThan(names.length);
  expect(found.unsound).toEqual([]);
});
