/** Scaled dot product attention in the fused forms of PyTorch and as the composite function. */

import {
  defineOp,
  metaBytes,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
  type TypedContext,
} from '../../record/record.ts';
import { broadcastAll, need, sameShape } from '../../rules/dims.ts';
import {
  type AttentionSizes,
  type BackwardForm,
  backwardRules,
  backwardWork,
  forwardRules,
  forwardWork,
  fusedSizes,
  sizesOf,
} from './attention-rules.ts';

/** The operands of one fused form in addition to query, key and value. */
interface Form {
  readonly name: string;
  readonly schema: string;
  /** Name of the mask argument, if the form has one. */
  readonly mask?: string;
  /** Result metas after `out` and `logsumexp`; null where the result is not a tensor or None. */
  readonly rest: readonly (TensorMeta | null)[];
  /** Rows of `logsumexp` are rounded up to a multiple of this. */
  readonly lseUnit?: number;
  /** `logsumexp` has a last dim of size 1. */
  readonly lseColumn?: boolean;
}

/** Tensors that a fused kernel reads and writes: seeds and counters do not count. */
function fusedBytes(ctx: TypedContext, names: readonly string[], outputs: number): number {
  let total = 0;
  for (const name of names) {
    const meta = ctx.tensor(name);
    if (meta !== undefined) total += metaBytes(meta);
  }
  for (const out of ctx.outputs.slice(0, outputs)) if (out !== null) total += metaBytes(out);
  return total;
}

function fusedForward(form: Form): OperatorRecord {
  const wantsLse = (ctx: OpContext): boolean =>
    !form.schema.includes('compute_log_sumexp') || ctx.bool('compute_log_sumexp');
  return defineOp(form.name, {
    schema: form.schema,
    cls: 'attention',
    results: 'tuple',
    infer: (ctx) => {
      const s = fusedSizes(ctx);
      const { dtype } = need(ctx, 'query');
      const unit = form.lseUnit ?? 1;
      const lseRows = wantsLse(ctx) ? Math.ceil(s.queries / unit) * unit : 0;
      if (form.mask !== undefined)
        checkMask(ctx, form.mask, [...s.batch, s.heads, s.queries, s.keys]);
      return [
        { dtype, shape: [...s.batch, s.heads, s.queries, s.values] },
        {
          dtype: dtype === 'f64' ? 'f64' : 'f32',
          shape: [...s.batch, s.heads, lseRows, ...(form.lseColumn === true ? [1] : [])],
        },
        ...form.rest.map((meta) => (meta === EMPTY_MASK ? { dtype, shape: meta.shape } : meta)),
      ];
    },
    shard: (ctx) =>
      forwardRules({
        ctx,
        sizes: fusedSizes(ctx),
        rank: 4,
        mask: form.mask,
        lse: wantsLse(ctx),
        lseUnit: wantsLse(ctx) ? (form.lseUnit ?? 1) : 1,
      }),
    flops: (ctx) => forwardWork(fusedSizes(ctx)),
    bytes: (ctx) =>
      fusedBytes(
        ctx,
        ['query', 'key', 'value', ...(form.mask === undefined ? [] : [form.mask])],
        2,
      ),
  });
}

/** A mask must broadcast to the scores. */
function checkMask(ctx: OpContext, name: string, shape: readonly number[]): void {
  const mask = ctx.tensor(name);
  if (mask === undefined) return;
  if (!sameShape(broadcastAll(ctx, [mask.shape, shape]), shape))
    ctx.fail(
      `${name} of shape [${mask.shape.join(', ')}] does not broadcast to [${shape.join(', ')}]`,
    );
}

function fusedBackward(form: BackwardForm): OperatorRecord {
  return defineOp(form.name, {
    schema: form.schema,
    cls: 'attention',
    results: 'tuple',
    infer: (ctx) => {
      const s = fusedSizes(ctx);
      const grad = need(ctx, form.grad);
      const expected = [...s.batch, s.heads, s.queries, s.values];
      if (!sameShape(grad.shape, expected))
        ctx.fail(
          `${form.grad} has shape [${grad.shape.join(', ')}], expected [${expected.join(', ')}]`,
        );
      const wanted = form.maskGrad === true ? ctx.bools('grad_input_mask') : [true, true, true];
      const mask = form.mask === undefined ? undefined : ctx.tensor(form.mask);
      const metas = [need(ctx, 'query'), need(ctx, 'key'), need(ctx, 'value')].map((m, i) =>
        wanted[i] ? m : null,
      );
      return form.maskGrad === true
        ? [...metas, wanted[3] && mask !== undefined ? mask : null]
        : metas;
    },
    shard: (ctx) => backwardRules(ctx, form),
    flops: (ctx) => backwardWork(fusedSizes(ctx)),
    bytes: (ctx) =>
      fusedBytes(
        ctx,
        [
          form.grad,
          'query',
          'key',
          'value',
          'out',
          'logsumexp',
          ...(form.mask === undefined ? [] : [form.mask]),
        ],
        4,
      ),
  });
}

/** Random state of a fused kernel: two 64-bit numbers, or a seed and an offset. */
const SCALAR_I64: TensorMeta = { dtype: 'i64', shape: [] };
/** A debug mask that was not asked for: no elements, of the queries' dtype. */
const EMPTY_MASK: TensorMeta = { dtype: 'f32', shape: [0] };

const flash = 'aten._scaled_dot_product_flash_attention';
const efficient = 'aten._scaled_dot_product_efficient_attention';
const cudnn = 'aten._scaled_dot_product_cudnn_attention';

