/** One unit of a model in a training step, with its seconds and bytes on a device. */

import type { StateMoves } from './overlap.ts';

/**
 * One unit of the whole model under a layout, a checkpointing policy and a way to gather;
 * `StateMoves` are not in its seconds.
 */
export interface Unit extends StateMoves {
  readonly forward: number;
  readonly input: number;
  readonly weight: number;
  /** Seconds of all passes. */
  readonly compute: number;
  /** Exchanges of tokens with experts, of all passes. */
  readonly exchange: number;
  /**
   * For a paired schedule, the savings of the passes where they overlap with another microbatch;
   * their seconds are without it.
   */
  readonly pairedForward: number;
  readonly pairedBackward: number;
  readonly parameterBytes: number;
  readonly gradientBytes: number;
  readonly optimizerBytes: number;
  /** Bytes kept from the forward to the backward pass of a microbatch. */
  readonly keptBytes: number;
  readonly temporaryBytes: number;
  /** Bytes of its gathered parameters, while a neighbour is at work. */
  readonly prefetchedBytes: number;
  /** Seconds of the optimizer's update. */
  readonly update: number;
  readonly boundaryBytes: number;
  /** Seconds to hand the result to the next stage. */
  readonly boundary: number;
}

/** Bytes of parameters, gradients and optimizer state of a unit. */
export function stateBytes(u: Unit): number {
  return u.parameterBytes + u.gradientBytes + u.optimizerBytes;
}
