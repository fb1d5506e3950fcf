/**
 * Sizes, work and rules of scaled dot product attention, out = softmax(scale q kᵀ + mask) v with
 * tensors [batch, heads, rows, channels]. With the row sums of exponentials (`logsumexp`, lse)
 * known, the backward is a sum over query rows, key rows and value channels, which is where its
 * rules come from:
 *
 *   p = exp(scale q kᵀ + mask - lse) dv = pᵀ g ds = p (g vᵀ - rowsum(g out)) dq = scale ds k dk =
 *   scale dsᵀ q
 *
 * Heads are cut in whole heads of both queries and keys; grouped heads (8 query heads on 2 key
 * heads) stay together because both are cut evenly. Rules with collectives of their own (ring
 * attention: query and key rows cut together) are not offered yet; they belong after the query-row
 * rule.
 */

import type { ReduceOp } from '../../../mesh/placements/placement.ts';
import {
  elements,
  type OpContext,
  type OpWork,
  type TensorMeta,
  type TypedContext,
} from '../../record/record.ts';
import { P, R, type Rule, rule, type RuleSlot, S } from '../../record/rule.ts';
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

function scores(s: AttentionSizes): number {
  return elements(s.batch) * s.heads * s.queries * s.keys;
}

/**
 * 2 per multiply-add of q kᵀ and p v; causal calls are counted whole, as PyTorch's flop counter
 * does.
 */
export function forwardWork(s: AttentionSizes): OpWork {
  return { matrix: 2 * scores(s) * (s.channels + s.values), vector: 5 * scores(s) };
}

/** Five products: q kᵀ again, g vᵀ, pᵀ g, ds k, dsᵀ q. */
export function backwardWork(s: AttentionSizes): OpWork {
  return { matrix: 2 * scores(s) * (3 * s.channels + 2 * s.values), vector: 8 * scores(s) };
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
}

/**
 * Slots of a rule whose results are [out, lse?, rest...]; the rest is replicated (seeds) or absent.
 */
function results(plan: ForwardPlan, out: RuleSlot, lse: RuleSlot): RuleSlot[] {
  return plan.ctx.outputs.map((meta, i) =>
    meta === null ? null : i === 0 ? out : i === 1 ? lse : R,
  );
}

function headCut(dim: number): RuleSlot {
  return S(dim, { even: true, scaled: true });
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
  if (rank >= 3 && sizes.heads > 1) rules.push(together(rank - 3, headCut(rank - 3)));
  for (const d of cuttable(sizes.batch)) rules.push(together(d, S(d)));
  // With dropout the same random numbers would be needed on every rank.
  if (random) return rules;
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
  if (sizes.values > 1)
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
 * Rules of a fused backward: heads, batch, rows of queries or of keys, value channels, pending
 * gradients and values.
 */
export function backwardRules(ctx: TypedContext, form: BackwardForm): Rule[] {
  const sizes = fusedSizes(ctx);
  const rank = 4;
  const mask = form.mask === undefined ? undefined : ctx.tensor(form.mask);
  const names = {
    g: form.grad,
    q: 'query',
    k: 'key',
    v: 'value',
    out: 'out',
    lse: 'logsumexp',
  } as const;
  type Slots = Partial<Record<keyof typeof names, RuleSlot>>;
  const build = (
    slots: Slots,
    grads: readonly [RuleSlot, RuleSlot, RuleSlot],
    maskGrad: RuleSlot,
    options: { origin?: 'base' | 'ext'; rewrite?: string; maskIn?: RuleSlot } = {},
  ): Rule => {
    const named: Record<string, RuleSlot> = {};
    for (const key of ['g', 'q', 'k', 'v', 'out', 'lse'] as const)
      named[names[key]] = slots[key] ?? R;
    if (form.mask !== undefined) named[form.mask] = options.maskIn ?? R;
    const { origin = 'base', rewrite } = options;
    const outputs = [...grads, maskGrad];
    return rule(
      slotsByName(ctx, named),
      ctx.outputs.map((meta, i) => (meta === null ? null : outputs[i])),
      rewrite === undefined ? { origin } : { origin, rewrite },
    );
  };
  /**
   * Mask and its gradient when dim `dim` of the scores is cut: a mask without that dim collects a
   * sum.
   */
  const maskCut = (dim: number, cut: RuleSlot): [RuleSlot, RuleSlot] => {
    const slot = maskSlot(mask, rank, dim, cut);
    return [slot, slot?.kind === 'shard' ? slot : P()];
  };
  const rules: Rule[] = [];
  const together = (dim: number, cut: RuleSlot): void => {
    const [maskIn, maskGrad] = maskCut(dim, cut);
    rules.push(
      build({ g: cut, q: cut, k: cut, v: cut, out: cut, lse: cut }, [cut, cut, cut], maskGrad, {
        maskIn,
      }),
    );
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
    rules.push(
      build({ k: cut, v: cut }, [P(), cut, cut], maskGrad, { origin: 'ext', maskIn, ...offset }),
    );
  }
  if (sizes.values > 1) {
    const cut = S(3);
    rules.push(build({ g: cut, v: cut, out: cut }, [P(), P(), cut], P(), { origin: 'ext' }));
  }
  const kinds: readonly ReduceOp[] = linearKinds(need(ctx, 'value').dtype);
  for (const kind of kinds)
    rules.push(build({ g: P(kind) }, [P(kind), P(kind), P(kind)], P(kind), { origin: 'ext' }));
  for (const kind of kinds) {
    const p = P(kind);
    rules.push(build({ v: p, out: p }, [p, p, R], p, { origin: 'ext' }));
  }
  return rules;
}
