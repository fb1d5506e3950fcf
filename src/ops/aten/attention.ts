import { broadcastAll, cuttable, linearKinds, need, sameShape } from '../dims.ts';
import {
  defineOp,
  elements,
  metaBytes,
  type OpContext,
  type OperatorRecord,
  type OpWork,
  type TensorMeta,
  type TypedContext,
} from '../record.ts';
import { P, R, S, rule, type Rule, type RuleSlot } from '../rule.ts';
import type { ReduceOp } from '../../mesh/placement.ts';

/**
 * Scaled dot product attention, out = softmax(scale q kᵀ + mask) v with tensors [batch, heads, rows, channels], in the
 * fused forms of PyTorch and as the composite function. With the row sums of exponentials (`logsumexp`, lse) known, the
 * backward is a sum over query rows, key rows and value channels, which is where its rules come from:
 *
 *   p = exp(scale q kᵀ + mask - lse)    dv = pᵀ g    ds = p (g vᵀ - rowsum(g out))    dq = scale ds k    dk = scale dsᵀ q
 *
 * Heads are cut in whole heads of both queries and keys; grouped heads (8 query heads on 2 key heads) stay together because
 * both are cut evenly. Rules with collectives of their own (ring attention: query and key rows cut together) are not
 * offered yet; they belong after the query-row rule.
 */

/** What one fused form has beyond query, key and value. */
interface Form {
  readonly name: string;
  readonly schema: string;
  /** Name of the mask argument, if the form has one. */
  readonly mask?: string;
  /** Result metas after `out` and `logsumexp`; null where the result is no tensor or None. */
  readonly rest: readonly (TensorMeta | null)[];
  /** Rows of `logsumexp` are rounded up to a multiple of this. */
  readonly lseUnit?: number;
  /** `logsumexp` has a last dim of size 1. */
  readonly lseColumn?: boolean;
}

interface Sizes {
  readonly batch: readonly number[];
  readonly heads: number;
  readonly keyHeads: number;
  readonly queries: number;
  readonly keys: number;
  readonly channels: number;
  readonly values: number;
}

/** Shapes of a fused call: four dims each. */
function fusedSizes(ctx: OpContext): Sizes {
  const [q, k, v] = ['query', 'key', 'value'].map((name) => need(ctx, name));
  for (const [name, meta] of [['query', q], ['key', k], ['value', v]] as const)
    if (meta.shape.length !== 4) ctx.fail(`${name} has ${meta.shape.length} dims, expected 4 [batch, heads, rows, channels]`); // prettier-ignore
  return sizesOf(ctx, q, k, v);
}

function sizesOf(ctx: OpContext, q: TensorMeta, k: TensorMeta, v: TensorMeta): Sizes {
  const rank = q.shape.length;
  const [queries, channels] = q.shape.slice(-2);
  const [keys, keyChannels] = k.shape.slice(-2);
  const [valueRows, values] = v.shape.slice(-2);
  const heads = q.shape[rank - 3] ?? 1;
  const keyHeads = k.shape[rank - 3] ?? 1;
  const shapes = `query [${q.shape.join(', ')}], key [${k.shape.join(', ')}], value [${v.shape.join(', ')}]`;
  const leading = sameShape(k.shape.slice(0, -2), v.shape.slice(0, -2)) && k.shape.length === rank;
  if (!leading || !sameShape(q.shape.slice(0, -3), k.shape.slice(0, -3)))
    ctx.fail(`${shapes} must agree in their batch dims, key and value in their heads`);
  if (channels !== keyChannels) ctx.fail(`${shapes}: query and key must have the same channels`);
  if (keys !== valueRows) ctx.fail(`${shapes}: key and value must have the same rows`);
  if (keyHeads === 0 || heads % keyHeads !== 0)
    ctx.fail(`${shapes}: ${heads} query heads are no multiple of ${keyHeads} key heads`);
  return { batch: q.shape.slice(0, -3), heads, keyHeads, queries, keys, channels, values };
}

function scores(s: Sizes): number {
  return elements(s.batch) * s.heads * s.queries * s.keys;
}

/** 2 per multiply-add of q kᵀ and p v; causal calls are counted whole, as PyTorch's flop counter does. */
function forwardWork(s: Sizes): OpWork {
  return { matrix: 2 * scores(s) * (s.channels + s.values), vector: 5 * scores(s) };
}

