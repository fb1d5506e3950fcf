/**
 * Attention of packed sequences (`varlen_attn` of `torch.nn.attention.varlen`): rows of several
 * sequences one after another, each of which reads the rows of its own sequence alone. Tensors are
 * [rows, heads, channels]; `cu_seq_q` and `cu_seq_k` hold where sequences start and the last one
 * ends. Source: `torch/nn/attention/varlen.py` of PyTorch 2.13, FlashAttention's kernels for
 * `cu_seqlens`.
 *
 * Lengths are values, which no plan knows. The call states the longest ones, `max_q` and `max_k`;
 * work is that of the most pairs that sequences within them can have.
 */

import {
  defineOp,
  metaBytes,
  type OpContext,
  type OperatorRecord,
  type TypedContext,
} from '../../record/record.ts';
import { P, R, type Rule, rule, type RuleOptions, type RuleSlot } from '../../record/rule.ts';
import { linearKinds, need, sameShape, slotsByName } from '../../rules/dims.ts';
import {
  type AttentionSizes,
  backwardWork,
  forwardWork,
  headCut,
  keyHeadsTaken,
  queryHeadCut,
} from './attention-rules.ts';

const FORWARD = 'torch_attn._varlen_attn.default';
const BACKWARD = 'torch_attn._varlen_attn_backward.default';
const OPERANDS = ['query', 'key', 'value'];

/** Sizes of a call, whose tensors, starts and longest lengths are checked. */
function packedSizes(ctx: OpContext): AttentionSizes {
  const [q, k, v] = OPERANDS.map((name) => {
    const meta = need(ctx, name);
    if (meta.shape.length !== 3)
      ctx.fail(`${name} has ${meta.shape.length} dims, expected 3 [rows, heads, channels]`);
    return meta.shape;
  });
  const shapes = `query [${q.join(', ')}], key [${k.join(', ')}], value [${v.join(', ')}]`;
  if (!sameShape(k.slice(0, 2), v.slice(0, 2)))
    ctx.fail(`${shapes}: key and value must agree in rows and heads`);
  if (q[2] !== k[2]) ctx.fail(`${shapes}: query and key must have the same channels`);
  if (k[1] === 0 || q[1] % k[1] !== 0)
    ctx.fail(`${shapes}: ${q[1]} query heads are not a multiple of ${k[1]} key heads`);
  sequences(ctx);
  return {
    batch: [],
    heads: q[1],
    keyHeads: k[1],
    queries: q[0],
    keys: k[0],
    channels: q[2],
    values: v[2],
  };
}

/** Number of sequences; both lists of starts have one more entry. */
function sequences(ctx: OpContext): number {
  const starts = ['cu_seq_q', 'cu_seq_k'].flatMap((name) => ctx.tensor(name)?.shape ?? []);
  const [first] = need(ctx, 'cu_seq_q').shape;
  if (starts.some((size) => size !== first) || !(first >= 1))
    ctx.fail(`starts of sequences have shapes ${starts.map((n) => `[${n}]`).join(' and ')}`);
  return first - 1;
}

/**
 * The most pairs of a query row and a key row that one head has a score of: sequences of up to
 * `max_q` and `max_k` rows, no more of them than there are, and no more rows than the tensors have.
 * A window of `left` and `right` rows lets a row read `left + right + 1` others, and be read by as
 * many.
 */
export function packedPairs(ctx: OpContext): number {
  const { queries, keys } = packedSizes(ctx);
  const [left, right] = ctx.optionalInts('window_size') ?? [-1, -1];
  const ahead = ctx.bool('is_causal') ? 0 : right;
  const window = left < 0 || ahead < 0 ? Infinity : left + ahead + 1;
  const [longest, read] = [ctx.int('max_q'), ctx.int('max_k')];
  return Math.min(
    queries * Math.min(read, keys, window),
    keys * Math.min(longest, queries, window),
    sequences(ctx) * longest * Math.min(read, window),
    sequences(ctx) * read * Math.min(longest, window),
  );
}

/** The large tensors of a call, each read or written once: no score leaves the kernel. */
function bytesOf(ctx: TypedContext, names: readonly string[], results: number): number {
  const metas = [...names.map((name) => need(ctx, name)), ...ctx.outputs.slice(0, results)];
  return metas.reduce((sum, meta) => sum + (meta === null ? 0 : metaBytes(meta)), 0);
}

/** How a rule cuts tensors with query heads, tensors with key heads, and the lse. */
interface HeadCut {
  readonly query: RuleSlot;
  readonly key: RuleSlot;
  readonly lse: RuleSlot;
  readonly options?: RuleOptions;
}

