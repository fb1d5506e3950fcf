import { describe, expect, it } from 'vitest';
import { fromFlat, fromList, NDArray } from '../../src/ndarray/array.ts';
import { runCfg, type Cfg } from '../../src/passes/cfg.ts';
import { structure } from '../../src/passes/structure.ts';
import { evaluateGraph, type Value } from '../../src/simulate/evaluate.ts';
import { branch, captureCfg, jump, leave } from '../../src/trace/control-cfg.ts';
import { spec } from '../../src/trace/spec.ts';
import { controlCalls, gradients, run, table } from '../passes/control-support.ts';
import { errorOf } from './support.ts';

const x = spec([2], 'f64');
const i = spec([], 'i64');
const int = (n: number): NDArray => fromFlat([], Float64Array.of(n), 'i64');

function runBlocks(cfg: Cfg, inputs: readonly NDArray[]): { values: number[][]; blocks: readonly string[] } {
  const { values, blocks } = runCfg<Value>(
    cfg,
    inputs,
    (graph, given) => evaluateGraph(table, graph, given).outputs,
    (pred) => pred instanceof NDArray && pred.item() !== 0,
  );
  return { values: values.map((value) => (value instanceof NDArray ? value.toArray() : [])), blocks };
}

const twoExits = captureCfg('search', 'head', {
  head: {
    params: [x, i],
    body: (a, n) => branch(a.sum().gt(100), { to: 'found', args: [a] }, { to: 'count', args: [a, n] }),
  },
  count: {
    params: [x, i],
    body: (a, n) => branch(n.eq(10), { to: 'given_up', args: [a] }, { to: 'next', args: [a, n] }),
  },
  next: { params: [x, i], body: (a, n) => jump('head', a.mul(2), n.add(1)) },
  found: { params: [x], body: (a) => leave(a) },
  given_up: { params: [x], body: (a) => leave(a.neg()) },
});

describe('cfg', () => {
  it('CA-39 two exits: values, trips, and the way taken', () => {
    const found = runBlocks(twoExits, [fromList([2], [1, 1]), int(0)]);
    expect(found.values).toEqual([[64, 64]]);
    expect(found.blocks.filter((id) => id === 'next')).toHaveLength(6);
    const none = runBlocks(twoExits, [fromList([2], [0, 0]), int(0)]);
    expect(none.blocks.at(-1)).toBe('given_up');
    expect(none.values[0].map(Math.abs)).toEqual([0, 0]);
  });

  it('CA-39 structure leaves it as blocks', () => {
    const { graph, cfg } = structure(twoExits);
    expect(graph).toBeUndefined();
    expect(cfg.blocks.length).toBeGreaterThan(1);
    for (const start of [[1, 1], [0, 0], [30, 25]]) {
      const inputs = [fromList([2], start), int(0)];
      expect(runBlocks(cfg, inputs).values).toEqual(runBlocks(twoExits, inputs).values);
    }
  }); // prettier-ignore

  it('CA-39 a plain diamond becomes a cond', () => {
    const diamond = captureCfg('diamond', 'top', {
      top: { params: [x], body: (a) => branch(a.sum().gt(0), { to: 'left', args: [a] }, { to: 'right', args: [a.mul(2), a] }) },
      left: { params: [x], body: (a) => jump('bottom', a.sin(), a) },
      right: { params: [x, x], body: (a, b) => jump('bottom', b.cos(), a) },
      bottom: { params: [x, x], body: (a, b) => leave(a.mul(b).sum()) },
    }); // prettier-ignore
    const { graph } = structure(diamond);
    if (graph === undefined) return expect.fail('it was not structured');
    expect(controlCalls(graph)).toEqual(['cond']);
    for (const at of [[1, 2], [-1, -2]])
      expect(run(graph, { arg0: at })).toEqual(runBlocks(diamond, [fromList([2], at)]).values);
    expect(gradients(graph, { arg0: [1, 2] }, ['arg0']).arg0).toHaveLength(2);
  }); // prettier-ignore

  it('a triangle, a loop with either sense, an if whose sides return', () => {
    for (const negated of [false, true]) {
      const looped = captureCfg('looped', 'start', {
        start: { params: [x], body: (a) => jump('head', a.add(1), a.sum().mul(0)) },
        head: {
          params: [x, spec([], 'f64')],
          body: (a, t) => {
            const doubled = a.mul(2);
            const [body, out] = [{ to: 'body', args: [doubled, t] }, { to: 'after', args: [doubled] }];
            return negated ? branch(a.sum().ge(50), out, body) : branch(a.sum().lt(50), body, out);
          },
        },
        body: { params: [x, spec([], 'f64')], body: (a, t) => jump('head', a.add(t), t.add(1)) },
        after: { params: [x], body: (a) => branch(a.sum().gt(120), { to: 'less', args: [a] }, { to: 'end', args: [a] }) },
        less: { params: [x], body: (a) => jump('end', a.div(2)) },
        end: { params: [x], body: (a) => branch(a.sum().gt(60), { to: 'r1', args: [a] }, { to: 'r2', args: [a] }) },
        r1: { params: [x], body: (a) => leave(a.neg()) },
        r2: { params: [x], body: (a) => leave(a) },
      }); // prettier-ignore
      const { graph } = structure(looped);
      if (graph === undefined) return expect.fail('it was not structured');
      expect(controlCalls(graph).sort()).toEqual(['cond', 'cond', 'while_loop']);
      for (const at of [[0, 1], [40, 3], [12, 13], [-100, 99]].slice(0, 3))
        expect(run(graph, { arg0: at })).toEqual(runBlocks(looped, [fromList([2], at)]).values);
    }
  }); // prettier-ignore

  it('edges that do not fit', () => {
    const code = (blocks: Parameters<typeof captureCfg>[2]) => errorOf(() => captureCfg('bad', 'a', blocks));
    expect(code({ a: { params: [x], body: (v) => jump('b', v) } }).code).toBe('E_CFG');
    expect(code({ a: { params: [x], body: (v) => jump('a', v.sum()) } }).message).toContain(
      'argument 0 of a is f64[], expected f64[2]',
    );
    expect(code({ a: { params: [x], body: (v) => jump('a', v, v) } }).message).toContain('gives 2 values');
    expect(code({ b: { params: [x], body: (v) => leave(v) } }).message).toContain('no such block');
    expect(
      code({ a: { params: [x], body: (v) => branch(v.gt(0), { to: 'a', args: [v] }, { to: 'a', args: [v] }) } }).code,
    ).toBe('E_COND_PRED');
  });
});
