import { describe, expect, test } from 'vitest';

import { P, R, type Rule, rule, ruleText } from '../../src/ops/record/rule.ts';
import { build, getBroadcast, type NDArray } from './support/arrays.ts';
import { bound, judgeCall } from './support/judge-call.ts';
import type { OracleArg } from './support/oracle.ts';
import type { Kernel, LocalCall } from './support/ranks.ts';

/**
 * Every rule of elementwise operators, reductions, softmax and losses is executed on 2 and 3
 * simulated ranks, with even and uneven shards, and compared with the unsharded run. The kernels
 * below are written from the definitions.
 */

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

const X: OracleArg = { t: [6, 5] };
const Y: OracleArg = { t: [6, 5], init: 'pos' };
const ROW: OracleArg = { t: [5] };
const COLUMN: OracleArg = { t: [6, 1] };
const INTS: OracleArg = { t: [6, 5], init: 'ismall' };
const B: OracleArg = { t: [6, 5], dt: 'bool' };
const bit = (b: boolean): number => (b ? 1 : 0);
const relu = (x: number): number => Math.max(x, 0);
const step = (x: number): number => bit(x > 0);

type Case = [
  name: string,
  args: OracleArg[],
  kwargs: Record<string, OracleArg>,
  f: (...v: number[]) => number,
  expected: string[],
];
/**
 * Operator, arguments, definition, and rules with pending values that must be among those judged.
 */
