import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { fromFlat, fromList, NDArray } from '../../../src/ndarray/array.ts';
import { type BlockEnd, type Cfg, runCfg } from '../../../src/passes/control/cfg/cfg.ts';
import {
  flowGraph,
  loopsOf,
  reachable,
  waysInto,
} from '../../../src/passes/control/cfg/cfg-flow.ts';
import { structure } from '../../../src/passes/control/cfg/structure.ts';
import { evaluateGraph, type Value } from '../../../src/simulate/evaluate.ts';
import { branch, captureCfg, jump, leave } from '../../../src/trace/capture/control-cfg.ts';
import { spec } from '../../../src/trace/record/spec.ts';
import { controlCalls, gradients, run, table } from '../../passes/control-support.ts';
import { errorOf } from '../support.ts';

const x = spec([2], 'f64');
const i = spec([], 'i64');
const int = (n: number): NDArray => fromFlat([], Float64Array.of(n), 'i64');

function runBlocks(
  cfg: Cfg,
  inputs: readonly NDArray[],
): { values: number[][]; blocks: readonly string[] } {
  const { values, blocks } = runCfg<Value>(
    cfg,
    inputs,
    (graph, given) => evaluateGraph(table, graph, given).outputs,
    (pred) => pred instanceof NDArray && pred.item() !== 0,
  );
  return {
    values: values.map((value) => (value instanceof NDArray ? value.toArray() : [])),
    blocks,
  };
}

