/**
 * Takes a redistribution of data and gives the transposed redistribution of its gradient: from the
 * sharding of the target's gradient to the sharding that the source's gradient must have. Pieces
 * have gradients in the same pieces; an addend of a pending sum has the gradient of the sum, which
 * all ranks hold. Equal data is either invariant, one value with one gradient, or reduced, a value
 * that every rank uses for itself, so that the gradients are addends of a pending sum.
 */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import type { DeviceMesh } from '../devices/mesh.ts';
import { Partial } from '../placements/partials/partial.ts';
import type { Placement } from '../placements/placement.ts';
import { REPLICATE } from '../placements/replicate.ts';
import { isPending, Sharding } from './sharding.ts';

/** Options on the gradients of equal data: where they are pending. */
export interface GradientOptions {
  /**
   * Mesh dims on which the source's equal data is reduced; the others are invariant, as in DTensor.
   */
  readonly reducedSource?: readonly number[];
  /** Mesh dims on which the target's equal data is reduced. */
  readonly reducedTarget?: readonly number[];
}

/** The redistribution of a gradient. */
export interface GradientChange {
  /** The sharding that the gradient of the target has. */
  readonly from: Sharding;
  /** The sharding that the gradient of the source must have. */
  readonly to: Sharding;
  /**
   * The gradient is to be divided by this: the size of the mesh dims that the source is averaged
   * over.
   */
  readonly divisor: number;
}

/**
 * The change of the gradient that belongs to a change of the data. Plan it with `viaReplicate:
 * true`: where the source is reduced, its gradient is pending again, and asked for explicitly.
 *
 * On one mesh dim: S to R is a slice (invariant) or a reduce_scatter (reduced); R to S an
 * all_gather; P to R nothing (invariant) or an all_reduce (reduced); P to S an all_gather.
 *
 * @throws E_PLACEMENT for pending reductions that are not linear: their gradient needs the values
 */
export function gradientChange(
  mesh: DeviceMesh,
  source: Sharding,
  target: Sharding,
  options: GradientOptions = {},
): GradientChange {
  checkKinds('gradientChange', {
    mesh: [mesh, 'mesh'],
    source: [source, 'sharding'],
    target: [target, 'sharding'],
    options: [options, 'record', 'undefined'],
  });
  let divisor = 1;
  source.placements.forEach((p, m) => {
    if (p instanceof Partial && p.op === 'avg' && !target.placements[m].equals(p))
      divisor *= mesh.sizes[m];
  });
  return {
    from: gradientOf(target, options.reducedTarget),
    to: gradientOf(source, options.reducedSource),
    divisor,
  };
}

/**
 * Sharding of the gradient of a tensor.
 *
 * @param reduced mesh dims on which equal data is reduced: their gradient is pending
 * @throws E_PLACEMENT for pending reductions other than sum and avg
 */
function gradientOf(sharding: Sharding, reduced: readonly number[] = []): Sharding {
  const placements = sharding.placements.map((p, m): Placement => {
    if (p.dim !== undefined) return p;
    if (!isPending(p)) return reduced.includes(m) ? Partial.of('sum') : p;
    if (p instanceof Partial && p.linear) return REPLICATE;
    throw new ShardwrightError(
      'E_PLACEMENT',
      `the gradient of ${p.text} on mesh dim ${m} needs the values: the reduction is not linear`,
      { hint: `reduce ${p.text} to R by an operator that has a gradient of its own` },
    );
  });
  return new Sharding(placements, sharding.orders);
}
