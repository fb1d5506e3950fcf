/**
 * `torch.einsum` as it is called: letters for the dims of any number of operands. Rules follow from
 * the letters alone.
 */

import { flat, fromFlat, sizeOf } from '../../../ndarray/array.ts';
import { sumResult } from '../../record/dtypes.ts';
import { type KernelCall, one, tensors } from '../../record/kernel.ts';
import { defineOp, type OperatorRecord } from '../../record/record.ts';
import { einsumFlops, einsumRules } from '../../rules/einsum.ts';
import { letters } from '../../rules/einsum-letters.ts';

function contract(call: KernelCall) {
  const { operands, output, sizes } = letters(call.ctx);
  const own = tensors(call, 'tensors').flatMap((x) => x ?? []);
  const order = [...output, ...[...sizes.keys()].filter((l) => !output.includes(l))];
  const counts = order.map((l) => sizes.get(l) ?? 1);
  const data = own.map(flat);
  /** Step of each letter in each operand; letters that it repeats step along its diagonal. */
  const steps = operands.map((names, i) =>
    order.map((l) =>
      [...names].reduce(
        (sum, name, d) => sum + (name === l ? sizeOf(own[i].shape.slice(d + 1)) : 0),
        0,
      ),
    ),
  );
  const shape = counts.slice(0, output.length);
  const out = new Float64Array(sizeOf(shape));
  const summed = sizeOf(counts.slice(output.length));
  const at = new Int32Array(order.length);
  for (let o = 0; o < out.length; o++)
    for (let k = 0; k < summed; k++) {
      let product = 1;
      for (const [i, own] of steps.entries()) {
        let place = 0;
        for (let l = 0; l < at.length; l++) place += own[l] * at[l];
        product *= data[i][place];
      }
      out[o] += product;
      for (let l = at.length - 1; l >= 0; l--) {
        if (++at[l] < counts[l]) break;
        at[l] = 0;
      }
    }
  return fromFlat(shape, out, own[0]?.dtype);
}

export const einsumOps: readonly OperatorRecord[] = [
  defineOp('aten.einsum.default', {
    schema: 'str equation, Tensor[] tensors, *, int[]? path=None',
    cls: 'matmul',
    infer: (ctx) => {
      const { output, sizes } = letters(ctx);
      const [{ dtype: own }] = ctx.inputs;
      // A sum over one operand counts in whole numbers, as `sum` does.
      const dtype = ctx.inputs.length === 1 && output.length < sizes.size ? sumResult(own) : own;
      return [{ dtype, shape: [...output].map((l) => sizes.get(l) ?? 1) }];
    },
    shard: (ctx) => einsumRules(letters(ctx).equation),
    flops: (ctx) => ({
      matrix: einsumFlops(letters(ctx).equation, ...ctx.inputs.map((x) => x.shape)),
      vector: 0,
    }),
    kernel: one(contract),
  }),
];

export const einsumSamples: readonly string[] = [
  "einsum('ij,jk->ik', [x[6,5], x[5,7]])",
  "einsum('bij,bjk', [x[5,6,4], x[5,4,6]])",
  "einsum('ij,jk,k->i', [x[6,5], x[5,6], x[6]])",
  "einsum('iij->j', [x[3,3,6]])",
];
