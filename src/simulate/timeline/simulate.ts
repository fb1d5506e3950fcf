/** Takes a plan and simulation options and gives the simulated step of one device. */

import { usableMemoryBytes } from '../../cost/hardware/cluster.ts';
import type { Graph } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { DEFAULT_BUCKET_BYTES } from '../../plan/overlap/rules.ts';
import { asyncTensor } from './async-tensor.ts';
import { bytesText, secondsText } from '../../units.ts';
import { bucket } from './bucket.ts';
import { planSchedule, type PlanSchedule, type ScheduleOptions, type SimulatedPlan } from './from-plan.ts';
import { serialPeakBytes } from './headroom.ts';
import { justified } from './justify.ts';
import { play, type PlayOptions, type Timeline } from './play.ts';
import { prefetch, prefetched, type Prefetched } from './prefetch.ts';
import { checkSchedule, type Schedule } from './schedule.ts';
import { sumsOf } from './needs.ts';
import { urgentFirst, type ListOrder } from './urgent-first.ts';

/** Prefetch, buckets, memory limit in bytes and slowdown of a simulated step. */
export interface SimulateOptions extends ScheduleOptions, Omit<PlayOptions, 'memoryBytes'> {
  /**
   * Most bytes alive at once: what runs ahead waits where it would be more. Default the budget of the plan; `none`: nothing
   * waits. Where the plan takes more even with one task after another nothing waits either, and a note says so.
   */
  readonly memoryBytes?: number | 'none';
  /**
   * How far gathers of weights run ahead, in calls that need one; `auto`: the fastest of some distances whose peak is within
   * `memoryBytes` (for `none` the device's usable memory), else that of the lowest peak. Default `auto`.
   */
  readonly prefetch?: number | 'auto';
  /** Most bytes of gathered weights that wait for their call. Default 2 GB. */
  readonly inFlightBytes?: number;
  /**
   * Most bytes of one bucket of collectives; 0: none; `auto`: the faster of none and 25 MiB, at the distance that is the
   * fastest without. Default `auto`.
   */
  readonly bucketBytes?: number | 'auto';
  /**
   * Order of collectives on their streams. `program`: as the program is written. `auto`: the fastest of that and orders in
   * which a move that a kernel waits for goes before sums that none waits for (`urgentFirst`). Default `auto`.
   */
  readonly order?: 'program' | 'auto';
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
  /** What the limit on memory did; absent where there is none, or where the plan takes more by itself. */
  readonly bound?: MemoryBound;
}

/** A step that was kept within a limit on memory. */
interface MemoryBound {
  readonly memoryBytes: number;
  /** Tasks that waited for memory, and how much longer the step is for it; 0 where none did. */
  readonly delayedTasks: number;
  readonly delayedSeconds: number;
  /** Peak of the same step if nothing had waited. */
  readonly unboundedPeakBytes: number;
}

const DEFAULT_IN_FLIGHT_BYTES = 2e9;
/** Distances that `auto` tries beside the program as it is written, in which gathers start as soon as their stream is free. */
const DISTANCES: readonly number[] = [1, 4, 16];

/**
 * Orders that are tried, see `urgentFirst`. How long moves may come late for others: never where it can be foreseen, as long as the
 * stream would idle, and four times that, which loses time at first and gives `justified` a fuller stream to move tasks in.
 */
const ORDERS: readonly ListOrder[] = [
  { patience: 0, sumsFirst: 'made' },
  { patience: 1, sumsFirst: 'made' },
  { patience: 4, sumsFirst: 'long' },
];

/** An order that is moved late and early again is taken where the step is shorter by this share. */
const WORTH = 1e-3;

