/**
 * Sizes, work and rules of scaled dot product attention, out = softmax(scale q kᵀ + mask) v with
 * tensors [batch, heads, rows, channels]. With the row sums of exponentials (`logsumexp`, lse)
 * known, the backward is a sum over query rows and key rows, which is where its rules come from:
 *
 *   p = exp(scale q kᵀ + mask - lse) dv = pᵀ g ds = p (g vᵀ - rowsum(g out)) dq = scale ds k dk =
 *   scale dsᵀ q
 *
 * Heads are cut in whole heads of both queries and keys; grouped heads (8 query heads on 2 key
 * heads) stay together because both are cut evenly. Over more devices than key heads the query
 * heads are cut alone: each device takes the whole key heads that its query heads read. Rules with
 * collectives of their own (ring attention: query and key rows cut together) are not offered yet;
 * they belong after the query-row rule.
 */

import type { ReduceOp } from '../../../mesh/placements/placement.ts';
import {
  elements,
  type OpContext,
  type OpWork,
  type TensorMeta,
  type TypedContext,
} from '../../record/record.ts';
import { P, R, type Rule, rule, type RuleOptions, type RuleSlot, S } from '../../record/rule.ts';
import { cuttable, linearKinds, need, sameShape, slotsByName } from '../../rules/dims.ts';

/** Sizes of a call: q kᵀ has a row for each of `queries` and a column for each of `keys`. */
export interface AttentionSizes {
  readonly batch: readonly number[];
  readonly heads: number;
  readonly keyHeads: number;
  readonly queries: number;
  readonly keys: number;
  readonly channels: number;
  readonly values: number;
}

/** Sizes of a fused call: four dims each. @throws E_TYPE */
export function fusedSizes(ctx: OpContext): AttentionSizes {
  const [q, k, v] = ['query', 'key', 'value'].map((name) => need(ctx, name));
  for (const [name, meta] of [
    ['query', q],
    ['key', k],
    ['value', v],
  ] as const)
    if (meta.shape.length !== 4)
      ctx.fail(`${name} has ${meta.shape.length} dims, expected 4 [batch, heads, rows, channels]`);
  return sizesOf(ctx, q, k, v);
}

/**
 * Sizes of a call with any number of batch dims. @throws E_TYPE where its shapes do not fit
 * together
 */
export function sizesOf(
  ctx: OpContext,
  q: TensorMeta,
  k: TensorMeta,
  v: TensorMeta,
): AttentionSizes {
  const rank = q.shape.length;
  const [queries, channels] = q.shape.slice(-2);
  const [keys, keyChannels] = k.shape.slice(-2);
  const [valueRows, values] = v.shape.slice(-2);
  const heads = q.shape[rank - 3] ?? 1;
  const keyHeads = k.shape[rank - 3] ?? 1;
  const shapes =
    `query [${q.shape.join(', ')}], key [${k.shape.join(', ')}], ` +
    `value [${v.shape.join(', ')}]`;
  const leading = sameShape(k.shape.slice(0, -2), v.shape.slice(0, -2)) && k.shape.length === rank;
  if (!leading || !sameShape(q.shape.slice(0, -3), k.shape.slice(0, -3)))
    ctx.fail(`${shapes} must agree in their batch dims, key and value in their heads`);
  if (channels !== keyChannels) ctx.fail(`${shapes}: query and key must have the same channels`);
  if (keys !== valueRows) ctx.fail(`${shapes}: key and value must have the same rows`);
  if (keyHeads === 0 || heads % keyHeads !== 0)
    ctx.fail(`${shapes}: ${heads} query heads are not a multiple of ${keyHeads} key heads`);
  return { batch: q.shape.slice(0, -3), heads, keyHeads, queries, keys, channels, values };
}

/**
 * 2 per multiply-add of q kᵀ and p v; causal calls are counted whole, as PyTorch's flop counter
 * does.
 *
 * @param pairs pairs of a query row and a key row that one head has a score of
 */
