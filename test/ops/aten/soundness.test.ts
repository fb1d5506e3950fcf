import { describe, expect, test } from 'vitest';

import { embeddingOps } from '../../../src/ops/aten/movement/embedding.ts';
import { indexingOps } from '../../../src/ops/aten/movement/indexing.ts';
import { manipulateOps } from '../../../src/ops/aten/movement/manipulate.ts';
import { viewOps } from '../../../src/ops/aten/movement/views.ts';
import { attentionOps } from '../../../src/ops/aten/products/attention.ts';
import { batchNormOps } from '../../../src/ops/aten/reductions/batch-norm.ts';
import { normOps } from '../../../src/ops/aten/reductions/norm.ts';
import { P, R, rule, ruleText, S } from '../../../src/ops/record/rule.ts';
import { OperatorTable } from '../../../src/ops/record/table.ts';
import { FULL } from '../../support/full.ts';
import { makeCall, type TestArg } from '../support/calls.ts';
import { draw } from '../support/draw.ts';
import { shapeKernels } from '../support/kernels.ts';
import { normKernels } from '../support/normkernels.ts';
import { admitted, judge } from '../support/ranks.ts';

/**
 * Every rule of the shape, indexing, norm, attention and embedding records is run on simulated
 * ranks: worlds of 2, 3 and 4, and pairs of rules on a (2,2) mesh, on even and uneven sizes,
 * against the unsharded result in float64. Daily a third of the pairs, of one draw of the inputs.
 */
const table = new OperatorTable([
  ...viewOps,
  ...manipulateOps,
  ...indexingOps,
  ...normOps,
  ...batchNormOps,
  ...attentionOps,
  ...embeddingOps,
]);
const kernels = { ...shapeKernels, ...normKernels };

const t = (...shape: number[]): TestArg => ({ t: shape });
const ints = (hi: number, ...shape: number[]): TestArg => ({
  t: shape,
  dt: 'i64',
  init: 'int',
  hi,
});
const signed = (hi: number, ...shape: number[]): TestArg => ({
  t: shape,
  dt: 'i64',
  init: 'signed',
  hi,
});
const perm = (hi: number, ...shape: number[]): TestArg => ({
  t: shape,
  dt: 'i64',
  init: 'perm',
  hi,
});
const bools = (...shape: number[]): TestArg => ({ t: shape, dt: 'bool', init: 'bool' });
const pos = (...shape: number[]): TestArg => ({ t: shape, init: 'pos' });
const lse = (...shape: number[]): TestArg => ({ t: shape, init: 'lse' });
const fix = (...shape: number[]): TestArg => ({ t: shape, dt: 'i64', init: 'fix' });

type Sample = readonly [
  op: string,
  args: readonly TestArg[],
  kwargs?: Readonly<Record<string, TestArg>>,
];

const cpu = '_scaled_dot_product_flash_attention_for_cpu';
const efficient = '_scaled_dot_product_efficient_attention';
const cudnn = '_scaled_dot_product_cudnn_attention';
const q = t(2, 4, 6, 3);
const kv = [t(2, 4, 5, 3), t(2, 4, 5, 4)] as const;
const out = [t(2, 4, 6, 4), lse(2, 4, 6)] as const;

