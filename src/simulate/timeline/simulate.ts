/** Takes a plan and simulation options and gives the simulated step of one device. */

import { checkKinds } from '../../arguments.ts';
import { fitProbability } from '../../cost/error-bands.ts';
import { usableMemoryBytes } from '../../cost/hardware/cluster.ts';
import { defined } from '../../defined.ts';
import { checkOptions } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { EXPORTED, isOfTrainer, planAnswer, type StepKeys } from '../../plan/record/answer.ts';
import type { Plan } from '../../plan/record/types.ts';
import { tableOf } from '../../plan/request/check-call.ts';
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
import { hasGathers, prefetch, type Prefetched } from './prefetch.ts';
import { checkSchedule, type Schedule } from './schedule.ts';
import { type ListOrder, ListWork } from './urgent-first.ts';

/** Operators, prefetch, buckets, memory limit in bytes and slowdown of a simulated step. */
export interface SimulateOptions extends ScheduleOptions, Omit<PlayOptions, 'memoryBytes'> {
  /** Default the built-in operators. */
  readonly table?: OperatorTable;
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
  /** Tells whether no more orders are to be tried: one is tried in any case. Default never. */
  readonly stopped?: () => boolean;
}

const OPTIONS: Readonly<Record<keyof SimulateOptions, true>> = {
  table: true,
  memoryBytes: true,
  prefetch: true,
  inFlightBytes: true,
  bucketBytes: true,
  order: true,
  asyncTensor: true,
  stopped: true,
  launchSeconds: true,
  streams: true,
  known: true,
  overlapSlowdown: true,
};

/** A simulated step of one device. */
export interface Simulation {
  readonly schedule: PlanSchedule;
  readonly timeline: Timeline;
  /** Passes that were run, with what they were told. */
  readonly passes: readonly string[];
  /** Assumptions, one sentence each. */
  readonly notes: readonly string[];
  /**
   * The effect of the limit on memory; absent where there is none, or where the plan takes more by
   * itself.
   */
  readonly bound?: MemoryBound;
  /**
   * The answer of the plan, as `plan` gives it: the step of the trainer that it is made for, which
   * is not that of the timeline; for the exported program that of the timeline, with all passes.
   */
  readonly step: StepKeys;
}

/** A plan to simulate; with its step and what that is judged by, where it has them. */
type GivenPlan = SimulatedPlan & Partial<Pick<Plan, 'step' | 'parameters' | 'mesh'>>;

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
  /** The order of collectives; undefined: that of the program. */
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
 * @throws E_PLAN when the plan is not of this graph; E_USAGE for options that are not numbers of
 *   their kind
 *
 * @example
 * ```ts
 * import { input, parameter, shard, simulate, trace } from 'shardwright';
 *
 * const graph = trace(({ x, w1, w2 }) => x.matmul(w1).relu().matmul(w2), {
 *   x: input([4096, 4096]),
 *   w1: parameter([4096, 16384]),
 *   w2: parameter([16384, 4096]),
 * });
 * const result = await shard(graph, { mesh: 'tp=4', cluster: 'dgx-h100' });
 * if (result.status === 'infeasible') throw new Error(result.conflict.join('\n'));
 * const { timeline } = simulate(result.graph, result.plan);
 * console.log(timeline.seconds.toFixed(4), 'seconds'); // 0.0009 seconds
 * ```
 */