export function forwardWork(s: AttentionSizes, pairs = s.queries * s.keys): OpWork {
  const scores = elements(s.batch) * s.heads * pairs;
  return { matrix: 2 * scores * (s.channels + s.values), vector: 5 * scores };
}

/** Five products: q kᵀ again, g vᵀ, pᵀ g, ds k, dsᵀ q. */
export function backwardWork(s: AttentionSizes, pairs = s.queries * s.keys): OpWork {
  const scores = elements(s.batch) * s.heads * pairs;
  return { matrix: 2 * scores * (3 * s.channels + 2 * s.values), vector: 8 * scores };
}

/**
 * Cut of a mask along a dim of the scores [batch.., heads, query rows, key rows]: R where it has no
 * such dim or size 1.
 */
function maskSlot(
  mask: TensorMeta | undefined,
  rank: number,
  dim: number,
  cut: RuleSlot,
): RuleSlot {
  if (mask === undefined) return R;
  const at = dim - (rank - mask.shape.length);
  if (at < 0 || mask.shape[at] === 1) return R;
  return cut?.kind === 'shard' ? { ...cut, dim: at } : R;
}

/** A forward call as its rules need it. */
interface ForwardPlan {
  readonly ctx: TypedContext;
  readonly sizes: AttentionSizes;
  readonly rank: number;
  readonly mask: string | undefined;
  readonly lse: boolean;
  readonly lseUnit: number;
  /** True where values may have another width than queries, which the flash kernels refuse. */
  readonly anyWidth?: boolean;
}

/**
 * Slots of a rule whose results are [out, lse?, rest...]; the rest is replicated (seeds) or absent.
 */
function results(plan: ForwardPlan, out: RuleSlot, lse: RuleSlot): RuleSlot[] {
  return plan.ctx.outputs.map((meta, i) =>
    meta === null ? null : i === 0 ? out : i === 1 ? lse : R,
  );
}

/** A cut of all heads; grouped ones stay together where both kinds are cut evenly. */
export function headCut(dim: number, { heads, keyHeads }: AttentionSizes): RuleSlot {
  return S(dim, heads === keyHeads ? { filled: true } : { even: true, scaled: true });
}

/** A cut of query heads whose key heads are whole: the first one tells which of them are read. */
export function queryHeadCut(dim: number): RuleSlot {
  return S(dim, { slicing: 'contiguous', filled: true });
}

/**
 * The key heads that the query heads of a device read.
 *
 * @param results places of the gradients of key and value
 */
export function keyHeadsTaken(
  ctx: TypedContext,
  { heads, keyHeads }: AttentionSizes,
  dim: number,
  results: readonly number[] = [],
): RuleOptions {
  const of = [
    ...['key', 'value'].map((name) => ctx.indexOf(name)),
    ...results.map((k) => ctx.inputs.length + k),
  ];
  const takes = { of, dim, by: ctx.indexOf('query'), each: heads / keyHeads };
  return { origin: 'ext', rewrite: 'key-heads', takes };
}