const samples: readonly Sample[] = [
  // Views: merging, splitting, regrouping, uneven, ones in between.
  ['view.default', [t(8, 4), [32]]],
  ['view.default', [t(6, 4, 3), [24, 3]]],
  ['view.default', [t(3, 4), [12]]],
  ['view.default', [t(5, 2, 2, 2), [5, 8]]],
  ['view.default', [t(12, 8), [16, 6]]],
  ['view.default', [t(8, 12), [4, 2, 12]]],
  ['view.default', [t(4, 16), [4, 8, 2]]],
  ['view.default', [t(4, 1, 3, 8), [1, 4, 24, 1]]],
  ['view.default', [bools(4, 6), [-1]]],
  ['_unsafe_view.default', [t(2, 8, 16), [2, 8, 4, 4]]],
  ['reshape.default', [t(4, 4), [2, 8]]],
  ['reshape.default', [t(4, 9, 2), [-1, 3, 6]]],
  ['flatten.using_ints', [t(4, 3, 6), 1]],
  ['unflatten.int', [t(5, 12), -1, [4, 3]]],
  ['t.default', [t(5, 4)]],
  ['transpose.int', [t(4, 5, 3), 0, -1]],
  ['permute.default', [t(4, 5, 3), [2, 0, 1]]],
  ['diagonal.default', [t(4, 5, 3, 6), -1, 1, 3]],
  ['diagonal_scatter.default', [t(4, 5, 3, 6), t(4, 3, 4), -1, 1, 3]],
  ['mT.default', [t(3, 4, 5)]],
  ['numpy_T.default', [t(3, 4, 5)]],
  ['movedim.int', [t(3, 4, 5), 0, -1]],
  ['movedim.intlist', [t(3, 4, 5), [0, 1], [2, 0]]],
  ['expand.default', [t(4, 1, 3), [5, 4, 7, -1]]],
  ['expand_as.default', [t(5, 1), t(3, 5, 7)]],
  ['broadcast_tensors.default', [[t(4, 1), t(5)]]],
  ['unsqueeze.default', [t(4, 5), -1]],
  ['squeeze.default', [t(4, 1, 5)]],
  ['squeeze.dim', [t(4, 1, 5), 1]],
  ['squeeze.dim', [t(4, 3), 0]],
  ['squeeze.dims', [t(1, 4, 1, 5), [0, 2]]],
  // Joining and cutting.
  ['cat.default', [[t(5, 4), t(5, 3), t(0)], 1]],
  ['cat.default', [[bools(4, 5), bools(2, 5)]]],
  ['stack.default', [[t(5, 4), t(5, 4)], 1]],
  ['split.Tensor', [t(5, 7), 3, -1]],
  ['split.sizes', [t(7, 4), [1, 3], 1]],
  ['split_with_sizes.default', [t(7, 4), [1, 3], 1]],
  ['chunk.default', [t(5, 7), 3, 1]],
  ['unbind.int', [t(3, 5), 0]],
  ['slice.Tensor', [t(5, 8), 1, 2, -1, 1]],
  ['slice.Tensor', [t(5, 8), 1, 0, 'max', 1]],
  ['slice.Tensor', [t(5, 24), 1, 0, 'max', 2]],
  ['slice.Tensor', [t(5, 9), 1, 0, 'max', 2]],
  ['slice.Tensor', [t(5, 24), 1, 1, 'max', 2]],
  ['narrow.default', [t(5, 8), 1, -5, 3]],
  ['slice_backward.default', [t(5, 4), [5, 9], 1, 2, 6, 1]],
  ['slice_backward.default', [t(5, 4), [5, 4], 1, 0, 'max', 1]],
  ['slice_scatter.default', [t(5, 9), t(5, 4), 1, 2, 6]],
  ['slice_scatter.default', [t(5, 4), t(5, 4), 1, 0, 4]],
  ['select.int', [t(4, 5, 3), 1, -2]],
  ['select_backward.default', [t(4, 3), [4, 5, 3], 1, 2]],
  ['select_scatter.default', [t(4, 5, 3), t(4, 3), 1, 2]],
  // Rearranging.
  ['flip.default', [t(4, 5, 3), [1]]],
  ['roll.default', [t(4, 5), [2], [1]]],
  ['roll.default', [t(4, 5), [3]]],
  ['tril.default', [t(3, 5, 7), 1]],
  ['triu.default', [t(3, 7, 5), -1]],
  ['constant_pad_nd.default', [t(5, 4), [1, 2]]],
  ['constant_pad_nd.default', [t(5, 4), [0, 0, 1, 1], 3.5]],
  ['constant_pad_nd.default', [t(5, 6), [-1, -2], 3.5]],
  ['repeat.default', [t(5, 1, 3), [4, 1, 6, 1]]],
  ['repeat.default', [t(4, 3), [2, 1]]],
  ['repeat_interleave.self_int', [t(4, 5), 2, 0]],
  ['repeat_interleave.self_int', [t(5, 4), 3, 1], { output_size: 12 }],
  ['repeat_interleave.self_int', [t(4, 3), 2]],
  ['sort.default', [t(5, 7), 1, true]],
  ['sort.stable', [t(5, 7)], { stable: true }],
  ['argsort.default', [t(5, 7)]],
  ['topk.default', [t(5, 7), 3]],
  // Indexing.
  ['index.Tensor', [t(5, 4, 7), [signed(5, 6)]]],
  ['index.Tensor', [t(5, 4, 7), [null, ints(4, 3, 5)]]],
  ['index.Tensor', [t(5, 4, 7), [ints(5, 3, 1), null, ints(7, 6)]]],
  ['index.Tensor', [t(3, 5, 4, 7), [null, ints(5, 6), ints(4, 2, 6)]]],
  ['index.Tensor', [bools(5, 4), [ints(5, 6)]]],
  ['index_put.default', [t(8, 5), [perm(8, 4)], t(4, 5)]],
  ['index_put.default', [t(8, 5), [perm(8, 4)], t(5)]],
  ['index_put.default', [t(8, 5), [ints(8, 6)], t(6, 5), true]],
  ['index_put.default', [t(8, 5), [null, ints(5, 6)], t(8, 1), true]],
  ['index_put.default', [t(8, 5, 3), [ints(8, 6), null, ints(3, 4, 1)], t(4, 6, 5), true]],
  [
    '_unsafe_masked_index_put_accumulate.default',
    [t(8, 5), bools(3, 4, 1), [ints(8, 3, 4)], t(3, 4, 5)],
  ],
  ['_unsafe_masked_index_put_accumulate.default', [t(8, 5), bools(6, 5), [ints(8, 6)], t(6, 5)]],
  ['gather.default', [t(5, 7), 1, ints(7, 5, 4)]],
  ['gather.default', [t(5, 7), 0, signed(5, 6, 7)]],
  ['gather.default', [t(5, 7), 1, ints(7, 3, 4)]],
  ['scatter.src', [t(5, 8), 1, { t: [5, 1], dt: 'i64', init: 'int', hi: 8 }, t(5, 1)]],
  ['scatter.src', [t(8), 0, perm(8, 6), t(7)]],
  ['scatter.value', [t(5, 8), -1, ints(8, 5, 3), -1.5]],
  ['scatter.value', [t(5, 8), -1, ints(8, 5, 3), 0]],
  ['scatter_add.default', [t(5, 8), 1, ints(8, 5, 6), t(5, 6)]],
  ['scatter_add.default', [t(5, 8), 1, ints(8, 4, 6), t(5, 7)]],
  ['index_select.default', [t(5, 8), 1, ints(8, 6)]],
  ['index_add.default', [t(5, 8), 1, ints(8, 6), t(5, 6)], { alpha: 2.5 }],
  ['index_copy.default', [t(5, 8), 1, perm(8, 6), t(5, 6)]],
  ['index_fill.int_Scalar', [t(5, 8), 1, perm(8, 3), 1.5]],
  ['index_fill.int_Scalar', [t(5, 8), 1, perm(8, 3), 0]],
  // Embedding.
  ['embedding.default', [t(7, 5), ints(7, 4, 6)]],
  ['embedding_dense_backward.default', [t(4, 6, 5), ints(7, 4, 6), 7, -1, false]],
  ['embedding_dense_backward.default', [t(4, 6, 5), ints(7, 4, 6), 7, 2, true]],
  ['one_hot.default', [ints(7, 4, 5), 7]],
  // Norms.
  ['native_layer_norm.default', [t(4, 5, 6), [6], t(6), t(6), 1e-5]],
  ['native_layer_norm.default', [t(4, 5, 6), [5, 6], null, null, 1e-5]],
  ['layer_norm.default', [t(4, 5, 6), [6], t(6)]],
  ['_fused_rms_norm.default', [t(4, 5, 6), [6], t(6), 1e-5]],
  ['rms_norm.default', [t(4, 5, 6), [6], t(6)]],
  [
    'native_layer_norm_backward.default',
    [t(4, 5, 6), t(4, 5, 6), [6], t(4, 5, 1), pos(4, 5, 1), t(6), t(6), [true, true, true]],
  ],
  [
    'native_layer_norm_backward.default',
    [t(4, 5, 6), t(4, 5, 6), [6], t(4, 5, 1), pos(4, 5, 1), t(6), null, [true, true, false]],
  ],
  [
    '_fused_rms_norm_backward.default',
    [t(4, 5, 6), t(4, 5, 6), [6], pos(4, 5, 1), t(6), [true, true]],
  ],
  [
    '_fused_rms_norm_backward.default',
    [t(4, 5, 6), t(4, 5, 6), [6], pos(4, 5, 1), t(6), [false, true]],
  ],
  ['native_group_norm.default', [t(3, 8, 5), t(8), t(8), 3, 8, 5, 4, 1e-5]],
  ['native_group_norm.default', [t(3, 6, 5), null, null, 3, 6, 5, 3, 1e-5]],
  [
    'native_group_norm_backward.default',
    [t(3, 8, 5), t(3, 8, 5), t(3, 4), pos(3, 4), t(8), 3, 8, 5, 4, [true, true, true]],
  ],
  ['group_norm.default', [t(3, 8, 5), 4, t(8), t(8)]],
  ['batch_norm.default', [t(4, 5, 3), t(5), t(5), t(5), pos(5), true, 0.1, 1e-5, false]],
  ['batch_norm.default', [t(4, 5, 3), t(5), t(5), t(5), pos(5), false, 0.1, 1e-5, false]],
  [
    '_native_batch_norm_legit_functional.default',
    [t(4, 5, 3), t(5), t(5), t(5), pos(5), true, 0.1, 1e-5],
  ],
  [
    '_native_batch_norm_legit_functional.default',
    [t(4, 5, 3), t(5), t(5), t(5), pos(5), false, 0.1, 1e-5],
  ],
  ['native_batch_norm.default', [t(4, 5, 3), null, null, t(5), pos(5), true, 0.1, 1e-5]],
  ['_native_batch_norm_legit.default', [t(4, 5, 3), t(5), t(5), t(5), pos(5), false, 0.1, 1e-5]],
  ['_native_batch_norm_legit.no_stats', [t(4, 5, 3), t(5), t(5), true, 0.1, 1e-5]],
  [
    '_native_batch_norm_legit_no_training.default',
    [t(4, 5, 3), t(5), t(5), t(5), pos(5), 0.1, 1e-5],
  ],
  ['_batch_norm_with_update_functional.default', [t(4, 5, 3), t(5), t(5), t(5), pos(5), 0.1, 1e-5]],
  [
    'native_batch_norm_backward.default',
    [t(4, 5, 3), t(4, 5, 3), t(5), t(5), pos(5), t(5), pos(5), true, 1e-5, [true, true, true]],
  ],
  [
    'native_batch_norm_backward.default',
    [t(4, 5, 3), t(4, 5, 3), t(5), t(5), pos(5), t(0), t(0), false, 1e-5, [true, true, false]],
  ],
  // Attention: plain, causal, masks of several shapes, grouped heads.
  [`${cpu}.default`, [q, ...kv]],
  [`${cpu}.default`, [q, ...kv, 0, true], { scale: 0.25 }],
  [`${cpu}.default`, [q, ...kv], { attn_mask: t(2, 1, 6, 5) }],
  [`${cpu}.default`, [q, ...kv], { attn_mask: t(4, 1, 5) }],
  [`${cpu}.default`, [t(2, 8, 5, 3), t(2, 4, 5, 3), t(2, 4, 5, 3)]],
  // One key head, and query heads of one rank in parts of several groups.
  [`${cpu}.default`, [t(2, 4, 5, 3), t(2, 1, 5, 3), t(2, 1, 5, 4), 0, true]],
  [`${cpu}.default`, [t(2, 6, 5, 3), t(2, 2, 5, 3), t(2, 2, 5, 3)], { attn_mask: t(2, 6, 5, 5) }],
  [
    `${cpu}_backward.default`,
    [
      t(2, 6, 5, 3),
      t(2, 6, 5, 3),
      t(2, 2, 5, 3),
      t(2, 2, 5, 3),
      t(2, 6, 5, 3),
      lse(2, 6, 5),
      0,
      true,
    ],
  ],
  ['scaled_dot_product_attention.default', [q, ...kv, t(6, 5)]],
  ['_scaled_dot_product_flash_attention.default', [q, ...kv, 0, true]],
  [`${efficient}.default`, [q, ...kv, t(2, 4, 6, 5), false]],
  [`${efficient}.default`, [t(1, 2, 64, 2), t(1, 2, 3, 2), t(1, 2, 3, 2), null, true]],
  [`${cudnn}.default`, [q, ...kv, null, true]],
  [`${cpu}_backward.default`, [out[0], q, ...kv, ...out, 0, false]],
  [`${cpu}_backward.default`, [out[0], q, ...kv, ...out, 0, true]],
  [`${cpu}_backward.default`, [out[0], q, ...kv, ...out, 0, false], { attn_mask: t(1, 4, 1, 5) }],
  [
    `${cpu}_backward.default`,
    [
      t(2, 8, 5, 3),
      t(2, 8, 5, 3),
      t(2, 4, 5, 3),
      t(2, 4, 5, 3),
      t(2, 8, 5, 3),
      lse(2, 8, 5),
      0,
      false,
    ],
  ],
  [
    '_scaled_dot_product_flash_attention_backward.default',
    [out[0], q, ...kv, ...out, null, null, 6, 5, 0, false, fix(2), fix()],
  ],
  [
    `${efficient}_backward.default`,
    [
      t(1, 2, 64, 2),
      t(1, 2, 64, 2),
      t(1, 2, 3, 2),
      t(1, 2, 3, 2),
      t(1, 2, 64, 3),
      t(1, 2, 64, 2),
      lse(1, 2, 64),
    ]
      .flatMap((x, i) => (i === 4 ? [t(2, 64, 3)] : [x]))
      .concat([fix(), fix(), 0, [true, true, true, true], false]),
  ],
  [
    `${cudnn}_backward.default`,
    [out[0], q, ...kv, ...out, fix(), fix(), t(2, 4, 6, 5), null, null, 6, 5, 0, false],
  ],
];