export function simulate(graph: Graph, plan: GivenPlan, given: SimulateOptions = {}): Simulation {
  checkKinds('simulate', { graph: [graph, 'graph'], plan: [plan, 'plan'] });
  checkOptions('simulate', given, OPTIONS);
  const table = tableOf('simulate', given.table);
  const { table: _, ...options } = given;
  const { accumulate = 1 } = plan.request;
  const { written, best, passes, aloneBytes, memoryBytes, limit } = fastest(
    graph,
    lastPass(plan),
    table,
    options,
  );
  const { memoryBytes: __, ...others } = options;
  const timeline = best.run.timeline();
  const bound = limit === undefined ? undefined : boundOf(best, timeline, limit, others);
  return {
    schedule: { ...written, ...best.ahead },
    timeline,
    passes,
    ...defined({ bound }),
    step: stepOfTrainer(plan) ?? {
      stepSeconds: timeline.seconds + otherPassesSeconds(graph, plan, table, options),
      stepBand: null,
      peakBytes: timeline.memory.peakBytes,
      fitProbability: fitProbability(
        timeline.memory.peakBytes,
        plan.request.memoryBytes ?? written.cluster.memoryBytes,
      ),
      trainer: EXPORTED,
    },
    notes: [
      ...(accumulate === 1
        ? []
        : [`The last of the ${accumulate} passes of a step: it reduces gradients.`]),
      ...written.notes,
      ...memoryNotes(memoryBytes, bound, aloneBytes, timeline),
      `${written.launchSeconds * 1e6} us before every kernel.`,
      ...(options.overlapSlowdown === undefined
        ? ['Compute is not slowed by communication that overlaps with it.']
        : []),
    ],
  };
}

/** The answer of a plan that is made for a trainer; undefined of others. */
function stepOfTrainer({ step, parameters, mesh, ...plan }: GivenPlan): StepKeys | undefined {
  if (step === undefined || parameters === undefined || mesh === undefined) return undefined;
  if (!isOfTrainer({ step })) return undefined;
  const { stepSeconds, peakBytes } = step;
  return { ...planAnswer({ ...plan, step, parameters, mesh }), stepSeconds, peakBytes };
}

/** The seconds of the passes of a step that reduce no gradients: all but the last. */
function otherPassesSeconds(
  graph: Graph,
  plan: SimulatedPlan,
  table: OperatorTable,
  options: SimulateOptions,
): number {
  const { accumulate = 1 } = plan.request;
  return accumulate === 1 ? 0 : (accumulate - 1) * otherSeconds(graph, plan, table, options);
}

/** The seconds of a pass that reduces no gradients. */
function otherSeconds(
  graph: Graph,
  plan: SimulatedPlan,
  table: OperatorTable,
  options: SimulateOptions,
): number {
  return fastest(graph, withGradientMoves(plan, { times: 0 }), table, options).best.run.seconds;
}

/** Seconds of the passes over the microbatches of a step. */
interface PassSeconds {
  /** The last pass, which reduces the gradients. */
  readonly last: number;
  /** Each of the others; that of the last where a step has one. */
  readonly other: number;
}

/**
 * The seconds of the passes of a step.
 *
 * @throws what `simulate` throws
 */
export function simulatePasses(
  graph: Graph,
  plan: SimulatedPlan,
  table: OperatorTable,
  options: SimulateOptions = {},
): PassSeconds {
  const last = fastest(graph, lastPass(plan), table, options).best.run.seconds;
  const { accumulate = 1 } = plan.request;
  return { last, other: accumulate === 1 ? last : otherSeconds(graph, plan, table, options) };
}

/**
 * The seconds of a pass, for a step of several passes their mean: all but the last reduce no
 * gradients.
 *
 * @throws what `simulate` throws
 */
export function simulateSeconds(
  graph: Graph,
  plan: SimulatedPlan,
  table: OperatorTable,
  options: SimulateOptions = {},
): number {
  const { accumulate = 1 } = plan.request;
  const { last, other } = simulatePasses(graph, plan, table, options);
  return (last + (accumulate - 1) * other) / accumulate;
}

/** The plan of the pass that reduces gradients, alone. */
function lastPass(plan: SimulatedPlan): SimulatedPlan {
  return (plan.request.accumulate ?? 1) === 1 ? plan : withGradientMoves(plan, {});
}

