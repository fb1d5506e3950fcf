import { describe, expect, test } from 'vitest';
import { GraphBuilder } from '../../src/graph/build.ts';
import type { Arg, Graph, ValueRef, ValueType } from '../../src/graph/types.ts';
import { tensorType } from '../../src/graph/value.ts';
import { parseMesh } from '../../src/mesh/mesh.ts';
import { ShardingSpace } from '../../src/mesh/space.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { inferCall } from '../../src/ops/infer.ts';
import { ruleText } from '../../src/ops/rule.ts';
import { bindText, parseCall } from '../../src/ops/samples/call-text.ts';
import { refute, trialsOf } from '../../src/simulate/validate/judge.ts';
import { offeredRules } from '../../src/simulate/validate/offers.ts';
import { SampleCall } from '../../src/simulate/validate/sample-call.ts';
import { decomposedRules } from '../../src/strategy/decompose.ts';
import { expandRules } from '../../src/strategy/expand.ts';
import { elementCalls } from '../../src/strategy/list-operators.ts';

const operators = builtinOperators();

/** A body written as calls; results are typed by the operators. */
function body(shapes: readonly (readonly number[])[], make: (call: (target: string, ...args: Arg[]) => ValueRef, ...inputs: ValueRef[]) => readonly ValueRef[]): Graph {
  const b = new GraphBuilder('body');
  const inputs = shapes.map((shape, i) => b.placeholder(`x${i}`, tensorType('f32', shape), { role: 'arg', roleIndex: i }));
  const call = (target: string, ...args: Arg[]): ValueRef => {
    const type: ValueType | undefined = inferCall(operators, { target, args, kwargs: {} }, (name) => b.typeOf({ kind: 'value', name }));
    if (type === undefined) throw new Error(`no ${target}`);
    return b.call(target, args, type);
  };
  make(call, ...inputs).forEach((ref, index) => b.output({ value: ref.name, role: 'output', index }));
  return b.build();
} // prettier-ignore
const texts = (graph: Graph): string[] => decomposedRules(graph, operators).map(ruleText);
const direct = (call: string): string[] => {
  const { record, ctx } = bindText(operators, parseCall(call));
  return record.shard(ctx).map(ruleText);
};

