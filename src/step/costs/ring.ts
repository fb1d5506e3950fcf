/** Prices ring attention (arXiv:2310.01889): the seconds of sends that attention does not hide. */

import { type Beside, beside } from '../overlap.ts';
import type { ContextPass } from '../units.ts';

/**
 * Sends of one block to the next rank in a pass: keys and values, backward their gradients too,
 * which come home.
 */
export function ringSends(ranks: number, direction: 'forward' | 'backward'): number {
  return direction === 'forward' ? ranks - 1 : 2 * ranks - 1;
}

/** A ring over the context dim. */
export interface Ring {
  readonly ranks: number;
  /** Keys and values of one rank. */
  readonly blockBytes: number;
  /** Seconds of one message to the next rank. */
  readonly hop: (bytes: number) => number;
}

/**
 * The visible seconds of a ring in a pass, in place of the collectives over the context dim: every
 * rank sends its block on while it attends to the present one (arXiv:2310.01889). Forward n - 1
 * sends of keys and values; backward the same again, and n sends of their gradients, the last of
 * which nothing hides.
 */
export function ringSeconds(
  { attentionSeconds }: ContextPass,
  { ranks, blockBytes, hop }: Ring,
  direction: 'forward' | 'backward',
): Beside {
  if (attentionSeconds === 0) return { seconds: 0, hidden: 0 };
  const send = hop(blockBytes);
  const turn = beside(direction === 'forward' ? send : 2 * send, attentionSeconds / ranks);
  const last = direction === 'forward' ? 0 : send;
  return { seconds: (ranks - 1) * turn.seconds + last, hidden: (ranks - 1) * turn.hidden };
}
