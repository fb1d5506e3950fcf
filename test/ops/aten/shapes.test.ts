import { describe, expect, test } from 'vitest';

import { embeddingOps } from '../../../src/ops/aten/movement/embedding.ts';
import { factoryOps } from '../../../src/ops/aten/movement/factory.ts';
import { indexingOps } from '../../../src/ops/aten/movement/indexing.ts';
import { manipulateOps } from '../../../src/ops/aten/movement/manipulate.ts';
import { viewOps } from '../../../src/ops/aten/movement/views.ts';
import { attentionOps } from '../../../src/ops/aten/products/attention.ts';
import { batchNormOps } from '../../../src/ops/aten/reductions/batch-norm.ts';
import { normOps } from '../../../src/ops/aten/reductions/norm.ts';
import { ruleText } from '../../../src/ops/record/rule.ts';
import { OperatorTable } from '../../../src/ops/record/table.ts';
import { makeCall, type TestArg } from '../support/calls.ts';
import { admitted } from '../support/ranks.ts';

/**
 * Result types, work and required rules of shape, indexing, norm, attention and embedding calls,
 * case by case.
 */
const table = new OperatorTable([
  ...viewOps,
  ...factoryOps,
  ...manipulateOps,
  ...indexingOps,
  ...normOps,
  ...batchNormOps,
  ...attentionOps,
  ...embeddingOps,
]);
const t = (...shape: number[]): TestArg => ({ t: shape });
const dt = (dtype: string, ...shape: number[]): TestArg => ({ t: shape, dt: dtype });
const i64 = (...shape: number[]): TestArg => dt('i64', ...shape);

function call(
  op: string,
  args: readonly TestArg[],
  kwargs: Readonly<Record<string, TestArg>> = {},
) {
  const record = table.get(`aten.${op}`);
  if (record === undefined) throw new Error(`no record aten.${op}`);
  return makeCall(record, args, kwargs);
}
function types(
  op: string,
  args: readonly TestArg[],
  kwargs: Readonly<Record<string, TestArg>> = {},
): string {
  const { ctx } = call(op, args, kwargs);
  return ctx.outputs.map((m) => (m === null ? '-' : `${m.dtype}[${m.shape.join()}]`)).join(' ');
}
/** Rules as text, with the rewrite they need in braces. */
function rules(
  op: string,
  args: readonly TestArg[],
  kwargs: Readonly<Record<string, TestArg>> = {},
): string[] {
  const { ctx, record } = call(op, args, kwargs);
  return record
    .shard(ctx)
    .map((r) => ruleText(r) + (r.rewrite === undefined ? '' : ` {${r.rewrite}}`));
}

const flash = '_scaled_dot_product_flash_attention';
const efficient = '_scaled_dot_product_efficient_attention';
const qkv = [t(2, 4, 6, 3), t(2, 4, 5, 3), t(2, 4, 5, 3)];

