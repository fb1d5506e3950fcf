import { describe, expect, test } from 'vitest';

import { checkTypes } from '../../src/local-spmd/check-types.ts';
import { check, eraseable } from '../../src/simulate/strip.ts';
import { localMap } from '../../src/trace/spmd/local-map.ts';
import {
  allReduce,
  assertType,
  contract,
  convert,
  outPartial,
} from '../../src/trace/spmd/verbs.ts';
import { input, type Tensor, trace } from '../../src/trace/trace.ts';

const X = input([8, 8], 'f32');
const mesh = 'dp=2';

describe('check', () => {
  test('a product of two cuts: the message says what would be done in silence', () => {
    const graph = trace((x, y) => x.matmul(y), [X, X], { mesh });
    const types = { arg0: 'P("dp")', arg1: 'P(None,"dp")' };
    const { violations, eraseable: erases } = check(graph, { mode: 'strict', types });
    expect(erases).toBe(false);
    expect(violations).toHaveLength(1);
    expect(violations[0].message).toMatch(
      /^Implicit redistribution occurred for aten\.mm\.default/,
    );
    expect(violations[0]).toMatchObject({
      node: 'mm',
      meshDim: 'dp',
      types: ['%arg0: f32[8@dp,8]', '%arg1: f32[8,8@dp]'],
    });
    expect(check(graph, { mode: 'auto', types }).implicit.map(({ kind }) => kind)).toHaveLength(1);
  });

  test('a free slice is an error in strict', () => {
    const graph = trace((x, y) => x.matmul(y), [X, X], { mesh });
    const [violation] = eraseable(graph, { types: { arg0: { dp: 'R' }, arg1: 'P("dp")' } });
    expect(violation.message).toContain('would be sliced to match');
  });

  test('an I weight beside a cut batch: not erasable, and the cast is printed', () => {
    const linear = (cast: boolean) =>
      trace(
        (x, w) => contract('bh,ho->bo', x, cast ? convert(w, 'dp', { src: 'I', dst: 'R' }) : w),
        [X, X],
        { mesh },
      );
    const types = { arg0: 'P("dp")' };
    const [violation] = eraseable(linear(false), { types });
    expect(violation.fix).toBe('convert(arg1, "dp", I→R)');
    expect(eraseable(linear(true), { types })).toEqual([]);
  });

  test('what auto passes in silence and strict reports', () => {
    const types = { arg0: { dp: 'P' }, arg1: { dp: 'R' } } as const;
    const add = trace((x, y) => x.add(y), [X, X], { mesh });
    expect(check(add, { mode: 'auto', types }).violations).toEqual([]);
    expect(eraseable(add, { types })[0].rule).toBe('P with R');
    const sum = trace((x) => x.sum(), [X], { mesh });
    expect(check(sum, { mode: 'auto', types: { arg0: 'P("dp")' } }).violations).toEqual([]);
    expect(eraseable(sum, { types: { arg0: 'P("dp")' } })[0].rule).toBe('sum over S');
    expect(
      eraseable(
        trace((x) => outPartial(x.sum(), 'dp'), [X], { mesh }),
        { types: { arg0: 'P("dp")' } },
      ),
    ).toEqual([]);
    const product = trace((x, y) => x.mul(y), [X, X], { mesh });
    for (const mode of ['auto', 'strict'] as const)
      expect(check(product, { mode, types })).toMatchObject({ violations: [], implicit: [] });
    const broadcast = trace((x, y) => x.mul(y), [X, input([8], 'f32')], { mesh });
    const cut = { types: { arg0: 'P("dp")' } };
    expect(check(broadcast, { mode: 'auto', ...cut })).toMatchObject({
      violations: [],
      implicit: [],
    });
    expect(eraseable(broadcast, cut).map(({ rule, fix }) => [rule, fix])).toEqual([
      ['I with S(0)', 'convert(arg1, "dp", I→R)'],
    ]);
    // What is not an addend of the right result: auto reduces first and says so, strict refuses.
    const addends = { types: { arg0: { dp: 'P' }, arg1: { dp: 'P' } } } as const;
    expect(check(product, { mode: 'auto', ...addends }).implicit.map(({ kind }) => kind)).toEqual([
      'all_reduce',
    ]);
    expect(eraseable(product, addends).map(({ rule, types }) => [rule, types])).toEqual([
      ['P with P', ['%arg0: f32[8,8]{U:dp}', '%arg1: f32[8,8]{U:dp}']],
    ]);
    const relu = trace((x) => x.relu(), [X], { mesh });
    expect(
      check(relu, { mode: 'auto', types: { arg0: { dp: 'P' } } }).implicit.map(({ kind }) => kind),
    ).toEqual(['all_reduce']);
    expect(eraseable(relu, { types: { arg0: { dp: 'P' } } })[0].rule).toBe('nonlinear(P)');
    expect(check(relu, { mode: 'explicit', types: { arg0: { dp: 'P' } } }).violations[0].rule).toBe(
      'nonlinear(P)',
    );
  });

  test('a contraction over two cuts says what becomes of its sum', () => {
    const contraction = (end: (y: Tensor) => Tensor) =>
      trace((x, y) => end(x.matmul(y)), [X, X], { mesh });
    const types = { arg0: 'P(None,"dp")', arg1: 'P("dp")' };
    const [refused] = check(
      contraction((y) => y),
      { mode: 'explicit', types },
    ).violations;
    expect(refused).toMatchObject({ node: 'mm', rule: 'ambiguous' });
    expect(
      eraseable(
        contraction((y) => y),
        { types },
      ).map(({ rule, fix }) => [rule, fix]),
    ).toEqual([['sum over S', 'write outPartial(mm, "dp")']]);
    const pending = contraction((y) => outPartial(y, 'dp'));
    const whole = contraction((y) => allReduce(outPartial(y, 'dp'), 'dp', { dst: 'I' }));
    for (const mode of ['explicit', 'strict'] as const)
      for (const [graph, type, reductions] of [
        [pending, 'f32[8,8]{U:dp}', 0],
        [whole, 'f32[8,8]', 1],
      ] as const) {
        expect(check(graph, { mode, types })).toMatchObject({
          violations: [],
          implicit: [],
          eraseable: true,
        });
        const { texts } = checkTypes(graph, { mode, types });
        expect(texts.get(graph.outputs[0].value ?? '')).toBe(type);
        expect(graph.nodes.filter(({ target }) => target.includes('redistribute')).length).toBe(
          reductions,
        );
      }
  });

  test('an input of a region that is I and only made R inside is better R in its spec', () => {
    const advised = (sizes: string, isReadElsewhere = false): string[] => {
      const shared = (v: Tensor): Tensor => convert(v, 'dp', { src: 'I', dst: 'R' });
      const body = (v: Tensor): Tensor =>
        isReadElsewhere ? shared(v).add(shared(v.cos())) : shared(v).sin();
      const specs = { inSpecs: [{ dp: 'I' }], outSpecs: { dp: 'R' } } as const;
      const graph = trace((w) => localMap(body, specs)(w.mul(2)), [X], { mesh: sizes });
      return check(graph, { mode: 'strict' }).advice.map(({ advice }) => advice);
    };
    expect(advised(mesh)).toEqual([
      expect.stringMatching(/^input 0, %mul, is I and only cast to R inside: with R in its spec/),
    ]);
    expect([advised('dp=1'), advised(mesh, true)]).toEqual([[], []]);
  });

  test('a product of addends is refused, in a region as outside', () => {
    const square = (x: Tensor): Tensor => x.mul(x);
    expect(
      check(trace(square, [X], { mesh }), { mode: 'strict', types: { arg0: { dp: 'P' } } })
        .violations[0].rule,
    ).toBe('P with P');
    expect(() =>
      trace((x) => localMap(square, { inSpecs: [{ dp: 'P' }], outSpecs: { dp: 'P' } })(x), [X], {
        mesh,
      }),
    ).toThrow(/P with P on dp/);
  });

  test('a loss without its reduction shows in its type', () => {
    const step = (done: boolean) =>
      trace((x) => assertType(done ? outPartial(x.sum(), 'dp') : x.sum(), { dp: 'I' }), [X], {
        mesh,
      });
    const types = { arg0: 'P("dp")' };
    expect(eraseable(step(true), { types })[0].rule).toBe('conflicting type');
    expect(eraseable(step(false), { types }).map(({ rule }) => rule)).toContain('sum over S');
  });

  test('a region whose sum is over its own rows only is named, with both meanings', () => {
    const graph = trace(
      (x) =>
        localMap((x: Tensor) => x.div(x.sum([1], true)).softmax(0), {
          inSpecs: ['P("dp")'],
          outSpecs: 'P("dp")',
        })(x),
      [X],
      { mesh },
    );
    const { localNotGlobal } = check(graph, { mode: 'strict', types: { arg0: 'P("dp")' } });
    expect(localNotGlobal).toHaveLength(1);
    expect(localNotGlobal[0]).toMatchObject({ meshDim: 'dp', local: 'one result for each piece' });
  });

  test('no such mode, no mesh, no such input', () => {
    const graph = trace((x) => x.relu(), [X]);
    expect(() => check(graph, { mode: 'strikt' as 'strict', mesh })).toThrow(/no mode 'strikt'/);
    expect(() => check(graph, { mode: 'strict' })).toThrow(/no mesh/);
    expect(() => check(graph, { mode: 'strict', mesh, types: { y: 'P("dp")' } })).toThrow(
      /no input 'y'/,
    );
  });
});
