import { describe, expect, test } from 'vitest';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { ruleText, type Rule } from '../../src/ops/rule.ts';
import { build, getBroadcast, random, type NDArray } from './support/arrays.ts';
import { makeCall, type TestArg, type TestCall } from './support/calls.ts';
import { admitted, judge, type Kernel, type LocalCall } from './support/ranks.ts';

/**
 * Every rule of elementwise operators, reductions, softmax and losses is executed on 2 and 3 simulated ranks, with even and
 * uneven shards, and compared with the unsharded run. The kernels below are written from the definitions.
 */

const operators = builtinOperators();

function draw(call: TestCall, seed: number): NDArray[] {
  const next = random(seed);
  return call.tensors.map(({ t, dt, init, hi }) =>
    build(t, () => {
      if (dt === 'bool') return next() < 0.4 ? 1 : 0;
      if (init === 'int') return Math.floor(next() * (hi ?? 2));
      if (init === 'ismall') return Math.floor(next() * 5) - 2;
      if (init === 'pos') return next() + 0.5;
      return 4 * next() - 2;
    }),
  );
}

function recordOf(name: string) {
  const record = operators.get(name);
  if (record === undefined) throw new Error(`no record ${name}`);
  return record;
}

/** Judges every rule of a call; `kernelOf` may choose the rewritten body by rule. Returns what failed and what was judged. */
function judgeCall(name: string, args: TestArg[], kwargs: Record<string, TestArg>, kernelOf: (r: Rule, inputs: readonly NDArray[]) => Kernel): { failed: string[]; judged: Rule[]; rules: readonly Rule[] } {
  const call = makeCall(recordOf(name), args, kwargs);
  const rules = call.record.shard(call.ctx);
  const failed: string[] = [];
  const judged = new Set<Rule>();
  for (const ranks of [2, 3]) {
    for (const seed of [1, 2]) {
      const inputs = draw(call, seed);
      for (const r of rules) {
        if (!admitted(call.ctx, [r], [ranks])) continue;
        judged.add(r);
        const wrong = judge(call.ctx, inputs, kernelOf(r, inputs), [r], [ranks]);
        if (wrong !== undefined) failed.push(wrong);
      }
    }
  }
  return { failed, judged: [...judged], rules };
}

const elementwise =
  (f: (...values: number[]) => number): Kernel =>
  ({ inputs }: LocalCall) => {
    const rank = Math.max(...inputs.map((x) => x.shape.length));
    const shape = Array.from({ length: rank }, (_, d) => {
      const sizes = inputs.map((x) => x.shape[d - (rank - x.shape.length)] ?? 1);
      return sizes.find((s) => s !== 1) ?? 1;
    });
    return [build(shape, (at) => f(...inputs.map((x) => getBroadcast(x, at))))];
  };

const X: TestArg = { t: [6, 5] };
const Y: TestArg = { t: [6, 5], init: 'pos' };
const ROW: TestArg = { t: [5] };
const COLUMN: TestArg = { t: [6, 1] };
const INTS: TestArg = { t: [6, 5], init: 'ismall' };
const B: TestArg = { t: [6, 5], dt: 'bool' };
const bit = (b: boolean): number => (b ? 1 : 0);
const relu = (x: number): number => Math.max(x, 0);
const step = (x: number): number => bit(x > 0);

