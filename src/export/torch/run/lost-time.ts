/**
 * Tells where a traced step loses time beside its plan: what is lost, on which rank, and what would
 * change it. Clocks of ranks are not compared: the rank that comes last to a collective is the one
 * that spends the least time in it.
 */
import type { DeviceMesh } from '../../../mesh/devices/mesh.ts';
import type { Plan } from '../../../plan/record/types.ts';
import { percentText } from '../../../units.ts';
import { lastStep, type MeasuredCall, type RunReport } from './doctor.ts';
import { covered, type TraceSpan } from './trace.ts';

/** Seconds of a step that a run loses, with their cause; its keys are a contract of `--json`. */
export interface LostTime {
  readonly kind:
    | 'data'
    | 'between steps'
    | 'device idle'
    | 'allocator'
    | 'waiting for ranks'
    | 'collectives'
    | 'overlap'
    | 'calls';
  /** At most what a step would be shorter by without the cause. */
  readonly seconds: number;
  readonly what: string;
  readonly change: string;
}

/** The trace of one rank, and its match with the program. */
export interface TracedRank {
  readonly rank: number;
  readonly spans: readonly TraceSpan[];
  readonly report: RunReport;
}

/** Seconds of collectives, the mean of the traced ranks. */
interface CollectiveTimes {
  /** Seconds in which a rank waits for one that comes later. */
  readonly waiting: number;
  /** The rank that came last in most of the waiting, and its share of it. */
  readonly last: { readonly rank: number; readonly share: number };
  /** The excess over the price of the last rank to come, by kind and mesh dims. */
  readonly slower: ReadonlyMap<string, { readonly seconds: number; readonly ratio: number }>;
}

const MICRO = 1e-6;
/** Less than this share of the step is not named. */
const NAMED = 0.01;
/** A rank that comes last in more than this share of the waiting is named. */
const MOSTLY = 0.5;
const ALLOCATIONS = /^(cuda|hip)(Malloc|Free|HostAlloc)$/;
/** Ranges that a profiler draws around whole steps. */
const AROUND_STEPS = /^ProfilerStep#/;
const LOADER = 'enumerate(DataLoader)#';
/** The range in which the Python package compares the batches of all ranks before a step. */
const CHECK = 'shardwright::check_batch';

/**
 * Lists the losses of the last traced step, the largest first. Causes are taken apart as far
 * as traces can: waits for ranks need the traces of several ranks, and without them count as
 * collectives.
 */
export function lostTime(plan: Plan, mesh: DeviceMesh, ranks: readonly TracedRank[]): LostTime[] {
  const step = Math.max(...ranks.map(({ report }) => report.measuredSeconds));
  const times = collectiveTimes(mesh, ranks);
  return [
    ...ofOneRank(ranks),
    ...ofCollectives(times, ranks),
    ...ofOverlap(plan, times, ranks),
    ...ofCalls(ranks),
  ]
    .filter(({ seconds }) => seconds >= NAMED * step)
    .sort((a, b) => b.seconds - a.seconds);
}

/** Losses that one trace shows, of the rank that has most of each. */
function ofOneRank(ranks: readonly TracedRank[]): LostTime[] {
  const most = (of: (one: TracedRank) => number): { rank: number; seconds: number } =>
    ranks
      .map((one) => ({ rank: one.rank, seconds: of(one) }))
      .reduce((a, b) => (b.seconds > a.seconds ? b : a));
  const data = most(({ spans }) => betweenSteps(spans).data);
  const between = most(({ spans }) => betweenSteps(spans).idle);
  const idle = most(({ report }) => report.idleSeconds);
  const allocator = most(({ spans }) => allocations(spans).seconds);
  const asked = ranks.find(({ rank }) => rank === allocator.rank);
  const count = asked === undefined ? 0 : allocations(asked.spans).count;
  return [
    {
      kind: 'data',
      seconds: data.seconds,
      what: `rank ${data.rank} waits for its data loader before the step`,
      change: 'load ahead: num_workers, prefetch_factor and pin_memory of the DataLoader',
    },
    {
      kind: 'between steps',
      seconds: between.seconds,
      what: `rank ${between.rank} calls nothing between two steps`,
      change: 'look at what the loop does there: logging, saving, preparing the batch',
    },
    {
      kind: 'device idle',
      seconds: idle.seconds,
      what: `the device of rank ${idle.rank} has nothing to run: calls come too slowly`,
      change: 'join calls by torch.compile, or give it larger microbatches',
    },
    {
      kind: 'allocator',
      seconds: allocator.seconds,
      what: `rank ${allocator.rank} asks the driver for memory ${count} times in the step`,
      change:
        'set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or plan with less --memory, so ' +
        'that more stays free',
    },
  ];
}