function load([op, args, kwargs]: Sample, seed: number) {
  const record = table.get(`aten.${op}`);
  if (record === undefined) throw new Error(`no record aten.${op}`);
  const call = makeCall(record, args, kwargs);
  return {
    ctx: call.ctx,
    inputs: call.tensors.map((arg, i) => draw(arg, seed + 7 * i)),
    kernel: kernels[record.name],
    // A rule whose local form runs collectives is judged by `rules --check`, which has its body.
    rules: record.shard(call.ctx).filter(({ collectives }) => collectives === undefined),
  };
}

const title = ([op, args, kwargs]: Sample): string => {
  const text = (a: TestArg): string => {
    if (typeof a !== 'object' || a === null) return String(a);
    return 't' in a ? `(${a.t.join()})` : `[${a.map(text).join(' ')}]`;
  };
  return `${op} ${args.map(text).join(' ')}${kwargs === undefined ? '' : ` ${Object.keys(kwargs).join()}`}`;
};

function pairsOf<T>(rules: readonly T[]): T[][] {
  return rules.flatMap((a, i) =>
    rules.flatMap((b, j) => (FULL || (i + j) % 3 === 0 ? [[a, b]] : [])),
  );
}

describe('every rule gives the unsharded result', () => {
  test.each(samples.map((s) => [title(s), s] as const))('%s', (_, sample) => {
    const wrong: string[] = [];
    let run = 0;
    for (const seed of FULL ? [1, 2] : [1]) {
      const { ctx, inputs, kernel, rules } = load(sample, seed);
      const meshes: [number[], (typeof rules)[]][] = [
        ...[2, 3, 4].map((n): [number[], (typeof rules)[]] => [[n], rules.map((r) => [r])]),
        ...(seed === 1 ? [[[2, 2], pairsOf(rules)] as [number[], (typeof rules)[]]] : []),
      ];
      for (const [sizes, combinations] of meshes)
        for (const chosen of combinations) {
          if (!admitted(ctx, chosen, sizes)) continue;
          run++;
          const why = judge(ctx, inputs, kernel, chosen, sizes);
          if (why !== undefined) wrong.push(why);
        }
    }
    expect(wrong).toEqual([]);
    if (load(sample, 1).rules.length > 0) expect(run).toBeGreaterThan(0);
  });

  test('every record has a sample', () => {
    const tried = new Set(samples.map(([op]) => `aten.${op}`));
    expect(table.records.map((r) => r.name).filter((name) => !tried.has(name))).toEqual([]);
  });

  test('every rule of every sample is admitted on some mesh', () => {
    const idle = new Map<string, string[]>();
    for (const sample of samples) {
      const { ctx, rules } = load(sample, 1);
      for (const r of rules) {
        const runs = [2, 3, 4].some((n) => admitted(ctx, [r], [n]));
        if (!runs) idle.set(title(sample), [...(idle.get(title(sample)) ?? []), ruleText(r)]);
      }
    }
    expect(Object.fromEntries(idle)).toEqual({});
  });
});