describe('result types', () => {
  // Written out from the behaviour of PyTorch 2.13.
  test.each<readonly [string, readonly TestArg[], Readonly<Record<string, TestArg>>, string]>([
    ['movedim.intlist', [t(2, 3, 4), [0, 1], [2, 0]], {}, 'f32[3,4,2]'],
    ['unflatten.int', [t(5, 12), -1, [4, -1]], {}, 'f32[5,4,3]'],
    ['flatten.using_ints', [t()], {}, 'f32[1]'],
    ['squeeze.default', [t(1, 3, 1)], {}, 'f32[3]'],
    ['expand.default', [t(3, 1), [2, -1, 4]], {}, 'f32[2,3,4]'],
    ['cat.default', [[dt('bf16', 2, 3), t(4, 3), t(0)]], {}, 'f32[6,3]'],
    ['stack.default', [[t(2, 3), t(2, 3)], -1], {}, 'f32[2,3,2]'],
    ['split.Tensor', [t(7), 3], {}, 'f32[3] f32[3] f32[1]'],
    ['chunk.default', [t(5), 4], {}, 'f32[2] f32[2] f32[1]'],
    ['slice.Tensor', [t(9), 0, -4, 'max', 2], {}, 'f32[2]'],
    ['slice.Tensor', [t(9), 0, 5, 2], {}, 'f32[0]'],
    ['constant_pad_nd.default', [t(4, 5), [1, 2, -1, 0]], {}, 'f32[3,8]'],
    ['repeat.default', [t(2, 3), [4, 1, 2]], {}, 'f32[4,2,6]'],
    ['repeat_interleave.self_int', [t(2, 3), 2], {}, 'f32[12]'],
    ['topk.default', [dt('bf16', 4, 9), 2], {}, 'bf16[4,2] i64[4,2]'],
    ['index.Tensor', [t(5, 4, 7), [i64(3, 1), null, i64(6)]], {}, 'f32[3,6,4]'],
    ['index.Tensor', [t(5, 4, 7), [null, i64(3, 1), i64(6)]], {}, 'f32[5,3,6]'],
    ['gather.default', [t(5, 4), 1, i64(3, 9)], {}, 'f32[3,9]'],
    ['index_select.default', [t(5, 4), 0, i64(9)], {}, 'f32[9,4]'],
    ['one_hot.default', [i64(2, 3), 7], {}, 'i64[2,3,7]'],
    ['arange.default', [5], {}, 'i64[5]'],
    ['arange.start_step', [0, 1, 0.25], {}, 'f32[4]'],
    [
      'native_layer_norm.default',
      [dt('bf16', 2, 3, 4), [3, 4], null, null, 1e-5],
      {},
      'bf16[2,3,4] f32[2,1,1] f32[2,1,1]',
    ],
    [
      'native_layer_norm_backward.default',
      [t(2, 4), t(2, 4), [4], t(2, 1), t(2, 1), t(4), null, [true, true, true]],
      {},
      'f32[2,4] f32[4] -',
    ],
    [
      'native_layer_norm_backward.default',
      [t(2, 4), t(2, 4), [4], t(2, 1), t(2, 1), t(4), t(4), [false, true, false]],
      {},
      '- f32[4] -',
    ],
    [
      'native_group_norm.default',
      [t(2, 6, 5), null, null, 2, 6, 5, 3, 1e-5],
      {},
      'f32[2,6,5] f32[2,3] f32[2,3]',
    ],
    [
      '_native_batch_norm_legit_functional.default',
      [t(2, 6, 5), t(6), t(6), t(6), t(6), false, 0.1, 1e-5],
      {},
      'f32[2,6,5] f32[0] f32[0] f32[6] f32[6]',
    ],
    [`${flash}.default`, qkv, {}, 'f32[2,4,6,3] f32[2,4,6] - - - - u64[2] u64[] f32[0]'],
    [`${efficient}.default`, [...qkv, null, true], {}, 'f32[2,4,6,3] f32[2,4,32] i64[] i64[]'],
    [`${efficient}.default`, [...qkv, null, false], {}, 'f32[2,4,6,3] f32[2,4,0] i64[] i64[]'],
    [
      'scaled_dot_product_attention.default',
      [t(2, 8, 6, 3), t(2, 2, 5, 3), t(2, 2, 5, 4)],
      { enable_gqa: true },
      'f32[2,8,6,4]',
    ],
  ])('%s of %j %j is %s', (op, args, kwargs, expected) => {
    expect(types(op, args, kwargs)).toBe(expected);
  });

  test.each<readonly [string, readonly TestArg[], RegExp]>([
    [
      'transpose.int',
      [t(2, 3), 0, 2],
      /aten\.transpose\.int: dim 2 does not exist in a tensor of 2 dims/,
    ],
    ['permute.default', [t(2, 3), [0, 0]], /must name each of the 2 dims once/],
    ['expand.default', [t(2, 3), [4, 3]], /cannot expand dim 0 of size 2 to 4/],
    ['cat.default', [[t(2, 3), t(2, 4)]], /\[2, 3\] and \[2, 4\] must agree in all dims but 0/],
    ['split_with_sizes.default', [t(7), [3, 3]], /add up to 6, expected 7/],
    ['select.int', [t(2, 3), 1, 3], /index 3 is out of range for dim 1 of size 3/],
    ['index.Tensor', [t(5, 4), [dt('bool', 5)]], /no fixed shape/],
    ['index_put.default', [t(5, 4), [i64(3)], t(2, 4)], /do not broadcast/],
    ['embedding.default', [t(5, 4), t(3)], /indices have dtype f32, expected integers/],
    [
      'native_layer_norm.default',
      [t(2, 4), [5], null, null, 1e-5],
      /does not end in normalized_shape \[5\]/,
    ],
    [
      'native_layer_norm.default',
      [t(2, 4), [4], t(5), null, 1e-5],
      /weight has shape \[5\], expected \[4\]/,
    ],
    [
      `${flash}.default`,
      [t(2, 4, 6, 3), t(2, 3, 5, 3), t(2, 3, 5, 3)],
      /4 query heads are not a multiple of 3 key heads/,
    ],
    [
      'scaled_dot_product_attention.default',
      [t(2, 8, 6, 3), t(2, 2, 5, 3), t(2, 2, 5, 3)],
      /need enable_gqa=True/,
    ],
    ['one_hot.default', [i64(3)], /write it as a number/],
  ])('%s of %j is refused', (op, args, message) => {
    expect(() => types(op, args)).toThrow(message);
  });
});