const twoExits = captureCfg('search', 'head', {
  head: {
    params: [x, i],
    body: (a, n) =>
      branch(a.sum().gt(100), { to: 'found', args: [a] }, { to: 'count', args: [a, n] }),
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
  it('two exits: values, trips, and the way taken', () => {
    const found = runBlocks(twoExits, [fromList([2], [1, 1]), int(0)]);
    expect(found.values).toEqual([[64, 64]]);
    expect(found.blocks.filter((id) => id === 'next')).toHaveLength(6);
    const none = runBlocks(twoExits, [fromList([2], [0, 0]), int(0)]);
    expect(none.blocks.at(-1)).toBe('given_up');
    expect(none.values[0].map(Math.abs)).toEqual([0, 0]);
  });

  it('structure leaves it as blocks', () => {
    const { graph, cfg, loops } = structure(twoExits);
    expect(graph).toBeUndefined();
    // The loop has a header, but two ways out.
    expect(loops.map((loop) => loop.entries)).toEqual([['head']]);
    expect(cfg.blocks.length).toBeGreaterThan(1);
    for (const start of [
      [1, 1],
      [0, 0],
      [30, 25],
    ]) {
      const inputs = [fromList([2], start), int(0)];
      expect(runBlocks(cfg, inputs).values).toEqual(runBlocks(twoExits, inputs).values);
    }
  });

  it('a plain diamond becomes a cond', () => {
    const diamond = captureCfg('diamond', 'top', {
      top: {
        params: [x],
        body: (a) =>
          branch(a.sum().gt(0), { to: 'left', args: [a] }, { to: 'right', args: [a.mul(2), a] }),
      },
      left: { params: [x], body: (a) => jump('bottom', a.sin(), a) },
      right: { params: [x, x], body: (a, b) => jump('bottom', b.cos(), a) },
      bottom: { params: [x, x], body: (a, b) => leave(a.mul(b).sum()) },
    });
    const { graph } = structure(diamond);
    if (graph === undefined) return expect.fail('it was not structured');
    expect(controlCalls(graph)).toEqual(['cond']);
    for (const at of [
      [1, 2],
      [-1, -2],
    ])
      expect(run(graph, { arg0: at })).toEqual(runBlocks(diamond, [fromList([2], at)]).values);
    expect(gradients(graph, { arg0: [1, 2] }, ['arg0']).arg0).toHaveLength(2);
  });

  it('a triangle, a loop with either sense, an if whose sides return', () => {
    for (const negated of [false, true]) {
      const looped = captureCfg('looped', 'start', {
        start: { params: [x], body: (a) => jump('head', a.add(1), a.sum().mul(0)) },
        head: {
          params: [x, spec([], 'f64')],
          body: (a, t) => {
            const doubled = a.mul(2);
            const [body, out] = [
              { to: 'body', args: [doubled, t] },
              { to: 'after', args: [doubled] },
            ];
            return negated ? branch(a.sum().ge(50), out, body) : branch(a.sum().lt(50), body, out);
          },
        },
        body: { params: [x, spec([], 'f64')], body: (a, t) => jump('head', a.add(t), t.add(1)) },
        after: {
          params: [x],
          body: (a) => branch(a.sum().gt(120), { to: 'less', args: [a] }, { to: 'end', args: [a] }),
        },
        less: { params: [x], body: (a) => jump('end', a.div(2)) },
        end: {
          params: [x],
          body: (a) => branch(a.sum().gt(60), { to: 'r1', args: [a] }, { to: 'r2', args: [a] }),
        },
        r1: { params: [x], body: (a) => leave(a.neg()) },
        r2: { params: [x], body: (a) => leave(a) },
      });
      const { graph } = structure(looped);
      if (graph === undefined) return expect.fail('it was not structured');
      expect(controlCalls(graph).sort()).toEqual(['cond', 'cond', 'while_loop']);
      for (const at of [
        [0, 1],
        [40, 3],
        [12, 13],
        [-100, 99],
      ].slice(0, 3))
        expect(run(graph, { arg0: at })).toEqual(runBlocks(looped, [fromList([2], at)]).values);
    }
  });

  it('edges that do not fit', () => {
    const code = (blocks: Parameters<typeof captureCfg>[2]) =>
      errorOf(() => captureCfg('bad', 'a', blocks));
    expect(code({ a: { params: [x], body: (v) => jump('b', v) } }).code).toBe('E_CFG');
    expect(code({ a: { params: [x], body: (v) => jump('a', v.sum()) } }).message).toContain(
      'argument 0 of a is f64[], expected f64[2]',
    );
    expect(code({ a: { params: [x], body: (v) => jump('a', v, v) } }).message).toContain(
      'gives 2 values',
    );
    expect(code({ a: { params: [x, x], body: (v) => jump('a', v) } }).message).toContain(
      'it gives 1 values to a, which takes 2',
    );
    expect(code({ b: { params: [x], body: (v) => leave(v) } }).message).toContain('no such block');
    expect(
      code({
        a: {
          params: [x],
          body: (v) => branch(v.gt(0), { to: 'a', args: [v] }, { to: 'a', args: [v] }),
        },
      }).code,
    ).toBe('E_COND_PRED');
  });

  it('a loop that is entered at two blocks stays blocks, and the answer says where it is entered', () => {
    const twoDoors = captureCfg('doors', 'start', {
      start: {
        params: [x],
        body: (a) => branch(a.sum().gt(0), { to: 'left', args: [a] }, { to: 'right', args: [a] }),
      },
      left: { params: [x], body: (a) => jump('right', a.add(1)) },
      right: {
        params: [x],
        body: (a) => branch(a.sum().gt(9), { to: 'end', args: [a] }, { to: 'left', args: [a] }),
      },
      end: { params: [x], body: (a) => leave(a) },
    });
    expect(loopsOf(twoDoors)).toEqual([{ blocks: ['left', 'right'], entries: ['left', 'right'] }]);
    const { graph, loops } = structure(twoDoors);
    expect(graph).toBeUndefined();
    expect(loops).toEqual([{ blocks: ['left', 'right'], entries: ['left', 'right'] }]);
  });

  /** Blocks without code that lead as listed: to none, one or two others. */
  const skeleton = (to: readonly (readonly number[])[]): Cfg => ({
    name: 'random',
    entry: '0',
    blocks: to.map((next, id) => {
      const edges = next.map((n) => ({ to: String(n % to.length), args: [] }));
      const end: BlockEnd =
        edges.length === 0
          ? { kind: 'return', values: [] }
          : edges.length === 1
            ? { kind: 'jump', edge: edges[0] }
            : { kind: 'branch', on: 'p', then: edges[0], else: edges[1] };
      return {
        id: String(id),
        graph: { name: String(id), nodes: [], outputs: [], subgraphs: {} },
        end,
      };
    }),
  });

  it('reachable blocks, ways in, loops and their entries, against a closure over all paths', () => {
    fc.assert(
      fc.property(
        fc.array(fc.array(fc.nat(9), { maxLength: 2 }), { minLength: 1, maxLength: 9 }),
        (lists) => {
          const cfg = skeleton(lists);
          const n = lists.length;
          const edges = lists.flatMap((next, a) => next.map((b) => [a, b % n] as const));
          // Whether b is reached from a in one step or more (Warshall).
          const leads = Array.from({ length: n }, (_, a) =>
            Array.from({ length: n }, (_, b) => edges.some(([v, w]) => v === a && w === b)),
          );
          for (let k = 0; k < n; k++)
            for (let a = 0; a < n; a++)
              for (let b = 0; b < n; b++) leads[a][b] ||= leads[a][k] && leads[k][b];
          const flow = flowGraph(cfg.name, cfg.blocks);
          const ids = [...Array(n).keys()];
          expect([...reachable(flow, '0')].map(Number).sort()).toEqual(
            ids.filter((b) => b === 0 || leads[0][b]),
          );
          for (const b of ids)
            expect(waysInto(flow, String(b), '0')).toBe(
              edges.filter(([, w]) => w === b).length + (b === 0 ? 1 : 0),
            );
          const loops = ids
            .filter((a) => leads[a][a])
            .map((a) => ids.filter((b) => leads[a][b] && leads[b][a]));
          const distinct = [...new Map(loops.map((loop) => [loop.join(), loop])).values()];
          const entries = (loop: readonly number[]): number[] =>
            loop.filter((b) => b === 0 || edges.some(([v, w]) => w === b && !loop.includes(v)));
          expect(loopsOf(cfg)).toEqual(
            distinct.map((loop) => ({
              blocks: loop.map(String),
              entries: entries(loop).map(String),
            })),
          );
        },
      ),
      { seed: 3, numRuns: 300 },
    );
  });

  it('a thousand blocks in a row are read, more are refused before the search overflows', () => {
    const row = (n: number): Cfg =>
      skeleton(Array.from({ length: n }, (_, k) => (k + 1 < n ? [k + 1] : [])));
    expect(reachable(flowGraph('row', row(1000).blocks), '0').size).toBe(1000);
    expect(loopsOf(row(1000))).toEqual([]);
    expect(() => flowGraph('row', row(1001).blocks)).toThrow(/row has 1001 blocks, more than 1000/);
  });
});
