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
  if (units.length < request.stages) return undefined;
  const filler = new StageFiller(units, request);
  const all = units.reduce((t, u) => t + u.seconds, 0);
  let low = all / request.stages;
  // Layers are alike, so that few lengths lie above the mean: they are tried in turn before the
  // rest is bisected.
  let length = low;
  for (let tried = 0; tried < LENGTHS_TRIED; tried++) {
    const found = filler.fill(length);
    if (found !== undefined) return found;
    low = length;
    // Where the length stops no stage, memory does, whatever the lengths.
    if (filler.next === Infinity) return undefined;
    length = filler.next;
  }
  let found = filler.fill(all);
  if (found === undefined) return undefined;
  for (;;) {
    const high = longest(units, found);
    if (high - low <= 1e-9 * high) return found;
    const middle = (low + high) / 2;
    const better = filler.fill(middle);
    // `next` itself may do: what is just below it does not.
    if (better === undefined) low = Math.max(middle, Math.min(high, filler.next * (1 - 2e-12)));
    else found = better;
  }
}

/** Fills stages from the last one on. */
class StageFiller {
  /**
   * For the last filling, the least that a stage would have had with one unit more: no bound below
   * it gives other cuts.
   */
  next = Infinity;
  private readonly kept: readonly number[];

  constructor(
    private readonly units: readonly CutUnit[],
    private readonly request: CutRequest,
  ) {
    const { stages: devices, microbatches, schedule } = request;
    this.kept = Array.from({ length: devices }, (_, s) =>
      keptMicrobatches(schedule, { devices, microbatches }, s),
    );
  }

  /** Cuts with no stage above `most`. */
  fill(most: number): number[] | undefined {
    const { units, kept } = this;
    const { stages: p, limitBytes } = this.request;
    this.next = Infinity;
    const bounds = new Array<number>(p + 1).fill(0);
    bounds[p] = units.length;
    for (let s = p - 1; s >= 0; s--) {
      let first = bounds[s + 1];
      let [seconds, states, activations] = [0, 0, 0];
      while (first > s) {
        const u = units[first - 1];
        const longer = seconds + u.seconds;
        const bytes = states + u.stateBytes + kept[s] * (activations + u.activationBytes);
        if (longer > most * (1 + 1e-12)) this.next = Math.min(this.next, longer);
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
