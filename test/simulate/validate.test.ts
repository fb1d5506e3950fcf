import { describe, expect, test } from 'vitest';

import { builtinOperators } from '../../src/ops/builtin.ts';
import type { OperatorRecord } from '../../src/ops/record/record.ts';
import { P, R, type Rule, rule, ruleText, S } from '../../src/ops/record/rule.ts';
import { OperatorTable } from '../../src/ops/record/table.ts';
import { EXPLAINED } from '../../src/ops/rules/explained.ts';
import { parseCall } from '../../src/ops/samples/call-text.ts';
import { sampleCalls } from '../../src/ops/samples/table.ts';
import { validateRules } from '../../src/simulate/rule-check/check.ts';
import { explain } from '../../src/simulate/rule-check/explain.ts';
import { refute, trialsOf } from '../../src/simulate/rule-check/judge.ts';
import { offeredRules } from '../../src/simulate/rule-check/offered-rules.ts';
import { SampleCall } from '../../src/simulate/rule-check/sample-call.ts';
import { FULL } from '../support/full.ts';

const operators = builtinOperators();
/**
 * Without SHARDWRIGHT_FULL: the rules of one operator in 96, and missing rules of one in 120. CI runs
 * all of them with `rules --check`.
 */
const names = operators.records.map((r) => r.name);
const judgedOperators = names.filter((_, i) => FULL || i % 96 === 1);
const searched = names.filter((_, i) => FULL || i % 120 === 3);

/**
 * Operators without samples: complex numbers, calls that need a body, collectives of a manual
 * program, device numbers.
 */
const UNTESTED: readonly string[] = [
  'chlo.constant_like',
  'chlo.bessel_i1e',
  'stablehlo.real',
  'stablehlo.imag',
  'chlo.conj',
  'chlo.polygamma',
  'chlo.zeta',
  'stablehlo.complex',
  'stablehlo.fft',
  'stablehlo.select_and_scatter',
  'stablehlo.map',
  'stablehlo.all_reduce',
  'stablehlo.all_gather',
  'stablehlo.reduce_scatter',
  'stablehlo.all_to_all',
  'stablehlo.collective_permute',
  'stablehlo.collective_broadcast',
  'stablehlo.partition_id',
  'stablehlo.replica_id',
  'stablehlo.rng_bit_generator',
  'jax.random_bits',
  'jax.random_split',
  'jax.random_fold_in',
];

