/** Functions of the last dims, which stay whole; every dim before them is a batch. */

import { product } from '../../product.ts';
import { defineOp, elements, type OperatorRecord } from '../record/record.ts';
import { P, rule } from '../record/rule.ts';
import { anyS, cuttable, linearKinds, need } from '../rules/dims.ts';

/** Over the last dims; linear, and independent over the others. */
const fft = defineOp('stablehlo.fft', {
  schema: 'Tensor operand, *, str fft_type, int[] fft_length',
  cls: 'other',
  infer: (ctx) => {
    const { dtype, shape } = need(ctx, 'operand');
    const length = ctx.ints('fft_length');
    const lead = shape.slice(0, shape.length - length.length);
    const last = length.at(-1) ?? 1;
    switch (ctx.text('fft_type')) {
      case 'RFFT':
        return [
          {
            dtype: dtype === 'f64' ? 'c128' : 'c64',
            shape: [...lead, ...length.slice(0, -1), Math.floor(last / 2) + 1],
          },
        ];
      case 'IRFFT':
        return [{ dtype: dtype === 'c128' ? 'f64' : 'f32', shape: [...lead, ...length] }];
      default:
        return [{ dtype, shape }];
    }
  },
  shard: (ctx) => {
    const { dtype, shape } = need(ctx, 'operand');
    const lead = shape.length - ctx.ints('fft_length').length;
    return [
      ...cuttable(shape.slice(0, Math.max(0, lead))).map((d) => rule([anyS(d)], [anyS(d)])),
      ...linearKinds(dtype).map((kind) => rule([P(kind)], [P(kind)])),
    ];
  },
  flops: (ctx) => {
    const n = product(ctx.ints('fft_length'));
    return {
      matrix: 0,
      vector: 5 * elements(need(ctx, 'operand').shape) * Math.max(1, Math.log2(Math.max(1, n))),
    };
  },
});

const cholesky = defineOp('stablehlo.cholesky', {
  schema: 'Tensor a, *, bool lower=False',
  cls: 'other',
  infer: (ctx) => [ctx.inputs[0]],
  shard: (ctx) => cuttable(ctx.inputs[0].shape.slice(0, -2)).map((d) => rule([anyS(d)], [anyS(d)])),
  flops: (ctx) => ({
    matrix: 0,
    vector: (elements(ctx.inputs[0].shape) * (ctx.inputs[0].shape.at(-1) ?? 1)) / 3,
  }),
});

export const linalgOps: readonly OperatorRecord[] = [fft, cholesky];
