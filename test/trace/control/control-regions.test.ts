import { describe, expect, it } from 'vitest';

import type { Graph } from '../../../src/graph/types.ts';
import { fromList, NDArray } from '../../../src/ndarray/array.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { evaluateGraph, type Value } from '../../../src/simulate/evaluate.ts';
import { captureRegions, type RegionCapture } from '../../../src/trace/capture/regions.ts';
import { cond } from '../../../src/trace/control/cond.ts';
import { spec } from '../../../src/trace/record/spec.ts';
import * as sourceHooks from '../../../src/trace/source/hooks.ts';
import { wrapConditions } from '../../../src/trace/source/wrap-conditions.ts';
import type { Tensor } from '../../../src/trace/trace.ts';
import { errorOf } from '../support.ts';

type Model = (x: Tensor) => Tensor;
const table = builtinOperators();

function load(source: string): Model {
  const text = wrapConditions(source, 'm.model.ts', { mode: 'check' });
  const body = text.replace(/^import .*$/m, '').replaceAll(/^export /gm, '');
  // The tests run the transformed text, which is their subject.
  // eslint-disable-next-line @typescript-eslint/no-implied-eval
  return (new Function('__shardwright', `${body}\nreturn model;`) as (hooks: unknown) => Model)(
    sourceHooks,
  );
}

const ops = ({ nodes }: Graph): string[] =>
  nodes.filter((n) => n.kind === 'call').map((n) => n.name);
const run = <I>(regions: RegionCapture<I>, x: readonly number[]): number[] => {
  const [value] = regions.run<Value>(
    [fromList([x.length], x, 'f64')],
    (graph, inputs) => evaluateGraph(table, graph, inputs).outputs,
    (pred) => pred instanceof NDArray && pred.item() !== 0,
  );
  return value instanceof NDArray ? value.toArray() : [];
};

const CA6 = 'export function model(x) { if (x.sum().gt(0)) return x.sin(); return x.cos(); }';

describe('regions', () => {
  it('two graphs and three operators; a negative input adds one graph and reuses the first', () => {
    const regions = captureRegions(load(CA6), [spec([2], 'f64')]);
    expect(run(regions, [1, 2])).toEqual([Math.sin(1), Math.sin(2)]);
    expect(regions.regions.map(({ graph }) => ops(graph))).toEqual([['sum', 'gt'], ['sin']]);
    const first = regions.regions[0].graph;
    expect(run(regions, [-1, -2])).toEqual([Math.cos(-1), Math.cos(-2)]);
    expect(regions.regions.map(({ graph, path }) => [path, ops(graph)])).toEqual([
      [[], ['sum', 'gt']],
      [[true], ['sin']],
      [[false], ['cos']],
    ]);
    expect(regions.regions[0].graph).toEqual(first);
    expect(regions.report).toMatchObject([
      { policy: 'regions', position: expect.stringContaining('m.model.ts:1') as string },
    ]);
  });

  it('fullgraph refuses a branch on data', () => {
    const regions = captureRegions(load(CA6), [spec([2], 'f64')], { fullgraph: true });
    const error = errorOf(() => run(regions, [1, 2]));
    expect(error.code).toBe('E_DATA_DEPENDENT');
    expect(error.message).toMatch(/^Data-dependent branching/);
  });

  it('callers of a split function are split around it', () => {
    const regions = captureRegions(
      load(`function b(y) { const z = y.add(1); if (z.sum().gt(0)) return z.sin(); return z; }
export function model(x) { return b(x.mul(2)).add(3); }`),
      [spec([2], 'f64')],
    );
    expect(run(regions, [1, 2])).toEqual([Math.sin(3) + 3, Math.sin(5) + 3]);
    expect(regions.regions.map(({ graph }) => ops(graph))).toEqual([
      ['mul', 'add', 'sum', 'gt'],
      ['sin', 'add_1'],
    ]);
    expect(regions.regions.map(({ guards }) => guards)).toEqual([[], ['item#1 == true']]);
    expect(run(regions, [-4, -2])).toEqual([-4, 0]);
  });

  it('several conditions, values of all earlier regions, a value that the first run did not need', () => {
    const regions = captureRegions(
      load(`export function model(x) {
  const a = x.mul(3);
  const b = x.add(10);
  while (x.sum().lt(20)) x = x.mul(2);
  if (x.sum().gt(25)) return a.add(x);
  return b.sub(x);
}`),
      [spec([2], 'f64')],
    );
    const truth = (input: readonly number[]): number[] => {
      let x = input;
      while (x[0] + x[1] < 20) x = x.map((v) => v * 2);
      return x.map((v, i) => (x[0] + x[1] > 25 ? input[i] * 3 + v : input[i] + 10 - v));
    };
    for (const x of [
      [5, 6],
      [1, 2.5],
      [1, 2],
      [30, 1],
      [10.5, 10.5],
      [1, 2],
    ])
      expect(run(regions, x)).toEqual(truth(x));
    const before = regions.regions.length;
    run(regions, [1, 2]);
    expect(regions.regions).toHaveLength(before);
  });

  it('a loop on data stops at the limit of regions', () => {
    const regions = captureRegions(
      load('export function model(x) { while (x.sum().gt(0)) x = x.mul(2); return x; }'),
      [spec([1], 'f64')],
      { maxRegions: 5 },
    );
    expect(errorOf(() => run(regions, [1])).code).toBe('E_LIMIT');
  });
});

