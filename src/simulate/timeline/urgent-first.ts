/**
 * Orders the tasks of a schedule on their streams, urgent ones first, so that a move that a kernel
 * waits for is not behind sums of gradients that no kernel waits for.
 *
 * List scheduling (Graham, Bounds on multiprocessing timing anomalies, 1969): whenever a stream is
 * free it takes, of the tasks whose data is there, the one that the earliest kernel needs. It may
 * also stay idle for a move that is about to be ready. Sums that are ready together travel in one
 * bucket. Kernels keep their order. The result is a fixed order for each stream. A program runs in
 * this order if it calls the collectives of each stream in sequence and copies each sum when it
 * arrives.
 */
import { internalError } from '../../errors.ts';
import type { CollectiveKind } from '../../mesh/collective-kinds.ts';
import { COMPUTE } from '../work/streams.ts';
import { together } from './bucket.ts';
import { Needs, sumsOf } from './needs.ts';
import { type Schedule, type Task, taskSeconds } from './schedule.ts';

/** A rule for the order of tasks on their streams. */
export interface ListOrder {
  /**
   * Seconds that a move may come late for each second that its stream does not stay idle for it. 0:
   * no move that can be foreseen is late.
   */
  readonly patience: number;
  /**
   * Which of the sums that are ready go first: those that are made first, or those that the longest
   * work waits for.
   */
  readonly sumsFirst: 'made' | 'long';
}

interface ListOptions {
  /** Most bytes of one bucket of sums; 0: none. */
  readonly bucketBytes: number;
  /** Seconds of a collective over the flattened group of some mesh dims. */
  seconds(kind: CollectiveKind, bytes: number, meshDims: readonly number[]): number;
}

/** Data that every order of one schedule needs. */
export class ListWork {
  readonly needs: Needs;
  readonly seconds: Float64Array;
  /** Seconds of kernels before each. */
  readonly before: Float64Array;
  readonly rank: Float64Array;
  readonly isSum: Uint8Array;
  /** Seconds of what waits for each task, one after another, to the end of the step. */
  readonly tail: Float64Array;
  /** The waits of each task at first, and the tasks that wait for its start and its end. */
  readonly waits: Int32Array;
  readonly onStart: number[][];
  readonly onEnd: number[][];
  /** By stream: moves that some kernel needs, by the kernel that makes them. */
  readonly coming: readonly (readonly number[])[];

  constructor(
    readonly schedule: Schedule,
    readonly options: ListOptions,
  ) {
    const { tasks, streams } = schedule;
    this.needs = new Needs(schedule);
    const { kernels, need, maker } = this.needs;
    this.seconds = Float64Array.from(tasks, (task) => taskSeconds(schedule, task));
    this.before = new Float64Array(kernels.length + 1);
    kernels.forEach((at, k) => (this.before[k + 1] = this.before[k] + this.seconds[at]));
    this.rank = this.ranks();
    this.isSum =
      options.bucketBytes > 0 ? sumsOf(schedule, this.needs) : new Uint8Array(tasks.length);
    this.tail = this.tails();
    this.waits = new Int32Array(tasks.length);
    this.onStart = tasks.map(() => NOBODY);
    this.onEnd = tasks.map(() => NOBODY);
    this.link();
    this.coming = streams.map((_, s) =>
      tasks
        .flatMap(({ stream }, at) =>
          s !== COMPUTE && stream === s && need[at] < kernels.length && maker[at] >= 0 ? [at] : [],
        )
        .sort((a, b) => maker[a] - maker[b]),
    );
  }

  ordered(order: ListOrder): Schedule {
    return new ListScheduler(this, order).run();
  }

  private link(): void {
    const { tasks } = this.schedule;
    const { kernels, writer } = this.needs;
    const position = new Map(tasks.map(({ id }, at) => [id, at]));
    const wait = (at: number, lists: number[][], on: number | undefined): void => {
      if (on === undefined)
        throw internalError(`${tasks[at].name} waits for a task that is not there`);
      if (lists[on] === NOBODY) lists[on] = [at];
      else lists[on].push(at);
      this.waits[at]++;
    };
    tasks.forEach((task, at) => {
      for (const b of task.reads) if (writer[b] >= 0) wait(at, this.onEnd, writer[b]);
      if (task.afterStart !== undefined)
        for (const id of task.afterStart) wait(at, this.onStart, position.get(id));
      if (task.afterEnd !== undefined)
        for (const id of task.afterEnd) wait(at, this.onEnd, position.get(id));
    });
    for (let k = 1; k < kernels.length; k++) wait(kernels[k], this.onEnd, kernels[k - 1]);
  }

