/**
 * Random numbers. StableHLO's generators return one stream for the whole result, whose parts are
 * not the streams of the shards: they run replicated.
 */

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

export const randomOps: readonly OperatorRecord[] = [rng, rngBitGenerator];