describe('rules that must be offered', () => {
  test('attention, gather, triu, lookups, norms and expand offer the rules that users expect', () => {
    expect(rules(`${flash}.default`, qkv)).toEqual(
      expect.arrayContaining(['S(2), R, R -> S(2), S(2), -, -, -, -, R, R, R']),
    );
    expect(rules('gather.default', [t(8, 8), 1, i64(8, 8)])).toContain('P(max), R -> P(max)');
    expect(rules('triu.default', [t(4, 8, 12)])).toContain('S(0) -> S(0)');
    expect(rules('embedding.default', [t(16, 8), i64(4, 8)])).toContain('P(sum), R -> P(sum)');
    expect(rules('native_layer_norm.default', [t(4, 8, 16), [16], t(16), t(16), 1e-5])).toContain(
      'R, P(sum), P(sum) -> P(sum), R, R',
    );
    expect(rules('expand.default', [t(8, 8), [4, 8, 8]])).toContain('R -> S(0) {local-shape}');
  });

  test('a row-sharded table is looked up with a mask and adds up', () => {
    expect(rules('embedding.default', [t(16, 8), i64(4, 8)])).toContain('S(0), R -> P(sum) {mask}');
    expect(rules('embedding_dense_backward.default', [t(4, 8), i64(4), 16, -1, false])).toEqual([
      'S(1), R -> S(1)',
      'S(0), S(0) -> P(sum)',
      'P(sum), R -> P(sum)',
      'P(avg), R -> P(avg)',
      'R, R -> S(0) {mask}',
    ]);
  });

  test('scaling by frequency needs all indices on every rank', () => {
    expect(
      rules('embedding_dense_backward.default', [t(4, 8), i64(4), 16, -1, true]),
    ).not.toContain('S(0), S(0) -> P(sum)');
  });

  test('query rows of causal attention carry an offset; dropout keeps to heads and batch', () => {
    const causal = rules('scaled_dot_product_attention.default', [...qkv, null, 0, true]);
    expect(causal).toContain('S(2), R, R -> S(2) {offset}');
    expect(causal).not.toContain('S(2), R, R -> S(2)');
    expect(rules('scaled_dot_product_attention.default', [...qkv, null, 0.5])).toEqual([
      'S(1), S(1), S(1) -> S(1)',
      'S(0), S(0), S(0) -> S(0)',
    ]);
  });

  test('a mask is cut where it has the dim and replicated where it is broadcast', () => {
    const masked = rules('scaled_dot_product_attention.default', [...qkv, t(2, 1, 6, 5)]);
    expect(masked.slice(0, 3)).toEqual([
      'S(1), S(1), S(1), R -> S(1)',
      'S(0), S(0), S(0), S(0) -> S(0)',
      'S(2), R, R, S(2) -> S(2)',
    ]);
    expect(rules('scaled_dot_product_attention.default', [...qkv, t(6, 5)])).toContain(
      'S(2), R, R, S(0) -> S(2)',
    );
  });

  test('grouped heads: 8 query heads on 2 key heads run on 2 ranks, not on 4', () => {
    const gqa = call(
      'scaled_dot_product_attention.default',
      [t(2, 8, 6, 3), t(2, 2, 5, 3), t(2, 2, 5, 3)],
      {
        enable_gqa: true,
      },
    );
    const heads = gqa.record.shard(gqa.ctx).find((r) => ruleText(r) === 'S(1), S(1), S(1) -> S(1)');
    expect(heads).toBeDefined();
    if (heads === undefined) return;
    expect(admitted(gqa.ctx, [heads], [2])).toBe(true);
    expect(admitted(gqa.ctx, [heads], [4])).toBe(false);
    expect(admitted(gqa.ctx, [heads, heads], [2, 2])).toBe(false);
  });

  test('batch norm is cut by channel, batch and positions; in training it gathers statistics', () => {
    const args = (training: boolean): TestArg[] => [
      t(4, 6, 5),
      t(6),
      t(6),
      t(6),
      t(6),
      training,
      0.1,
      1e-5,
      false,
    ];
    const cuts = (op: string, training: boolean, count = 9): string[] =>
      rules(op, args(training).slice(0, count)).filter((r) => r.startsWith('S'));
    // Moves the running statistics in place, which no result has.
    expect(cuts('batch_norm.default', true)).toEqual(['S(1), S(0), S(0), S(0), S(0) -> S(1)']);
    expect(cuts('batch_norm.default', false)).toEqual([
      'S(1), S(0), S(0), S(0), S(0) -> S(1)',
      'S(0), R, R, R, R -> S(0)',
      'S(2), R, R, R, R -> S(2)',
    ]);
    expect(cuts('_native_batch_norm_legit_functional.default', true, 8)).toEqual([
      'S(1), S(0), S(0), S(0), S(0) -> S(1), S(0), S(0), S(0), S(0)',
      'S(0), R, R, R, R -> S(0), R, R, R, R {all-gather-statistics}',
      'S(2), R, R, R, R -> S(2), R, R, R, R {all-gather-statistics}',
    ]);
  });

  test('dims of size 1 are never cut, and a squeeze never sees a shard of one row', () => {
    expect(rules('squeeze.default', [t(8, 1, 12)]).filter((r) => r.startsWith('S'))).toEqual([
      'S(0) -> S(0) {local-shape}',
      'S(2) -> S(1) {local-shape}',
    ]);
    expect(rules('squeeze.dim', [t(8, 1, 12), 1]).filter((r) => r.startsWith('S'))).toEqual([
      'S(0) -> S(0)',
      'S(2) -> S(1)',
    ]);
  });

  test('a bool tensor has pending or / and, never a sum', () => {
    expect(rules('t.default', [dt('bool', 4, 5)]).slice(2)).toEqual([
      'P(bor) -> P(bor)',
      'P(band) -> P(band)',
    ]);
    expect(rules('index_select.default', [dt('bool', 8, 5), 0, i64(4)])).toContain(
      'S(0), R -> P(bor) {mask}',
    );
  });

  test('padding with a value or writing a value does not accept a pending sum', () => {
    expect(rules('constant_pad_nd.default', [t(5, 4), [1, 1], 2])).not.toContain(
      'P(sum) -> P(sum)',
    );
    expect(rules('scatter.value', [t(5, 8), 1, i64(5, 3), -1])).not.toContain(
      'P(sum), R -> P(sum)',
    );
    expect(rules('sort.default', [t(5, 8)]).filter((r) => r.startsWith('P'))).toEqual([]);
  });
});