  /**
   * By task: the position of the first kernel that needs it, its own for a kernel. A copy that a
   * collective reads is wanted as soon as it can be made.
   */
  private ranks(): Float64Array {
    const { tasks, buffers } = this.schedule;
    const { kernels, numberOf, need, maker } = this.needs;
    const n = tasks.length;
    const feeds = new Uint8Array(buffers.length);
    for (const task of tasks)
      if (task.collective !== undefined) for (const b of task.reads) feeds[b] = 1;
    return Float64Array.from(tasks, (task, at) => {
      if (numberOf[at] >= 0) return at;
      const isFeed = task.stream === COMPUTE && task.writes.some((b) => feeds[b] === 1);
      const first = need[at] < kernels.length ? kernels[need[at]] : n;
      const from = maker[at] < 0 ? 0 : kernels[maker[at]] + 1;
      // Of two that the same kernel needs, the one that is written first comes first.
      return (isFeed ? Math.min(first, from) : first) - 0.5 + at / (2 * n);
    });
  }

  private tails(): Float64Array {
    const { tasks } = this.schedule;
    const { writer } = this.needs;
    const tail = new Float64Array(tasks.length);
    for (let at = tasks.length - 1; at >= 0; at--)
      for (const b of tasks[at].reads)
        if (writer[b] >= 0)
          tail[writer[b]] = Math.max(tail[writer[b]], tail[at] + this.seconds[at]);
    return tail;
  }
}

/** Most tasks have nobody who waits for their start: they share one list. */
const NOBODY: number[] = [];

class ListScheduler {
  /** The remaining waits of each task. */
  private readonly waits: Int32Array;
  /** By stream: tasks that are ready, and ready sums, each by rank. */
  private readonly ready: number[][];
  private readonly readySums: number[][];
  /** By stream: the first move that some kernel needs and that may not be ready. */
  private readonly firstComing: Int32Array;
  /** The tasks that each stream runs, and the time until which it runs them. */
  private readonly running: (readonly number[] | undefined)[];
  private readonly ends: Float64Array;
  private kernelsStarted = 0;
  private kernelEnd = 0;
  private now = 0;
  private readonly order: Task[] = [];

  constructor(
    private readonly work: ListWork,
    private readonly list: ListOrder,
  ) {
    const { tasks, streams } = work.schedule;
    this.waits = work.waits.slice();
    this.ready = streams.map(() => []);
    this.readySums = streams.map(() => []);
    this.firstComing = new Int32Array(streams.length);
    this.running = streams.map(() => undefined);
    this.ends = new Float64Array(streams.length).fill(Infinity);
    for (let at = 0; at < tasks.length; at++) if (this.waits[at] === 0) this.makeReady(at);
  }

  run(): Schedule {
    const { tasks, streams } = this.work.schedule;
    for (let done = 0; done < tasks.length;) {
      for (let moved = true; moved;) {
        moved = false;
        for (let s = 0; s < streams.length; s++)
          if (this.running[s] === undefined && this.start(s)) moved = true;
      }
      this.now = this.ends.reduce((a, b) => Math.min(a, b));
      if (this.now === Infinity) throw internalError('tasks wait for each other');
      for (let s = 0; s < streams.length; s++) {
        const members = this.running[s];
        if (members === undefined || this.ends[s] > this.now) continue;
        this.running[s] = undefined;
        this.ends[s] = Infinity;
        done += members.length;
        for (const at of members) this.release(this.work.onEnd[at]);
      }
    }
    return { ...this.work.schedule, tasks: this.order };
  }

