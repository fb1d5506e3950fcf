/**
 * The step of a pipeline from the units of a model: takes the cuts and the schedule, gives what
 * each device works and holds, and when the last one is done. Layouts of a sweep and plans in
 * stages have their steps from here.
 */

import { keptMicrobatches } from '../../../simulate/pipeline/closed-forms.ts';
import type { StageSeconds } from '../../../simulate/pipeline/play.ts';
import type { PipelineSchedule, PipelineShape } from '../../../simulate/pipeline/schedules.ts';
import { deviceSums, type Span } from '../../../step/device-sums.ts';
import type { Unit } from '../../../step/unit.ts';
import type { PipelinePlayer } from '../../model/fast-play.ts';
import type { DeviceFigures } from '../figures.ts';
import type { HeldActivations, HeldBytes } from './held-activations.ts';

/** How the stages are run. */
export interface StagedRun {
  readonly schedule: PipelineSchedule;
  readonly shape: Required<PipelineShape>;
  /** True if passes of two microbatches overlap, and the share of the passes that do. */
  readonly paired: boolean;
  readonly share: number;
  /** True if collectives overlap with compute. */
  readonly overlaps: boolean;
  /** Seconds that a step has once on a device of so many units, beside those of its states. */
  readonly onceSeconds: (units: number) => number;
}

/** The stages of a model. */
export interface Stages {
  /** First unit of every chunk, and the number of units. */
  readonly bounds: readonly number[];
  readonly spans: readonly Span[];
  /** By device: microbatches in flight, and the bytes that it keeps of them. */
  readonly inFlight: readonly number[];
  readonly held: readonly HeldBytes[];
}

/** By device: microbatches in flight, and the bytes that it keeps of them. */
export function inFlightOf(
  { schedule, shape }: Pick<StagedRun, 'schedule' | 'shape'>,
  activations: HeldActivations,
): Pick<Stages, 'inFlight' | 'held'> {
  const inFlight = Array.from({ length: shape.devices }, (_, i) =>
    keptMicrobatches(schedule, shape, i),
  );
  return { inFlight, held: activations.of(schedule, shape, inFlight) };
}

/** The chunks between bounds. */
export function spansOf(bounds: readonly number[]): Span[] {
  return Array.from({ length: bounds.length - 1 }, (_, k) => ({
    first: bounds[k],
    end: bounds[k + 1],
  }));
}

/** Seconds and bytes of one device of the pipeline. */
export function deviceFigures(
  { shape, paired, share, overlaps, onceSeconds }: StagedRun,
  { spans, held, inFlight }: Stages,
  units: readonly Unit[],
  i: number,
): DeviceFigures {
  const own = Array.from({ length: shape.chunks }, (_, c) => spans[c * shape.devices + i]);
  const sums = deviceSums(units, own, share, overlaps);
  const activations = held[i](sums.chunks.map((c) => c.keptBytes));
  const temporary = sums.temporaryBytes + sums.aheadBytes + (paired ? sums.besideBytes : 0);
  const peak = Math.ceil(
    sums.parameterBytes + sums.gradientBytes + sums.optimizerBytes + activations + temporary,
  );
  let [count, passes] = [0, 0];
  for (const { first, end } of own) count += end - first;
  for (const c of sums.chunks) passes += c.forward + c.backwardInput + c.backwardWeight;
  const step = sums.stepSeconds + onceSeconds(count);
  const busy = passes * shape.microbatches;
  return { own, sums, activations, temporary, peak, inFlight: inFlight[i], step, busy };
}

/** One microbatch through each chunk. */
export function chunkSeconds(
  devices: readonly DeviceFigures[],
  chunks: number,
): readonly StageSeconds[] {
  return Array.from({ length: devices.length * chunks }, (_, k) => {
    const { sums } = devices[k % devices.length];
    return sums.chunks[Math.floor(k / devices.length)];
  });
}

/**
 * The second at which the last device ends the step.
 *
 * @param lasts the last unit of each chunk but the last
 */
export function stepEnd(
  player: PipelinePlayer,
  { schedule, shape, share }: StagedRun,
  devices: readonly DeviceFigures[],
  lasts: readonly Unit[],
): number {
  const played = player.ends({
    schedule,
    ...shape,
    stages: chunkSeconds(devices, shape.chunks),
    hops: lasts.map((u) => u.boundary),
  });
  // The passes that fill and empty the pipeline are on the way to every device, without the savings
  // of pairs.
  const alone =
    share *
    (shape.devices - 1) *
    Math.max(...devices.flatMap(({ sums }) => sums.chunks.map((c) => c.pairedSeconds)));
  // Each device sums its gradients when its own last microbatch is done.
  return Math.max(...devices.map((d, i) => played[i] + alone + d.step));
}
