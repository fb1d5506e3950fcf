/**
 * Writes the derivative of `scan` and `map`: a forward loop that stacks what the backward loop
 * reads.
 */

import type { Node, ValueRef } from '../../../graph/types.ts';
import type { Contribution } from './body-gradients.ts';
import { ScanBackward } from './scan-backward.ts';
import { type ScanGradient, ScanSplit } from './scan-split.ts';

/** A scan or map that is to be differentiated. */
export interface ScanPlan {
  /** The call with the saved values as further results. */
  readonly forward: Node;
  /** Writes the backward loop. */
  backward(gradients: readonly (ValueRef | undefined)[]): Contribution[];
}

/**
 * The forward call of a loop, and what the backward loop will read. Undefined where no result
 * depends on what is wanted.
 */
export function planScan(site: ScanGradient): ScanPlan | undefined {
  const { form, wanted, wrt, differentiate } = site;
  const count = form.init.length;
  const from = form.step.outputs.flatMap((_, i) => (i < count || wanted.has(i) ? [i] : []));
  const joint = differentiate(form.step, wrt, from);
  if (!joint.nodes.some((node) => node.meta.role === 'tangent')) return undefined;
  const split = new ScanSplit(site, joint);
  const { forward, backward } = split.forward();
  return {
    forward,
    backward: (gradients) => new ScanBackward(split, forward, backward).write(gradients),
  };
}