/** Seconds between the last two steps. */
interface Between {
  readonly data: number;
  /** The seconds in which batches of all ranks are compared. */
  readonly check: number;
  /** The seconds in which nothing is called. */
  readonly idle: number;
}

function betweenSteps(spans: readonly TraceSpan[]): Between {
  const { forward, previousEnd } = lastStep(spans);
  if (previousEnd === undefined) return { data: 0, check: 0, idle: 0 };
  const inside = spans.filter(
    ({ name, tid, ts, dur }) =>
      tid === forward.tid &&
      ts >= previousEnd &&
      ts + dur <= forward.ts &&
      !AROUND_STEPS.test(name),
  );
  const idle = forward.ts - previousEnd - covered(inside);
  const within = (own: (name: string) => boolean): number =>
    covered(inside.filter(({ name }) => own(name))) * MICRO;
  return {
    data: within((name) => name.startsWith(LOADER)),
    check: within((name) => name === CHECK),
    idle: Math.max(0, idle) * MICRO,
  };
}

/** Calls of the driver for memory, from the start of the last step on. */
function allocations(spans: readonly TraceSpan[]): { count: number; seconds: number } {
  const { forward, backward } = lastStep(spans);
  const end = (backward ?? forward).ts + (backward ?? forward).dur;
  const own = spans.filter(
    ({ name, ts }) => ALLOCATIONS.test(name) && ts >= forward.ts && ts <= end,
  );
  return { count: own.length, seconds: covered(own) * MICRO };
}

/** Waiting of ranks for the last of them, call by call. */
class Waiting {
  /** The seconds of all traced ranks together. */
  seconds = 0;
  private readonly lastOf = new Map<number, number>();

  /** Counts a call that the ranks of a group make together; gives its seconds on the last rank. */
  add(times: readonly { readonly rank: number; readonly seconds: number }[]): number {
    const last = times.reduce((a, b) => (b.seconds < a.seconds ? b : a));
    const waited = times.reduce((sum, { seconds }) => sum + seconds - last.seconds, 0);
    this.seconds += waited;
    this.lastOf.set(last.rank, (this.lastOf.get(last.rank) ?? 0) + waited);
    return last.seconds;
  }

  /** The rank that came last in most of the waiting, and its share of it. */
  get last(): CollectiveTimes['last'] {
    const [rank, own] = [...this.lastOf].reduce((a, b) => (b[1] > a[1] ? b : a), [0, 0]);
    return { rank, share: this.seconds === 0 ? 0 : own / this.seconds };
  }
}