const fused: readonly OperatorRecord[] = [
  fusedForward({
    name: `${flash}_for_cpu.default`,
    schema:
      'Tensor query, Tensor key, Tensor value, float dropout_p=0.0, bool is_causal=False, *, ' +
      'Tensor? attn_mask=None, float? scale=None',
    mask: 'attn_mask',
    rest: [],
  }),
  fusedBackward({
    name: `${flash}_for_cpu_backward.default`,
    schema:
      'Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor ' +
      'logsumexp, float dropout_p, ' +
      'bool is_causal, *, Tensor? attn_mask=None, float? scale=None',
    grad: 'grad_out',
    mask: 'attn_mask',
  }),
  fusedForward({
    name: `${flash}.default`,
    schema:
      'Tensor query, Tensor key, Tensor value, float dropout_p=0.0, bool is_causal=False, ' +
      'bool return_debug_mask=False, *, float? scale=None',
    // cum_seq_q, cum_seq_k, max_q, max_k, rng_state, unused, debug_attn_mask
    rest: [
      null,
      null,
      null,
      null,
      { dtype: 'u64', shape: [2] },
      { dtype: 'u64', shape: [] },
      EMPTY_MASK,
    ],
  }),
  fusedBackward({
    name: `${flash}_backward.default`,
    schema:
      'Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor ' +
      'logsumexp, Tensor? cum_seq_q, ' +
      'Tensor? cum_seq_k, Any max_q, Any max_k, float dropout_p, bool is_causal, Tensor ' +
      'philox_seed, ' +
      'Tensor philox_offset, *, float? scale=None',
    grad: 'grad_out',
  }),
  fusedForward({
    name: `${efficient}.default`,
    schema:
      'Tensor query, Tensor key, Tensor value, Tensor? attn_bias, bool compute_log_sumexp, ' +
      'float dropout_p=0.0, ' +
      'bool is_causal=False, *, float? scale=None',
    mask: 'attn_bias',
    rest: [SCALAR_I64, SCALAR_I64],
    lseUnit: 32,
  }),
  fusedBackward({
    name: `${efficient}_backward.default`,
    schema:
      'Tensor grad_out_, Tensor query, Tensor key, Tensor value, Tensor? attn_bias, Tensor ' +
      'out, Tensor logsumexp, ' +
      'Tensor philox_seed, Tensor philox_offset, float dropout_p, bool[] grad_input_mask, ' +
      'bool is_causal=False, *, ' +
      'float? scale=None',
    grad: 'grad_out_',
    mask: 'attn_bias',
    maskGrad: true,
    lseUnit: 32,
  }),
  fusedForward({
    name: `${cudnn}.default`,
    schema:
      'Tensor query, Tensor key, Tensor value, Tensor? attn_bias, bool compute_log_sumexp, ' +
      'float dropout_p=0.0, ' +
      'bool is_causal=False, bool return_debug_mask=False, *, float? scale=None',
    mask: 'attn_bias',
    // cum_seq_q, cum_seq_k, max_q, max_k, philox_seed, philox_offset, debug_attn_mask
    rest: [null, null, null, null, SCALAR_I64, SCALAR_I64, null],
    lseColumn: true,
  }),
  fusedBackward({
    name: `${cudnn}_backward.default`,
    schema:
      'Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor ' +
      'logsumexp, Tensor philox_seed, ' +
      'Tensor philox_offset, Tensor? attn_bias, Tensor? cum_seq_q, Tensor? cum_seq_k, Any ' +
      'max_q, Any max_k, ' +
      'float dropout_p, bool is_causal, *, float? scale=None',
    grad: 'grad_out',
    mask: 'attn_bias',
  }),
];

/** Any number of batch dims; with fewer than three dims there are no heads. */
function compositeSizes(ctx: OpContext): AttentionSizes {
  const [q, k, v] = ['query', 'key', 'value'].map((name) => need(ctx, name));
  if (q.shape.length < 2)
    ctx.fail(`query has ${q.shape.length} dims, expected at least 2 [.., rows, channels]`);
  const sizes = sizesOf(ctx, q, k, v);
  if (sizes.heads !== sizes.keyHeads && !ctx.bool('enable_gqa'))
    ctx.fail(`${sizes.heads} query heads and ${sizes.keyHeads} key heads need enable_gqa=True`);
  return sizes;
}

const composite = defineOp('aten.scaled_dot_product_attention.default', {
  schema:
    'Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, ' +
    'bool is_causal=False, *, ' +
    'float? scale=None, bool enable_gqa=False',
  cls: 'attention',
  infer: (ctx) => {
    const s = compositeSizes(ctx);
    const { dtype, shape } = need(ctx, 'query');
    checkMask(ctx, 'attn_mask', [...shape.slice(0, -1), s.keys]);
    return [{ dtype, shape: [...shape.slice(0, -1), s.values] }];
  },
  shard: (ctx) =>
    forwardRules({
      ctx,
      sizes: compositeSizes(ctx),
      rank: need(ctx, 'query').shape.length,
      mask: 'attn_mask',
      lse: false,
      lseUnit: 1,
      anyWidth: true,
    }),
  flops: (ctx) => forwardWork(compositeSizes(ctx)),
  bytes: (ctx) => fusedBytes(ctx, ['query', 'key', 'value', 'attn_mask'], 1),
});

export const attentionOps: readonly OperatorRecord[] = [...fused, composite];