/** The plan with the gradients that wait for the last pass moved so often; absent: once. */
function withGradientMoves(plan: SimulatedPlan, often: { readonly times?: number }): SimulatedPlan {
  const outputs = plan.outputs.map((output) => ({
    ...output,
    redistributions: output.redistributions.map(({ times, ...move }) =>
      times === undefined ? move : { ...move, ...often },
    ),
  }));
  return { ...plan, outputs };
}

function fastest(
  graph: Graph,
  plan: SimulatedPlan,
  table: OperatorTable,
  options: SimulateOptions,
): Fastest {
  const written = planSchedule(graph, plan, table, options);
  const { inFlightBytes = DEFAULT_IN_FLIGHT_BYTES } = options;
  const { memoryBytes = plan.memory.budgetBytes, ...played } = options;
  const schedule =
    options.asyncTensor === true
      ? asyncTensor(written, {
          matmulLaunchSeconds: written.cluster.matmulLaunchSeconds,
          groupSize: (meshDims) => written.mesh.sizeOf(meshDims),
        })
      : written;
  const aloneBytes = serialPeakBytes(schedule);
  const limit = memoryBytes === 'none' || aloneBytes > memoryBytes ? undefined : memoryBytes;
  const trials = new Trials({
    schedule,
    seconds: written.collectives.seconds.bind(written.collectives),
    inFlightBytes,
    limit,
    usableBytes: limit ?? usableMemoryBytes(written.cluster),
    played,
  });
  const best = searchTrials(trials, options, hasGathers(schedule));
  checkSchedule(best.ahead);
  const passes = passesOf(best, options.asyncTensor === true, inFlightBytes);
  return { written, best, passes, aloneBytes, memoryBytes, limit };
}

/** Tries distances, then buckets, then orders of collectives, each with the best of the last. */
function searchTrials(
  trials: Trials,
  {
    bucketBytes = 'auto',
    order = 'auto',
    prefetch = 'auto',
    stopped = () => false,
  }: SimulateOptions,
  gathers: boolean,
): Tried {
  const size = bucketBytes === 'auto' ? 0 : bucketBytes;
  let best = trials.inProgramOrder(size, prefetch === 'auto' ? undefined : prefetch);
  if (prefetch === 'auto' && gathers)
    for (const distance of DISTANCES)
      if (!stopped()) best = trials.better(best, trials.inProgramOrder(size, distance));
  if (bucketBytes === 'auto' && !stopped())
    best = trials.better(best, trials.inProgramOrder(DEFAULT_BUCKET_BYTES, best.distance));
  // Without communication every order is the same.
  if (order !== 'auto' || stopped() || !communicates(best)) return best;
  const sizes = new Set(bucketBytes === 'auto' ? [best.size, DEFAULT_BUCKET_BYTES] : [size]);
  const { distance } = best;
  const ordered = [...sizes].flatMap((tried) =>
    stopped() ? [] : trials.inOrders(tried, distance),
  );
  const first = ordered.reduce((a, b) => trials.better(a, b), best);
  return stopped() ? first : trials.movedAgain(first, ordered);
}

/** A program and what all of its trials share. */
interface TrialSettings {
  readonly schedule: Schedule;
  readonly seconds: PlanSchedule['collectives']['seconds'];
  readonly inFlightBytes: number;
  readonly limit: number | undefined;
  /** A step that takes more is worse than any that does not. */
  readonly usableBytes: number;
  readonly played: Omit<SimulateOptions, 'memoryBytes'>;
}

/** Plays one program with other buckets, distances and orders. */
class Trials {
  private readonly packings = new Map<number, Packed>();

  constructor(private readonly settings: TrialSettings) {}

  better(a: Tried, b: Tried): Tried {
    const [overA, overB] = [this.excess(a), this.excess(b)];
    return overB < overA || (overB === overA && b.run.seconds < a.run.seconds) ? b : a;
  }