  private makeReady(at: number): void {
    const { stream } = this.work.schedule.tasks[at];
    const list = (this.work.isSum[at] === 0 ? this.ready : this.readySums)[stream];
    let [low, high] = [0, list.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.work.rank[list[middle]] < this.work.rank[at]) low = middle + 1;
      else high = middle;
    }
    list.splice(low, 0, at);
  }

  private release(list: readonly number[]): void {
    for (const at of list) if (--this.waits[at] === 0) this.makeReady(at);
  }

  /** Starts what a free stream takes next, if there is anything. */
  private start(stream: number): boolean {
    const ready = this.ready[stream];
    let place = -1;
    for (let k = 0; place < 0 && k < ready.length && k < MOST_TRIED; k++)
      if (this.mayStart(stream, ready[k], this.work.seconds[ready[k]])) place = k;
    const members = place >= 0 ? ready.splice(place, 1) : this.nextSums(stream);
    if (members.length === 0) return false;
    const [first] = members;
    const { task, seconds } = this.bucketOf(members);
    this.running[stream] = members;
    this.ends[stream] = this.now + seconds;
    if (this.work.needs.numberOf[first] >= 0) {
      this.kernelsStarted++;
      this.kernelEnd = this.ends[stream];
    }
    this.order.push(task);
    for (const one of members) this.release(this.work.onStart[one]);
    return true;
  }

  private bucketOf(members: readonly number[]): { readonly task: Task; readonly seconds: number } {
    const { tasks, launchSeconds } = this.work.schedule;
    const [first] = members;
    if (members.length === 1) return { task: tasks[first], seconds: this.work.seconds[first] };
    const seconds = this.secondsTogether(members);
    const bytes = members.reduce((sum, at) => sum + (tasks[at].collective?.bytes ?? 0), 0);
    return {
      task: together(
        members.map((at) => tasks[at]),
        bytes,
        seconds,
      ),
      seconds: seconds + launchSeconds,
    };
  }

  private secondsTogether(members: readonly number[]): number {
    const { tasks } = this.work.schedule;
    const work = tasks[members[0]].collective;
    if (work === undefined) throw internalError(`${tasks[members[0]].name} is not a collective`);
    const bytes = members.reduce((sum, at) => sum + (tasks[at].collective?.bytes ?? 0), 0);
    return this.work.options.seconds(work.kind, bytes, work.meshDims);
  }

  /** Takes ready sums of one kind, as many as a bucket holds and the stream has time for. */
  private nextSums(stream: number): readonly number[] {
    const list = this.readySums[stream];
    if (list.length === 0) return [];
    const { tasks } = this.work.schedule;
    const kinds = new Map<string, number[]>();
    for (const at of list) {
      const key = sumKey(tasks[at]);
      const alike = kinds.get(key);
      if (alike === undefined) kinds.set(key, [at]);
      else alike.push(at);
    }
    const buckets =
      this.list.sumsFirst === 'made'
        ? [this.fullBucket(kinds.get(sumKey(tasks[list[0]])) ?? [])]
        : this.longestFirst([...kinds.values()]);
    for (const members of buckets)
      for (let size = members.length; size >= 1; size = Math.floor(size / 2)) {
        const taken = members.slice(0, size);
        if (!this.mayStart(stream, members[0], this.bucketOf(taken).seconds)) continue;
        this.readySums[stream] = list.filter((at) => !taken.includes(at));
        return taken;
      }
    return [];
  }

  /**
   * A bucket of each kind. First those with the longest tail (Jackson's rule for one machine with
   * tails), then the longest: what is left gets company meanwhile, and pays its latency once.
   */
  private longestFirst(kinds: readonly (readonly number[])[]): readonly (readonly number[])[] {
    const buckets = kinds.map((alike) => {
      const members = this.fullBucket(alike);
      const tail = members.reduce((most, at) => Math.max(most, this.work.tail[at]), 0);
      return { members, tail, seconds: this.bucketOf(members).seconds };
    });
    return buckets
      .sort((a, b) => b.tail - a.tail || b.seconds - a.seconds)
      .map(({ members }) => members);
  }

  /** As many of some sums of one kind as a bucket holds, always with the first of them. */
  private fullBucket(alike: readonly number[]): readonly number[] {
    const { tasks } = this.work.schedule;
    const members: number[] = [];
    let [bytes, alone] = [0, 0];
    for (const at of alike) {
      bytes += tasks[at].collective?.bytes ?? 0;
      alone += tasks[at].seconds;
      const isTooMuch =
        bytes > this.work.options.bucketBytes || this.secondsTogether([...members, at]) > alone;
      if (members.length > 0 && isTooMuch) break;
      members.push(at);
    }
    return members;
  }

  /**
   * Tells whether a stream may run a task for so long: what kernels need before it, and is soon
   * ready, must not be too late then.
   */
  private mayStart(stream: number, at: number, seconds: number): boolean {
    if (stream === COMPUTE) return true;
    const { maker, need } = this.work.needs;
    const list = this.work.coming[stream];
    while (
      this.firstComing[stream] < list.length &&
      this.waits[list[this.firstComing[stream]]] === 0
    )
      this.firstComing[stream]++;
    const end = this.now + seconds;
    // The time at which the step would have begun if no kernel had waited since.
    const began =
      (this.running[COMPUTE] === undefined ? this.now : Math.max(this.now, this.kernelEnd)) -
      this.work.before[this.kernelsStarted];
    let firstReady = Infinity;
    for (let i = this.firstComing[stream]; i < list.length; i++) {
      const other = list[i];
      if (this.waits[other] === 0 || this.work.rank[other] >= this.work.rank[at]) continue;
      const there = Math.max(this.now, began + this.work.before[maker[other] + 1]);
      if (there >= end) break;
      firstReady = Math.min(firstReady, there);
      const late =
        end - Math.max(there, began + this.work.before[need[other]] - this.work.seconds[other]);
      if (late > this.list.patience * (firstReady - this.now) + ROUNDING) return false;
    }
    return true;
  }
}

/** Most ready tasks of which a stream looks for one that may start. */
const MOST_TRIED = 8;
/** Seconds below which nothing is late. */
const ROUNDING = 1e-12;

/** Sums with one key may be one collective. */
function sumKey({ collective, phase }: Task): string {
  return collective === undefined
    ? ''
    : `${collective.kind} ${collective.meshDims.join()} ${collective.key} ${phase}`;
}