interface Tried {
  readonly size: number;
  /** Of the order of collectives; undefined: that of the program. */
  readonly list: ListOrder | undefined;
  readonly distance: number | undefined;
  readonly ahead: Schedule;
  /** Collectives that the limit on memory kept from being moved as far forward. */
  readonly heldBack: number;
  /** The limit on memory that it is played with. */
  readonly limited: { readonly memoryBytes?: number };
  /** The same without the limit on memory. */
  unlimited(): Schedule;
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
  const { bucketBytes = 'auto', order = 'auto', inFlightBytes: limitBytes = DEFAULT_IN_FLIGHT_BYTES } = options;
  const seconds = written.collectives.seconds.bind(written.collectives);
  const asked = options.prefetch ?? 'auto';
  const { memoryBytes = plan.memory.budgetBytes, ...others } = options;
  const alone = serialPeakBytes(schedule);
  const limit = memoryBytes === 'none' || alone > memoryBytes ? undefined : memoryBytes;
  const usable = limit ?? usableMemoryBytes(written.cluster);
  const over = ({ timeline }: Tried): number => Math.max(0, timeline.memory.peakBytes - usable);
  const better = (a: Tried, b: Tried): Tried =>
    over(b) < over(a) || (over(b) === over(a) && b.timeline.seconds < a.timeline.seconds) ? b : a;
  let sums: Uint8Array | undefined;
  const attempt = (size: number, distance: number | undefined, list?: ListOrder): Tried => {
    // Sums that are ordered get their buckets with their order.
    const packed = size > 0 ? bucket(schedule, { bucketBytes: size, seconds, sums: list === undefined ? (sums ??= sumsOf(schedule)) : undefined }) : schedule; // prettier-ignore
    // Buckets gather early what they gather together: the program itself may then be larger than the limit.
    const within = limit !== undefined && serialPeakBytes(packed) <= limit ? { memoryBytes: limit } : {};
    const arranged = (bound: { readonly memoryBytes?: number }): Prefetched => {
      const ahead = distance === undefined ? { schedule: packed, heldBack: 0 } : prefetched(packed, { distance, limitBytes, ...bound }); // prettier-ignore
      return list === undefined ? ahead : { ...ahead, schedule: urgentFirst(ahead.schedule, { ...list, bucketBytes: size, seconds }) }; // prettier-ignore
    };
    const { schedule: ahead, heldBack } = arranged(within);
    return { size, list, distance, ahead, heldBack, limited: within, unlimited: () => arranged({}).schedule, timeline: play(ahead, { ...others, ...within }) }; // prettier-ignore
  };
  const size = bucketBytes === 'auto' ? 0 : bucketBytes;
  let best = attempt(size, asked === 'auto' ? undefined : asked);
  // A program without gathers of weights is the same at every distance.
  if (asked === 'auto' && prefetch(schedule, { distance: 1, limitBytes }) !== schedule)
    for (const distance of DISTANCES) best = better(best, attempt(size, distance));
  if (bucketBytes === 'auto') best = better(best, attempt(DEFAULT_BUCKET_BYTES, best.distance));
  // Without communication every order is the same.
  if (order === 'auto' && best.timeline.communicationSeconds > 0) {
    const ordered = [...new Set(bucketBytes === 'auto' ? [best.size, DEFAULT_BUCKET_BYTES] : [size])].flatMap((tried) =>
      ORDERS.map((list) => attempt(tried, best.distance, list)),
    );
    best = ordered.reduce(better, best);
    const early = (tried: Tried): Tried => {
      const ahead = justified(tried.ahead, tried.timeline.spans);
      const unlimited = (): Schedule => justified(tried.unlimited(), play(tried.unlimited(), others).spans);
      return { ...tried, ahead, unlimited, timeline: play(ahead, { ...others, ...tried.limited }) };
    };
    // Tries that take as long as another are mostly the same order.
    const distinct = new Map(ordered.map((tried) => [tried.timeline.seconds, tried]));
    for (const tried of distinct.values()) {
      const again = early(tried);
      if (over(again) <= over(best) && again.timeline.seconds < best.timeline.seconds * (1 - WORTH)) best = again;
    }
  }
  checkSchedule(best.ahead);
  passes.push(best.size === 0 ? 'no buckets' : `buckets of at most ${best.size} bytes`);
  passes.push(
    best.distance === undefined
      ? 'gathers as soon as their stream is free'
      : `gathers at most ${best.distance} calls and ${limitBytes} bytes ahead`,
  );
  if (best.list !== undefined)
    passes.push('moves that a kernel waits for before sums that none waits for, in a fixed order of calls');
  const bound = limit === undefined ? undefined : boundOf(best, limit, others);
  return {
    schedule: { ...written, ...best.ahead },
    timeline: best.timeline,
    passes,
    ...(bound === undefined ? {} : { bound }),
    notes: [
      ...written.notes,
      ...memoryNotes(memoryBytes, bound, alone, best.timeline),
      `${written.launchSeconds * 1e6} us before every kernel.`,
      ...(options.overlapSlowdown === undefined ? ['Compute beside communication is not slowed.'] : []),
    ],
  };
}

/** What the limit did to the step, against the same one without it; undefined where the passes asked for break the limit. */
function boundOf(tried: Tried, memoryBytes: number, options: PlayOptions): MemoryBound | undefined {
  const { heldBack, timeline } = tried;
  if (timeline.memory.peakBytes > memoryBytes) return undefined;
  const delayedTasks = heldBack + timeline.delayedTasks;
  const free = delayedTasks === 0 ? timeline : play(tried.unlimited(), options);
  return {
    memoryBytes,
    delayedTasks,
    delayedSeconds: timeline.seconds - free.seconds,
    unboundedPeakBytes: free.memory.peakBytes,
  };
}

function memoryNotes(
  memoryBytes: number | 'none',
  bound: MemoryBound | undefined,
  aloneBytes: number,
  { memory }: Timeline,
): string[] {
  if (memoryBytes === 'none') return [];
  const limit = bytesText(memoryBytes);
  if (aloneBytes > memoryBytes)
    return [`With one task after another the plan takes ${bytesText(aloneBytes)}, more than ${limit}: no limit covered its activations, so no task waits for memory.`]; // prettier-ignore
  if (bound === undefined)
    return [`The passes asked for take ${bytesText(memory.peakBytes)}, more than ${limit}, and nothing waits for memory.`]; // prettier-ignore
  const { delayedTasks: n, delayedSeconds, unboundedPeakBytes } = bound;
  if (n === 0) return [];
  const cost = delayedSeconds > 0 ? `, at the price of ${secondsText(delayedSeconds)}` : '';
  return [`${n} ${n === 1 ? 'task runs' : 'tasks run'} later than without a limit, so that the peak is within ${limit} and not ${bytesText(unboundedPeakBytes)}${cost}.`]; // prettier-ignore
}