type Case = [name: string, args: TestArg[], kwargs: Record<string, TestArg>, f: (...v: number[]) => number, expected: string[]];
/** Operator, arguments, definition, and rules with pending values that must be among those judged. */
const CASES: Case[] = [
  ['aten.add.Tensor', [X, X], {}, (a, b) => a + b, ['P(sum), P(sum) -> P(sum)', 'P(max), R -> P(max)', 'R, P(min) -> P(min)']],
  ['aten.add.Tensor', [X, ROW], { alpha: -2 }, (a, b) => a - 2 * b, ['R, P(max) -> P(min)', 'R, S(0) -> S(1)']],
  ['aten.add.Tensor', [X, 3], {}, (a) => a + 3, ['P(avg) -> P(avg)', 'P(max) -> P(max)']],
  ['aten.add.Tensor', [X, 0], {}, (a) => a, ['P(sum) -> P(sum)']],
  ['aten.sub.Tensor', [X, COLUMN], {}, (a, b) => a - b, ['R, P(max) -> P(min)', 'S(0), S(0) -> S(0)', 'S(1), R -> S(1)']],
  ['aten.sub.Tensor', [1, X], {}, (a) => 1 - a, ['P(avg) -> P(avg)', 'P(max) -> P(min)']],
  ['aten.rsub.Scalar', [X, 3.5], {}, (a) => 3.5 - a, ['P(max) -> P(min)']],
  ['aten.mul.Tensor', [X, X], {}, (a, b) => a * b, ['P(sum), R -> P(sum)', 'R, P(avg) -> P(avg)']],
  ['aten.mul.Tensor', [X, -2], {}, (a) => -2 * a, ['P(sum) -> P(sum)', 'P(max) -> P(min)']],
  ['aten.mul.Scalar', [X, 0.5], {}, (a) => 0.5 * a, ['P(max) -> P(max)']],
  ['aten.div.Tensor', [X, Y], {}, (a, b) => a / b, ['P(sum), R -> P(sum)']],
  ['aten.div.Scalar', [X, -4], {}, (a) => a / -4, ['P(min) -> P(max)']],
  ['aten.neg.default', [X], {}, (a) => -a, ['P(sum) -> P(sum)', 'P(max) -> P(min)']],
  ['aten.relu.default', [X], {}, relu, ['P(max) -> P(max)']],
  ['aten.erfc.default', [X], {}, (a) => Math.exp(-a), ['P(max) -> P(min)']],
  ['aten.rad2deg.default', [X], {}, (a) => (a * 180) / Math.PI, ['P(sum) -> P(sum)', 'P(max) -> P(max)']],
  ['aten.abs.default', [X], {}, Math.abs, []],
  ['aten.clamp.default', [X, -0.5, 0.5], {}, (a) => Math.min(Math.max(a, -0.5), 0.5), ['P(min) -> P(min)']],
  ['aten.leaky_relu.default', [X, 0.1], {}, (a) => (a > 0 ? a : 0.1 * a), ['P(max) -> P(max)']],
  ['aten.leaky_relu.default', [X, -0.1], {}, (a) => (a > 0 ? a : -0.1 * a), []],
  ['aten.threshold.default', [X, 0.5, 0.25], {}, (a) => (a > 0.5 ? a : 0.25), ['P(max) -> P(max)']],
  ['aten.threshold.default', [X, 0.5, 9], {}, (a) => (a > 0.5 ? a : 9), []],
  ['aten.pow.Tensor_Scalar', [X, 2], {}, (a) => a ** 2, []],
  ['aten.pow.Tensor_Scalar', [X, 3], {}, (a) => a ** 3, ['P(max) -> P(max)']],
  ['aten.pow.Tensor_Scalar', [X, 1.0], {}, (a) => a, ['P(sum) -> P(sum)']],
  ['aten.pow.Scalar', [2, X], {}, (a) => 2 ** a, ['P(max) -> P(max)']],
  ['aten.maximum.default', [X, ROW], {}, Math.max, ['P(max), P(max) -> P(max)', 'P(min), R -> P(min)']],
  ['aten.minimum.default', [X, X], {}, Math.min, ['P(min), P(min) -> P(min)', 'R, P(max) -> P(max)']],
  ['aten.clamp_min.Tensor', [X, X], {}, Math.max, ['P(max), P(max) -> P(max)']],
  ['aten.logaddexp.default', [X, X], {}, (a, b) => Math.log(Math.exp(a) + Math.exp(b)), ['P(max), R -> P(max)']],
  ['aten.xlogy.Tensor', [X, Y], {}, (a, b) => a * Math.log(b), ['P(sum), R -> P(sum)']],
  ['aten.lt.Tensor', [INTS, INTS], {}, (a, b) => bit(a < b), ['R, P(max) -> P(bor)', 'P(max), R -> P(band)']],
  ['aten.ge.Tensor', [INTS, INTS], {}, (a, b) => bit(a >= b), ['P(max), R -> P(bor)', 'R, P(max) -> P(band)']],
  ['aten.gt.Scalar', [INTS, 0], {}, (a) => bit(a > 0), ['P(max) -> P(bor)', 'P(min) -> P(band)']],
  ['aten.le.Scalar', [INTS, 0], {}, (a) => bit(a <= 0), ['P(max) -> P(band)', 'P(min) -> P(bor)']],
  ['aten.eq.Tensor', [INTS, INTS], {}, (a, b) => bit(a === b), []],
  ['aten.logical_not.default', [B], {}, (a) => 1 - a, ['P(bor) -> P(band)', 'P(band) -> P(bor)']],
  ['aten.logical_not.default', [INTS], {}, (a) => bit(a === 0), []],
  ['aten.bitwise_and.Tensor', [B, B], {}, (a, b) => a * b, ['P(band), P(band) -> P(band)', 'R, P(bor) -> P(bor)']],
  ['aten.logical_or.default', [B, B], {}, Math.max, ['P(bor), P(bor) -> P(bor)', 'P(band), R -> P(band)']],
  ['aten.where.self', [B, X, X], {}, (c, a, b) => (c === 1 ? a : b), ['R, P(sum), P(sum) -> P(sum)', 'R, P(min), P(min) -> P(min)']],
  ['aten.where.self', [B, X, 7], {}, (c, a) => (c === 1 ? a : 7), ['R, P(avg) -> P(avg)']],
  ['aten.where.self', [B, 0, X], {}, (c, b) => (c === 1 ? 0 : b), ['R, P(sum) -> P(sum)']],
  ['aten.masked_fill.Scalar', [X, B, 0], {}, (a, m) => (m === 1 ? 0 : a), ['P(sum), R -> P(sum)']],
  ['aten.masked_fill.Scalar', [X, B, -9], {}, (a, m) => (m === 1 ? -9 : a), ['P(max), R -> P(max)']],
  ['aten.lerp.Tensor', [X, X, Y], {}, (a, b, w) => a + w * (b - a), ['P(sum), P(sum), R -> P(sum)', 'R, R, P(avg) -> P(avg)']],
  ['aten.addcmul.default', [X, X, Y], { value: 0.5 }, (a, b, c) => a + 0.5 * b * c, ['P(sum), R, P(sum) -> P(sum)']],
  ['aten.addcdiv.default', [X, X, Y], {}, (a, b, c) => a + b / c, ['P(avg), P(avg), R -> P(avg)']],
  ['aten.threshold_backward.default', [X, X, 0], {}, (g, x) => g * step(x), ['P(sum), R -> P(sum)']],
  ['aten.sigmoid_backward.default', [X, Y], {}, (g, y) => g * y * (1 - y), ['P(avg), R -> P(avg)']],
  ['aten.clone.default', [X], {}, (a) => a, ['P(sum) -> P(sum)', 'P(min) -> P(min)']],
  ['aten.detach.default', [B], {}, (a) => a, ['P(bor) -> P(bor)']],
  ['aten._to_copy.default', [X], {}, (a) => a, ['P(sum) -> P(sum)', 'P(max) -> P(max)']],
];

