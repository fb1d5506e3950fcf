/** Takes a plan and simulation options and gives the simulated step of one device. */

import { usableMemoryBytes } from '../../cost/hardware/cluster.ts';
import type { Graph } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { checkArguments } from '../../plan/request/check-call.ts';
import { bytesText, secondsText } from '../../units.ts';
import { DEFAULT_BUCKET_BYTES } from '../work/rules.ts';
import { COMPUTE } from '../work/streams.ts';
import { asyncTensor } from './async-tensor.ts';
import { bucket } from './bucket.ts';
import {
  type PlanSchedule,
  planSchedule,
  type ScheduleOptions,
  type SimulatedPlan,
} from './from-plan.ts';
import { serialPeakBytes } from './headroom.ts';
import { justified } from './justify.ts';
import { sumsOf } from './needs.ts';
import { type Played, type PlayOptions, playTasks, type Timeline } from './play.ts';
import { hasGathers, type Prefetched, prefetched } from './prefetch.ts';
import { checkSchedule, type Schedule } from './schedule.ts';
import { type ListOrder, ListWork } from './urgent-first.ts';

/** Prefetch, buckets, memory limit in bytes and slowdown of a simulated step. */
export interface SimulateOptions extends ScheduleOptions, Omit<PlayOptions, 'memoryBytes'> {
  /**
   * Most bytes alive at once: what runs ahead waits where it would be more. Default the budget of
   * the plan; `none`: nothing waits. Where the plan takes more even with one task after another
   * nothing waits either, and a note says so.
   */
  readonly memoryBytes?: number | 'none';
  /**
   * How far gathers of weights run ahead, in calls that need one; `auto`: the fastest of some
   * distances whose peak is within `memoryBytes` (for `none` the device's usable memory), else that
   * of the lowest peak. Default `auto`.
   */
  readonly prefetch?: number | 'auto';
  /** Most bytes of gathered weights that wait for their call. Default 2 GB. */
  readonly inFlightBytes?: number;
  /**
   * Most bytes of one bucket of collectives; 0: none; `auto`: the faster of none and 25 MiB, at the
   * distance that is the fastest without. Default `auto`.
   */
  readonly bucketBytes?: number | 'auto';
  /**
   * Order of collectives on their streams. `program`: as the program is written. `auto`: the
   * fastest of that and orders in which a move that a kernel waits for goes before sums that none
   * waits for (`urgent-first.ts`). Default `auto`.
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
  /**
   * What the limit on memory did; absent where there is none, or where the plan takes more by
   * itself.
   */
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
/**
 * Distances that `auto` tries beside the program as it is written, in which gathers start as soon
 * as their stream is free.
 */
const DISTANCES: readonly number[] = [1, 4, 16];

/**
 * Orders that are tried, see `urgent-first.ts`. How long moves may come late for others: never
 * where it can be foreseen, as long as the stream would idle, and four times that, which loses time
 * at first and gives `justified` a fuller stream to move tasks in.
 */
const ORDERS: readonly ListOrder[] = [
  { patience: 0, sumsFirst: 'made' },
  { patience: 1, sumsFirst: 'made' },
  { patience: 4, sumsFirst: 'long' },
];

/** An order that is moved late and early again is taken where the step is shorter by this share. */
const WORTH = 1e-3;

/** The limit on memory that an order is played with, if any. */
interface Within {
  readonly memoryBytes?: number;
}

/** A program with its buckets. */
interface Packed {
  readonly packed: Schedule;
  readonly within: Within;
}

interface Tried {
  readonly size: number;
  /** Of the order of collectives; undefined: that of the program. */
  readonly list: ListOrder | undefined;
  readonly distance: number | undefined;
  readonly ahead: Schedule;
  /** Collectives that the limit on memory kept from being moved as far forward. */
  readonly heldBack: number;
  readonly limited: Within;
  /** The same without the limit on memory. */
  unlimited(): Schedule;
  readonly run: Played;
}

/** The fastest of what was tried, and within which limit. */
interface Fastest {
  readonly written: PlanSchedule;
  readonly best: Tried;
  readonly passes: readonly string[];
  /** Peak of one task after another. */
  readonly aloneBytes: number;
  readonly memoryBytes: number | 'none';
  /** Undefined where nothing waits for memory. */
  readonly limit: number | undefined;
}

/**
 * Plays a plan on one device: compute beside communication, with prefetch, buckets and asynchronous
 * tensor parallelism.
 *
 * @throws E_PLAN when the plan is not of this graph; E_USAGE for options that are no numbers of
 *   their kind
 */
export function simulate(
  graph: Graph,
  plan: SimulatedPlan,
  table: OperatorTable,
  options: SimulateOptions = {},
): Simulation {
  checkArguments('simulate', { graph, plan, table });
  const { written, best, passes, aloneBytes, memoryBytes, limit } = fastest(
    graph,
    plan,
    table,
    options,
  );
  const { memoryBytes: _, ...others } = options;
  const timeline = best.run.timeline();
  const bound = limit === undefined ? undefined : boundOf(best, timeline, limit, others);
  return {
    schedule: { ...written, ...best.ahead },
    timeline,
    passes,
    ...(bound === undefined ? {} : { bound }),
    notes: [
      ...written.notes,
      ...memoryNotes(memoryBytes, bound, aloneBytes, timeline),
      `${written.launchSeconds * 1e6} us before every kernel.`,
      ...(options.overlapSlowdown === undefined
        ? ['Compute beside communication is not slowed.']
        : []),
    ],
  };
}

/** The seconds of `simulate` alone. @throws what `simulate` throws */
export function simulateSeconds(
  graph: Graph,
  plan: SimulatedPlan,
  table: OperatorTable,
  options: SimulateOptions = {},
): number {
  return fastest(graph, plan, table, options).best.run.seconds;
}

function fastest(
  graph: Graph,
  plan: SimulatedPlan,
  table: OperatorTable,
  options: SimulateOptions,
): Fastest {
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
  const {
    bucketBytes = 'auto',
    order = 'auto',
    inFlightBytes: limitBytes = DEFAULT_IN_FLIGHT_BYTES,
  } = options;
  const seconds = written.collectives.seconds.bind(written.collectives);
  const asked = options.prefetch ?? 'auto';
  const { memoryBytes = plan.memory.budgetBytes, ...others } = options;
  const alone = serialPeakBytes(schedule);
  const limit = memoryBytes === 'none' || alone > memoryBytes ? undefined : memoryBytes;
  const usable = limit ?? usableMemoryBytes(written.cluster);
  const over = ({ run }: Tried): number => run.excessBytes(usable);
  const better = (a: Tried, b: Tried): Tried =>
    over(b) < over(a) || (over(b) === over(a) && b.run.seconds < a.run.seconds) ? b : a;
  const packedAt = (size: number, ofSums: Uint8Array | undefined): Packed => {
    const packed =
      size > 0 ? bucket(schedule, { bucketBytes: size, seconds, sums: ofSums }) : schedule;
    // Buckets gather early what they gather together: the program itself may then be larger than
    // the limit.
    const within =
      limit !== undefined && serialPeakBytes(packed) <= limit ? { memoryBytes: limit } : {};
    return { packed, within };
  };
  const aheadOf = ({ packed }: Packed, distance: number | undefined, bound: Within): Prefetched =>
    distance === undefined
      ? { schedule: packed, heldBack: 0 }
      : prefetched(packed, { distance, limitBytes, ...bound });
  const packings = new Map<number, Packed>();
  const attempt = (size: number, distance: number | undefined): Tried => {
    const own = packings.get(size) ?? packedAt(size, size > 0 ? sumsOf(schedule) : undefined);
    packings.set(size, own);
    const { schedule: ahead, heldBack } = aheadOf(own, distance, own.within);
    const unlimited = (): Schedule => aheadOf(own, distance, {}).schedule;
    return {
      size,
      list: undefined,
      distance,
      ahead,
      heldBack,
      limited: own.within,
      unlimited,
      run: playTasks(ahead, { ...others, ...own.within }),
    };
  };
  const inOrders = (size: number, distance: number | undefined): readonly Tried[] => {
    // Sums that are ordered get their buckets with their order.
    const own = packedAt(size, undefined);
    const { schedule: unordered, heldBack } = aheadOf(own, distance, own.within);
    const work = new ListWork(unordered, { bucketBytes: size, seconds });
    return ORDERS.map((list) => {
      const ahead = work.ordered(list);
      const unlimited = (): Schedule =>
        new ListWork(aheadOf(own, distance, {}).schedule, { bucketBytes: size, seconds }).ordered(
          list,
        );
      return {
        size,
        list,
        distance,
        ahead,
        heldBack,
        limited: own.within,
        unlimited,
        run: playTasks(ahead, { ...others, ...own.within }),
      };
    });
  };
  const size = bucketBytes === 'auto' ? 0 : bucketBytes;
  let best = attempt(size, asked === 'auto' ? undefined : asked);
  if (asked === 'auto' && hasGathers(schedule))
    for (const distance of DISTANCES) best = better(best, attempt(size, distance));
  if (bucketBytes === 'auto') best = better(best, attempt(DEFAULT_BUCKET_BYTES, best.distance));
  // Without communication every order is the same.
  if (order === 'auto' && communicates(best)) {
    const sizes = new Set(bucketBytes === 'auto' ? [best.size, DEFAULT_BUCKET_BYTES] : [size]);
    const ordered = [...sizes].flatMap((tried) => inOrders(tried, best.distance));
    best = ordered.reduce(better, best);
    const early = (tried: Tried): Tried => {
      const ahead = justified(tried.ahead, tried.run);
      const unlimited = (): Schedule =>
        justified(tried.unlimited(), playTasks(tried.unlimited(), others));
      return { ...tried, ahead, unlimited, run: playTasks(ahead, { ...others, ...tried.limited }) };
    };
    // Tries that take as long as another are mostly the same order.
    const distinct = new Map(ordered.map((tried) => [tried.run.seconds, tried]));
    for (const tried of distinct.values()) {
      const again = early(tried);
      if (again.run.seconds < best.run.seconds * (1 - WORTH) && over(again) <= over(best))
        best = again;
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
    passes.push(
      'moves that a kernel waits for before sums that none waits for, in a fixed order of calls',
    );
  return { written, best, passes, aloneBytes: alone, memoryBytes, limit };
}

function communicates({ ahead, run: { start, end } }: Tried): boolean {
  return ahead.tasks.some(({ stream }, at) => stream !== COMPUTE && end[at] > start[at]);
}

/**
 * What the limit did to the step, against the same one without it; undefined where the passes asked
 * for break the limit.
 */
function boundOf(
  tried: Tried,
  timeline: Timeline,
  memoryBytes: number,
  options: PlayOptions,
): MemoryBound | undefined {
  const { memory } = timeline;
  if (memory.peakBytes > memoryBytes) return undefined;
  const delayedTasks = tried.heldBack + timeline.delayedTasks;
  const free = delayedTasks === 0 ? timeline : playTasks(tried.unlimited(), options).timeline();
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
    return [
      `With one task after another the plan takes ${bytesText(aloneBytes)}, more than ` +
        `${limit}: no limit covered its activations, so no task waits for memory.`,
    ];
  if (bound === undefined)
    return [
      `The passes asked for take ${bytesText(memory.peakBytes)}, more than ${limit}, and ` +
        'nothing waits for memory.',
    ];
  const { delayedTasks: n, delayedSeconds, unboundedPeakBytes } = bound;
  if (n === 0) return [];
  const cost = delayedSeconds > 0 ? `, at the price of ${secondsText(delayedSeconds)}` : '';
  return [
    `${n} ${n === 1 ? 'task runs' : 'tasks run'} later than without a limit, so that the ` +
      `peak is within ${limit} and not ${bytesText(unboundedPeakBytes)}${cost}.`,
  ];
}
