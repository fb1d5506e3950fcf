/**
 * Adds up the units of a pipeline's device: seconds and bytes of each of its chunks, and of the
 * device. A sweep adds up hundreds of thousands of devices, so all sums are made in one pass.
 */

import type { StageSeconds } from '../simulate/pipeline/play.ts';
import { type Saved, savedInRun, savedInStep } from './overlap.ts';
import type { Unit } from './unit.ts';

/** A chunk of layers: its first unit, and the one behind its last. */
export interface Span {
  readonly first: number;
  readonly end: number;
}

/** One microbatch through a chunk, with what hides taken off. */
interface ChunkSums extends StageSeconds {
  readonly keptBytes: number;
  /** The most that pairs of two microbatches save. */
  readonly pairedSeconds: number;
  readonly saved: Saved;
}

export interface DeviceSums {
  readonly chunks: readonly ChunkSums[];
  readonly parameterBytes: number;
  readonly gradientBytes: number;
  readonly optimizerBytes: number;
  readonly temporaryBytes: number;
  /**
   * The most that a unit with experts holds besides, while the same device is at work on another
   * microbatch: its temporary values, and what it keeps before the other frees as much.
   */
  readonly besideBytes: number;
  /** Bytes that a neighbour is about to use, gathered already. */
  readonly aheadBytes: number;
  /** Seconds of work that a step has once. */
  readonly stepSeconds: number;
}

const NOTHING: Saved = { forward: 0, backward: 0, hiddenForward: 0, hiddenBackward: 0 };

/**
 * @param share of the passes that run in pairs
 * @param overlaps whether collectives overlap with compute
 */
export function deviceSums(
  units: readonly Unit[],
  spans: readonly Span[],
  share: number,
  overlaps: boolean,
): DeviceSums {
  let [parameterBytes, gradientBytes, optimizerBytes, stepSeconds] = [0, 0, 0, 0];
  let [temporaryBytes, besideBytes, aheadBytes] = [-Infinity, 0, 0];
  const chunks = spans.map(({ first, end }): ChunkSums => {
    let [forward, input, weight, keptBytes, pairedSeconds] = [0, 0, 0, 0, 0];
    for (let i = first; i < end; i++) {
      const u = units[i];
      const { temporaryBytes: temporary } = u;
      forward += u.forward + u.gatherForward - share * u.pairedForward;
      input += u.input + u.gatherBackward + u.scatter - share * u.pairedBackward;
      weight += u.weight;
      pairedSeconds += u.pairedForward + u.pairedBackward;
      keptBytes += u.keptBytes;
      parameterBytes += u.parameterBytes;
      gradientBytes += u.gradientBytes;
      optimizerBytes += u.optimizerBytes;
      stepSeconds += u.stepSum + u.stepGather + u.update;
      if (temporary > temporaryBytes) temporaryBytes = temporary;
      if (u.exchange > 0) besideBytes = Math.max(besideBytes, temporary + u.keptBytes);
      if (i > first && u.prefetchedBytes > aheadBytes) aheadBytes = u.prefetchedBytes;
    }
    const saved = overlaps ? savedInRun(units, first, end) : NOTHING;
    return {
      forward: forward - saved.forward,
      backwardInput: input - saved.backward,
      backwardWeight: weight,
      keptBytes,
      pairedSeconds,
      saved,
    };
  });
  if (overlaps)
    stepSeconds -= savedInStep(
      units,
      chunks.map((c) => c.saved),
      spans,
    );
  else aheadBytes = 0;
  return {
    chunks,
    parameterBytes,
    gradientBytes,
    optimizerBytes,
    temporaryBytes,
    besideBytes,
    aheadBytes,
    stepSeconds,
  };
}

/** A sum over the units of a device, chunk after chunk. */
export function sumOver(
  units: readonly Unit[],
  spans: readonly Span[],
  of: (u: Unit) => number,
): number {
  let sum = 0;
  for (const { first, end } of spans) for (let i = first; i < end; i++) sum += of(units[i]);
  return sum;
}