describe('rules from decompositions', () => {
  test('OP-50 aminmax is amin and amax of one input', () => {
    const aminmax = body([[8, 8]], (call, x) => [call('aten.amin.default', x, [0]), call('aten.amax.default', x, [0])]);
    expect(texts(aminmax)).toEqual(['S(0) -> P(min), P(max)', 'S(1) -> S(0), S(0)']);
    const [first] = decomposedRules(aminmax, operators);
    expect(first.inputs[0]).toMatchObject({ kind: 'shard', filled: true });
  });

  test('OP-50 an operator of operators, and the second time from memory', () => {
    const graph = body([[8, 8], [8, 8]], (call, x, w) => [call('aten.mm.default', call('aten.neg.default', x), w)]); // prettier-ignore
    const rules = decomposedRules(graph, operators);
    expect(decomposedRules(graph, operators)).toBe(rules);
    // A negation turns extremes round, which the product does not take: what is left are the rules of the product.
    expect([...texts(graph)].sort()).toEqual([...direct('mm(f32[8,8], f32[8,8])')].sort());
    const space = new ShardingSpace(parseMesh('a=2,b=2'));
    const meta = { dtype: 'f32', shape: [8, 8] } as const;
    const set = expandRules(space, rules, [meta, meta], [meta], { uneven: 'allow' });
    expect(set.count).toBe(64);
  });

  test.each([
    ['smooth_l1_loss(f32[6,5], f32[6,5], 2)', [[6, 5], [6, 5]]],
    ['softmax.int(f32[6,5], 1)', [[6, 5]]],
    ['silu(f32[6,5])', [[6, 5]]],
    ['addmm(f32[7], f32[6,5], f32[5,7])', [[7], [6, 5], [5, 7]]],
  ] as [string, number[][]][])('what is derived for %s is among its own rules, or true', (text, shapes) => {
    const bodies: Readonly<Record<string, Parameters<typeof body>[1]>> = {
      smooth_l1_loss: (call, x, y) => {
        const d = call('aten.abs.default', call('aten.sub.Tensor', x, y));
        const near = call('aten.mul.Scalar', call('aten.square.default', d), { kind: 'float', value: 0.5 });
        const far = call('aten.sub.Scalar', d, { kind: 'float', value: 0.5 });
        return [call('aten.sum.default', call('aten.where.self', call('aten.lt.Scalar', d, 1), near, far))];
      },
      softmax: (call, x) => {
        const e = call('aten.exp.default', call('aten.sub.Tensor', x, call('aten.amax.default', x, [1], true)));
        return [call('aten.div.Tensor', e, call('aten.sum.dim_IntList', e, [1], true))];
      },
      silu: (call, x) => [call('aten.mul.Tensor', x, call('aten.sigmoid.default', x))],
      addmm: (call, b, x, w) => [call('aten.add.Tensor', call('aten.mm.default', x, w), b)],
    };
    const name = text.split(/[.(]/)[0];
    const rules = decomposedRules(body(shapes, bodies[name]), operators);
    expect(rules.length).toBeGreaterThan(0);
    // What the operator does not list itself, execution must confirm.
    const sample = new SampleCall(operators, parseCall(text));
    const more = rules.filter((r) => !direct(text).includes(ruleText(r)));
    for (const ranks of [2, 3])
      for (const r of offeredRules(sample, more, ranks))
        expect(refute(sample, trialsOf(sample), { inputs: r.inputs, outputs: r.outputs, origin: r.origin }, ranks), ruleText(r)).toBeUndefined();
    expect(more.length).toBeLessThan(rules.length);
  }); // prettier-ignore

  test('a view inside asks for evenness of its own dim, in whole units of the outer one', () => {
    const graph = body([[12, 5]], (call, x) => [call('aten.sum.dim_IntList', call('aten.view.default', x, [4, 3, 5]), [1])]); // prettier-ignore
    const rules = decomposedRules(graph, operators);
    const rows = rules.find((r) => ruleText(r) === 'S(0) -> S(0)');
    expect(rows?.inputs[0]).toMatchObject({ even: true, scaled: true, unit: 3 });
    expect(rows?.rewrite).toBe('decomposed');
    const space = (n: number) => new ShardingSpace(parseMesh(`a=${n}`));
    const count = (n: number): number =>
      expandRules(space(n), rules, [{ dtype: 'f32', shape: [12, 5] }], [{ dtype: 'f32', shape: [4, 5] }], { uneven: 'allow' }).specs.length; // prettier-ignore
    // Four groups of three rows: two ranks hold whole groups, three do not, though three divides twelve.
    expect(count(2)).toBeGreaterThan(count(3));
  });

  test('no redistribution inside: what one call leaves and the next does not take is no rule', () => {
    const graph = body([[8, 8]], (call, x) => [call('aten.relu.default', call('aten.sum.dim_IntList', x, [0]))]);
    expect(texts(graph)).not.toContain('S(0) -> P(sum)');
    expect(texts(graph)).toContain('S(1) -> S(0)');
  });
});

describe('operators over lists', () => {
  const ref = (name: string): ValueRef => ({ kind: 'value', name });
  test('OP-6 each place of the lists is a call of the element operator', () => {
    const calls = elementCalls(operators, 'aten._foreach_add.List', [[ref('a'), ref('b')], [ref('c'), ref('d')]], { alpha: 2 }); // prettier-ignore
    expect(calls.map((c) => [c.record.name, c.args, c.kwargs])).toEqual([
      ['aten.add.Tensor', [ref('a'), ref('c')], { alpha: 2 }],
      ['aten.add.Tensor', [ref('b'), ref('d')], { alpha: 2 }],
    ]);
  });

  test.each([
    ['aten._foreach_mul.Scalar', [[ref('a')], 2], 'aten.mul.Scalar'],
    ['aten._foreach_mul_.Scalar', [[ref('a')], 2], 'aten.mul_.Scalar'],
    ['aten._foreach_mul.ScalarList', [[ref('a')], [2]], 'aten.mul.Scalar'],
    ['aten._foreach_exp.default', [[ref('a')]], 'aten.exp.default'],
    ['aten._foreach_maximum.List', [[ref('a')], [ref('b')]], 'aten.maximum.default'],
    ['aten._foreach_clamp_min.Scalar', [[ref('a')], 0], 'aten.clamp_min.default'],
    ['aten._foreach_lerp.Scalar', [[ref('a')], [ref('b')], 2], 'aten.lerp.Scalar'],
  ] as [string, Arg[], string][])('%s is %j', (target, args, name) => {
    expect(elementCalls(operators, target, args).map((c) => c.record.name)).toEqual([name]);
  });

  test('unequal lengths and unknown elements are refused', () => {
    expect(() => elementCalls(operators, 'aten._foreach_add.List', [[ref('a'), ref('b')], [ref('c')]])).toThrow(/1 and 2 elements/); // prettier-ignore
    expect(() => elementCalls(operators, 'aten._foreach_nothing.List', [[ref('a')]])).toThrow(
      /no operator aten.nothing/,
    );
    expect(() => elementCalls(operators, 'aten.add.Tensor', [ref('a')])).toThrow(/no operator over lists/);
  });
});