/** Rules of a forward: heads, batch, query rows, value channels, pending values. */
export function forwardRules(plan: ForwardPlan): Rule[] {
  const { ctx, sizes, rank } = plan;
  const rules: Rule[] = [];
  const mask = plan.mask === undefined ? undefined : ctx.tensor(plan.mask);
  const masked = (dim: number, cut: RuleSlot): Readonly<Record<string, RuleSlot>> =>
    plan.mask === undefined ? {} : { [plan.mask]: maskSlot(mask, rank, dim, cut) };
  const lse = (slot: RuleSlot): RuleSlot => (plan.lse ? slot : R);
  const random = ctx.number('dropout_p') > 0;
  const together = (dim: number, cut: RuleSlot): Rule =>
    rule(
      slotsByName(ctx, { query: cut, key: cut, value: cut, ...masked(dim, cut) }),
      results(plan, cut, cut),
    );
  if (rank >= 3 && sizes.keyHeads > 1) rules.push(together(rank - 3, headCut(rank - 3, sizes)));
  for (const d of cuttable(sizes.batch)) rules.push(together(d, S(d)));
  // With dropout the same random numbers would be needed on every rank.
  if (random) return rules;
  if (rank >= 3 && sizes.keyHeads < sizes.heads) {
    const cut = queryHeadCut(rank - 3);
    rules.push(
      rule(
        slotsByName(ctx, { query: cut, ...masked(rank - 3, cut) }),
        results(plan, cut, lse(cut)),
        keyHeadsTaken(ctx, sizes, rank - 3),
      ),
    );
  }
  const causal = ctx.bool('is_causal');
  const row = rank - 2;
  if (sizes.queries > 1) {
    const unit = plan.lseUnit;
    // A padded lse is a cut of the query rows only if every block of rows is a multiple of the
    // padding.
    if (unit === 1 || sizes.queries % unit === 0) {
      const slicing = causal ? 'contiguous' : 'same';
      const cut = S(row, { slicing, even: unit > 1, unit });
      rules.push(
        rule(slotsByName(ctx, { query: cut, ...masked(row, cut) }), results(plan, cut, lse(cut)), {
          origin: 'ext',
          ...(causal ? { rewrite: 'offset' } : {}),
        }),
      );
    }
  }
  const last = rank - 1;
  const value = S(last, { slicing: 'any' });
  if (plan.anyWidth === true && sizes.values > 1)
    rules.push(rule(slotsByName(ctx, { value }), results(plan, value, R), { origin: 'ext' }));
  for (const kind of linearKinds(need(ctx, 'value').dtype))
    rules.push(
      rule(slotsByName(ctx, { value: P(kind) }), results(plan, P(kind), R), { origin: 'ext' }),
    );
  return rules;
}

/**
 * Names of the arguments of a fused backward; results are dq, dk, dv and, where there is a mask
 * gradient, d_mask.
 */
export interface BackwardForm {
  readonly name: string;
  readonly schema: string;
  readonly grad: string;
  readonly mask?: string;
  /** True if the fourth result is the gradient of the mask. */
  readonly maskGrad?: boolean;
  readonly lseUnit?: number;
}

/**
 * Rules of a fused backward: heads, batch, rows of queries or of keys, pending gradients and
 * values.
 */
export function backwardRules(ctx: TypedContext, form: BackwardForm): Rule[] {
  const sizes = fusedSizes(ctx);
  const backward = new FusedBackward(ctx, form);
  const rules: Rule[] = [];
  if (sizes.keyHeads > 1) rules.push(backward.cutAll(1, headCut(1, sizes)));
  for (const d of cuttable(sizes.batch)) rules.push(backward.cutAll(d, S(d)));
  if (ctx.number('dropout_p') > 0) return rules;
  if (sizes.keyHeads < sizes.heads) rules.push(backward.cutQueryHeads(queryHeadCut(1), sizes));
  const slicing = ctx.bool('is_causal') ? 'contiguous' : 'same';
  const unit = form.lseUnit ?? 1;
  if (sizes.queries > 1 && (unit === 1 || sizes.queries % unit === 0))
    rules.push(backward.cutQueries(S(2, { slicing, even: unit > 1, unit })));
  if (sizes.keys > 1) rules.push(backward.cutKeys(S(2, { slicing })));
  const kinds: readonly ReduceOp[] = linearKinds(need(ctx, 'value').dtype);
  for (const kind of kinds) rules.push(backward.pendingGradient(P(kind)));
  for (const kind of kinds) rules.push(backward.pendingValue(P(kind)));
  return rules;
}

/** Operands of a fused backward by short names, and the arguments that they are. */
const BACKWARD_OPERANDS = {
  q: 'query',
  k: 'key',
  v: 'value',
  out: 'out',
  lse: 'logsumexp',
} as const;

