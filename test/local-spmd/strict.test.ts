import { describe, expect, test } from 'vitest';

import { parseGraph } from '../../src/graph/text/parse.ts';
import type { Graph } from '../../src/graph/types.ts';
import { checkTypes } from '../../src/local-spmd/check-types.ts';
import { erase } from '../../src/lower/typed/erased.ts';
import { sort } from '../../src/ndarray/sort.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { defineOp } from '../../src/ops/record/record.ts';
import { rule, S } from '../../src/ops/record/rule.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { check, eraseable } from '../../src/simulate/strip.ts';
import { foriLoop, scan } from '../../src/trace/control/loops.ts';
import { assertType, convert, outPartial, redistribute } from '../../src/trace/spmd/verbs.ts';
import { arange, zeros } from '../../src/trace/tensor/functional.ts';
import { input, parameter, type Tensor, trace } from '../../src/trace/trace.ts';
import { runErased } from './support/erased.ts';
import { table } from './support/simulated.ts';

const MESH = 'a=2';
const worst = (differences: readonly number[]): number => Math.max(...differences);

/** A program and its gradient on virtual ranks give what they give on one device. */
function expectErased(graph: Graph, wrt: readonly string[]): void {
  expect(eraseable(graph)).toEqual([]);
  const forward = runErased(erase(graph), graph).compare;
  expect(forward.length).toBeGreaterThan(0);
  expect(worst(forward)).toBeLessThan(1e-9);
  const joint = jointGraph(graph, { wrt, table });
  expect(eraseable(joint)).toEqual([]);
  expect(worst(runErased(erase(joint), joint).compare)).toBeLessThan(1e-9);
}

const X = input([4, 6, 8], 'f64');
const cut = (x: Tensor, dim: number): Tensor => assertType(x, { a: `S(${dim})` });
const shared = (w: Tensor): Tensor => convert(w, 'a', { src: 'I', dst: 'R' });

describe('strict programs and their gradients run on ranks as on one device', () => {
  test.each<[string, (x: Tensor) => Tensor]>([
    ['a split', (x) => cut(x, 0).split(2, 1)[0]],
    ['an unbind', (x) => cut(x, 1).unbind(0)[1]],
    ['the values of topk', (x) => cut(x, 0).topk(2, 2).values],
    ['the largest of rows', (x) => cut(x, 0).max(2).values],
    ['a sort', (x) => cut(x, 1).sort(2).values],
    ['a gather', (x) => cut(x, 0).gather(1, cut(x, 0).gt(0).to('i64'))],
    ['rows taken by number', (x) => cut(x, 1).indexSelect(0, arange(3))],
    ['rows taken by number of a whole dim', (x) => cut(x, 0).index(null, arange(2))],
    ['a slice that steps', (x) => cut(x, 0).slice(1, 0, 6, 2)],
    ['a view that merges dims', (x) => cut(x, 1).flatten(0, 1)],
    ['a view there and back', (x) => cut(x, 1).view(24, 8).tanh().view(4, 6, 8)],
    ['a view that splits a cut dim', (x) => cut(x, 0).view(2, 2, 6, 8).sin()],
  ])('%s', (_, f) => {
    expectErased(trace(f, [X], { mesh: MESH }), ['arg0']);
  });

  const W = parameter([8, 10], 'f64');
  test.each<[string, (x: Tensor, w: Tensor) => Tensor]>([
    ['a product with the sequence cut', (x, w) => cut(x, 1).matmul(shared(w))],
    ['the same over merged rows', (x, w) => cut(x, 1).view(24, 8).matmul(shared(w)).view(4, 6, 10)],
    ['a linear', (x, w) => cut(x, 1).linear(shared(w.transpose(0, 1)))],
  ])('%s', (_, f) => {
    expectErased(trace(f, [X, W], { mesh: MESH }), ['arg0', 'arg1']);
  });
});