const CASES: Case[] = [
  [
    'aten.add.Tensor',
    [X, X],
    {},
    (a, b) => a + b,
    ['P(sum), P(sum) -> P(sum)', 'P(max), R -> P(max)', 'R, P(min) -> P(min)'],
  ],
  [
    'aten.add.Tensor',
    [X, ROW],
    { alpha: -2 },
    (a, b) => a - 2 * b,
    ['R, P(max) -> P(min)', 'S(1), S(0) -> S(1)'],
  ],
  ['aten.add.Tensor', [X, 3], {}, (a) => a + 3, ['P(avg) -> P(avg)', 'P(max) -> P(max)']],
  ['aten.add.Tensor', [X, 0], {}, (a) => a, ['P(sum) -> P(sum)']],
  [
    'aten.sub.Tensor',
    [X, COLUMN],
    {},
    (a, b) => a - b,
    ['R, P(max) -> P(min)', 'S(0), S(0) -> S(0)', 'S(1), R -> S(1)'],
  ],
  ['aten.sub.Tensor', [1, X], {}, (a) => 1 - a, ['P(avg) -> P(avg)', 'P(max) -> P(min)']],
  ['aten.rsub.Scalar', [X, 3.5], {}, (a) => 3.5 - a, ['P(max) -> P(min)']],
  ['aten.rsub.Scalar', [X, 3.5, 2], {}, (a) => 3.5 - 2 * a, ['P(max) -> P(min)']],
  ['aten.mul.Tensor', [X, X], {}, (a, b) => a * b, ['P(sum), R -> P(sum)', 'R, P(avg) -> P(avg)']],
  ['aten.mul.Tensor', [X, -2], {}, (a) => -2 * a, ['P(sum) -> P(sum)', 'P(max) -> P(min)']],
  ['aten.mul.Scalar', [X, 0.5], {}, (a) => 0.5 * a, ['P(max) -> P(max)']],
  ['aten.div.Tensor', [X, Y], {}, (a, b) => a / b, ['P(sum), R -> P(sum)']],
  ['aten.div.Scalar', [X, -4], {}, (a) => a / -4, ['P(min) -> P(max)']],
  ['aten.neg.default', [X], {}, (a) => -a, ['P(sum) -> P(sum)', 'P(max) -> P(min)']],
  ['aten.relu.default', [X], {}, relu, ['P(max) -> P(max)']],
  ['aten.erfc.default', [X], {}, (a) => Math.exp(-a), ['P(max) -> P(min)']],
  [
    'aten.rad2deg.default',
    [X],
    {},
    (a) => (a * 180) / Math.PI,
    ['P(sum) -> P(sum)', 'P(max) -> P(max)'],
  ],
  ['aten.abs.default', [X], {}, Math.abs, []],
  [
    'aten.clamp.default',
    [X, -0.5, 0.5],
    {},
    (a) => Math.min(Math.max(a, -0.5), 0.5),
    ['P(min) -> P(min)'],
  ],
  ['aten.leaky_relu.default', [X, 0.1], {}, (a) => (a > 0 ? a : 0.1 * a), ['P(max) -> P(max)']],
  ['aten.leaky_relu.default', [X, -0.1], {}, (a) => (a > 0 ? a : -0.1 * a), []],
  ['aten.threshold.default', [X, 0.5, 0.25], {}, (a) => (a > 0.5 ? a : 0.25), ['P(max) -> P(max)']],
  ['aten.threshold.default', [X, 0.5, 9], {}, (a) => (a > 0.5 ? a : 9), []],
  ['aten.pow.Tensor_Scalar', [X, 2], {}, (a) => a ** 2, []],
  ['aten.pow.Tensor_Scalar', [X, 3], {}, (a) => a ** 3, ['P(max) -> P(max)']],
  ['aten.pow.Tensor_Scalar', [X, 1], {}, (a) => a, ['P(sum) -> P(sum)']],
  ['aten.pow.Scalar', [2, X], {}, (a) => 2 ** a, ['P(max) -> P(max)']],
  [
    'aten.maximum.default',
    [X, ROW],
    {},
    Math.max,
    ['P(max), P(max) -> P(max)', 'P(min), R -> P(min)'],
  ],
  [
    'aten.minimum.default',
    [X, X],
    {},
    Math.min,
    ['P(min), P(min) -> P(min)', 'R, P(max) -> P(max)'],
  ],
  ['aten.clamp_min.Tensor', [X, X], {}, Math.max, ['P(max), P(max) -> P(max)']],
  [
    'aten.logaddexp.default',
    [X, X],
    {},
    (a, b) => Math.log(Math.exp(a) + Math.exp(b)),
    ['P(max), R -> P(max)'],
  ],
  ['aten.xlogy.Tensor', [X, Y], {}, (a, b) => a * Math.log(b), ['P(sum), R -> P(sum)']],
  [
    'aten.lt.Tensor',
    [INTS, INTS],
    {},
    (a, b) => bit(a < b),
    ['R, P(max) -> P(bor)', 'P(max), R -> P(band)'],
  ],
  [
    'aten.ge.Tensor',
    [INTS, INTS],
    {},
    (a, b) => bit(a >= b),
    ['P(max), R -> P(bor)', 'R, P(max) -> P(band)'],
  ],
  ['aten.gt.Scalar', [INTS, 0], {}, (a) => bit(a > 0), ['P(max) -> P(bor)', 'P(min) -> P(band)']],
  ['aten.le.Scalar', [INTS, 0], {}, (a) => bit(a <= 0), ['P(max) -> P(band)', 'P(min) -> P(bor)']],
  ['aten.eq.Tensor', [INTS, INTS], {}, (a, b) => bit(a === b), []],
  ['aten.logical_not.default', [B], {}, (a) => 1 - a, ['P(bor) -> P(band)', 'P(band) -> P(bor)']],
  ['aten.logical_not.default', [INTS], {}, (a) => bit(a === 0), []],
  [
    'aten.bitwise_and.Tensor',
    [B, B],
    {},
    (a, b) => a * b,
    ['P(band), P(band) -> P(band)', 'R, P(bor) -> P(bor)'],
  ],
  [
    'aten.logical_or.default',
    [B, B],
    {},
    Math.max,
    ['P(bor), P(bor) -> P(bor)', 'P(band), R -> P(band)'],
  ],
  [
    'aten.where.self',
    [B, X, X],
    {},
    (c, a, b) => (c === 1 ? a : b),
    ['R, P(sum), P(sum) -> P(sum)', 'R, P(min), P(min) -> P(min)'],
  ],
  ['aten.where.self', [B, X, 7], {}, (c, a) => (c === 1 ? a : 7), ['R, P(avg) -> P(avg)']],
  ['aten.where.self', [B, 0, X], {}, (c, b) => (c === 1 ? 0 : b), ['R, P(sum) -> P(sum)']],
  ['aten.masked_fill.Scalar', [X, B, 0], {}, (a, m) => (m === 1 ? 0 : a), ['P(sum), R -> P(sum)']],
  [
    'aten.masked_fill.Scalar',
    [X, B, -9],
    {},
    (a, m) => (m === 1 ? -9 : a),
    ['P(max), R -> P(max)'],
  ],
  [
    'aten.lerp.Tensor',
    [X, X, Y],
    {},
    (a, b, w) => a + w * (b - a),
    ['P(sum), P(sum), R -> P(sum)', 'R, R, P(avg) -> P(avg)'],
  ],
  [
    'aten.addcmul.default',
    [X, X, Y],
    { value: 0.5 },
    (a, b, c) => a + 0.5 * b * c,
    ['P(sum), R, P(sum) -> P(sum)'],
  ],
  ['aten.addcdiv.default', [X, X, Y], {}, (a, b, c) => a + b / c, ['P(avg), P(avg), R -> P(avg)']],
  [
    'aten.threshold_backward.default',
    [X, X, 0],
    {},
    (g, x) => g * step(x),
    ['P(sum), R -> P(sum)'],
  ],
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

  test.each([
    ['aten.mul.Tensor', [X, X], (a: number, b: number) => a * b, rule([P(), P()], [P()])],
    ['aten.add.Tensor', [X, X], (a: number, b: number) => a + b, rule([P(), R], [P()])],
    ['aten.abs.default', [X], Math.abs, rule([P('max')], [P('max')])],
    ['aten.relu.default', [X], relu, rule([P()], [P()])],
  ] as [string, OracleArg[], (...v: number[]) => number, Rule][])(
    '%s does not have a rule that is refuted',
    (op, args, f, wrong) => {
      expect(bound(op, args).rules.map(ruleText)).not.toContain(ruleText(wrong));
      const { failed } = judgeCall(op, args, {}, () => elementwise(f), [wrong]);
      expect(failed.length).toBeGreaterThan(0);
    },
  );

  test('the base rules, in the order that breaks ties', () => {
    const base = (op: string, args: OracleArg[]): string[] =>
      bound(op, args)
        .rules.filter((r) => r.origin === 'base')
        .map(ruleText);
    expect(base('aten.abs.default', [{ t: [4, 8] }])).toEqual(['S(0) -> S(0)', 'S(1) -> S(1)']);
    expect(base('aten.neg.default', [{ t: [4, 8] }]).slice(2, 4)).toEqual([
      'P(sum) -> P(sum)',
      'P(avg) -> P(avg)',
    ]);
    expect(base('aten.add.Tensor', [{ t: [4, 8] }, { t: [8] }]).slice(0, 2)).toEqual([
      'S(0), R -> S(0)',
      'S(1), S(0) -> S(1)',
    ]);
    expect(base('aten.add.Tensor', [{ t: [4, 8] }, { t: [4, 8] }])).toEqual([
      'S(0), S(0) -> S(0)',
      'S(1), S(1) -> S(1)',
      'P(sum), P(sum) -> P(sum)',
      'P(avg), P(avg) -> P(avg)',
      'P(avg), R -> P(avg)',
      'P(max), R -> P(max)',
      'P(min), R -> P(min)',
      'R, P(avg) -> P(avg)',
    ]);
    expect(
      bound('aten.mul.Tensor', [{ t: [4, 8] }, 2]).rules.every((r) => r.inputs.length === 1),
    ).toBe(true);
  });

  test('casts: truncation commutes with extremes, not with sums; a bool target takes nothing pending', () => {
    const cast = (from: string, to: string): string[] => {
      const { rules } = bound('aten._to_copy.default', [{ t: [6, 5], dt: from }], { dtype: to });
      return rules.map(ruleText).filter((t) => t.includes('P('));
    };
    expect(cast('f32', 'bf16')).toEqual(
      ['sum', 'avg', 'max', 'min'].map((k) => `P(${k}) -> P(${k})`),
    );
    expect(cast('f32', 'i64')).toEqual(['P(max) -> P(max)', 'P(min) -> P(min)']);
    expect(cast('f32', 'b8')).toEqual([]);
    expect(cast('bool', 'f32')).toEqual(['P(bor) -> P(max)', 'P(band) -> P(min)']);
  });
});

