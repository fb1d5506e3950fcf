/**
 * Seconds and bytes below which no tuning of a layout is, before its stages are made. In: the units of a layout with their results
 * kept and recomputed. Out: whether a step takes a stated time at least, and whether some device is over its budget. A sweep asks
 * both of hundreds of thousands of tunings, most of which do not fit or are slower than another of the same plan.
 */

import { leastVisible } from '../model/overlap.ts';
import type { HeldBytes } from './held-activations.ts';
import type { Unit } from './unit-costs.ts';

/** Of every unit the less of both ways, in the order of the layers; states and their moves are the same in both. */
export interface LeastUnits {
  readonly stateBytes: Float64Array;
  readonly keptBytes: Float64Array;
  readonly temporaryBytes: Float64Array;
  /** Temporary bytes of units that exchange tokens, 0 of others. */
  readonly besideBytes: Float64Array;
  readonly prefetchedBytes: Float64Array;
  readonly leastTemporaryBytes: number;
  readonly allStateBytes: number;
  /** Of one microbatch through all units, with all that may hide hidden; what pairs of microbatches save is not taken off. */
  readonly passSeconds: number;
  readonly pairedSeconds: number;
  /** Of what a step has once. */
  readonly stepSeconds: number;
}

/** Sums in another order differ in their last digits: a bound counts where it is above by more. */
const ROUNDING = 1e-9;

/** @param overlaps whether collectives run beside compute */
export function leastUnits(strict: readonly Unit[], plain: readonly Unit[], overlaps: boolean): LeastUnits {
  const count = strict.length;
  const [stateBytes, keptBytes, temporaryBytes, besideBytes, prefetchedBytes] = Array.from({ length: 5 }, () => new Float64Array(count)); // prettier-ignore
  let [allStateBytes, passSeconds, pairedSeconds, stepSeconds, leastTemporaryBytes] = [0, 0, 0, 0, Infinity];
  for (let i = 0; i < count; i++) {
    const [u, w] = [strict[i], plain[i]];
    stateBytes[i] = u.states[0] + u.states[1] + u.states[2];
    keptBytes[i] = Math.min(u.keptBytes, w.keptBytes);
    temporaryBytes[i] = Math.min(u.temporaryBytes, w.temporaryBytes);
    if (u.exchange > 0) besideBytes[i] = temporaryBytes[i];
    if (overlaps) prefetchedBytes[i] = u.prefetchedBytes;
    allStateBytes += stateBytes[i];
    leastTemporaryBytes = Math.min(leastTemporaryBytes, temporaryBytes[i]);
    passSeconds += Math.min(passesOf(u, overlaps), passesOf(w, overlaps));
    // The most that may be saved.
    pairedSeconds += Math.max(u.pairedForward + u.pairedBackward, w.pairedForward + w.pairedBackward);
    const moved = u.stepSum + u.stepGather;
    stepSeconds += (overlaps ? leastVisible(moved) : moved) + u.update;
  }
  return { stateBytes, keptBytes, temporaryBytes, besideBytes, prefetchedBytes, leastTemporaryBytes, allStateBytes, passSeconds, pairedSeconds, stepSeconds };
} // prettier-ignore

function passesOf({ forward, input, weight, gatherForward, gatherBackward, scatter }: Unit, overlaps: boolean): number {
  const moved = gatherForward + gatherBackward + scatter;
  return forward + input + weight + (overlaps ? leastVisible(moved) : moved);
}

/**
 * Whether the device that works longest does so for at least these seconds: no less than the mean of all.
 *
 * @param share of the passes that run in pairs
 */
export function takesAtLeast(
  seconds: number,
  { passSeconds, pairedSeconds, stepSeconds }: LeastUnits,
  { pp, microbatches, share }: { readonly pp: number; readonly microbatches: number; readonly share: number },
): boolean {
  const mean = (microbatches * (passSeconds - share * pairedSeconds) + stepSeconds) / pp;
  return mean > seconds * (1 + ROUNDING);
}

/** Whether states and the least temporary bytes alone are over the budget on some device, wherever stages are cut. */
export function isOverInMean(budgetBytes: number, { allStateBytes, leastTemporaryBytes }: LeastUnits, pp: number): boolean {
  return allStateBytes / pp + leastTemporaryBytes > budgetBytes * (1 + ROUNDING);
} // prettier-ignore

/**
 * Whether some device is over its budget with these stages, however many of its units are recomputed.
 *
 * @param bounds first unit of every chunk, and the number of units
 * @param held bytes that each device keeps, of what a microbatch keeps of its chunks
 * @param paired whether a unit with experts holds its own beside another microbatch
 */
export function isOverSomewhere(budgetBytes: number, least: LeastUnits, bounds: readonly number[], held: readonly HeldBytes[], paired: boolean): boolean {
  const pp = held.length;
  const chunks = (bounds.length - 1) / pp;
  const kept = new Array<number>(chunks).fill(0);
  for (let i = 0; i < pp; i++) {
    let [states, temporary, beside, ahead] = [0, 0, 0, 0];
    for (let c = 0; c < chunks; c++) {
      kept[c] = 0;
      const first = bounds[c * pp + i];
      for (let u = first; u < bounds[c * pp + i + 1]; u++) {
        states += least.stateBytes[u];
        kept[c] += least.keptBytes[u];
        if (least.temporaryBytes[u] > temporary) temporary = least.temporaryBytes[u];
        if (least.besideBytes[u] > beside) beside = least.besideBytes[u];
        if (u > first && least.prefetchedBytes[u] > ahead) ahead = least.prefetchedBytes[u];
      }
    }
    const bytes = states + held[i](kept) + temporary + ahead + (paired ? beside : 0);
    if (bytes > budgetBytes * (1 + ROUNDING) + 1) return true;
  }
  return false;
} // prettier-ignore