/** Cuts of all heads, and of query heads whose devices take the key heads that they read. */
function headCuts(ctx: TypedContext, results: readonly number[]): readonly HeadCut[] {
  const sizes = packedSizes(ctx);
  const all = headCut(1, sizes);
  const own = queryHeadCut(1);
  const lse = (cut: RuleSlot): RuleSlot => (cut?.kind === 'shard' ? { ...cut, dim: 0 } : cut);
  return [
    ...(sizes.keyHeads > 1 ? [{ query: all, key: all, lse: lse(all) }] : []),
    ...(sizes.keyHeads < sizes.heads
      ? [{ query: own, key: R, lse: lse(own), options: keyHeadsTaken(ctx, sizes, 1, results) }]
      : []),
  ];
}

const forward = defineOp(FORWARD, {
  schema:
    'Tensor query, Tensor key, Tensor value, Tensor cu_seq_q, Tensor? cu_seq_k, int max_q, ' +
    'int max_k, bool is_causal=False, float? scale=None, int[]? window_size=None, ' +
    'bool enable_gqa=False, Tensor? seqused_k=None, Tensor? block_table=None, ' +
    'int? num_splits=None',
  cls: 'attention',
  results: 'tuple',
  infer: (ctx) => {
    for (const name of ['seqused_k', 'block_table'])
      if (ctx.has(name)) ctx.fail(`${name} belongs to a cache of keys, which serving alone has`);
    const { heads, queries, values } = packedSizes(ctx);
    const { dtype } = need(ctx, 'query');
    return [
      { dtype, shape: [queries, heads, values] },
      { dtype: 'f32', shape: [heads, queries] },
      { dtype: 'u64', shape: [2] },
    ];
  },
  shard: (ctx) => [
    ...headCuts(ctx, []).map(({ query, key, lse, options }) =>
      rule(slotsByName(ctx, { query, key, value: key }), [query, lse, R], options),
    ),
    ...linearKinds(need(ctx, 'value').dtype).map((kind) =>
      rule(slotsByName(ctx, { value: P(kind) }), [P(kind), R, R], { origin: 'ext' }),
    ),
  ],
  flops: (ctx) => forwardWork(packedSizes(ctx), packedPairs(ctx)),
  bytes: (ctx) => bytesOf(ctx, OPERANDS, 2),
  samples: [
    'x[7,6,4], x[9,6,4], x[9,6,4], starts7[4], starts9[4], 7, 9',
    'x[9,6,4], x[9,3,4], x[9,3,4], starts9[5], None, 9, 9, True',
    'x[9,6,4], x[9,6,4], x[9,6,4], starts9[3], None, 9, 9, False, 0.5, [2, 1]',
  ],
});

const SAVED = ['grad_out', ...OPERANDS, 'out', 'lse'];

function backwardRules(ctx: TypedContext): Rule[] {
  const kinds = linearKinds(need(ctx, 'value').dtype).map((kind) => P(kind));
  return [
    ...headCuts(ctx, [1, 2]).map(({ query, key, lse, options }) =>
      rule(
        slotsByName(ctx, { grad_out: query, query, key, value: key, out: query, lse }),
        // Devices that read the same key heads add to the same gradients.
        key === R ? [query, P(), P()] : [query, key, key],
        options,
      ),
    ),
    ...kinds.map((p) => rule(slotsByName(ctx, { grad_out: p }), [p, p, p], { origin: 'ext' })),
    ...kinds.map((p) => rule(slotsByName(ctx, { value: p, out: p }), [p, p, R], { origin: 'ext' })),
  ];
}

const backward = defineOp(BACKWARD, {
  schema:
    'Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor lse, ' +
    'Tensor cu_seq_q, Tensor cu_seq_k, int max_q, int max_k, bool is_causal, Tensor rng_state, ' +
    'float? scale=None, int[]? window_size=None',
  cls: 'attention',
  results: 'tuple',
  infer: (ctx) => {
    const { heads, queries, values } = packedSizes(ctx);
    for (const name of ['grad_out', 'out']) {
      const { shape } = need(ctx, name);
      if (!sameShape(shape, [queries, heads, values]))
        ctx.fail(`${name} has shape [${shape.join(', ')}], which query and value do not give`);
    }
    return OPERANDS.map((name) => need(ctx, name));
  },
  shard: backwardRules,
  flops: (ctx) => backwardWork(packedSizes(ctx), packedPairs(ctx)),
  bytes: (ctx) => bytesOf(ctx, SAVED, 3),
  samples: [
    'x[7,6,4], x[7,6,4], x[9,6,4], x[9,6,4], x[7,6,4], large[6,7], starts7[4], starts9[4], 7, 9, ' +
      'False, seven[2]',
    'x[9,6,4], x[9,6,4], x[9,3,4], x[9,3,4], x[9,6,4], large[6,9], starts9[5], starts9[5], 9, 9, ' +
      'True, seven[2]',
  ],
});

export const varlenAttentionOps: readonly OperatorRecord[] = [forward, backward];
