/**
 * What the step of one plan takes at least, before it is simulated. In: the prices of a problem by stream, a choice. Out:
 * seconds that no order of collectives, no prefetch and no buckets go below.
 */

import { everyStretch, Packing } from '../../plan/overlap/packing.ts';
import type { StreamCosts } from '../../plan/overlap/stream-costs.ts';
import { bestMixture } from '../../solver/dual/best-mixture.ts';

/** Seconds are sums of doubles in two orders: no plan is dropped for a difference as small as this share. */
const ROUNDING = 1e-9;

/** Lower bounds on the simulated steps of choices of one problem. */
export class LeastSeconds {
  private readonly stretches: ReturnType<typeof everyStretch>;
  private readonly none: Packing;

  /** @param costs with the launches and buckets of the simulation, or larger buckets */
  constructor(private readonly costs: StreamCosts) {
    this.stretches = everyStretch(costs.places, costs.streams);
    this.none = new Packing(costs.places, this.stretches, this.stretches.map(() => 0)); // prettier-ignore
  }

  /**
   * The step contains all kernels and all moves that a kernel waits for, and each stretch of it the moves of a stream that can
   * run nowhere else: the mixture of both that is worth most (`Packing`).
   */
  of(choice: Int32Array): number {
    const cut = this.costs.cut(choice, this.none);
    return bestMixture([cut], this.stretches, this.costs.places).value * (1 - ROUNDING);
  }
}