/** Placements of a rule of a fused backward; operands that are not named are replicated. */
interface BackwardSlots {
  readonly inputs: Partial<Record<keyof typeof BACKWARD_OPERANDS | 'g' | 'mask', RuleSlot>>;
  /** The sharding slots of dq, dk and dv, and of the mask's gradient. */
  readonly grads: readonly [RuleSlot, RuleSlot, RuleSlot, RuleSlot];
}

/** Makes the rules of one fused backward, by what they cut. */
class FusedBackward {
  private readonly mask: TensorMeta | undefined;
  /** Rows of a causal mask start at the offset of their device. */
  private readonly rewrite: { readonly rewrite?: string };

  constructor(
    private readonly ctx: TypedContext,
    private readonly form: BackwardForm,
  ) {
    this.mask = form.mask === undefined ? undefined : ctx.tensor(form.mask);
    this.rewrite = ctx.bool('is_causal') ? { rewrite: 'offset' } : {};
  }

  /** Heads or batch: every operand has the dim. */
  cutAll(dim: number, cut: RuleSlot): Rule {
    const mask = this.maskCut(dim, cut);
    return this.build(
      {
        inputs: { g: cut, q: cut, k: cut, v: cut, out: cut, lse: cut, mask: mask.slot },
        grads: [cut, cut, cut, mask.grad],
      },
      { origin: 'base' },
    );
  }

  /** Query heads alone: each device adds to the gradients of the key heads that it reads. */
  cutQueryHeads(cut: RuleSlot, sizes: AttentionSizes): Rule {
    const mask = this.maskCut(1, cut);
    return this.build(
      {
        inputs: { g: cut, q: cut, out: cut, lse: cut, mask: mask.slot },
        grads: [cut, P(), P(), mask.grad],
      },
      keyHeadsTaken(this.ctx, sizes, 1, [1, 2]),
    );
  }

  cutQueries(cut: RuleSlot): Rule {
    const mask = this.maskCut(2, cut);
    return this.build(
      {
        inputs: { g: cut, q: cut, out: cut, lse: cut, mask: mask.slot },
        grads: [cut, P(), P(), mask.grad],
      },
      { origin: 'ext', ...this.rewrite },
    );
  }

  cutKeys(cut: RuleSlot): Rule {
    const mask = this.maskCut(3, cut);
    return this.build(
      { inputs: { k: cut, v: cut, mask: mask.slot }, grads: [P(), cut, cut, mask.grad] },
      { origin: 'ext', ...this.rewrite },
    );
  }

  pendingGradient(p: RuleSlot): Rule {
    return this.build({ inputs: { g: p }, grads: [p, p, p, p] }, { origin: 'ext' });
  }

  pendingValue(p: RuleSlot): Rule {
    return this.build({ inputs: { v: p, out: p }, grads: [p, p, R, p] }, { origin: 'ext' });
  }

  /**
   * Mask and its gradient when a dim of the scores is cut: a mask without that dim collects a sum.
   */
  private maskCut(
    dim: number,
    cut: RuleSlot,
  ): { readonly slot: RuleSlot; readonly grad: RuleSlot } {
    const slot = maskSlot(this.mask, 4, dim, cut);
    return { slot, grad: slot?.kind === 'shard' ? slot : P() };
  }

  private build({ inputs, grads }: BackwardSlots, options: Parameters<typeof rule>[2]): Rule {
    const { ctx, form } = this;
    const { mask = R, g = R } = inputs;
    const named: Record<string, RuleSlot> = { [form.grad]: g };
    for (const key of ['q', 'k', 'v', 'out', 'lse'] as const)
      named[BACKWARD_OPERANDS[key]] = inputs[key] ?? R;
    if (form.mask !== undefined) named[form.mask] = mask;
    return rule(
      slotsByName(ctx, named),
      ctx.outputs.map((meta, i) => (meta === null ? null : grads[i])),
      options,
    );
  }
}
