/** A part of a model as every device runs it: each value has a type per mesh dim. */
import { input, parameter, type Tensor } from 'shardwright';
import { assertType, contract, convert, outPartial } from 'shardwright/local-spmd';

/** The mesh that the types speak of. */
export const options = { mesh: 'dp=2,tp=2' };

export const inputs = {
  x: input([8, 16], 'f64'),
  w1: parameter([16, 32], 'f64'),
  w2: parameter([32, 16], 'f64'),
};

/** A cast that costs nothing, and whose gradient is an all_reduce. */
const used = (x: Tensor, axis: string): Tensor => convert(x, axis, { src: 'I', dst: 'R' });

export function model({ x, w1, w2 }: Record<keyof typeof inputs, Tensor>): Tensor {
  const xs = used(assertType(x, 'P("dp", None)'), 'tp');
  const weight = (w: Tensor, spec: string): Tensor => used(assertType(w, spec), 'dp');
  const h = contract('bh,hi->bi', xs, weight(w1, 'P(None, "tp")')).relu();
  return outPartial(contract('bi,ih->bh', h, weight(w2, 'P("tp", None)')), 'tp');
}