// ---- reductions
// -----------------------------------------------------------------------------

/** Folds dim 1 (or every dim) of the local input. */
const folded =
  (
    all: boolean,
    start: number,
    f: (a: number, b: number) => number,
    finish = (v: number): number => v,
  ): Kernel =>
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

const T: OracleArg = { t: [6, 5, 4] };
const TB: OracleArg = { t: [6, 5, 4], dt: 'bool' };
const plus = (a: number, b: number): number => a + b;

describe('reductions by execution', () => {
  test.each([
    [
      'aten.sum.dim_IntList',
      [T, [1]],
      folded(false, 0, plus),
      ['S(1) -> P(sum)', 'S(2) -> S(1)', 'P(avg) -> P(avg)'],
    ],
    ['aten.sum.default', [T], folded(true, 0, plus), ['S(1) -> P(sum)']],
    ['aten.sum.dim_IntList', [T, []], folded(true, 0, plus), ['S(2) -> P(sum)']],
    [
      'aten.amax.default',
      [T, [-2]],
      folded(false, -Infinity, Math.max),
      ['S(1) -> P(max)', 'P(max) -> P(max)'],
    ],
    ['aten.amin.default', [T, [1]], folded(false, Infinity, Math.min), ['S(1) -> P(min)']],
    ['aten.any.dim', [TB, 1], folded(false, 0, Math.max), ['S(1) -> P(bor)', 'P(bor) -> P(bor)']],
    [
      'aten.all.dim',
      [TB, 1],
      folded(false, 1, Math.min),
      ['S(1) -> P(band)', 'P(band) -> P(band)'],
    ],
    [
      'aten.linalg_vector_norm.default',
      [T, 'inf', [1]],
      folded(false, 0, (a, b) => Math.max(a, Math.abs(b))),
      ['S(1) -> P(max)'],
    ],
    [
      'aten.linalg_vector_norm.default',
      [T, 1, [1]],
      folded(false, 0, (a, b) => a + Math.abs(b)),
      ['S(1) -> P(sum)'],
    ],
    [
      'aten.linalg_vector_norm.default',
      [T, 2, [1]],
      folded(false, 0, (a, b) => a + b * b, Math.sqrt),
      [],
    ],
  ] as [string, OracleArg[], Kernel, string[]][])('%s %j', (name, args, kernel, expected) => {
    const { failed, judged } = judgeCall(name, args, {}, () => kernel);
    expect(failed).toEqual([]);
    const texts = judged.map(ruleText);
    expect(texts).toEqual(expect.arrayContaining(expected));
    if (expected.length === 0) expect(texts.filter((t) => t.includes('P('))).toEqual([]);
  });

  test('a mean over a cut dim is an average for even shards, or a sum over the global count', () => {
    const kernel =
      (r: Rule): Kernel =>
      (call) => {
        const count =
          r.rewrite === 'global-count' ? call.global.inputs[0].shape[1] : call.inputs[0].shape[1];
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

// ---- softmax and losses: bodies that take statistics of all ranks
// -----------------------------------------------------------------------------

const C: OracleArg = { t: [5, 6] };

/**
 * Largest value and sum of exponentials of each row of the global input: what the all-reduces
 * inside provide.
 */
function rowStatistics(x: NDArray): { max: number[]; sum: number[] } {
  const [rows, columns] = x.shape;
  const row = (i: number): number[] =>
    Array.from({ length: columns }, (_, j) => x.data[i * columns + j]);
  const max = Array.from({ length: rows }, (_, i) => Math.max(...row(i)));
  return { max, sum: max.map((m, i) => row(i).reduce((s, v) => s + Math.exp(v - m), 0)) };
}

describe('softmax by execution', () => {
  const across = ['S(1) -> S(1)'];
  test.each([
    ['aten._log_softmax.default', (v: number, max: number, sum: number) => v - max - Math.log(sum)],
    ['aten._softmax.default', (v: number, max: number, sum: number) => Math.exp(v - max) / sum],
  ])('%s needs no more than the row maximum and the row sum of all ranks', (op, f) => {
    const { failed, judged, rules } = judgeCall(op, [C, 1, false], {}, (_, [x]) => (call) => {
      const { max, sum } = rowStatistics(x);
      return [
        build(call.inputs[0].shape, (at, flat) => {
          const row = at[0] + call.inputStarts[0][0];
          return f(call.inputs[0].data[flat], max[row], sum[row]);
        }),
      ];
    });
    expect(failed).toEqual([]);
    expect(judged.map(ruleText)).toEqual(['S(0) -> S(0)', ...across]);
    const { ctx } = bound(op, [C, 1, false]);
    const inside = rules.find((r) => r.rewrite !== undefined);
    expect(inside?.rewrite).toBe('all-reduce-max-sum');
    // Two all-reduces of one f32 per row.
    expect(inside?.collectives?.map((c) => [c.kind, c.bytes(ctx, 2)])).toEqual([
      ['all_reduce', 20],
      ['all_reduce', 20],
    ]);
  });

  test('the backward needs one row sum and is linear in the gradient', () => {
    const op = 'aten._log_softmax_backward_data.default';
    const { failed, judged } = judgeCall(op, [C, C, 1, 'f32'], {}, (r, [g]) => (call) => {
      const [grad, out] = call.inputs;
      const [rows, columns] = grad.shape;
      const own = (i: number): number =>
        Array.from({ length: columns }, (_, j) => grad.data[i * columns + j]).reduce(plus, 0);
      const all = (i: number): number =>
        Array.from({ length: 6 }, (_, j) => g.data[i * 6 + j]).reduce(plus, 0);
      const total = Array.from({ length: rows }, (_, i) =>
        r.collectives === undefined ? own(i) : all(i),
      );
      return [
        build(grad.shape, (at, flat) => grad.data[flat] - Math.exp(out.data[flat]) * total[at[0]]),
      ];
    });
    expect(failed).toEqual([]);
    expect(judged.map(ruleText)).toEqual([
      'S(0), S(0) -> S(0)',
      'P(sum), R -> P(sum)',
      'P(avg), R -> P(avg)',
      'S(1), S(1) -> S(1)',
    ]);
  });
});

const IGNORED = 2;
const TARGET: OracleArg = { t: [5], dt: 'i64', init: 'int', hi: 4 };
const WEIGHT: OracleArg = { t: [6], init: 'pos' };

/**
 * nll_loss on local rows and classes, divided by `divisor` (the total weight) where the reduction
 * is a mean.
 */
function nll(
  call: LocalCall,
  mean: boolean,
  divisor: (own: number) => number,
): { loss: number; weight: number } {
  const [self, target, weight] = call.inputs;
  const firstClass = call.inputStarts[0][1];
  let loss = 0;
  let total = 0;
  target.data.forEach((t, i) => {
    if (t === IGNORED) return;
    total += weight.data[t];
    const column = t - firstClass;
    if (column >= 0 && column < self.shape[1])
      loss -= weight.data[t] * self.data[i * self.shape[1] + column];
  });
  return { loss: mean ? loss / divisor(total) : loss, weight: total };
}

describe('losses by execution', () => {
  const scalar = (v: number): NDArray => ({ shape: [], data: Float64Array.of(v) });

  test('a weighted mean with ignored targets divides by the total weight of all ranks', () => {
    const op = 'aten.nll_loss_forward.default';
    const { failed, judged } = judgeCall(
      op,
      [C, TARGET, WEIGHT, 1, IGNORED],
      {},
      (r, [, target, weight]) => {
        // The form that all-reduces loss and weight is replicated by construction.
        if (r.rewrite === 'all-reduce-loss') return undefined;
        const everywhere = [...target.data].reduce(
          (s, t) => s + (t === IGNORED ? 0 : weight.data[t]),
          0,
        );
        return (call) => {
          const { loss, weight: own } = nll(call, true, (mine) =>
            r.rewrite === 'global-count' ? everywhere : mine,
          );
          return [scalar(loss), scalar(r.rewrite === 'global-count' ? everywhere : own)];
        };
      },
    );
    expect(failed).toEqual([]);
    expect(judged.map(ruleText)).toEqual([
      'S(0), S(0), R -> P(sum), R',
      'P(sum), R, R -> P(sum), R',
      'P(avg), R, R -> P(avg), R',
      'S(1), R, R -> P(sum), R',
    ]);
  });

  test('a sum adds up without a collective, over the batch and over the vocabulary', () => {
    const op = 'aten.nll_loss_forward.default';
    const { failed, judged } = judgeCall(op, [C, TARGET, WEIGHT, 2, IGNORED], {}, () => (call) => {
      const { loss, weight } = nll(call, false, () => 1);
      return [scalar(loss), scalar(weight)];
    });
    expect(failed).toEqual([]);
    expect(judged.map(ruleText)).toContain('S(0), S(0), R -> P(sum), P(sum)');
    expect(judged.every((r) => r.collectives === undefined)).toBe(true);
  });

  test('the batch-sharded mean is never an average of means', () => {
    const { rules } = bound('aten.nll_loss_forward.default', [C, TARGET, null, 1, -100]);
    const cut = rules.filter((r) => r.inputs[0]?.kind === 'shard' && r.inputs[1]?.kind === 'shard');
    expect(cut.map((r) => [ruleText(r), r.rewrite, r.collectives?.length])).toEqual([
      ['S(0), S(0) -> P(sum), R', 'global-count', 1],
      ['S(0), S(0) -> R, R', 'all-reduce-loss', 1],
    ]);
  });

  test('the backward writes its own rows or its own classes', () => {
    const op = 'aten.nll_loss_backward.default';
    const TOTAL: OracleArg = { t: [], init: 'pos' };
    const { failed, judged } = judgeCall(
      op,
      [TOTAL, C, TARGET, WEIGHT, 1, IGNORED, TOTAL],
      {},
      () => (call) => {
        const [grad, self, target, weight, total] = call.inputs;
        const [, [, firstClass]] = call.inputStarts;
        return [
          build(self.shape, ([i, j]) => {
            const t = target.data[i];
            return t === IGNORED || t !== j + firstClass
              ? 0
              : (-weight.data[t] * grad.data[0]) / total.data[0];
          }),
        ];
      },
    );
    expect(failed).toEqual([]);
    expect(judged.map(ruleText)).toEqual(
      expect.arrayContaining([
        'R, S(0), S(0), R, R -> S(0)',
        'R, S(1), R, R, R -> S(1)',
        'P(sum), R, R, R, R -> P(sum)',
        'R, P(max), R, R, R -> R',
      ]),
    );
  });

  test('mse: the mean and its backward divide by the global count, even where shards are uneven', () => {
    const square = (a: NDArray, b: NDArray): number =>
      a.data.reduce((s, v, i) => s + (v - b.data[i]) ** 2, 0);
    const forward = judgeCall('aten.mse_loss.default', [C, C, 1], {}, (r) => (call) => {
      const [a, b] = call.inputs;
      return [scalar(square(a, b) / (r.rewrite === 'global-count' ? 30 : a.data.length))];
    });
    expect(forward.failed).toEqual([]);
    // 5 rows are uneven on 2 and 3 ranks, 6 columns are even on both.
    expect(forward.judged.map(ruleText)).toEqual([
      'S(1), S(1) -> P(avg)',
      'S(0), S(0) -> P(sum)',
      'S(1), S(1) -> P(sum)',
    ]);
    const backward = judgeCall(
      'aten.mse_loss_backward.default',
      [{ t: [] }, C, C, 1],
      {},
      (r) => (call) => {
        const [grad, a, b] = call.inputs;
        const count = r.rewrite === 'global-count' ? 30 : a.data.length;
        return [
          build(a.shape, (_, flat) => (2 / count) * grad.data[0] * (a.data[flat] - b.data[flat])),
        ];
      },
    );
    expect(backward.failed).toEqual([]);
    expect(backward.judged.map(ruleText)).toContain('R, S(0), S(0) -> S(0)');
    expect(backward.judged.map(ruleText)).toContain('P(sum), R, R -> P(sum)');
  });
});
