/** Gives the derivative of an operator by its canonical name. */

import { internalError } from '../../errors.ts';
import { binaryVjps } from './elementwise/binary.ts';
import { castVjps } from './elementwise/cast.ts';
import { unaryVjps } from './elementwise/unary.ts';
import { indexingVjps } from './movement/indexing.ts';
import { randomVjps } from './movement/random.ts';
import { resizingVjps } from './movement/resizing.ts';
import { slicingVjps } from './movement/slicing.ts';
import { viewVjps } from './movement/views.ts';
import { attentionVjps } from './products/attention.ts';
import { convolutionVjps } from './products/convolution.ts';
import { linalgVjps } from './products/linalg.ts';
import { productVjps } from './products/products.ts';
import { lossVjps } from './reductions/loss.ts';
import { normVjps } from './reductions/norm.ts';
import { poolVjps } from './reductions/pool.ts';
import { reduceVjps } from './reductions/reduce.ts';
import { softmaxVjps } from './reductions/softmax.ts';
import { spmdVjps } from './spmd.ts';
import type { VjpEntry, Vjps } from './vjp.ts';

const FAMILIES: readonly Vjps[] = [
  productVjps,
  linalgVjps,
  unaryVjps,
  binaryVjps,
  castVjps,
  reduceVjps,
  softmaxVjps,
  lossVjps,
  normVjps,
  convolutionVjps,
  poolVjps,
  attentionVjps,
  indexingVjps,
  viewVjps,
  slicingVjps,
  resizingVjps,
  randomVjps,
  spmdVjps,
];

/** All derivatives, by the canonical name of their operator with overload (`aten.mm.default`). */
export const VJPS = new Map<string, VjpEntry>();
for (const family of FAMILIES)
  for (const [name, entry] of Object.entries(family)) {
    if (VJPS.has(name)) throw internalError(`two derivatives of ${name}`);
    VJPS.set(name, typeof entry === 'function' ? { vjp: entry } : entry);
  }

/** The derivative of an operator, by its canonical name with overload (`aten.mm.default`). */
export function vjpOf(name: string): VjpEntry | undefined {
  return VJPS.get(name);
}

/**
 * Operators whose results do not depend smoothly on any operand: integers and truth values, steps,
 * new values, random numbers. No gradient passes, as if the result were constant. `detach` says so
 * by purpose.
 */
const CUT: ReadonlySet<string> = new Set(
  [
    'detach.default detach_copy.default',
    'ceil.default floor.default round.default trunc.default sign.default sgn.default ' +
      'heaviside.default floor_divide.default floor_divide.Scalar',
    'zeros_like.default ones_like.default empty_like.default full_like.default fill.Scalar',
    'new_zeros.default new_ones.default new_empty.default new_empty_strided.default ' +
      'new_full.default',
    'bernoulli.default bernoulli.p rand_like.default randn_like.default histc.default',
    'uniform.default exponential.default geometric.default cauchy.default log_normal.default ' +
      'normal_functional.default round.decimals nextafter.default',
    'poisson.default normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor',
  ].flatMap((line) => line.split(' ').map((name) => `aten.${name}`)),
);

/** Tells whether an operator passes no gradient although operand and result are real numbers. */
export function cutsGradient(name: string): boolean {
  return CUT.has(name);
}
