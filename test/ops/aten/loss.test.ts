/** Rules of the cross entropy of logits. */

import { expect, test } from 'vitest';

import { builtinOperators } from '../../../src/ops/builtin.ts';
import { ruleText } from '../../../src/ops/record/rule.ts';
import { bindText, parseCall } from '../../../src/ops/samples/call-text.ts';

function rulesOf(text: string): readonly string[] {
  const { record, ctx } = bindText(builtinOperators(), parseCall(text));
  return record.shard(ctx).map(ruleText);
}

test.each([2, 6])('a batch of %i may be cut, and a batch of one may not', (rows) => {
  const cut = `S(0), S(0) -> S(0)`;
  expect(rulesOf(`cross_entropy_loss(x[${rows},5], index5[${rows}], None, 0)`)).toContain(cut);
  expect(rulesOf('cross_entropy_loss(x[1,5], index5[1], None, 0)')).not.toContain(cut);
});
