import { describe, expect, test } from 'vitest';

import { dtensorModel } from '../../src/cost/presets/dtensor.ts';
import { Redistributor } from '../../src/cost/redistribution/redistribute.ts';
import { GraphBuilder } from '../../src/graph/build.ts';
import type { Arg, Graph, ValueRef, ValueType } from '../../src/graph/types.ts';
import { tensorType } from '../../src/graph/value.ts';
import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { ShardingSpace } from '../../src/mesh/sharding/space.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { expandRules } from '../../src/ops/expansion/expand.ts';
import { elementCalls } from '../../src/ops/list-operators.ts';
import { inferCall } from '../../src/ops/record/infer.ts';
import { P, type Rule, rule, ruleText, S } from '../../src/ops/record/rule.ts';
import type { OperatorTable } from '../../src/ops/record/table.ts';
import { OperatorRegistry } from '../../src/ops/registry.ts';
import { derivations } from '../../src/ops/rules/decompose.ts';
import { bindText, parseCall } from '../../src/ops/samples/call-text.ts';
import { decomposedOp, isDecomposed } from '../../src/ops/vjp/composite/decomposed.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { refute, trialsOf } from '../../src/simulate/rule-check/judge.ts';
import { offeredRules } from '../../src/simulate/rule-check/offered-rules.ts';
import { SampleCall } from '../../src/simulate/rule-check/sample-call.ts';
import { verify } from '../../src/simulate/verify.ts';
import { propagate } from '../../src/strategy/propagate.ts';
import { input, parameter } from '../../src/trace/record/spec.ts';
import { apply, type Tensor } from '../../src/trace/tensor/tensor.ts';
import { trace } from '../../src/trace/trace.ts';
import { planFor } from '../plan/support.ts';
import { setup } from './support.ts';

const operators = builtinOperators();

/** A body written as calls; results are typed by the operators. */
function body(
  shapes: readonly (readonly number[])[],
  make: (
    call: (target: string, ...args: Arg[]) => ValueRef,
    ...inputs: ValueRef[]
  ) => readonly ValueRef[],
): Graph {
  const b = new GraphBuilder('body');
  const inputs = shapes.map((shape, i) =>
    b.placeholder(`x${i}`, tensorType('f32', shape), { role: 'arg', roleIndex: i }),
  );
  const call = (target: string, ...args: Arg[]): ValueRef => {
    const type: ValueType | undefined = inferCall(operators, { target, args, kwargs: {} }, (name) =>
      b.typeOf({ kind: 'value', name }),
    );
    if (type === undefined) throw new Error(`no ${target}`);
    return b.call(target, args, type);
  };
  make(call, ...inputs).forEach((ref, index) =>
    b.output({ value: ref.name, role: 'output', index }),
  );
  return b.build();
}
const decomposedRules = (graph: Graph, table: OperatorTable): readonly Rule[] =>
  derivations(graph, table).map(({ rule }) => rule);
const texts = (graph: Graph): string[] => decomposedRules(graph, operators).map(ruleText);
const direct = (call: string): string[] => {
  const { record, ctx } = bindText(operators, parseCall(call));
  return record.shard(ctx).map(ruleText);
};