describe('a cut is passed on where the sizes let the operator do it on each rank', () => {
  const rules = (f: (x: Tensor) => Tensor, shape: readonly number[], spec: string): string[] =>
    check(
      trace((x) => f(assertType(x, spec)), [input(shape, 'f64')], { mesh: MESH }),
      {
        mode: 'strict',
      },
    ).violations.map(({ rule }) => rule);
  const rows = 'P(None, None, "a", None)';
  test.each<[string, (x: Tensor) => Tensor, readonly number[], string, string[]]>([
    [
      'a largest-of-2 pool of 6 rows',
      (x) => x.maxPool2d(2),
      [1, 1, 6, 4],
      rows,
      ['S(2) of 6 rows'],
    ],
    ['the same of 8 rows', (x) => x.maxPool2d(2), [1, 1, 8, 4], rows, []],
    ['an average pool of 6 rows', (x) => x.avgPool2d(2), [1, 1, 6, 4], rows, ['S(2) of 6 rows']],
    ['an average pool of 8 rows', (x) => x.avgPool2d(2), [1, 1, 8, 4], rows, []],
    ['every second of 6 rows', (x) => x.slice(0, 0, 6, 2), [6, 4], 'P("a")', ['S(0) of 6 rows']],
    ['every second of 8 rows', (x) => x.slice(0, 0, 8, 2), [8, 4], 'P("a")', []],
    ['6 rows as 3 pairs', (x) => x.view(3, 2, 4), [6, 4], 'P("a")', ['S(0) of 6 rows']],
    ['6 rows as 2 triples', (x) => x.view(2, 3, 4), [6, 4], 'P("a")', []],
  ])('%s', (_, f, shape, spec, expected) => {
    expect(rules(f, shape, spec)).toEqual(expected);
  });
});

describe('what check says can be stripped was run', () => {
  const looped = (x: Tensor): Tensor =>
    scan((sum: Tensor, row: Tensor) => [sum.add(row), sum], zeros([6, 8], 'f64'), cut(x, 1))[0];
  const counted = (x: Tensor): Tensor => {
    const y = cut(x, 0).sum(1);
    return foriLoop(0, 3, (_, sum: Tensor) => sum.add(y), y.mul(0));
  };
  test.each<[string, (x: Tensor) => Tensor]>([
    ['a sum over rows that starts with zeros', looped],
    ['a loop of a number of trips', counted],
  ])('%s: it and its gradient, with the numbers of one device', (_, f) => {
    const graph = trace(f, [X], { mesh: MESH });
    const report = check(graph, { mode: 'strict' });
    expect(report).toMatchObject({ eraseable: true, violations: [], refusals: [] });
    expect(report.runs.map(({ of, sizes, devices }) => [of, sizes, devices])).toEqual([
      ['program', 'own', 2],
      ['gradient', 'own', 2],
    ]);
    expectErased(graph, ['arg0']);
  });
  test('a large program runs at reduced sizes', () => {
    const graph = trace(
      (x, w) => cut(x, 1).matmul(shared(w)),
      [input([512, 64, 1024]), parameter([1024, 512])],
      { mesh: MESH },
    );
    const { eraseable: yes, runs } = check(graph, { mode: 'strict' });
    expect(yes).toBe(true);
    expect(runs.map(({ of, sizes }) => [of, sizes])).toEqual([
      ['program', 'reduced'],
      ['gradient', 'reduced'],
    ]);
    expect(runs[1].collectives).toEqual({ all_reduce: 1 });
  });
  test('a gradient that no rule passes on is refused, though the program runs', () => {
    const graph = trace(
      (x) => assertType(x, 'P(None, None, "a", None)').maxPool2d(2),
      [input([1, 1, 8, 4], 'f64')],
      { mesh: MESH },
    );
    const report = check(graph, { mode: 'strict' });
    expect(report).toMatchObject({ eraseable: false, violations: [] });
    expect(report.runs.map(({ of }) => of)).toEqual(['program']);
    expect(report.refusals.map(({ message }) => message)).toEqual([
      expect.stringMatching(/^in the gradient, .*aten\.max_pool2d_with_indices\.default/),
    ]);
  });
  test('a gradient is of the type that its input is owed', () => {
    const joint = jointGraph(
      trace((x) => cut(x, 1).flatten(0, 1), [X], { mesh: MESH }),
      {
        wrt: ['arg0'],
        table,
      },
    );
    expect(eraseable(joint)).toEqual([]);
    const [violation] = eraseable(joint, { types: { tangents_1: { a: 'S(0)' } } });
    expect(violation.message).toContain('the gradient of arg0 is S(0), and arg0 is S(1)');
  });
  test('an operator that a device would run on other rows is found by the run', () => {
    const wrong = defineOp('test.rows.default', {
      schema: 'Tensor self',
      cls: 'other',
      infer: (ctx) => [ctx.inputs[0]],
      // Rows that are sorted piece by piece are not sorted as a whole.
      shard: () => [rule([S(0)], [S(0)])],
      kernel: ({ inputs }) => [sort(inputs[0], 0, false)[0]],
    });
    const extended = builtinOperators().with([wrong]);
    const graph = parseGraph(
      `swgraph 1
graph @main {
  mesh "a=2"
  in %x: f64[8] input "x"
  %typed = spmd_types.assert_type.default(%x, ["a: S(0)"]): f64[8]
  %sorted = test.rows.default(%typed): f64[8]
  out %sorted output 0
}
`,
    );
    const report = check(graph, { mode: 'strict', table: extended });
    expect(report).toMatchObject({ eraseable: false, violations: [] });
    expect(report.refusals.map(({ node, rule: law }) => [node, law])).toContainEqual([
      'sorted',
      'run on ranks',
    ]);
  });
});

