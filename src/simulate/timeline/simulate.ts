import { usableMemoryBytes } from '../../cost/cluster.ts';
import type { Graph } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/table.ts';
import { asyncTensor } from './async-tensor.ts';
import { bucket } from './bucket.ts';
import { planSchedule, type PlanSchedule, type ScheduleOptions, type SimulatedPlan } from './from-plan.ts';
import { play, type PlayOptions, type Timeline } from './play.ts';
import { prefetch } from './prefetch.ts';
import { checkSchedule, COMPUTE, type Schedule } from './schedule.ts';

export interface SimulateOptions extends ScheduleOptions, PlayOptions {
  /**
   * How far gathers of weights run ahead, in calls that need one; `auto`: the fastest of some distances whose peak is within
   * the device's usable memory, else that of the lowest peak. Default `auto`.
   */
  readonly prefetch?: number | 'auto';
  /** Most bytes of gathered weights that wait for their call. Default 2 GB. */
  readonly inFlightBytes?: number;
  /**
   * Most bytes of one bucket of collectives; 0: none; `auto`: the faster of none and 25 MiB, at the distance that is the
   * fastest without. Default `auto`.
   */
  readonly bucketBytes?: number | 'auto';
  /** Take gathers and scatters apart with the matrix products beside them. Default false. */
  readonly asyncTensor?: boolean;
}

/** A simulated step of one device. */
export interface Simulation {
  readonly schedule: PlanSchedule;
  readonly timeline: Timeline;
  /** Passes that were run, with what they were told. */
  readonly passes: readonly string[];
  /** What was assumed, one sentence each. */
  readonly notes: readonly string[];
}

/** PyTorch's data-parallel buckets (`bucket_cap_mb`). */
export const DEFAULT_BUCKET_BYTES = 25 * 2 ** 20;
export const DEFAULT_IN_FLIGHT_BYTES = 2e9;
/** Distances that `auto` tries beside the program as it is written, in which gathers start as soon as their stream is free. */
const DISTANCES: readonly number[] = [1, 4, 16];

interface Tried {
  readonly size: number;
  readonly distance: number | undefined;
  readonly ahead: Schedule;
  readonly timeline: Timeline;
}

/**
 * Plays a plan on one device: compute beside communication, with prefetch, buckets and asynchronous tensor parallelism.
 *
 * @throws E_PLAN when the plan is not of this graph; E_USAGE for options that are no numbers of their kind
 */
export function simulate(
  graph: Graph,
  plan: SimulatedPlan,
  table: OperatorTable,
  options: SimulateOptions = {},
): Simulation {
  const written = planSchedule(graph, plan, table, options);
  const passes: string[] = [];
  let schedule: Schedule = written;
  if (options.asyncTensor === true) {
    schedule = asyncTensor(schedule, {
      matmulLaunchSeconds: written.cluster.matmulLaunchSeconds,
      groupSize: (meshDims) => written.mesh.sizeOf(meshDims),
    });
    passes.push('asynchronous tensor parallelism');
  }
  const { bucketBytes = 'auto', inFlightBytes: limitBytes = DEFAULT_IN_FLIGHT_BYTES } = options;
  const seconds = written.collectives.seconds.bind(written.collectives);
  const asked = options.prefetch ?? 'auto';
  const usable = usableMemoryBytes(written.cluster);
  const over = ({ timeline }: Tried): number => Math.max(0, timeline.memory.peakBytes - usable);
  const better = (a: Tried, b: Tried): Tried =>
    over(b) < over(a) || (over(b) === over(a) && b.timeline.seconds < a.timeline.seconds) ? b : a;
  const attempt = (size: number, distance: number | undefined): Tried => {
    const packed = size > 0 ? bucket(schedule, { bucketBytes: size, seconds }) : schedule;
    const ahead = distance === undefined ? packed : prefetch(packed, { distance, limitBytes });
    return { size, distance, ahead, timeline: play(ahead, options) };
  };
  const size = bucketBytes === 'auto' ? 0 : bucketBytes;
  let best = attempt(size, asked === 'auto' ? undefined : asked);
  // A program without gathers of weights is the same at every distance.
  if (asked === 'auto' && prefetch(schedule, { distance: 1, limitBytes }) !== schedule)
    for (const distance of DISTANCES) best = better(best, attempt(size, distance));
  if (bucketBytes === 'auto') best = better(best, attempt(DEFAULT_BUCKET_BYTES, best.distance));
  checkSchedule(best.ahead);
  passes.push(best.size === 0 ? 'no buckets' : `buckets of at most ${best.size} bytes`);
  passes.push(
    best.distance === undefined
      ? 'gathers as soon as their stream is free'
      : `gathers at most ${best.distance} calls and ${limitBytes} bytes ahead`,
  );
  return {
    schedule: { ...written, ...best.ahead },
    timeline: best.timeline,
    passes,
    notes: [
      ...written.notes,
      `${written.launchSeconds * 1e6} us before every kernel.`,
      ...(options.overlapSlowdown === undefined ? ['Compute beside communication is not slowed.'] : []),
    ],
  };
}

/** The serial step: nothing beside anything, in program order. */
export function serial(schedule: Schedule): Schedule {
  const tasks = schedule.tasks.map((task, at) =>
    at === 0 ? task : { ...task, afterEnd: [...(task.afterEnd ?? []), schedule.tasks[at - 1].id] },
  );
  return { ...schedule, tasks };
}

/** Largest busy time of one stream. */
export function busiestSeconds(timeline: Timeline, streams: number): number {
  const busy = new Float64Array(Math.max(streams, COMPUTE + 1));
  for (const { task, start, end } of timeline.spans) busy[task.stream] += end - start;
  return busy.reduce((most, t) => Math.max(most, t), 0);
}