/** Five products: q kᵀ again, g vᵀ, pᵀ g, ds k, dsᵀ q. */
function backwardWork(s: Sizes): OpWork {
  return { matrix: 2 * scores(s) * (3 * s.channels + 2 * s.values), vector: 8 * scores(s) };
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

// ---- rules ----------------------------------------------------------------------------------------------------------

/** Slots by name for the tensors of a call; absent tensors are left out, unnamed ones replicated. */
function inputsOf(ctx: TypedContext, slots: Readonly<Record<string, RuleSlot>>): RuleSlot[] {
  const inputs: RuleSlot[] = ctx.inputs.map(() => R);
  for (const [name, slot] of Object.entries(slots)) {
    const at = ctx.indexOf(name);
    if (at >= 0) inputs[at] = slot;
  }
  return inputs;
}

/** Cut of a mask along a dim of the scores [batch.., heads, query rows, key rows]: R where it has no such dim or size 1. */
function maskSlot(mask: TensorMeta | undefined, rank: number, dim: number, cut: RuleSlot): RuleSlot {
  if (mask === undefined) return R;
  const at = dim - (rank - mask.shape.length);
  if (at < 0 || mask.shape[at] === 1) return R;
  return cut?.kind === 'shard' ? { ...cut, dim: at } : R;
}

interface ForwardPlan {
  readonly ctx: TypedContext;
  readonly sizes: Sizes;
  readonly rank: number;
  readonly mask: string | undefined;
  readonly lse: boolean;
  readonly lseUnit: number;
}

/** Slots of a rule whose results are [out, lse?, rest...]; the rest is replicated (seeds) or absent. */
function results(plan: ForwardPlan, out: RuleSlot, lse: RuleSlot): RuleSlot[] {
  return plan.ctx.outputs.map((meta, i) => (meta === null ? null : i === 0 ? out : i === 1 ? lse : R));
}

function headCut(dim: number): RuleSlot {
  return S(dim, { even: true, scaled: true });
}

function forwardRules(plan: ForwardPlan): Rule[] {
  const { ctx, sizes, rank } = plan;
  const rules: Rule[] = [];
  const mask = plan.mask === undefined ? undefined : ctx.tensor(plan.mask);
  const masked = (dim: number, cut: RuleSlot): Readonly<Record<string, RuleSlot>> =>
    plan.mask === undefined ? {} : { [plan.mask]: maskSlot(mask, rank, dim, cut) };
  const lse = (slot: RuleSlot): RuleSlot => (plan.lse ? slot : R);
  const random = ctx.number('dropout_p') > 0;
  const together = (dim: number, cut: RuleSlot): Rule =>
    rule(inputsOf(ctx, { query: cut, key: cut, value: cut, ...masked(dim, cut) }), results(plan, cut, cut));
  if (rank >= 3 && sizes.heads > 1) rules.push(together(rank - 3, headCut(rank - 3)));
  for (const d of cuttable(sizes.batch)) rules.push(together(d, S(d)));
  // With dropout the same random numbers would be needed on every rank.
  if (random) return rules;
  const causal = ctx.bool('is_causal');
  const row = rank - 2;
  if (sizes.queries > 1) {
    const unit = plan.lseUnit;
    // A padded lse is a cut of the query rows only if every block of rows is a multiple of the padding.
    if (unit === 1 || sizes.queries % unit === 0) {
      const slicing = causal ? 'contiguous' : 'same';
      const cut = S(row, { slicing, even: unit > 1, unit });
      rules.push(
        rule(inputsOf(ctx, { query: cut, ...masked(row, cut) }), results(plan, cut, lse(cut)), {
          origin: 'ext',
          ...(causal ? { rewrite: 'offset' } : {}),
        }),
      );
    }
  }
  const last = rank - 1;
  const value = S(last, { slicing: 'any' });
  if (sizes.values > 1) rules.push(rule(inputsOf(ctx, { value }), results(plan, value, R), { origin: 'ext' }));
  for (const kind of linearKinds(need(ctx, 'value').dtype))
    rules.push(rule(inputsOf(ctx, { value: P(kind) }), results(plan, P(kind), R), { origin: 'ext' }));
  return rules;
}

/** Names of the arguments of a fused backward; results are dq, dk, dv and, where there is a mask gradient, d_mask. */
interface BackwardForm {
  readonly name: string;
  readonly schema: string;
  readonly grad: string;
  readonly mask?: string;
  /** Whether the fourth result is the gradient of the mask. */
  readonly maskGrad?: boolean;
  readonly lseUnit?: number;
}

function backwardRules(ctx: TypedContext, form: BackwardForm): Rule[] {
  const sizes = fusedSizes(ctx);
  const rank = 4;
  const mask = form.mask === undefined ? undefined : ctx.tensor(form.mask);
  const names = { g: form.grad, q: 'query', k: 'key', v: 'value', out: 'out', lse: 'logsumexp' } as const;
  type Slots = Partial<Record<keyof typeof names, RuleSlot>>;
  const build = (
    slots: Slots,
    grads: readonly [RuleSlot, RuleSlot, RuleSlot],
    maskGrad: RuleSlot,
    options: { origin?: 'base' | 'ext'; rewrite?: string; maskIn?: RuleSlot } = {},
  ): Rule => {
    const named: Record<string, RuleSlot> = {};
    for (const key of ['g', 'q', 'k', 'v', 'out', 'lse'] as const) named[names[key]] = slots[key] ?? R;
    if (form.mask !== undefined) named[form.mask] = options.maskIn ?? R;
    const { origin = 'base', rewrite } = options;
    const outputs = [...grads, maskGrad];
    return rule(
      inputsOf(ctx, named),
      ctx.outputs.map((meta, i) => (meta === null ? null : outputs[i])),
      rewrite === undefined ? { origin } : { origin, rewrite },
    );
  };
  /** Mask and its gradient when dim `dim` of the scores is cut: a mask without that dim collects a sum. */
  const maskCut = (dim: number, cut: RuleSlot): [RuleSlot, RuleSlot] => {
    const slot = maskSlot(mask, rank, dim, cut);
    return [slot, slot?.kind === 'shard' ? slot : P()];
  };
  const rules: Rule[] = [];
  const together = (dim: number, cut: RuleSlot): void => {
    const [maskIn, maskGrad] = maskCut(dim, cut);
    rules.push(build({ g: cut, q: cut, k: cut, v: cut, out: cut, lse: cut }, [cut, cut, cut], maskGrad, { maskIn }));
  };
  if (sizes.heads > 1) together(1, headCut(1));
  for (const d of cuttable(sizes.batch)) together(d, S(d));
  if (ctx.number('dropout_p') > 0) return rules;
  const causal = ctx.bool('is_causal');
  const offset = causal ? { rewrite: 'offset' } : {};
  const slicing = causal ? 'contiguous' : 'same';
  const unit = form.lseUnit ?? 1;
  if (sizes.queries > 1 && (unit === 1 || sizes.queries % unit === 0)) {
    const cut = S(2, { slicing, even: unit > 1, unit });
    const [maskIn, maskGrad] = maskCut(2, cut);
    const options = { origin: 'ext', maskIn, ...offset } as const;
    rules.push(build({ g: cut, q: cut, out: cut, lse: cut }, [cut, P(), P()], maskGrad, options));
  }
  if (sizes.keys > 1) {
    const cut = S(2, { slicing });
    const [maskIn, maskGrad] = maskCut(3, cut);
    rules.push(build({ k: cut, v: cut }, [P(), cut, cut], maskGrad, { origin: 'ext', maskIn, ...offset }));
  }
  if (sizes.values > 1) {
    const cut = S(3);
    rules.push(build({ g: cut, v: cut, out: cut }, [P(), P(), cut], P(), { origin: 'ext' }));
  }
  const kinds: readonly ReduceOp[] = linearKinds(need(ctx, 'value').dtype);
  for (const kind of kinds) rules.push(build({ g: P(kind) }, [P(kind), P(kind), P(kind)], P(kind), { origin: 'ext' }));
  for (const kind of kinds) {
    const p = P(kind);
    rules.push(build({ v: p, out: p }, [p, p, R], p, { origin: 'ext' }));
  }
  return rules;
}

// ---- records --------------------------------------------------------------------------------------------------------

function fusedForward(form: Form): OperatorRecord {
  const wantsLse = (ctx: OpContext): boolean => !form.schema.includes('compute_log_sumexp') || ctx.bool('compute_log_sumexp'); // prettier-ignore
  return defineOp(form.name, {
    schema: form.schema,
    cls: 'attention',
    results: 'tuple',
    infer: (ctx) => {
      const s = fusedSizes(ctx);
      const { dtype } = need(ctx, 'query');
      const unit = form.lseUnit ?? 1;
      const lseRows = wantsLse(ctx) ? Math.ceil(s.queries / unit) * unit : 0;
      if (form.mask !== undefined) checkMask(ctx, form.mask, [...s.batch, s.heads, s.queries, s.keys]);
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
    bytes: (ctx) => fusedBytes(ctx, ['query', 'key', 'value', ...(form.mask === undefined ? [] : [form.mask])], 2),
  });
}

/** A mask must broadcast to the scores. */
function checkMask(ctx: OpContext, name: string, shape: readonly number[]): void {
  const mask = ctx.tensor(name);
  if (mask === undefined) return;
  if (!sameShape(broadcastAll(ctx, [mask.shape, shape]), shape))
    ctx.fail(`${name} of shape [${mask.shape.join(', ')}] does not broadcast to [${shape.join(', ')}]`);
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
        ctx.fail(`${form.grad} has shape [${grad.shape.join(', ')}], expected [${expected.join(', ')}]`);
      const wanted = form.maskGrad === true ? ctx.bools('grad_input_mask') : [true, true, true];
      const mask = form.mask === undefined ? undefined : ctx.tensor(form.mask);
      const metas = [need(ctx, 'query'), need(ctx, 'key'), need(ctx, 'value')].map((m, i) => (wanted[i] ? m : null));
      return form.maskGrad === true ? [...metas, wanted[3] && mask !== undefined ? mask : null] : metas;
    },
    shard: (ctx) => backwardRules(ctx, form),
    flops: (ctx) => backwardWork(fusedSizes(ctx)),
    bytes: (ctx) =>
      fusedBytes(
        ctx,
        [form.grad, 'query', 'key', 'value', 'out', 'logsumexp', ...(form.mask === undefined ? [] : [form.mask])],
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
      'Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor logsumexp, float dropout_p, ' +
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
    rest: [null, null, null, null, { dtype: 'u64', shape: [2] }, { dtype: 'u64', shape: [] }, EMPTY_MASK],
  }),
  fusedBackward({
    name: `${flash}_backward.default`,
    schema:
      'Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor logsumexp, Tensor? cum_seq_q, ' +
      'Tensor? cum_seq_k, Any max_q, Any max_k, float dropout_p, bool is_causal, Tensor philox_seed, ' +
      'Tensor philox_offset, *, float? scale=None',
    grad: 'grad_out',
  }),
  fusedForward({
    name: `${efficient}.default`,
    schema:
      'Tensor query, Tensor key, Tensor value, Tensor? attn_bias, bool compute_log_sumexp, float dropout_p=0.0, ' +
      'bool is_causal=False, *, float? scale=None',
    mask: 'attn_bias',
    rest: [SCALAR_I64, SCALAR_I64],
    lseUnit: 32,
  }),
  fusedBackward({
    name: `${efficient}_backward.default`,
    schema:
      'Tensor grad_out_, Tensor query, Tensor key, Tensor value, Tensor? attn_bias, Tensor out, Tensor logsumexp, ' +
      'Tensor philox_seed, Tensor philox_offset, float dropout_p, bool[] grad_input_mask, bool is_causal=False, *, ' +
      'float? scale=None',
    grad: 'grad_out_',
    mask: 'attn_bias',
    maskGrad: true,
    lseUnit: 32,
  }),
  fusedForward({
    name: `${cudnn}.default`,
    schema:
      'Tensor query, Tensor key, Tensor value, Tensor? attn_bias, bool compute_log_sumexp, float dropout_p=0.0, ' +
      'bool is_causal=False, bool return_debug_mask=False, *, float? scale=None',
    mask: 'attn_bias',
    // cum_seq_q, cum_seq_k, max_q, max_k, philox_seed, philox_offset, debug_attn_mask
    rest: [null, null, null, null, SCALAR_I64, SCALAR_I64, null],
    lseColumn: true,
  }),
  fusedBackward({
    name: `${cudnn}_backward.default`,
    schema:
      'Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor logsumexp, Tensor philox_seed, ' +
      'Tensor philox_offset, Tensor? attn_bias, Tensor? cum_seq_q, Tensor? cum_seq_k, Any max_q, Any max_k, ' +
      'float dropout_p, bool is_causal, *, float? scale=None',
    grad: 'grad_out',
    mask: 'attn_bias',
  }),
];

/** Any number of batch dims; with fewer than three dims there are no heads. */
function compositeSizes(ctx: OpContext): Sizes {
  const [q, k, v] = ['query', 'key', 'value'].map((name) => need(ctx, name));
  if (q.shape.length < 2) ctx.fail(`query has ${q.shape.length} dims, expected at least 2 [.., rows, channels]`);
  const sizes = sizesOf(ctx, q, k, v);
  if (sizes.heads !== sizes.keyHeads && !ctx.bool('enable_gqa'))
    ctx.fail(`${sizes.heads} query heads and ${sizes.keyHeads} key heads need enable_gqa=True`);
  return sizes;
}

const composite = defineOp('aten.scaled_dot_product_attention.default', {
  schema:
    'Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, bool is_causal=False, *, ' +
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
    }),
  flops: (ctx) => forwardWork(compositeSizes(ctx)),
  bytes: (ctx) => fusedBytes(ctx, ['query', 'key', 'value', 'attn_mask'], 1),
});

export const attentionOps: readonly OperatorRecord[] = [...fused, composite];
