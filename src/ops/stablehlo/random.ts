/**
 * Random numbers. StableHLO's generators return one stream for the whole result, whose parts are
 * not the streams of the shards: they run replicated, and so do JAX's draws from keys, which are
 * words in the last dim.
 */

import type { DType } from '../../graph/types.ts';
import { defineOp, elements, type OperatorRecord } from '../record/record.ts';

const rng = defineOp('stablehlo.rng', {
  schema: 'Tensor a, Tensor b, *, int[] shape, str rng_distribution, ScalarType? dtype=None',
  cls: 'random',
  infer: (ctx) => [{ dtype: ctx.dtype('dtype') ?? ctx.inputs[0].dtype, shape: ctx.ints('shape') }],
  flops: (ctx) => ({ matrix: 0, vector: 8 * elements(ctx.ints('shape')) }),
});

const rngBitGenerator = defineOp('stablehlo.rng_bit_generator', {
  schema: 'Tensor initial_state, *, str rng_algorithm, ScalarType dtype, int[] shape',
  cls: 'random',
  results: 'tuple',
  infer: (ctx) => [ctx.inputs[0], { dtype: ctx.dtype('dtype') ?? 'u32', shape: ctx.ints('shape') }],
  flops: (ctx) => ({ matrix: 0, vector: 8 * elements(ctx.ints('shape')) }),
});

const BITS: Readonly<Record<number, DType>> = { 8: 'u8', 16: 'u16', 32: 'u32', 64: 'u64' };

/** Bits of each key of an array of keys. */
const randomBits = defineOp('jax.random_bits', {
  schema: 'Tensor keys, *, str impl, int bit_width, int[] shape',
  cls: 'random',
  infer: (ctx) => [
    {
      dtype: BITS[ctx.int('bit_width')] ?? ctx.fail('draws 8, 16, 32 or 64 bits'),
      shape: [...ctx.inputs[0].shape.slice(0, -1), ...ctx.ints('shape')],
    },
  ],
  flops: (ctx) => ({ matrix: 0, vector: 8 * elements(ctx.outputs[0]?.shape ?? []) }),
});

/** Keys of each key of an array of keys. */
const randomSplit = defineOp('jax.random_split', {
  schema: 'Tensor keys, *, str impl, int[] shape',
  cls: 'random',
  infer: (ctx) => {
    const { dtype, shape } = ctx.inputs[0];
    return [{ dtype, shape: [...shape.slice(0, -1), ...ctx.ints('shape'), ...shape.slice(-1)] }];
  },
  flops: (ctx) => ({ matrix: 0, vector: 8 * elements(ctx.outputs[0]?.shape ?? []) }),
});

/** The key of a number, for each key of an array of keys. */
const randomFoldIn = defineOp('jax.random_fold_in', {
  schema: 'Tensor keys, Tensor msgs, *, str impl',
  cls: 'random',
  infer: (ctx) => [ctx.inputs[0]],
  flops: (ctx) => ({ matrix: 0, vector: 8 * elements(ctx.inputs[0].shape) }),
});

export const randomOps: readonly OperatorRecord[] = [
  rng,
  rngBitGenerator,
  randomBits,
  randomSplit,
  randomFoldIn,
];