describe('work', () => {
  test('attention counts 2 per multiply-add of both products, and five products backward', () => {
    const forward = call(`${flash}.default`, [t(2, 8, 6, 3), t(2, 4, 5, 3), t(2, 4, 5, 4)]);
    expect(forward.record.flops(forward.ctx).matrix).toBe(2 * 2 * 8 * 6 * 5 * (3 + 4));
    const out = [t(2, 8, 6, 4), t(2, 8, 6)];
    const args = [out[0], t(2, 8, 6, 3), t(2, 4, 5, 3), t(2, 4, 5, 4), ...out, 0, false];
    const backward = call(`${flash}_for_cpu_backward.default`, args);
    expect(backward.record.flops(backward.ctx).matrix).toBe(2 * 2 * 8 * 6 * 5 * (3 * 3 + 2 * 4));
  });

  test('bytes: views nothing, lookups the rows read, attention its operands without seeds', () => {
    const bytes = (op: string, args: readonly TestArg[]): number => {
      const { ctx, record } = call(op, args);
      return record.bytes(ctx);
    };
    expect(bytes('view.default', [t(4, 6), [24]])).toBe(0);
    expect(bytes('embedding.default', [dt('bf16', 128256, 64), i64(4, 8)])).toBe(
      32 * 8 + 2 * 32 * 64 * 2,
    );
    expect(bytes('index.Tensor', [t(1000, 8), [i64(5)]])).toBe(5 * 8 + 2 * 5 * 8 * 4);
    expect(bytes(`${flash}.default`, qkv)).toBe(4 * (144 + 120 + 120 + 144 + 48));
    expect(bytes('cat.default', [[t(2, 3), t(4, 3)]])).toBe(4 * (6 + 12 + 18));
  });
});