describe('elementwise rules by execution', () => {
  test.each(CASES)('%s %j %j', (name, args, kwargs, f, expected) => {
    const { failed, judged } = judgeCall(name, args, kwargs, () => elementwise(f));
    expect(failed).toEqual([]);
    const texts = judged.map(ruleText);
    expect(texts).toEqual(expect.arrayContaining(expected));
    if (expected.length === 0) expect(texts.filter((t) => t.includes('P('))).toEqual([]);
  });

  test('casts: truncation commutes with extremes, not with sums; a bool target takes nothing pending', () => {
    const cast = (from: string, to: string): string[] => {
      const kwargs = { dtype: { kind: 'dtype', dtype: to } as unknown };
      const call = makeCall(recordOf('aten._to_copy.default'), [{ t: [6, 5], dt: from }], kwargs as Record<string, TestArg>);
      return call.record.shard(call.ctx).map(ruleText).filter((t) => t.includes('P('));
    };
    expect(cast('f32', 'bf16')).toEqual(['sum', 'avg', 'max', 'min'].map((k) => `P(${k}) -> P(${k})`));
    expect(cast('f32', 'i64')).toEqual(['P(max) -> P(max)', 'P(min) -> P(min)']);
    expect(cast('f32', 'b8')).toEqual([]);
    expect(cast('bool', 'f32')).toEqual(['P(bor) -> P(max)', 'P(band) -> P(min)']);
  });
});

