/**
 * Ascends the dual of a network (long or folded) with a stopping rule: until a target is reached or
 * progress falls below a minimum. It gives the best bound, and decodes choices on the way.
 */
import { Extrapolation } from './extrapolation.ts';
import { oneOpt } from './rounding.ts';
import type { Trws } from './trws.ts';

/** When an ascent ends. */
export interface AscentLimits {
  readonly sweeps: number;
  /**
   * Minimum relative gain of a sweep, below which the ascent has converged; default 0: only every
   * fifth sweep is tested.
   */
  readonly minGain?: number;
  /** Part of the gap that five sweeps must close for five more to follow. */
  readonly minProgress: number;
  /** Sweeps before `minProgress` is tested; default 0. */
  readonly minSweeps?: number;
  /** Relative gap at which pruning and elimination take over; default 1e-7. */
  readonly close?: number;
  /** True if messages are extrapolated between sweeps; default false. */
  readonly extrapolates?: boolean;
}

interface AscentOptions extends AscentLimits {
  /** Takes every choice (positions) that is decoded on the way. */
  readonly propose: (at: Int32Array) => void;
  /** A bound that is good enough: normally the cost of the best choice so far. */
  readonly target: () => number;
  /** A bound at which sweeps end as soon as choices have been decoded twice; default none. */
  readonly enough?: () => number;
  readonly stopped: () => boolean;
  /**
   * Called with the bound when progress is too small: a better choice from it may make more sweeps
   * worth their time.
   */
  readonly onStall?: (bound: number) => void;
}

/** Relative gap above which a choice is taken for a bad one. */
const FAR = 0.02;
const CLOSE = 1e-7;

/**
 * Sweeps until the rest of the gap no longer shrinks, the target is reached or the clock stops;
 * returns the best bound.
 */
export function ascend(
  messages: Trws,
  {
    sweeps,
    propose,
    target,
    enough,
    stopped,
    minGain = 0,
    minProgress,
    minSweeps = 0,
    close = CLOSE,
    extrapolates = false,
    onStall,
  }: AscentOptions,
): number {
  const { net } = messages;
  let bound = -Infinity;
  let before = -Infinity;
  const extrapolation = extrapolates ? new Extrapolation(messages) : undefined;
  for (let k = 1; k <= sweeps; k++) {
    const reached = messages.sweep();
    const isUndone = k < sweeps && extrapolation?.after(k, reached) === false;
    const level = k > 1 && !isUndone && reached - bound < minGain * Math.abs(bound);
    bound = Math.max(bound, reached);
    if (bound >= target() || stopped()) break;
    const known = Math.min(target(), 2 * Math.abs(bound) + 1) - bound;
    if (known <= close * Math.abs(bound)) break;
    if (k <= 2 || k % 5 === 0 || k === sweeps) {
      const at = messages.decode();
      if (k % 5 === 0) oneOpt(net, at, 4);
      propose(at);
    }
    const goal = target();
    if (bound >= goal || level || (enough !== undefined && k > 1 && bound >= enough())) break;
    const rest = Math.min(goal, 2 * Math.abs(bound) + 1) - bound;
    if (rest <= close * Math.abs(bound)) break;
    if (k % 5 !== 0) continue;
    // A choice far above the bound says nothing about the rest of the ascent.
    const left = (to: number): number => Math.min(to - bound, FAR * Math.abs(bound));
    if (k > minSweeps && bound - before < minProgress * left(goal)) {
      onStall?.(bound);
      // Without a better choice nothing is to be gained; with one the rest may be worth its sweeps
      // again.
      if (target() >= goal || bound >= target() || bound - before < minProgress * left(target()))
        break;
    }
    before = bound;
  }
  return bound;
}
