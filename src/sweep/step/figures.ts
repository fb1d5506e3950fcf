/** Gives the figures of a layout from the sums of its devices and the end of its step. */

import type { MemoryByClass } from '../../recipes/compare/comparison.ts';
import type { StageSeconds } from '../../simulate/pipeline/play.ts';
import { type DeviceSums, type Span, sumOver } from '../../step/device-sums.ts';
import type { Unit } from '../../step/unit.ts';
import { type ComposedStages, composedStages } from './stages/composed-stages.ts';
import type { DevicePlace } from './step-traffic.ts';

/** A layout put together from the priced parts of one data rank. */
export interface Figures {
  readonly seconds: number;
  /** Seconds of the device that works longest; the split below is its own. */
  readonly busySeconds: number;
  readonly computeSeconds: number;
  readonly communicationSeconds: number;
  readonly bubbleSeconds: number;
  readonly peakBytes: number;
  readonly memory: MemoryByClass;
  readonly microbatches: number;
  /** Exchanges of tokens with experts on the device that works longest, visible or not. */
  readonly exchangeSeconds: number;
  /** Units whose results are recomputed in the backward pass. */
  readonly unitsAgain: number;
  readonly composed: ComposedStages;
  /** The place of the device that works longest. */
  readonly place: DevicePlace;
}

/** One device of a pipeline. */
export interface DeviceFigures {
  /** Its chunks. */
  readonly own: readonly Span[];
  readonly sums: DeviceSums;
  readonly activations: number;
  readonly temporary: number;
  readonly peak: number;
  readonly inFlight: number;
  /** Seconds of what a step has once, and of its passes. */
  readonly step: number;
  readonly busy: number;
}

/** The step of a layout: its units, its devices, and which of them decide. */
interface ComposedStep {
  readonly microbatches: number;
  /** Share of the passes that run in pairs. */
  readonly share: number;
  /** The units of the whole model. */
  readonly units: readonly Unit[];
  /** First unit of every chunk, and the number of units. */
  readonly bounds: readonly number[];
  /** Units of each chunk, from its first, whose results are recomputed. */
  readonly again: readonly number[];
  readonly devices: readonly DeviceFigures[];
  /** The device with the highest peak, and the one that works longest. */
  readonly fullest: number;
  readonly busiest: number;
  /** One microbatch through each chunk. */
  readonly seconds: readonly StageSeconds[];
  /** The last unit of each chunk but the last. */
  readonly lasts: readonly Unit[];
  readonly stepEnd: number;
}

export function figuresOf(step: ComposedStep): Figures {
  const { microbatches, units, bounds, devices, stepEnd } = step;
  const at = devices[step.busiest];
  const full = devices[step.fullest];
  const computeSeconds = sumOver(units, at.own, (u) => u.compute) * microbatches;
  const works = devices.map((d) => ({
    peak: d.peak,
    inFlight: d.inFlight,
    works: d.busy + d.step,
  }));
  // Stages of one device send nothing.
  const sent = devices.length === 1 ? [] : step.lasts;
  return {
    composed: composedStages(bounds, step.seconds, works, sent, stepEnd),
    seconds: stepEnd,
    busySeconds: at.busy + at.step,
    computeSeconds,
    // A difference of sums: rounding may leave less than nothing.
    communicationSeconds: Math.max(0, at.busy - computeSeconds + at.step),
    bubbleSeconds: devices.length === 1 ? 0 : Math.max(0, stepEnd - at.busy - at.step),
    peakBytes: full.peak,
    memory: {
      parameterBytes: Math.ceil(full.sums.parameterBytes),
      gradientBytes: Math.ceil(full.sums.gradientBytes),
      optimizerBytes: Math.ceil(full.sums.optimizerBytes),
      activationBytes: full.activations,
      temporaryBytes: full.temporary,
    },
    microbatches,
    exchangeSeconds: sumOver(units, at.own, (u) => u.exchange) * microbatches,
    unitsAgain: unitsAgain(step.again),
    place: placeOf(step),
  };
}

/** Units of all chunks whose results are recomputed. */
export function unitsAgain(again: readonly number[]): number {
  return again.reduce((total, count) => total + count, 0);
}

/** The device that works longest, and what of its collectives stays visible. */
function placeOf({ units, bounds, again, devices, busiest, share }: ComposedStep): DevicePlace {
  const { own, sums } = devices[busiest];
  const sum = (of: (u: Unit) => number): number => sumOver(units, own, of);
  const moves = sum((u) => u.gatherForward + u.gatherBackward + u.scatter);
  const stepMoves = sum((u) => u.stepSum + u.stepGather);
  const exchange = sum((u) => u.exchange);
  const hidden = sums.chunks.reduce((t, { saved: r }) => t + r.forward + r.backward, 0);
  return {
    bounds,
    device: busiest,
    chunks: own.length,
    again,
    visible: {
      microbatch: moves === 0 ? 1 : 1 - hidden / moves,
      // The update and the host's time of a step are not moves.
      step: stepMoves === 0 ? 1 : Math.max(0, sums.stepSeconds - sum((u) => u.update)) / stepMoves,
      exchange: 1 - (share * sum((u) => u.pairedForward + u.pairedBackward)) / (exchange || 1),
    },
  };
}