// ---- reductions --------------------------------------------------------------------------------------------------------

/** Folds dim 1 (or every dim) of the local input. */
const folded =
  (all: boolean, start: number, f: (a: number, b: number) => number, finish = (v: number): number => v): Kernel =>
  ({ inputs: [x] }) => {
    const shape = all ? [] : x.shape.filter((_, d) => d !== 1);
    return [
      build(shape, (at) => {
        let value = start;
        build(x.shape, (full, flat) => {
          if (all || (full[0] === at[0] && full[2] === at[1])) value = f(value, x.data[flat]);
          return 0;
        });
        return finish(value);
      }),
    ];
  };

const T: TestArg = { t: [6, 5, 4] };
const TB: TestArg = { t: [6, 5, 4], dt: 'bool' };
const plus = (a: number, b: number): number => a + b;

describe('reductions by execution', () => {
  test.each([
    ['aten.sum.dim_IntList', [T, [1]], folded(false, 0, plus), ['S(1) -> P(sum)', 'S(2) -> S(1)', 'P(avg) -> P(avg)']],
    ['aten.sum.default', [T], folded(true, 0, plus), ['S(1) -> P(sum)']],
    ['aten.sum.dim_IntList', [T, []], folded(true, 0, plus), ['S(2) -> P(sum)']],
    ['aten.amax.default', [T, [-2]], folded(false, -Infinity, Math.max), ['S(1) -> P(max)', 'P(max) -> P(max)']],
    ['aten.amin.default', [T, [1]], folded(false, Infinity, Math.min), ['S(1) -> P(min)']],
    ['aten.any.dim', [TB, 1], folded(false, 0, Math.max), ['S(1) -> P(bor)', 'P(bor) -> P(bor)']],
    ['aten.all.dim', [TB, 1], folded(false, 1, Math.min), ['S(1) -> P(band)', 'P(band) -> P(band)']],
    ['aten.linalg_vector_norm.default', [T, 'inf', [1]], folded(false, 0, (a, b) => Math.max(a, Math.abs(b))), ['S(1) -> P(max)']],
    ['aten.linalg_vector_norm.default', [T, 1, [1]], folded(false, 0, (a, b) => a + Math.abs(b)), ['S(1) -> P(sum)']],
    ['aten.linalg_vector_norm.default', [T, 2, [1]], folded(false, 0, (a, b) => a + b * b, Math.sqrt), []],
    ['aten.argmax.default', [T, 1], folded(false, 0, plus), []],
  ] as [string, TestArg[], Kernel, string[]][])('%s %j', (name, args, kernel, expected) => {
    const literal = args.map((a) => (a === 'inf' ? ({ kind: 'float', value: Infinity } as unknown as TestArg) : a));
    const { failed, judged } = judgeCall(name, literal, {}, () => kernel);
    expect(failed).toEqual([]);
    const texts = judged.map(ruleText);
    expect(texts).toEqual(expect.arrayContaining(['S(0) -> S(0)'].filter(() => !/^\[\]|default$/.test(name)).concat(expected)));
    if (expected.length === 0) expect(texts.filter((t) => t.includes('P('))).toEqual([]);
  });

  test('a mean over a cut dim is an average for even shards, or a sum over the global count', () => {
    const kernel = (r: Rule): Kernel => (call) => {
      const count = r.rewrite === 'global-count' ? call.global.inputs[0].shape[1] : call.inputs[0].shape[1];
      return folded(false, 0, plus, (v) => v / count)(call);
    };
    const { failed, judged, rules } = judgeCall('aten.mean.dim', [T, [1]], {}, kernel);
    expect(failed).toEqual([]);
    // 5 rows are even on no mesh here: only the global count remains.
    expect(judged.map(ruleText).filter((t) => t.startsWith('S(1)'))).toEqual(['S(1) -> P(sum)']);
    expect(rules.map(ruleText)).toContain('S(1) -> P(avg)');
    const even = judgeCall('aten.mean.dim', [{ t: [5, 6, 4] }, [1]], {}, kernel);
    expect(even.failed).toEqual([]);
    expect(even.judged.map(ruleText)).toContain('S(1) -> P(avg)');
  });
});