describe('rules run on simulated ranks', () => {
  test('no rule of any operator is refuted on 2 and 3 ranks, even, uneven and with empty shards', () => {
    const found = validateRules(operators, {
      operators: judgedOperators,
      complete: false,
      ...(FULL ? {} : { draws: 3 }),
    });
    expect(
      found.unsound.map((f) => `${f.call}: ${f.rule} on ${f.ranks.join()}: ${f.why ?? ''}`),
    ).toEqual([]);
    expect(found.operators).toBeGreaterThan(FULL ? 590 : 5);
    expect(found.rulesChecked).toBeGreaterThan(FULL ? 19_000 : 100);
  }, 1_800_000);

  test('every operator with a kernel has samples', () => {
    const tried = new Set(sampleCalls(operators).map((c) => operators.get(c.target)?.name));
    // What typed collectives of per-device code mean is executed in test/local-spmd: they have no
    // single-dim rules.
    const ruled = names.filter((name) => !name.startsWith('spmd_types.'));
    expect(ruled.filter((name) => !tried.has(name)).sort()).toEqual([...UNTESTED].sort());
  });

  test('what is valid and not offered is explained, and every explanation is needed', () => {
    const found = validateRules(operators, { operators: searched, budget: FULL ? 50_000 : 300 });
    const { open, used } = explain(found.missing, 'missing', EXPLAINED);
    expect(open.map((f) => `${f.call}: ${f.rule}`)).toEqual([]);
    expect(found.combinations).toBeGreaterThan(FULL ? 1_000 : 300);
    if (!FULL) return;
    expect(EXPLAINED.filter((e) => !used.has(e)).map((e) => e.reason)).toEqual([]);
    // Seven tensors: 80,000 combinations and more. The same calls without a mask, and with fewer
    // moments, are tried.
    const wide =
      /^_scaled_dot_product_flash_attention_for_cpu_backward\(.*attn_mask|^_fused_adamw?\.tensor_lr/;
    expect(found.untried.filter((text) => !wide.test(text))).toEqual([]);
  }, 1_800_000);
});

/** Runs one rule on a call, as if the operator had it. */
function judged(call: string, r: Rule, ranks = 2): string | undefined {
  const sample = new SampleCall(operators, parseCall(call));
  return refute(sample, trialsOf(sample), r, ranks);
}

describe('wrong rules are found', () => {
  const wrong: readonly (readonly [call: string, wrong: Rule])[] = [
    ['mm(x[6,5], x[5,7])', rule([P(), P()], [P()])],
    ['mul.Tensor(x[6,5], x[6,5])', rule([P(), P()], [P()])],
    ['add.Tensor(x[6,5], x[6,5])', rule([P(), R], [P()])],
    ['abs(x[6,5])', rule([P('max')], [P('max')])],
    ['eq.Tensor(few[6,5], few[6,5])', rule([R, P('max')], [P('bor')])],
    ['ne.Tensor(few[6,5], few[6,5])', rule([R, P('max')], [P('band')])],
    ['logical_not(few[6,5])', rule([P('max')], [P('bor')])],
    // What PyTorch 2.13 was confirmed to get wrong.
    ['mse_loss_backward(x[], x[6,5], x[6,5], 1)', rule([R, S(0), S(0)], [S(0)])],
    ['smooth_l1_loss_backward(x[], x[6,5], x[6,5], 1, 1.0)', rule([R, S(0), S(0)], [S(0)])],
    ['binary_cross_entropy_backward(x[], unit[6,5], unit[6,5])', rule([R, S(0), S(0)], [S(0)])],
    ['mse_loss(x[5,6], x[5,6])', rule([S(0), S(0)], [P('avg')])],
    ['nll_loss_forward(x[6,5], index5[6], pos[5], 1, 1)', rule([S(0), S(0), R], [P('avg'), P()])],
    ['nll_loss_forward(x[6,5], index5[6], None, 1, 2)', rule([S(0), S(0)], [P('avg'), P()])],
    ['linalg_vector_norm(x[6,5], inf, [1])', rule([P('max')], [P('max')])],
    ['linalg_vector_norm(x[6,5], -inf, [1])', rule([P('min')], [P('min')])],
    ['conv2d(x[2,3,7,7], x[8,3,3,3])', rule([R, S(0)], [R])],
    ['conv2d(x[2,3,7,7], x[8,3,3,3])', rule([R, P()], [R])],
    ['conv2d(x[2,3,7,7], x[8,3,3,3])', rule([P(), R], [R])],
    ['any(b8[6,5])', rule([S(0)], [R])],
    ['reshape(x[4,4], [2,8])', rule([S(0)], [S(0)])],
    ['cumsum(x[6,5], 0)', rule([S(0)], [S(0)])],
    ['softmax.int(x[6,5], 1)', rule([S(1)], [S(1)])],
    ['amax(x[4,6], [0])', rule([S(0)], [P('min')])],
    ['native_layer_norm(x[6,4], [4], x[4], x[4], 1e-5)', rule([S(1), S(0), S(0)], [S(1), R, R])],
    ['embedding_dense_backward(x[6,5], index9[6], 9, 2, True)', rule([S(0), S(0)], [P()])],
    ['triu(x[6,6], 0)', rule([S(0)], [S(0)])],
    ['masked_fill.Scalar(x[6,5], bits[6,5], -9)', rule([P(), R], [P()])],
    ['native_dropout(x[6,5], 0.5, True)', rule([S(0)], [S(0), S(0)])],
  ];
  test.each(wrong.map(([call, r]) => [`${call}: ${ruleText(r)}`, call, r] as const))(
    '%s',
    (_, call, r) => {
      expect([2, 3, 4].some((ranks) => judged(call, r, ranks) !== undefined)).toBe(true);
      const offered = [2, 3, 4].flatMap((ranks) => {
        const sample = new SampleCall(operators, parseCall(call));
        return offeredRules(sample, sample.record.shard(sample.ctx), ranks).filter(
          (o) => o.rewrite === undefined,
        );
      });
      expect(offered.map(ruleText)).not.toContain(ruleText(r));
    },
  );

  test('nansum would lose a NaN: the rule is not offered', () => {
    const { record, ctx } = new SampleCall(operators, parseCall('nansum(x[6,5], [1])'));
    expect(record.shard(ctx).map(ruleText)).not.toContain('P(sum) -> P(sum)');
  });

  test('a stable sort by keys hands on what is pending in the others, and in no key', () => {
    const pendingOf = (call: string): string[] => {
      const { record, ctx } = new SampleCall(operators, parseCall(call));
      return record
        .shard(ctx)
        .map(ruleText)
        .filter((text) => text.includes('P('));
    };
    const call = 'stablehlo.sort([few[5,6], x[5,6]], dimension=0, is_stable=True)';
    expect(pendingOf(call)).toEqual(
      ['sum', 'avg', 'max', 'min'].map((kind) => `R, P(${kind}) -> R, P(${kind})`),
    );
    expect(pendingOf('stablehlo.sort([few[5,6], x[5,6]], dimension=0)')).toEqual([]);
    for (const kind of ['sum', 'avg', 'max', 'min'] as const) {
      expect(judged(call, rule([R, P(kind)], [R, P(kind)]))).toBeUndefined();
      expect(judged(call, rule([P(kind), R], [P(kind), R]))).toBeDefined();
    }
  });

  test('the largest of no values: a cut with an empty shard is refused, one with short shards is not', () => {
    const amax = new SampleCall(operators, parseCall('amax(x[4,6])'));
    const rules = amax.record.shard(amax.ctx);
    const texts = (ranks: number): string[] => offeredRules(amax, rules, ranks).map(ruleText);
    expect(texts(2)).toContain('S(0) -> P(max)');
    expect(texts(3)).not.toContain('S(0) -> P(max)');
    expect(texts(3)).toContain('S(1) -> P(max)');
    expect(judged('amax(x[4,6])', rule([S(0)], [P('max')]), 3)).toMatch(/no values/);
  });

  test('a product of one batch row with a matrix has a batch letter (it had none)', () => {
    const one = new SampleCall(operators, parseCall('matmul(x[1,6,7], x[7,6])'));
    expect(one.record.shard(one.ctx).map(ruleText)).toContain('S(1), R -> S(1)');
    expect(judged('matmul(x[5,6,7], x[7,6])', rule([S(0), R], [S(0)]), 3)).toBeUndefined();
  });

  test('an attention without row sums leaves empty ones, cut like the heads', () => {
    const call =
      '_scaled_dot_product_efficient_attention(x[5,6,7,4], x[5,6,9,4], x[5,6,9,3], None, False)';
    expect(judged(call, rule([S(1), S(1), S(1)], [S(1), R, R, R]))).toMatch(/result 1/);
    expect(judged(call, rule([S(1), S(1), S(1)], [S(1), S(1), R, R]))).toBeUndefined();
  });
});

describe('missing rules are found', () => {
  const must: readonly (readonly [operator: string, ...rules: string[]])[] = [
    ['aten.clone.default', 'P(sum) -> P(sum)'],
    // Calls of many operands and sizes take seconds to search.
    ...(FULL
      ? ([
          ['aten.scaled_dot_product_attention.default', 'S(2), R, R -> S(2)', 'R, R, S(3) -> S(3)'],
          ['aten.conv2d.default', 'R, S(0), S(0) -> S(1)'],
        ] as const)
      : []),
    ['aten.gelu_backward.default', 'P(sum), R -> P(sum)'],
    ['aten.where.self', 'R, P(sum), P(sum) -> P(sum)'],
    ['aten.gather.default', 'P(max), R -> P(max)'],
    ['aten.triu.default', 'S(0) -> S(0)'],
    ['aten.embedding.default', 'P(sum), R -> P(sum)'],
    ['aten.native_layer_norm.default', 'R, P(sum), P(sum) -> P(sum), R, R'],
  ];
  /** The operators with one record that lacks rules. */
  function without(name: string, texts: readonly string[]): OperatorTable {
    return new OperatorTable(
      operators.records.map((r): OperatorRecord => {
        if (r.name !== name) return r;
        return {
          ...r,
          shard: (ctx) => r.shard(ctx).filter((one) => !texts.includes(ruleText(one))),
        };
      }),
    );
  }
  test.each(must)('%s without %s', (name, ...texts) => {
    const found = validateRules(without(name, texts), {
      operators: [name],
      ranks: [2],
      budget: 300,
    });
    const { open } = explain(found.missing, 'missing', EXPLAINED);
    expect(open.map((f) => f.rule)).toEqual(expect.arrayContaining(texts));
  });

  test('expand to a new dim may be cut for nothing', () => {
    const { record, ctx } = new SampleCall(operators, parseCall('expand(x[6,5], [4, 6, 5])'));
    expect(record.shard(ctx).map((r) => `${ruleText(r)} ${r.rewrite ?? ''}`)).toContain(
      'R -> S(0) local-shape',
    );
  });
});

test('a name that no operator has is refused', () => {
  expect(() => validateRules(operators, { operators: ['aten.nothing'] })).toThrow(
    /there is no operator/,
  );
});