describe('reading values ends a region', () => {
  const values = (value: Value): readonly number[] =>
    value instanceof NDArray ? value.toArray() : [];
  const runReads = <I>(regions: RegionCapture<I>, x: readonly number[]): readonly number[] =>
    values(
      regions.run<Value>(
        [fromList([x.length], x, 'f64')],
        (graph, inputs) => evaluateGraph(table, graph, inputs).outputs,
        (pred) => values(pred)[0] !== 0,
        values,
      )[0],
    );

  it('item(): the number is a constant of the regions after it; an equal number reuses them', () => {
    const regions = captureRegions(
      (x: Tensor) => {
        const n = x.sum().item();
        let y = x;
        for (let i = 0; i < n; i++) y = y.mul(2);
        return y.div(n);
      },
      [spec([2], 'f64')],
    );
    expect(runReads(regions, [1, 2])).toEqual([8 / 3, 16 / 3]);
    expect(runReads(regions, [2, 1])).toEqual([16 / 3, 8 / 3]);
    expect(regions.regions.map(({ path, graph }) => [path, ops(graph)])).toEqual([
      [[], ['sum']],
      [[3], ['mul', 'mul_1', 'mul_2', 'div']],
    ]);
    expect(runReads(regions, [1, 0])).toEqual([2, 0]);
    expect(regions.regions.map(({ path }) => path)).toEqual([[], [3], [1]]);
    expect(regions.report).toMatchObject([
      { kind: 'item()', policy: 'regions', reason: 'a tensor is read; region 0 ends here' },
    ]);
  });

  it('toArray(), and conditions beside it', () => {
    const regions = captureRegions(
      load(
        'export function model(x) { const [a, b] = x.sort(0).values.toArray(); if (x.sum().gt(0)) return x.mul(b); return x.mul(a); }',
      ),
      [spec([2], 'f64')],
    );
    expect(runReads(regions, [5, -2])).toEqual([25, -10]);
    expect(runReads(regions, [-5, 2])).toEqual([25, -10]);
    expect(regions.regions.map(({ path }) => path)).toEqual([
      [],
      [[-2, 5]],
      [[-2, 5], true],
      [[-5, 2]],
      [[-5, 2], false],
    ]);
  });

  it('refusals: fullgraph, inside a body, more than one element, no way to read numbers', () => {
    const item = (x: Tensor): Tensor => x.mul(x.sum().item());
    const inputs = [spec([2], 'f64')] as const;
    expect(
      errorOf(() => runReads(captureRegions(item, inputs, { fullgraph: true }), [1, 2])).code,
    ).toBe('E_DATA_DEPENDENT');
    const inBody = (x: Tensor): Tensor =>
      cond(
        x.sum().gt(0),
        () => x.mul(x.sum().item()),
        () => x,
      );
    expect(errorOf(() => runReads(captureRegions(inBody, inputs), [1, 2])).code).toBe(
      'E_DATA_DEPENDENT',
    );
    const many = (x: Tensor): Tensor => x.mul(x.item());
    expect(errorOf(() => runReads(captureRegions(many, inputs), [1, 2])).code).toBe('E_SHAPE');
    expect(errorOf(() => run(captureRegions(item, inputs), [1, 2])).code).toBe('E_USAGE');
  });
});
