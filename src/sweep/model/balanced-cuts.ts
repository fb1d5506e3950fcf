/**
 * Cuts a chain of units into pipeline stages: minimises the longest stage within the memory of a
 * device.
 */

import { keptMicrobatches } from '../../simulate/pipeline/closed-forms.ts';
import type { PipelineSchedule } from '../../simulate/pipeline/schedules.ts';

/**
 * One unit as stages are cut: seconds of a microbatch, bytes of states and of what a microbatch
 * keeps.
 */
export interface CutUnit {
  readonly seconds: number;
  readonly stateBytes: number;
  readonly activationBytes: number;
}

interface CutRequest {
  readonly stages: number;
  readonly microbatches: number;
  readonly schedule: Exclude<PipelineSchedule, 'interleaved'>;
  readonly limitBytes: number;
}

/**
 * Cuts units into stages of which the longest is as short as can be, each within its memory. Where
 * messages between all units are the same, this is what `partitionStages` finds, whose sum over the
 * stages is then the same for all cuts: a sweep cuts thousands of pipelines, so the longest stage
 * is bisected (over the lengths that stages can have) and stages are filled from the end, which
 * gives the earliest cuts.
 *
 * @returns first unit of every stage and the number of units; undefined where no cuts fit
 */
export function balancedCuts(units: readonly CutUnit[], request: CutRequest): number[] | undefined {
  const { stages: p, microbatches, schedule, limitBytes } = request;
  const n = units.length;
  if (n < p) return undefined;
  const kept = Array.from({ length: p }, (_, s) =>
    keptMicrobatches(schedule, { devices: p, microbatches }, s),
  );
  /**
   * For the last filling, the least that a stage would have had with one unit more: no bound below
   * it gives other cuts.
   */
  let next = Infinity;
  /** Cuts with no stage above `most`, filled from the last stage on. */
  const fill = (most: number): number[] | undefined => {
    next = Infinity;
    const bounds = new Array<number>(p + 1).fill(0);
    bounds[p] = n;
    for (let s = p - 1; s >= 0; s--) {
      let first = bounds[s + 1];
      let [seconds, states, activations] = [0, 0, 0];
      while (first > s) {
        const u = units[first - 1];
        const longer = seconds + u.seconds;
        const bytes = states + u.stateBytes + kept[s] * (activations + u.activationBytes);
        if (longer > most * (1 + 1e-12)) next = Math.min(next, longer);
        if (longer > most * (1 + 1e-12) || bytes > limitBytes) break;
        [seconds, states, activations] = [
          longer,
          states + u.stateBytes,
          activations + u.activationBytes,
        ];
        first--;
      }
      if (first === bounds[s + 1]) return undefined;
      bounds[s] = first;
    }
    return bounds[0] === 0 ? bounds : undefined;
  };
  const all = units.reduce((t, u) => t + u.seconds, 0);
  let low = all / p;
  // Layers are alike, so that few lengths lie above the mean: they are tried in turn before the
  // rest is bisected.
  let length = low;
  for (let tried = 0; tried < LENGTHS_TRIED; tried++) {
    const found = fill(length);
    if (found !== undefined) return found;
    low = length;
    // Where the length stops no stage, memory does, whatever the lengths.
    if (next === Infinity) return undefined;
    length = next;
  }
  let found = fill(all);
  if (found === undefined) return undefined;
  for (;;) {
    const high = longest(units, found);
    if (high - low <= 1e-9 * high) return found;
    const middle = (low + high) / 2;
    const better = fill(middle);
    // `next` itself may do: what is just below it does not.
    if (better === undefined) low = Math.max(middle, Math.min(high, next * (1 - 2e-12)));
    else found = better;
  }
}

/** Lengths of a stage that are tried one after the other. */
const LENGTHS_TRIED = 8;

function longest(units: readonly CutUnit[], bounds: readonly number[]): number {
  let most = 0;
  for (let s = 0; s + 1 < bounds.length; s++) {
    let seconds = 0;
    for (let u = bounds[s]; u < bounds[s + 1]; u++) seconds += units[u].seconds;
    most = Math.max(most, seconds);
  }
  return most;
}