describe('the validator finds wrong rules', () => {
  const wrongRules: readonly (readonly [Sample, ReturnType<typeof rule>, number])[] = [
    [['view.default', [t(3, 4), [12]]], rule([S(0)], [S(0)]), 2],
    [['reshape.default', [t(4, 4), [2, 8]]], rule([S(1)], [S(1)]), 2],
    [
      ['native_layer_norm.default', [t(4, 6), [6], t(6), t(6), 1e-5]],
      rule([S(1), S(0), S(0)], [S(1), R, R]),
      2,
    ],
    [['embedding.default', [t(8, 4), ints(8, 6)]], rule([R, S(0)], [P()]), 2],
    [['constant_pad_nd.default', [t(4), [1, 1], 3.5]], rule([P()], [P()]), 2],
    [['sort.default', [t(4, 6)]], rule([P('max')], [P('max'), R]), 2],
    [[`${cpu}.default`, [q, t(2, 4, 6, 3), t(2, 4, 6, 4)]], rule([R, S(2), S(2)], [P(), R]), 2],
    [
      ['embedding_dense_backward.default', [t(8, 5), ints(3, 8), 3, -1, true]],
      rule([S(0), S(0)], [P()]),
      2,
    ],
  ];
  test.each(wrongRules.map(([s, r, n]) => [`${title(s)}: ${ruleText(r)}`, s, r, n] as const))(
    '%s',
    (_, s, r, n) => {
      const { ctx, inputs, kernel } = load(s, 3);
      expect(judge(ctx, inputs, kernel, [r], [n])).toBeDefined();
    },
  );
});