  /** Collectives in the order of the program. */
  inProgramOrder(size: number, distance: number | undefined): Tried {
    const { schedule } = this.settings;
    const own =
      this.packings.get(size) ?? this.packed(size, size > 0 ? sumsOf(schedule) : undefined);
    this.packings.set(size, own);
    const { schedule: ahead, heldBack } = this.prefetched(own, distance, own.within);
    return this.played({
      size,
      list: undefined,
      distance,
      ahead,
      heldBack,
      limited: own.within,
      unlimited: () => this.prefetched(own, distance, {}).schedule,
    });
  }

  /** Collectives in each of the orders. Ordered sums get their buckets with their order. */
  inOrders(size: number, distance: number | undefined): readonly Tried[] {
    const own = this.packed(size, undefined);
    const { schedule: unordered, heldBack } = this.prefetched(own, distance, own.within);
    const options = { bucketBytes: size, seconds: this.settings.seconds };
    const work = new ListWork(unordered, options);
    return ORDERS.map((list) =>
      this.played({
        size,
        list,
        distance,
        ahead: work.ordered(list),
        heldBack,
        limited: own.within,
        unlimited: () =>
          new ListWork(this.prefetched(own, distance, {}).schedule, options).ordered(list),
      }),
    );
  }

  /** The best of some orders and of the same ones with their tasks moved late and early again. */
  movedAgain(known: Tried, ordered: readonly Tried[]): Tried {
    let best = known;
    // Tries that take as long as another are mostly the same order.
    const distinct = new Map(ordered.map((tried) => [tried.run.seconds, tried]));
    for (const tried of distinct.values()) {
      const again = this.played({
        ...tried,
        ahead: justified(tried.ahead, tried.run),
        unlimited: () =>
          justified(tried.unlimited(), playTasks(tried.unlimited(), this.settings.played)),
      });
      if (
        again.run.seconds < best.run.seconds * (1 - WORTH) &&
        this.excess(again) <= this.excess(best)
      )
        best = again;
    }
    return best;
  }

  private played(tried: Omit<Tried, 'run'>): Tried {
    const run = playTasks(tried.ahead, { ...this.settings.played, ...tried.limited });
    return { ...tried, run };
  }

  private excess({ run }: Tried): number {
    return run.excessBytes(this.settings.usableBytes);
  }

  private packed(size: number, sums: Uint8Array | undefined): Packed {
    const { schedule, seconds, limit } = this.settings;
    const packed = size > 0 ? bucket(schedule, { bucketBytes: size, seconds, sums }) : schedule;
    // Buckets gather early what they gather together: the program itself may then be larger than
    // the limit.
    const within =
      limit !== undefined && serialPeakBytes(packed) <= limit ? { memoryBytes: limit } : {};
    return { packed, within };
  }

  private prefetched({ packed }: Packed, distance: number | undefined, within: Within): Prefetched {
    if (distance === undefined) return { schedule: packed, heldBack: 0 };
    return prefetch(packed, {
      distance,
      limitBytes: this.settings.inFlightBytes,
      ...within,
    });
  }
}

function passesOf(best: Tried, isAsync: boolean, inFlightBytes: number): string[] {
  return [
    ...(isAsync ? ['asynchronous tensor parallelism'] : []),
    best.size === 0 ? 'no buckets' : `buckets of at most ${best.size} bytes`,
    best.distance === undefined
      ? 'gathers as soon as their stream is free'
      : `gathers at most ${best.distance} calls and ${inFlightBytes} bytes ahead`,
    ...(best.list === undefined
      ? []
      : [
          'moves that a kernel waits for before sums that none waits for, in a fixed order ' +
            'of calls',
        ]),
  ];
}

function communicates({ ahead, run: { start, end } }: Tried): boolean {
  return ahead.tasks.some(({ stream }, at) => stream !== COMPUTE && end[at] > start[at]);
}

/**
 * The effect of the limit on the step, against the same one without it; undefined where the passes
 * asked for break the limit.
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
