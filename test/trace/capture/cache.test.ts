import { describe, expect, it } from 'vitest';

import { GraphCache } from '../../../src/trace/capture/cache.ts';
import { MLP } from '../../../src/trace/nn/feed-forward.ts';
import { spec } from '../../../src/trace/record/spec.ts';
import { guardOn } from '../../../src/trace/tensor/state.ts';
import type { Tensor } from '../../../src/trace/trace.ts';
import { errorOf } from '../support.ts';

const mlp = new MLP('', [128, 256, 64]);
const model = ({ x }: { x: Tensor }): Tensor => mlp.forward(x);
const batch = (n: number): { x: ReturnType<typeof spec> } => ({ x: spec([n, 128]) });
const shapeOf = (made: { graph: { nodes: readonly { type: unknown }[] } }): unknown =>
  made.graph.nodes.at(-1)?.type;

describe('host values', () => {
  const loop = ({ x, n }: { x: Tensor; n: number }): Tensor => {
    let y = x;
    for (let i = 0; i < n; i++) y = y.add(1);
    return y;
  };
  const inputs = (n: number): { x: ReturnType<typeof spec>; n: number } => ({ x: spec([4]), n });

  it('one graph for each unroll length; a known one is found', () => {
    const cache = new GraphCache(loop);
    for (const n of [1, 2, 3, 4]) expect(cache.get(inputs(n)).graph.nodes).toHaveLength(1 + n);
    expect(cache.size).toBe(4);
    const again = cache.get(inputs(4));
    expect([again.made, cache.size]).toEqual([false, 4]);
    expect(again.report.guards).toContain('n == 4');
    expect(cache.log).toEqual([
      'recompile 2: n == 1, now 2',
      'recompile 3: n == 2, now 3',
      'recompile 4: n == 3, now 4',
    ]);
  });

  it('a fourth graph above the limit is refused with the value that changed', () => {
    const cache = new GraphCache(loop, { recompileLimit: 3 });
    for (const n of [1, 2, 3]) cache.get(inputs(n));
    const error = errorOf(() => cache.get(inputs(4)));
    expect([error.code, error.message]).toEqual([
      'E_RECOMPILE_LIMIT',
      expect.stringContaining('n == 3, now 4'),
    ]);
    expect(cache.get(inputs(2)).made).toBe(false);
  });
});

describe('sizes', () => {
  it('batch 8, 16, 32, then 1', () => {
    const cache = new GraphCache(model);
    const first = cache.get(batch(8));
    expect(first.made).toBe(true);
    expect(shapeOf(first)).toMatchObject({ shape: [8, 64] });
    const second = cache.get(batch(16));
    expect([second.made, second.failed]).toEqual([true, 'dim 0 of x, 8 -> 16']);
    expect(shapeOf(second)).toMatchObject({ shape: [{ sym: 's0', example: 16 }, 64] });
    expect(cache.get(batch(32)).made).toBe(false);
    const last = cache.get(batch(1));
    expect(last.made).toBe(true);
    expect(shapeOf(last)).toMatchObject({ shape: [1, 64] });
    expect(cache.log).toEqual([
      'recompile 2: dim 0 of x, 8 -> 16',
      'recompile 3: 2 <= s0, s0 is 1',
    ]);
    expect([cache.get(batch(8)).made, cache.get(batch(1)).made, cache.size]).toEqual([
      false,
      false,
      3,
    ]);
  });

  it('errorOnRecompile names the size that changed', () => {
    const cache = new GraphCache(model, { errorOnRecompile: true });
    cache.get(batch(8));
    const error = errorOf(() => cache.get(batch(16)));
    expect([error.code, error.message]).toEqual([
      'E_RECOMPILE',
      expect.stringContaining('dim 0 of x, 8 -> 16'),
    ]);
  });

  it('dynamic: false makes a graph for each size; marked dims are open at once', () => {
    const fixed = new GraphCache(model, { dynamic: false });
    for (const n of [8, 16, 32]) expect(fixed.get(batch(n)).made).toBe(true);
    const marked = new GraphCache(model, { marked: { x: [0] } });
    expect([8, 16, 32].map((n) => marked.get(batch(n)).made)).toEqual([true, false, false]);
  });

  it('sizes that change together share a dim; programs that hold for one size only fall back, and the log says so', () => {
    const add = new GraphCache(({ x, y }: { x: Tensor; y: Tensor }) => x.add(y));
    const both = (n: number): { x: ReturnType<typeof spec>; y: ReturnType<typeof spec> } => ({
      x: spec([n]),
      y: spec([n]),
    });
    expect([8, 16, 32].map((n) => add.get(both(n)).made)).toEqual([true, true, false]);
    const pairs = new GraphCache(({ x }: { x: Tensor }) => x.view(-1, 4));
    const one = (n: number): { x: ReturnType<typeof spec> } => ({ x: spec([n]) });
    expect([8, 16].map((n) => pairs.get(one(n)).made)).toEqual([true, true]);
    expect(pairs.log[0]).toMatch(
      /^recompile 2: dim 0 of x, 8 -> 16; sizes stay fixed: view: fits for s0 = 16, but not for/,
    );
  });

  it('a predicate on a size splits the graphs', () => {
    const cache = new GraphCache(
      ({ x }: { x: Tensor }) => {
        const n = x.size(0);
        return typeof n !== 'number' && n.gt(20) ? x.sin() : x.cos();
      },
      { marked: { x: [0] } },
    );
    const one = (n: number): { x: ReturnType<typeof spec> } => ({ x: spec([n]) });
    expect(cache.get(one(8)).made).toBe(true);
    expect(cache.get(one(20)).made).toBe(false);
    const big = cache.get(one(21));
    expect(big.failed).toMatch(/^s0 <= 20 at .*cache\.test\.ts:\d+:\d+, s0 is 21$/);
    expect([cache.get(one(1000)).made, cache.get(one(9)).made, cache.size]).toEqual([
      false,
      false,
      2,
    ]);
  });
});

describe('other guards', () => {
  it('dtype, rank, gradient, structure and host state', () => {
    let mode = 'train';
    const cache = new GraphCache(({ x }: { x: Tensor }) =>
      guardOn('mode', () => mode) === 'train' ? x.sin() : x.cos(),
    );
    const failed = (inputs: { x: ReturnType<typeof spec> }): string | undefined =>
      cache.get(inputs).failed;
    expect(failed({ x: spec([4]) })).toBeUndefined();
    expect(failed({ x: spec([4], 'bf16') })).toBe('dtype of x, f32 -> bf16');
    expect(failed({ x: spec([4, 4], 'bf16') })).toBe('rank of x, 1 -> 2');
    expect(failed({ x: spec([4, 4], 'bf16', { grad: true }) })).toBe('grad of x, false -> true');
    mode = 'eval';
    expect(failed({ x: spec([4, 4], 'bf16', { grad: true }) })).toBe('mode == "train", now "eval"');
    expect(failed({ x: spec([4]), y: spec([4]) } as never)).toBe(
      'inputs {"x": *} -> inputs {"x": *, "y": *}',
    );
  });
});
