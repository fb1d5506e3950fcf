import { describe, expect, test } from 'vitest';

import { builtinOperators } from '../../src/ops/builtin.ts';
import { bind } from '../../src/ops/record/infer.ts';
import { defineOp, type OperatorRecord } from '../../src/ops/record/record.ts';
import { P, R, rule, ruleText, S } from '../../src/ops/record/rule.ts';
import { OperatorRegistry } from '../../src/ops/registry.ts';
import { refusal } from '../support/thrown.ts';

const mine = (name: string, aliases: readonly string[] = []): OperatorRecord =>
  defineOp(name, {
    schema: 'Tensor x, Tensor w',
    cls: 'other',
    aliases,
    infer: (ctx) => [ctx.inputs[0]],
    shard: () => [rule([S(0), R], [S(0)])],
  });
const registry = (): OperatorRegistry => new OperatorRegistry(builtinOperators());
const rulesOf = (r: OperatorRegistry, target: string, shape = [8, 8]): string[] => {
  const table = r.table();
  const ref = (name: string) => ({ kind: 'value', name }) as const;
  const ctx = bind(table, { target, args: [ref('a'), ref('b')], kwargs: {} }, () => ({
    kind: 'tensor',
    dtype: 'f32',
    shape,
  }));
  if (ctx === undefined) throw new Error(`no ${target}`);
  return (table.get(target)?.shard(ctx) ?? []).map(ruleText);
};

describe('registering operators', () => {
  test('the same name twice is an error that names both places; replace is accepted and listed', () => {
    const r = registry();
    r.registerOp(mine('my.op.default'), { site: 'first.ts:1' });
    const error = refusal(() => r.registerOp(mine('my.op.default'), { site: 'second.ts:2' }));
    expect(error.code).toBe('E_DUP');
    expect(error.message).toMatch(
      /'my\.op\.default' is registered twice: first\.ts:1, and second\.ts:2/,
    );
    r.registerOp(mine('my.op.default'), { site: 'second.ts:2', replace: true });
    expect(r.replaced).toEqual([
      { name: 'my.op.default', before: 'first.ts:1', after: 'second.ts:2' },
    ]);
    expect(
      r
        .table()
        .names()
        .filter((n) => n === 'my.op.default'),
    ).toHaveLength(1);
  });

  test('a built-in operator and an alias count as well; the place is the caller by default', () => {
    const r = registry();
    expect(refusal(() => r.registerOp(mine('aten.mm.default'))).message).toMatch(
      /built in, and registry\.test\.ts:\d+|built in, and .*:\d+/,
    );
    expect(
      refusal(() => r.registerOp(mine('my.other.default', ['aten._unsafe_index.Tensor']))).message,
    ).toMatch(/'aten\._unsafe_index\.Tensor'/);
    r.registerOp(mine('my.other.default', ['aten._unsafe_index.Tensor']), { replace: true });
    expect(r.table().get('aten._unsafe_index.Tensor')?.name).toBe('my.other.default');
    expect(r.table().get('aten.index.Tensor')?.name).toBe('aten.index.Tensor');
    r.registerOp(mine('aten.mm.default'), { replace: true });
    expect(rulesOf(r, 'aten.mm.default')).toEqual(['S(0), R -> S(0)']);
    expect(rulesOf(registry(), 'aten.mm.default').length).toBeGreaterThan(1);
  });

  test('rules are added to those of a record, once', () => {
    const r = registry();
    const before = rulesOf(r, 'aten.mm.default');
    r.registerRule('aten.mm.default', () => [rule([P('max'), R], [P('max')])], { site: 'a:1' });
    expect(rulesOf(r, 'aten.mm.default')).toEqual([...before, 'P(max), R -> P(max)']);
    expect(
      refusal(() => r.registerRule('aten.mm.default', () => [], { site: 'b:2' })).message,
    ).toMatch(/a:1, and b:2/);
    r.registerRule('aten.mm.default', () => [], { site: 'b:2', replace: true });
    expect(rulesOf(r, 'aten.mm.default')).toEqual(before);
    expect(refusal(() => r.registerRule('my.none.default', () => [])).code).toBe('E_UNKNOWN_OP');
  });
});

describe('rules files', () => {
  const file = (...operators: unknown[]): string =>
    JSON.stringify({ format: 'shardwright-rules/1', operators });
  const entry = { name: 'my::op.default', schema: 'Tensor x, Tensor w', outputs: ['x'] };

  test('an unknown operator gets rules without code: written ones, or those of elementwise functions', () => {
    const r = registry();
    r.registerRulesFile(
      file({ ...entry, rules: ['S(0), R -> S(0)', 'S(5), R -> S(5)', 'P(sum), R -> P(sum)'] }),
    );
    expect(rulesOf(r, 'my::op.default')).toEqual(['S(0), R -> S(0)', 'P(sum), R -> P(sum)']);
    const other = registry();
    other.registerRulesFile(
      file({ ...entry, pointwise: true }, { name: 'aten.mm.default', rules: ['R, R -> R'] }),
    );
    expect(rulesOf(other, 'my::op.default')).toEqual(['S(0), S(0) -> S(0)', 'S(1), S(1) -> S(1)']);
  });

  test.each([
    ['{', /not JSON/],
    ['[]', /expected an object/],
    ['{"format": "x"}', /format: expected 'shardwright-rules\/1'/],
    [file({ ...entry, extra: 1 }), /operators\[0\]\.extra/],
    [
      file({ ...entry, outputs: ['y'] }),
      /operators\[0\]\.outputs\[0\]: 'y' is not a tensor argument/,
    ],
    [file({ ...entry, schema: 'x y z' }), /operators\[0\]\.schema/],
    [file({ ...entry, name: 'op' }), /operators\[0\]\.name/],
    [
      file({ ...entry, rules: ['S(0) R'] }),
      /operators\[0\]\.rules\[0\]: expected inputs and results/,
    ],
    [
      file({ ...entry, rules: ['S(x), R -> R'] }),
      /operators\[0\]\.rules\[0\]: expected R, S\(dim\)/,
    ],
    [file({ ...entry, rules: 7 }), /operators\[0\]\.rules: expected a list/],
    [
      '{"format": "shardwright-rules/1", "operators": [{"__proto__": 1}]}',
      /operators\[0\]\.__proto__|operators\[0\]/,
    ],
  ])('%s', (text, pattern) => {
    const error = refusal(() => registry().registerRulesFile(text));
    expect(error.code).toBe('E_RULES');
    expect(error.message).toMatch(pattern);
  });

  test('a rule of the wrong length names both counts', () => {
    const r = registry();
    r.registerRulesFile(file({ ...entry, rules: ['S(0) -> S(0)'] }));
    expect(refusal(() => rulesOf(r, 'my::op.default')).message).toMatch(
      /Strategy length 2 != expected 3 \(schema_outputs=1 \+ inputs=2\) for my::op\.default/,
    );
  });
});
