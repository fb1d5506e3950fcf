/**
 * The dual ascent with its stopping rule, shared by the long network and its fold.
 */
import type { Messages } from './trws.ts';
import { descend } from './rounding.ts';

export interface Climb {
  readonly sweeps: number;
  /** Takes every choice (positions) that is decoded on the way. */
  readonly offer: (at: Int32Array) => void;
  /** A bound that is good enough: normally the cost of the best choice so far. */
  readonly target: () => number;
  readonly stopped: () => boolean;
  /** Stop as soon as a sweep gains less than this part of the bound; default 0: judge every fifth sweep by the gap. */
  readonly flat?: number;
  /** Part of the gap that five sweeps must close for five more to follow; default a quarter. */
  readonly patience?: number;
  /** Sweeps before patience is asked for; default 0. */
  readonly grace?: number;
  /** Relative gap at which pruning and elimination take over; default 1e-7. */
  readonly close?: number;
  /** Asked when patience ends, with the bound: to look for a better choice, with which sweeps may go on. */
  readonly stuck?: (bound: number) => void;
}

/** Relative gap above which a choice is taken for a bad one. */
const FAR = 0.02;
const CLOSE = 1e-7;

/** Sweeps until the rest of the gap no longer shrinks, the target is reached or the clock stops; returns the best bound. */
export function climb(
  messages: Messages,
  { sweeps, offer, target, stopped, flat = 0, patience = 0.25, grace = 0, close = CLOSE, stuck }: Climb,
): number {
  const { net } = messages;
  let bound = -Infinity;
  let before = -Infinity;
  for (let k = 1; k <= sweeps; k++) {
    const reached = messages.sweep();
    const level = k > 1 && reached - bound < flat * Math.abs(bound);
    bound = Math.max(bound, reached);
    if (bound >= target() || stopped()) break;
    const known = Math.min(target(), 2 * Math.abs(bound) + 1) - bound;
    if (known <= close * Math.abs(bound)) break;
    if (k <= 2 || k % 5 === 0 || k === sweeps) {
      const at = messages.decode();
      if (k % 5 === 0) descend(net, at, 4);
      offer(at);
    }
    const goal = target();
    if (bound >= goal || level) break;
    const rest = Math.min(goal, 2 * Math.abs(bound) + 1) - bound;
    if (rest <= close * Math.abs(bound)) break;
    if (k % 5 !== 0) continue;
    // A choice far above the bound says nothing of what is left to climb.
    const left = (to: number): number => Math.min(to - bound, FAR * Math.abs(bound));
    if (k > grace && bound - before < patience * left(goal)) {
      stuck?.(bound);
      // Without a better choice nothing is to be gained; with one the rest may be worth its sweeps again.
      if (target() >= goal || bound >= target() || bound - before < patience * left(target())) break;
    }
    before = bound;
  }
  return bound;
}
