/**
 * Bounds the seconds and bytes of all tunings of a layout from below, before its stages are made:
 * it tells whether a step takes at least a stated time, and whether some device is over its budget.
 * A sweep asks both of hundreds of thousands of tunings, most of which do not fit or are slower
 * than another of the same plan.
 */

import { leastVisible } from '../../../step/overlap.ts';
import { stateBytes, type Unit } from '../../../step/unit.ts';
import type { HeldBytes } from './held-activations.ts';

/** For every built unit the lesser of both ways; states and their moves are the same in both. */
export interface LeastUnits {
  /** The built unit of every unit of the model, in its order. */
  readonly built: readonly number[];
  readonly stateBytes: readonly number[];
  readonly keptBytes: readonly number[];
  readonly temporaryBytes: readonly number[];
  /** Temporary bytes of units that exchange tokens, 0 of others. */
  readonly besideBytes: readonly number[];
  readonly prefetchedBytes: readonly number[];
  /** Temporary bytes of all units. */
  readonly leastTemporaryBytes: number;
  readonly allStateBytes: number;
  /**
   * Seconds of one microbatch through all units, with everything hidden that can be; the savings of
   * pairs of microbatches are not subtracted.
   */
  readonly passSeconds: number;
  readonly pairedSeconds: number;
  /** Seconds of all exchanges of units that keep their results. */
  readonly exchangeSeconds: number;
  /** Seconds of work that a step has once. */
  readonly stepSeconds: number;
}

/** Sums in another order differ in their last digits: a bound counts where it is above by more. */
const ROUNDING = 1e-9;

/**
 * @param strict built units whose results are recomputed; `plain` the same units, keeping theirs
 * @param built which of them every unit of the model is
 * @param overlaps whether collectives overlap with compute
 */
export function leastUnits(
  strict: readonly Unit[],
  plain: readonly Unit[],
  built: readonly number[],
  overlaps: boolean,
): LeastUnits {
  const less = (of: (u: Unit) => number): number[] =>
    strict.map((u, i) => Math.min(of(u), of(plain[i])));
  const states = strict.map(stateBytes);
  const temporaryBytes = less((u) => u.temporaryBytes);
  const passes = less((u) => passesOf(u, overlaps));
  // Pairing microbatches saves at most this.
  const paired = strict.map((u, i) =>
    Math.max(u.pairedForward + u.pairedBackward, plain[i].pairedForward + plain[i].pairedBackward),
  );
  const steps = strict.map(
    (u) =>
      (overlaps ? leastVisible(u.stepSum + u.stepGather) : u.stepSum + u.stepGather) + u.update,
  );
  let [allStateBytes, passSeconds, pairedSeconds, exchangeSeconds, stepSeconds] = [0, 0, 0, 0, 0];
  for (const i of built) {
    allStateBytes += states[i];
    passSeconds += passes[i];
    pairedSeconds += paired[i];
    exchangeSeconds += plain[i].exchange;
    stepSeconds += steps[i];
  }
  return {
    built,
    stateBytes: states,
    keptBytes: less((u) => u.keptBytes),
    temporaryBytes,
    besideBytes: strict.map((u, i) => (u.exchange > 0 ? temporaryBytes[i] : 0)),
    prefetchedBytes: strict.map((u) => (overlaps ? u.prefetchedBytes : 0)),
    leastTemporaryBytes: Math.min(...temporaryBytes),
    allStateBytes,
    passSeconds,
    pairedSeconds,
    exchangeSeconds,
    stepSeconds,
  };
}

function passesOf(
  { forward, input, weight, gatherForward, gatherBackward, scatter }: Unit,
  overlaps: boolean,
): number {
  const moved = gatherForward + gatherBackward + scatter;
  return forward + input + weight + (overlaps ? leastVisible(moved) : moved);
}

/**
 * Tells whether the device that works longest does so for at least these seconds: no less than the
 * mean of all.
 *
 * @param share of the passes that run in pairs
 */
export function takesAtLeast(
  seconds: number,
  { passSeconds, pairedSeconds, stepSeconds }: LeastUnits,
  {
    pp,
    microbatches,
    share,
  }: { readonly pp: number; readonly microbatches: number; readonly share: number },
): boolean {
  const mean = (microbatches * (passSeconds - share * pairedSeconds) + stepSeconds) / pp;
  return mean > seconds * (1 + ROUNDING);
}

/**
 * Tells whether states and the least temporary bytes alone are over the budget on some device,
 * wherever stages are cut.
 */
export function isOverInMean(
  budgetBytes: number,
  { allStateBytes, leastTemporaryBytes }: LeastUnits,
  pp: number,
): boolean {
  return allStateBytes / pp + leastTemporaryBytes > budgetBytes * (1 + ROUNDING);
}

/**
 * Tells whether some device is over its budget with these stages, however many of its units are
 * recomputed.
 *
 * @param bounds first unit of every chunk, and the number of units
 * @param held bytes that each device keeps, of what a microbatch keeps of its chunks
 * @param paired whether a unit with experts holds its own activations in addition to those of
 *   another microbatch
 */
export function isOverSomewhere(
  budgetBytes: number,
  least: LeastUnits,
  bounds: readonly number[],
  held: readonly HeldBytes[],
  paired: boolean,
): boolean {
  const pp = held.length;
  const chunks = (bounds.length - 1) / pp;
  const kept = new Array<number>(chunks).fill(0);
  for (let i = 0; i < pp; i++) {
    let [states, temporary, beside, ahead] = [0, 0, 0, 0];
    for (let c = 0; c < chunks; c++) {
      kept[c] = 0;
      const first = bounds[c * pp + i];
      for (let n = first; n < bounds[c * pp + i + 1]; n++) {
        const u = least.built[n];
        states += least.stateBytes[u];
        kept[c] += least.keptBytes[u];
        if (least.temporaryBytes[u] > temporary) temporary = least.temporaryBytes[u];
        if (least.besideBytes[u] > beside) beside = least.besideBytes[u];
        if (n > first && least.prefetchedBytes[u] > ahead) ahead = least.prefetchedBytes[u];
      }
    }
    const bytes = states + held[i](kept) + temporary + ahead + (paired ? beside : 0);
    if (bytes > budgetBytes * (1 + ROUNDING) + 1) return true;
  }
  return false;
}