describe('rules from decompositions', () => {
  test('aminmax is amin and amax of one input', () => {
    const aminmax = body([[8, 8]], (call, x) => [
      call('aten.amin.default', x, [0]),
      call('aten.amax.default', x, [0]),
    ]);
    expect(texts(aminmax)).toEqual(['S(0) -> P(min), P(max)', 'S(1) -> S(0), S(0)']);
    const [first] = decomposedRules(aminmax, operators);
    expect(first.inputs[0]).toMatchObject({ kind: 'shard', filled: true });
  });

  test('an operator of operators, and the second time from memory', () => {
    const graph = body(
      [
        [8, 8],
        [8, 8],
      ],
      (call, x, w) => [call('aten.mm.default', call('aten.neg.default', x), w)],
    );
    const rules = decomposedRules(graph, operators);
    expect(derivations(graph, operators)).toBe(derivations(graph, operators));
    // A negation turns extremes round, which the product does not take: what is left are the rules
    // of the product.
    expect([...texts(graph)].sort()).toEqual([...direct('mm(f32[8,8], f32[8,8])')].sort());
    const space = new ShardingSpace(parseMesh('a=2,b=2'));
    const meta = { dtype: 'f32', shape: [8, 8] } as const;
    const set = expandRules(space, rules, [meta, meta], [meta], { uneven: 'allow' });
    expect(set.count).toBe(64);
  });

  test.each([
    [
      'smooth_l1_loss(f32[6,5], f32[6,5], 2)',
      [
        [6, 5],
        [6, 5],
      ],
    ],
    ['softmax.int(f32[6,5], 1)', [[6, 5]]],
    ['silu(f32[6,5])', [[6, 5]]],
    ['addmm(f32[7], f32[6,5], f32[5,7])', [[7], [6, 5], [5, 7]]],
  ] as [string, number[][]][])(
    'what is derived for %s is among its own rules, or true',
    (text, shapes) => {
      const bodies: Readonly<Record<string, Parameters<typeof body>[1]>> = {
        smooth_l1_loss: (call, x, y) => {
          const d = call('aten.abs.default', call('aten.sub.Tensor', x, y));
          const near = call('aten.mul.Scalar', call('aten.square.default', d), {
            kind: 'float',
            value: 0.5,
          });
          const far = call('aten.sub.Scalar', d, { kind: 'float', value: 0.5 });
          return [
            call(
              'aten.sum.default',
              call('aten.where.self', call('aten.lt.Scalar', d, 1), near, far),
            ),
          ];
        },
        softmax: (call, x) => {
          const e = call(
            'aten.exp.default',
            call('aten.sub.Tensor', x, call('aten.amax.default', x, [1], true)),
          );
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
          expect(
            refute(
              sample,
              trialsOf(sample),
              { inputs: r.inputs, outputs: r.outputs, origin: r.origin },
              ranks,
            ),
            ruleText(r),
          ).toBeUndefined();
      expect(more.length).toBeLessThan(rules.length);
    },
  );

  test('a view inside asks for evenness of its own dim, in whole units of the outer one', () => {
    const graph = body([[12, 5]], (call, x) => [
      call('aten.sum.dim_IntList', call('aten.view.default', x, [4, 3, 5]), [1]),
    ]);
    const rules = decomposedRules(graph, operators);
    const rows = rules.find((r) => ruleText(r) === 'S(0) -> S(0)');
    expect(rows?.inputs[0]).toMatchObject({ even: true, scaled: true, unit: 3 });
    expect(rows?.rewrite).toBe('decomposed');
    const space = (n: number) => new ShardingSpace(parseMesh(`a=${n}`));
    const count = (n: number): number =>
      expandRules(
        space(n),
        rules,
        [{ dtype: 'f32', shape: [12, 5] }],
        [{ dtype: 'f32', shape: [4, 5] }],
        { uneven: 'allow' },
      ).specs.length;
    // Four groups of three rows: two ranks hold whole groups, three do not, though three divides
    // twelve.
    expect(count(2)).toBeGreaterThan(count(3));
  });

  test('no redistribution inside: what one call leaves and the next does not take is not a rule', () => {
    const graph = body([[8, 8]], (call, x) => [
      call('aten.relu.default', call('aten.sum.dim_IntList', x, [0])),
    ]);
    expect(texts(graph)).not.toContain('S(0) -> P(sum)');
    expect(texts(graph)).toContain('S(1) -> S(0)');
  });
});

describe('operators over lists', () => {
  const ref = (name: string): ValueRef => ({ kind: 'value', name });
  test('each place of the lists is a call of the element operator', () => {
    const calls = elementCalls(
      operators,
      'aten._foreach_add.List',
      [
        [ref('a'), ref('b')],
        [ref('c'), ref('d')],
      ],
      { alpha: 2 },
    );
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
    expect(() =>
      elementCalls(operators, 'aten._foreach_add.List', [[ref('a'), ref('b')], [ref('c')]]),
    ).toThrow(/1 and 2 elements/);
    expect(() => elementCalls(operators, 'aten._foreach_nothing.List', [[ref('a')]])).toThrow(
      /no operator aten.nothing/,
    );
    expect(() => elementCalls(operators, 'aten.add.Tensor', [ref('a')])).toThrow(
      /not an operator over lists/,
    );
  });
});

describe('operators that are described by what they are made of', () => {
  const text = (table: OperatorTable, call: string): string[] => {
    const { record, ctx } = bindText(table, parseCall(call));
    return record.shard(ctx).map(ruleText);
  };
  const scaledMean = decomposedOp(operators, 'aten.my_row_mean.default', {
    schema: 'Tensor x',
    cls: 'reduction',
    decompose: ({ b, x }) => [b.mul(b.sum(x('x'), [0]), 1 / b.shape(x('x'))[0])],
  });
  const doubled = decomposedOp(operators, 'aten.my_negated.default', {
    schema: 'Tensor x',
    cls: 'pointwise',
    decompose: ({ b, x }) => [b.neg(x('x'))],
  });
  const first = operators.with([scaledMean, doubled]);
  const nested = first.with([
    decomposedOp(first, 'aten.my_negated_product.default', {
      schema: 'Tensor x, Tensor w',
      cls: 'matmul',
      decompose: ({ b, x }) => [b.mm(b.call('aten.my_negated.default', [x('x')]), x('w'))],
    }),
  ]);

  test('aminmax from shards and a pending minimum', () => {
    const one = setup([4], 'aminmax(f32[8,8])').run(['S0'], { search: 'enumerate' });
    expect([one.text, one.cost]).toEqual(['S(0)->P(min),P(max)', 0]);
    const two = setup([2, 2], 'aminmax(f32[8,8])', 'least').run(['S1Pmin'], {
      search: 'enumerate',
    });
    expect(two.text).toBe('S(1)S(0)->P(min)P(min),P(max)P(max)');
  });

  test('an operator of an operator of an operator: the row form of the product', () => {
    const { record, ctx } = bindText(nested, parseCall('my_negated_product(f32[8,8], f32[8,8])'));
    const space = new ShardingSpace(parseMesh('a=2,b=2'));
    const mesh = space.mesh;
    const given = ['S(0)S(1)', 'RS(0)'].map((s) => space.parse(s));
    const found = propagate(
      space,
      record,
      ctx,
      given,
      new Redistributor(space, dtensorModel(mesh), { merge: false }),
    );
    expect([found.outputs.map((id) => space.text(id)), found.cost]).toEqual([['S(0)P(sum)'], 0]);
  });

  test('a number that comes from a size is another one on the device: no rule where that dim is cut', () => {
    expect(text(first, 'my_row_mean(f32[6,5])')).toEqual([
      'S(1) -> S(0)',
      'P(sum) -> P(sum)',
      'P(avg) -> P(avg)',
    ]);
  });

  test('a direct rule wins: records with rules of their own are not derived', () => {
    const derived = operators.records.filter(isDecomposed).map((r) => r.name);
    expect(derived).toContain('aten.pixel_shuffle.default');
    expect(
      derived.filter((name) =>
        /layer_norm|softmax|stack|embedding|empty_like|full_like/.test(name),
      ),
    ).toEqual([]);
  });

  test('what is derived is added to by rules of the user, and replaced by name', () => {
    const registry = new OperatorRegistry(operators);
    registry.registerOp(scaledMean);
    registry.registerRule('aten.my_row_mean.default', () => [rule([S(0)], [P('avg')])]);
    expect(text(registry.table(), 'my_row_mean(f32[6,5])')).toContain('S(0) -> P(avg)');
    expect(() => registry.registerOp(scaledMean)).toThrow(/registered twice/);
  });

  test('planned, differentiated and run: outputs and gradients are those of one device', async () => {
    const forward = trace(
      ({ x, w }: Record<'x' | 'w', Tensor>) => {
        const [y] = [
          apply('aten.pixel_shuffle.default', [x.conv2d(w, undefined, { padding: 1 }), 2]),
        ];
        return apply('aten.glu.default', [y, 1]).square().sum();
      },
      { x: input([8, 3, 4, 4]), w: parameter([8, 3, 3, 3]) },
    );
    const graph = jointGraph(forward, { seed: 1 });
    for (const mesh of ['a=4', 'a=2,b=2']) {
      const plan = await planFor(graph, mesh, {
        pins: [{ node: 'x', spec: mesh === 'a=4' ? 'S(0)' : 'S(0)R' }],
      });
      expect(verify(graph, plan, { table: operators }).mismatches).toEqual([]);
    }
    const pins = ['x', 'pixel_shuffle'].map((node) => ({ node, spec: 'S(0)' }));
    const plan = await planFor(forward, 'a=4', { pins });
    expect(plan.nodes.find((n) => n.target === 'aten.pixel_shuffle.default')?.outputs).toEqual([
      'S(0)',
    ]);
    expect(verify(forward, plan, { table: operators }).mismatches).toEqual([]);
  });
});
