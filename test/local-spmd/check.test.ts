import { describe, expect, test } from 'vitest';
import { check, eraseable } from '../../src/local-spmd/check.ts';
import { localMap } from '../../src/trace/spmd/local-map.ts';
import { assertType, contract, convert, outPartial } from '../../src/trace/spmd/verbs.ts';
import { input, trace, type Tensor } from '../../src/trace/trace.ts';

const X = input([8, 8], 'f32');
const mesh = 'dp=2';

describe('check', () => {
  test('LS-56 a product of two cuts: the message says what would be done in silence', () => {
    const graph = trace((x, y) => x.matmul(y), [X, X], { mesh });
    const types = { arg0: 'P("dp")', arg1: 'P(None,"dp")' };
    const { violations, eraseable: erases } = check(graph, { mode: 'strict', types });
    expect(erases).toBe(false);
    expect(violations).toHaveLength(1);
    expect(violations[0].message).toMatch(/^Implicit redistribution occurred for aten\.mm\.default/);
    expect(violations[0]).toMatchObject({ node: 'mm', meshDim: 'dp', types: ['%arg0: f32[8@dp,8]', '%arg1: f32[8,8@dp]'] });
    expect(check(graph, { mode: 'auto', types }).implicit.map(({ kind }) => kind)).toHaveLength(1);
  }); // prettier-ignore

  test('LS-55 a free slice is an error in strict', () => {
    const graph = trace((x, y) => x.matmul(y), [X, X], { mesh });
    const [violation] = eraseable(graph, { types: { arg0: { dp: 'R' }, arg1: 'P("dp")' } });
    expect(violation.message).toContain('would be sliced to match');
  });

  test('LS-57 an I weight beside a cut batch: not erasable, and the cast is printed', () => {
    const linear = (cast: boolean) =>
      trace((x, w) => contract('bh,ho->bo', x, cast ? convert(w, 'dp', { src: 'I', dst: 'R' }) : w), [X, X], { mesh });
    const types = { arg0: 'P("dp")' };
    const [violation] = eraseable(linear(false), { types });
    expect(violation.fix).toBe('convert(arg1, "dp", I→R)');
    expect(eraseable(linear(true), { types })).toEqual([]);
  });

  test('LS-58 what auto passes in silence and strict reports', () => {
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
    const relu = trace((x) => x.relu(), [X], { mesh });
    expect(eraseable(relu, { types: { arg0: { dp: 'P' } } })[0].rule).toBe('nonlinear(P)');
    expect(check(relu, { mode: 'explicit', types: { arg0: { dp: 'P' } } }).violations[0].rule).toBe('nonlinear(P)');
  });

  test('LS-52 a loss without its reduction shows in its type', () => {
    const step = (done: boolean) =>
      trace((x) => assertType(done ? outPartial(x.sum(), 'dp') : x.sum(), { dp: 'I' }), [X], { mesh });
    const types = { arg0: 'P("dp")' };
    expect(eraseable(step(true), { types })[0].rule).toBe('conflicting type');
    expect(eraseable(step(false), { types }).map(({ rule }) => rule)).toContain('sum over S');
  });

  test('a region whose sum is over its own rows only is named, with both meanings', () => {
    const graph = trace(
      (x) => localMap((x: Tensor) => x.div(x.sum([1], true)).softmax(0), { inSpecs: ['P("dp")'], outSpecs: 'P("dp")' })(x),
      [X],
      { mesh },
    ); // prettier-ignore
    const { localNotGlobal } = check(graph, { mode: 'strict', types: { arg0: 'P("dp")' } });
    expect(localNotGlobal).toHaveLength(1);
    expect(localNotGlobal[0]).toMatchObject({ meshDim: 'dp', local: 'one result for each piece' });
  });

  test('no such mode, no mesh, no such input', () => {
    const graph = trace((x) => x.relu(), [X]);
    expect(() => check(graph, { mode: 'strikt' as 'strict', mesh })).toThrow(/no mode 'strikt'/);
    expect(() => check(graph, { mode: 'strict' })).toThrow(/no mesh/);
    expect(() => check(graph, { mode: 'strict', mesh, types: { y: 'P("dp")' } })).toThrow(/no input 'y'/);
  });
});
