/**
 * Fused attention: one backward operator gives the gradients of query, key and value (and of a
 * mask, where the form has it).
 */

import type { Arg, ValueRef } from '../../../graph/types.ts';
import { literal } from '../build.ts';
import { type Gradients, named, together, type VjpCall, type Vjps } from '../vjp.ts';

const QKV = ['query', 'key', 'value'];

/** Keyword arguments of the backward call, left out where the forward call leaves them out. */
function settings(c: VjpCall, names: readonly string[]): Record<string, Arg> {
  const out: Record<string, Arg> = {};
  for (const name of names) {
    const arg = c.arg(name);
    if (arg !== undefined && arg !== null) out[name] = arg;
  }
  return out;
}

function backward(
  c: VjpCall,
  target: string,
  names: readonly string[],
  args: () => readonly Arg[],
  kwargs: readonly string[],
): Gradients {
  const tensors = (): ValueRef[] => [c.g(), ...QKV.map((name) => c.x(name))];
  return together(c.b, names, () =>
    c.b.call(target, [...tensors(), ...args()], settings(c, kwargs)),
  );
}

const dropout = (c: VjpCall): Arg => literal(c.ctx.number('dropout_p'));
const causal = (c: VjpCall): Arg => c.ctx.bool('is_causal');

export const attentionVjps: Vjps = {
  ...named('_scaled_dot_product_flash_attention_for_cpu.default', (c) =>
    backward(
      c,
      'aten._scaled_dot_product_flash_attention_for_cpu_backward.default',
      QKV,
      () => [c.y(0), c.y(1), dropout(c), causal(c)],
      ['attn_mask', 'scale'],
    ),
  ),
  // Results 2 to 7: cumulative lengths, longest rows, random state.
  ...named('_scaled_dot_product_flash_attention.default', (c) =>
    backward(
      c,
      'aten._scaled_dot_product_flash_attention_backward.default',
      QKV,
      () => [
        c.y(0),
        c.y(1),
        null,
        null,
        rows(c, 'query'),
        rows(c, 'key'),
        dropout(c),
        causal(c),
        c.y(6),
        c.y(7),
      ],
      ['scale'],
    ),
  ),
  ...named('_scaled_dot_product_cudnn_attention.default', (c) =>
    backward(
      c,
      'aten._scaled_dot_product_cudnn_attention_backward.default',
      QKV,
      () => [
        c.y(0),
        c.y(1),
        c.y(6),
        c.y(7),
        c.optional('attn_bias'),
        null,
        null,
        rows(c, 'query'),
        rows(c, 'key'),
        dropout(c),
        causal(c),
      ],
      ['scale'],
    ),
  ),
  ...named('_scaled_dot_product_efficient_attention.default', (c) => {
    const names = [...QKV, 'attn_bias'];
    const wanted = (): Arg => names.map((name) => c.optional(name) !== null && c.wants(name));
    return backward(
      c,
      'aten._scaled_dot_product_efficient_attention_backward.default',
      names,
      () => [
        c.optional('attn_bias'),
        c.y(0),
        c.y(1),
        c.y(2),
        c.y(3),
        dropout(c),
        wanted(),
        causal(c),
      ],
      ['scale'],
    );
  }),
  'torch_attn._varlen_attn.default': (c) => {
    const starts = c.x('cu_seq_q');
    return together(c.b, QKV, () =>
      c.b.call('torch_attn._varlen_attn_backward.default', [
        ...[c.g(), ...QKV.map((name) => c.x(name)), c.y(0), c.y(1)],
        ...[starts, c.optional('cu_seq_k') ?? starts, c.ctx.int('max_q'), c.ctx.int('max_k')],
        ...[causal(c), c.y(2), c.arg('scale') ?? null, c.arg('window_size') ?? null],
      ]),
    );
  },
};

/** Rows of a query or key. */
function rows(c: VjpCall, name: string): number {
  return c.shape(name)[2];
}
