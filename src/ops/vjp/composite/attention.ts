/** Decomposes attention as PyTorch runs it on a CPU, in a form that has a derivative. */

import type { Arg, ValueRef } from '../../../graph/types.ts';
import { type CallBuilder, literal } from '../build.ts';
import type { VjpCall } from '../vjp.ts';
import { matmulOf } from './product.ts';

/**
 * Attention as PyTorch runs it on a CPU: the fused kernel where it applies (four dims, equal
 * channels, no dropout, a mask that is not differentiated), else products and a softmax.
 */
export function attention(c: VjpCall): ValueRef {
  const { b } = c;
  const query = c.x('query');
  const [key, value] = sharedHeads(c);
  const channels = b.shape(query).at(-1) ?? 1;
  const scale = c.ctx.optionalNumber('scale') ?? 1 / Math.sqrt(channels);
  const mask = additive(c);
  const fused =
    b.rank(query) === 4 &&
    b.shape(value).at(-1) === channels &&
    c.ctx.number('dropout_p') === 0 &&
    !c.wants('attn_mask');
  if (!fused) return composed(c, query, key, value, mask, scale);
  const kwargs: Record<string, Arg> = {
    ...(mask === null ? {} : { attn_mask: mask }),
    ...(c.ctx.has('scale') ? { scale: literal(scale) } : {}),
  };
  const target = 'aten._scaled_dot_product_flash_attention_for_cpu.default';
  return b.item(
    b.call(target, [query, key, value, literal(0), c.ctx.bool('is_causal')], kwargs),
    0,
  );
}

/**
 * The same call with the row sums that its derivative needs, which an inference call leaves out.
 */
export function withRowSums(c: VjpCall): ValueRef {
  const args = ['query', 'key', 'value', 'attn_bias'].map((name) => c.optional(name));
  const numbers = [true, literal(c.ctx.number('dropout_p')), c.ctx.bool('is_causal')];
  return c.b.call(c.node.target, [...args, ...numbers], c.node.kwargs);
}

/**
 * Key and value with as many heads as the query: each is repeated for the queries that share it.
 */
function sharedHeads(c: VjpCall): readonly [ValueRef, ValueRef] {
  const { b } = c;
  const heads = b.shape(c.x('query')).at(-3);
  const repeated = (x: ValueRef): ValueRef => {
    const shape = b.shape(x);
    const own = shape.at(-3);
    if (heads === undefined || own === undefined || own === heads) return x;
    const times = heads / own;
    const lead = shape.slice(0, -3);
    const spread = b.expand(b.unsqueeze(x, -3), [...lead, own, times, ...shape.slice(-2)]);
    return b.call('aten._unsafe_view.default', [
      b.rowMajor(spread),
      [...lead, heads, ...shape.slice(-2)],
    ]);
  };
  return [repeated(c.x('key')), repeated(c.x('value'))];
}

/**
 * The mask as numbers to add: a mask of truth values is 0 where it holds and minus infinity
 * elsewhere.
 */
function additive(c: VjpCall): ValueRef | null {
  const mask = c.optional('attn_mask');
  if (mask === null || c.b.dtype(mask) !== 'b8') return mask;
  const dtype = c.b.dtype(c.x('query'));
  const number = (value: number): ValueRef =>
    c.b.call('aten.scalar_tensor.default', [literal(value)], { dtype: { kind: 'dtype', dtype } });
  return c.b.where(mask, number(0), number(-Infinity));
}

/**
 * Scores, softmax, weighted values; queries and keys are scaled by the root of the scale each,
 * which loses fewest digits.
 */
function composed(
  c: VjpCall,
  query: ValueRef,
  key: ValueRef,
  value: ValueRef,
  mask: ValueRef | null,
  scale: number,
): ValueRef {
  const { b } = c;
  const root = Math.sqrt(scale);
  const scores = matmulOf(b, b.mul(query, root), b.mul(b.transpose(key, -2, -1), root));
  const masked = c.ctx.bool('is_causal') ? b.add(scores, causalMask(b, query, key)) : scores;
  const weights = b.call('aten._safe_softmax.default', [
    mask === null ? masked : b.add(masked, mask),
    -1,
  ]);
  return matmulOf(b, dropped(c, weights), value);
}

/** Minus infinity above the diagonal. */
function causalMask(b: CallBuilder, query: ValueRef, key: ValueRef): ValueRef {
  const size = [b.shape(query).at(-2) ?? 1, b.shape(key).at(-2) ?? 1];
  return b.call('aten.triu.default', [b.full(size, -Infinity, b.dtype(query)), 1]);
}

function dropped(c: VjpCall, weights: ValueRef): ValueRef {
  const p = c.ctx.number('dropout_p');
  if (p === 0) return weights;
  return c.b.item(c.b.call('aten.native_dropout.default', [weights, literal(p), true]), 0);
}
