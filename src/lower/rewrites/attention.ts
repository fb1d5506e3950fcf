/** Rewrites causal attention with cut rows to a call with an explicit mask. */
import { ref } from '../../graph/value.ts';
import type { Rewrite, Rewrites } from '../local-call.ts';

/**
 * Causal attention with query or key rows cut: which keys a query sees follows from its place in
 * the whole, so the causal flag becomes a mask that is made from the rank's first rows. Forms
 * without a mask argument have no such form.
 */
const causal =
  (mask: string): Rewrite =>
  (call) => {
    const { emit, global } = call;
    if (call.optional(mask) !== undefined)
      return call.unsupported('it has a mask and a causal flag');
    const query = global.inputs[global.indexOf('query')];
    const row = query.shape.length - 2;
    const [queries, keys] = [call.inputPiece('query', row), call.inputPiece('key', row)];
    const numbers = (from: typeof queries): string =>
      emit.call('prims.iota.default', [emit.int(from.rows)], {
        kwargs: {
          start: emit.int(from.start),
          step: 1,
          dtype: { kind: 'dtype', dtype: 'i64' },
          device: { kind: 'device', word: 'cpu' },
          requires_grad: false,
        },
      });
    const own = emit.call('aten.unsqueeze.default', [ref(numbers(queries)), 1]);
    const future = emit.call('aten.lt.Tensor', [ref(own), ref(numbers(keys))]);
    const open = emit.call(
      'aten.full.default',
      [emit.ints([queries.rows, keys.rows]), { kind: 'float', value: 0 }],
      {
        kwargs: { dtype: { kind: 'dtype', dtype: query.dtype } },
      },
    );
    const made = emit.call('aten.masked_fill.Scalar', [
      ref(open),
      ref(future),
      { kind: 'float', value: -Infinity },
    ]);
    return call.run({ is_causal: false, [mask]: ref(made) });
  };

const FLASH = 'aten._scaled_dot_product_flash_attention_for_cpu';
const EFFICIENT = 'aten._scaled_dot_product_efficient_attention';
const CUDNN = 'aten._scaled_dot_product_cudnn_attention';

export const attentionRewrites: Rewrites = {
  'aten.scaled_dot_product_attention.default': causal('attn_mask'),
  [`${FLASH}.default`]: causal('attn_mask'),
  [`${FLASH}_backward.default`]: causal('attn_mask'),
  [`${EFFICIENT}.default`]: causal('attn_bias'),
  [`${EFFICIENT}_backward.default`]: causal('attn_bias'),
  [`${CUDNN}.default`]: causal('attn_bias'),
  [`${CUDNN}_backward.default`]: causal('attn_bias'),
};