describe('outPartial takes addends', () => {
  const rule = (type: string): string | undefined =>
    eraseable(
      trace((x) => outPartial(assertType(x, { a: type as 'R' }), 'a'), [X], { mesh: MESH }),
    ).map((found) => found.rule)[0];
  test.each([
    ['R', 'outPartial of R'],
    ['I', 'outPartial of I'],
    ['S(0)', 'outPartial of S(0)'],
    ['P', undefined],
  ])('of %s', (type, expected) => {
    expect(rule(type)).toBe(expected);
  });
});

describe('a redistribution changes the last cut of a dim', () => {
  const moved = (
    types: Record<string, 'S(0)' | 'S(1)' | 'R'>,
    src: 'S(0)' | 'S(1)' | 'R',
    dst: 'S(0)' | 'S(1)',
    axis = 'a',
  ) =>
    trace((x) => redistribute(assertType(x, types), axis, { src, dst }), [input([8, 8], 'f64')], {
      mesh: 'a=2,b=2',
    });
  test('onto a dim that a later axis cuts it is refused, and so is the way back', () => {
    const found = [
      moved({ a: 'S(1)', b: 'S(0)' }, 'S(1)', 'S(0)'),
      moved({ a: 'R', b: 'S(0)' }, 'R', 'S(0)'),
      moved({ a: 'S(0)', b: 'S(0)' }, 'S(0)', 'S(1)'),
    ].map((graph) => eraseable(graph).map(({ rule, meshDim }) => [rule, meshDim]));
    expect(found).toEqual([[['last axis', 'a']], [['last axis', 'a']], [['last axis', 'a']]]);
  });
  test('onto a dim that an axis before cuts it runs', () => {
    for (const graph of [
      moved({ a: 'S(0)', b: 'S(1)' }, 'S(1)', 'S(0)', 'b'),
      moved({ a: 'S(0)', b: 'R' }, 'R', 'S(0)', 'b'),
    ])
      expectErased(graph, ['arg0']);
  });
  test('a dim of fewer rows than ranks is not cut', () => {
    const graph = trace(
      (x) => redistribute(assertType(x, { a: 'R' }), 'a', { src: 'R', dst: 'S(0)' }),
      [input([1, 4], 'f64')],
      { mesh: MESH },
    );
    expect(eraseable(graph).map(({ rule }) => rule)).toEqual(['S(0) of 1 rows']);
  });
});

describe('what decides a branch or a loop is equal on all ranks', () => {
  test('a branch by a piece, or by an addend', () => {
    const by = (type: string): string[] =>
      checkTypes(
        parseGraph(`swgraph 1
graph @main {
  mesh "a=2"
  in %x: f64[2] input "x"
  in %n: b8[${type === 'S(0)' ? '2' : ''}] input "n"
  %typed = spmd_types.assert_type.default(%x, ["a: I"]): f64[2]
  %own = spmd_types.assert_type.default(%n, ["a: ${type}"]): b8[${type === 'S(0)' ? '2' : ''}]
  %chosen = cond(%own, @step, @step, [%typed]): (f64[2])
  %out = operator.getitem(%chosen, 0): f64[2]
  out %out output 0
  graph @step {
    in %c: f64[2] arg 0
    %next = aten.mul.Scalar(%c, 2.0): f64[2]
    out %next output 0
  }
}
`),
      ).violations.map(({ rule: law }) => law);
    expect([by('I'), by('R'), by('P'), by('S(0)')]).toEqual([[], [], ['predicate'], ['predicate']]);
  });
});