/** Compares each collective on the ranks of its group, and the check of batches on all. */
function collectiveTimes(mesh: DeviceMesh, ranks: readonly TracedRank[]): CollectiveTimes {
  const byRank = new Map(ranks.map((one) => [one.rank, one.report.calls]));
  const kinds = new Map<string, { measured: number; predicted: number }>();
  const waiting = new Waiting();
  waiting.add(ranks.map(({ rank, spans }) => ({ rank, seconds: betweenSteps(spans).check })));
  for (const [i, { op, meshDims, predictedSeconds }] of ranks[0].report.calls.entries()) {
    if (meshDims === undefined) continue;
    for (const group of mesh.groups(meshDims)) {
      const times = group.flatMap((rank) => {
        const call = byRank.get(rank)?.[i];
        return call === undefined ? [] : [{ rank, seconds: call.measuredSeconds }];
      });
      if (times.length === 0) continue;
      const kind = `${op.split('::')[1]} over ${meshDims.join('+')}`;
      const sum = kinds.get(kind) ?? { measured: 0, predicted: 0 };
      sum.measured += waiting.add(times) * times.length;
      sum.predicted += (predictedSeconds ?? 0) * times.length;
      kinds.set(kind, sum);
    }
  }
  return {
    waiting: waiting.seconds / ranks.length,
    last: waiting.last,
    slower: new Map(
      [...kinds].map(([kind, { measured, predicted }]) => [
        kind,
        { seconds: (measured - predicted) / ranks.length, ratio: measured / predicted },
      ]),
    ),
  };
}

/** Seconds by which all kinds of collectives that are slower than their price exceed it. */
function slowerSeconds({ slower }: CollectiveTimes): number {
  return [...slower.values()].reduce((sum, { seconds }) => sum + Math.max(0, seconds), 0);
}

function ofCollectives(times: CollectiveTimes, ranks: readonly TracedRank[]): LostTime[] {
  const { waiting, last, slower } = times;
  const isOne = last.share > MOSTLY;
  const [kind, { ratio }] = [...slower].reduce(
    (a, b) => (b[1].seconds > a[1].seconds ? b : a),
    ['', { seconds: 0, ratio: 1 }],
  );
  return [
    {
      kind: 'waiting for ranks',
      seconds: waiting,
      what: isOne
        ? `the others wait for rank ${last.rank}, the last to come in ` +
          `${percentText(last.share)} of the waiting`
        : 'ranks wait for each other by turns',
      change: isOne
        ? 'look at its clocks, its data and what else runs on its host'
        : 'give each process its own cores and links, and all ranks batches of equal work',
    },
    {
      kind: 'collectives',
      seconds: slowerSeconds(times),
      what:
        `collectives are slower than their price, most of all ${kind} (${ratio.toFixed(1)} x)` +
        (ranks.length > 1 ? '' : ', waits for other ranks included'),
      change:
        'measure the links (python -m shardwright.measure, or hardware import) and plan with ' +
        'that file',
    },
  ];
}

/** Waits that neither other ranks nor slow collectives explain, beyond those of the plan's step. */
function ofOverlap(
  { step }: Plan,
  times: CollectiveTimes,
  ranks: readonly TracedRank[],
): LostTime[] {
  if (step?.trainer !== 'shardwright') return [];
  const waited = mean(ranks.map(({ report }) => report.waitedSeconds));
  const compute = ranks[0].report.computeSeconds.predicted;
  const planned = Math.max(0, step.stepSeconds - compute);
  return [
    {
      kind: 'overlap',
      seconds: waited - planned - times.waiting - slowerSeconds(times),
      what: 'the program waits for collectives that were planned beside compute',
      change: 'export it with --order simulated --bucket auto',
    },
  ];
}

function ofCalls(ranks: readonly TracedRank[]): LostTime[] {
  const over = (calls: readonly MeasuredCall[]): Map<string, number> => {
    const sums = new Map<string, number>();
    for (const { kind, op, measuredSeconds, predictedSeconds } of calls)
      if (kind === 'compute')
        sums.set(op, (sums.get(op) ?? 0) + measuredSeconds - (predictedSeconds ?? 0));
    return sums;
  };
  const all = ranks.map(({ report }) => over(report.calls));
  const byOp = [...all[0].keys()].map(
    (op) => [op, mean(all.map((sums) => sums.get(op) ?? 0))] as const,
  );
  const most = byOp.reduce((a, b) => (b[1] > a[1] ? b : a), ['', 0] as const);
  return [
    {
      kind: 'calls',
      seconds: byOp.reduce((sum, [, seconds]) => sum + Math.max(0, seconds), 0),
      what: `calls take longer than their prices, most of all ${most[0]}`,
      change: 'keep what they took (--calibration FILE) and plan again with it',
    },
  ];
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
