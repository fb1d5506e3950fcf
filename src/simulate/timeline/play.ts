/** Plays tasks on streams by discrete events and gives spans, idle times and the memory curve. */

import { checkKinds } from '../../arguments.ts';
import { internalError, ShardwrightError } from '../../errors.ts';
import { COMPUTE } from '../work/streams.ts';
import { Headroom } from './headroom.ts';
import { type Schedule, type Task, taskSeconds } from './schedule.ts';

/** A schedule that was played: its time, the span of each task, the memory alive. */
export interface Timeline {
  readonly seconds: number;
  /** All tasks one after another. */
  readonly serialSeconds: number;
  /** Busy time of the compute stream, and of the communication streams together. */
  readonly computeSeconds: number;
  readonly communicationSeconds: number;
  /** Time in which something communicates and nothing computes. */
  readonly exposedCommunicationSeconds: number;
  /** In the order of the schedule's tasks. */
  readonly spans: readonly Span[];
  readonly memory: MemoryCurve;
  /** Tasks that could have started earlier but for `PlayOptions.memoryBytes`. */
  readonly delayedTasks: number;
}

export interface Span {
  readonly task: Task;
  readonly start: number;
  readonly end: number;
}

interface MemoryCurve {
  readonly peakBytes: number;
  /**
   * First time of the peak, and the task that starts it; undefined when the step begins with it.
   */
  readonly peakAt: number;
  readonly peakTask: string | undefined;
  /** Bytes at the peak by kind of buffer. */
  readonly byKind: Readonly<Record<string, number>>;
  /** Buffers alive at the peak, by index. */
  readonly live: readonly number[];
  /** Times at which the live bytes change, ascending, and the bytes from there on. */
  readonly points: readonly { readonly at: number; readonly bytes: number }[];
}

export interface PlayOptions {
  /**
   * The time of compute that overlaps with communication, relative to compute alone: collectives
   * take part of the device. 1.13 to 1.3 have been measured; default 1.
   */
  readonly overlapSlowdown?: number;
  /**
   * Most bytes alive at once: what runs ahead waits where it would be more. Kept wherever one task
   * after another keeps it (`serialPeakBytes`); default no limit.
   */
  readonly memoryBytes?: number;
}

/**
 * Plays a schedule on the streams of one device.
 *
 * @throws E_USAGE for a slowdown below 1; E_INTERNAL for a schedule whose tasks wait for each other
 */
export function play(schedule: Schedule, options: PlayOptions = {}): Timeline {
  checkKinds('play', {
    schedule: [schedule, ['tasks', 'buffers', 'streams']],
    options: [options, 'record', 'undefined'],
  });
  return playTasks(schedule, options).timeline();
}

/**
 * When tasks ran. What a timeline says of them is worked out where it is asked for: most orders
 * that are tried lose.
 */
export interface Played {
  readonly seconds: number;
  /** By task, in the order of the schedule. */
  readonly start: Float64Array;
  readonly end: Float64Array;
  /** Most bytes alive above a limit; 0 where none are. */
  excessBytes(limitBytes: number): number;
  timeline(): Timeline;
}

/** Plays as `play` does. @throws what `play` throws */
export function playTasks(schedule: Schedule, options: PlayOptions = {}): Played {
  const { overlapSlowdown: slowdown = 1 } = options;
  if (!(slowdown >= 1 && slowdown < Infinity))
    throw new ShardwrightError(
      'E_USAGE',
      `compute under communication takes ${slowdown} of its time, expected 1 or more`,
    );
  const { memoryBytes } = options;
  const headroom = memoryBytes === undefined ? undefined : new Headroom(schedule, memoryBytes);
  const run = new Run(schedule, slowdown, headroom).run();
  const { start, end } = run;
  const seconds = end.reduce((most, t) => Math.max(most, t), 0);
  let known: MemoryCurve | undefined;
  const memory = (): MemoryCurve => (known ??= memoryCurve(schedule, run));
  return {
    seconds,
    start,
    end,
    // A limit that one task after another keeps is kept.
    excessBytes: (limitBytes) =>
      memoryBytes !== undefined && memoryBytes <= limitBytes && headroom?.isKept === true
        ? 0
        : Math.max(0, memory().peakBytes - limitBytes),
    timeline: () => ({
      seconds,
      ...spansOf(schedule, run),
      memory: memory(),
      delayedTasks: run.delayedTasks,
    }),
  };
}

type Spans = Pick<
  Timeline,
  | 'spans'
  | 'serialSeconds'
  | 'computeSeconds'
  | 'communicationSeconds'
  | 'exposedCommunicationSeconds'
>;

function spansOf(schedule: Schedule, { start, end }: Happened): Spans {
  const spans = schedule.tasks.map((task, i) => ({ task, start: start[i], end: end[i] }));
  const busy = (of: (task: Task) => boolean): number =>
    spans.reduce((sum, s) => (of(s.task) ? sum + (s.end - s.start) : sum), 0);
  return {
    serialSeconds: schedule.tasks.reduce((sum, task) => sum + taskSeconds(schedule, task), 0),
    computeSeconds: busy((t) => t.stream === COMPUTE),
    communicationSeconds: busy((t) => t.stream !== COMPUTE),
    exposedCommunicationSeconds: exposed(spans),
    spans,
  };
}

/**
 * When every task starts and ends, and in which order all of that happens: several things may
 * happen at one time.
 */
interface Happened {
  readonly start: Float64Array;
  readonly end: Float64Array;
  readonly startOrder: Int32Array;
  readonly endOrder: Int32Array;
  readonly delayedTasks: number;
}

/** Who waits for each task: lists in one array, as most tasks have one that waits or none. */
class Waiters {
  private readonly first: Int32Array;
  private readonly next: number[] = [];
  private readonly task: number[] = [];

  constructor(
    count: number,
    /** The tasks that every task still waits for. */
    private readonly waits: Int32Array,
  ) {
    this.first = new Int32Array(count).fill(-1);
  }

  add(on: number, task: number): void {
    this.next.push(this.first[on]);
    this.first[on] = this.task.push(task) - 1;
    this.waits[task]++;
  }

  release(on: number): void {
    for (let k = this.first[on]; k >= 0; k = this.next[k]) this.waits[this.task[k]]--;
  }
}

class Run implements Happened {
  readonly start: Float64Array;
  readonly end: Float64Array;
  readonly startOrder: Int32Array;
  readonly endOrder: Int32Array;
  delayedTasks = 0;
  private happened = 0;
  /** Since when the head of a stream has waited for memory alone; -1: it does not. */
  private readonly blockedSince: Float64Array;
  private readonly seconds: Float64Array;
  private readonly waits: Int32Array;
  private readonly onStart: Waiters;
  private readonly onEnd: Waiters;
  private readonly queues: number[][];
  private readonly heads: Int32Array;
  /** Task that each stream runs, -1: idle. */
  private readonly running: Int32Array;

  constructor(
    private readonly schedule: Schedule,
    private readonly slowdown: number,
    private readonly headroom: Headroom | undefined,
  ) {
    const { tasks, streams, buffers } = schedule;
    const n = tasks.length;
    this.start = new Float64Array(n);
    this.end = new Float64Array(n).fill(Infinity);
    this.startOrder = new Int32Array(n);
    this.endOrder = new Int32Array(n);
    this.seconds = new Float64Array(n);
    this.waits = new Int32Array(n);
    this.onStart = new Waiters(n, this.waits);
    this.onEnd = new Waiters(n, this.waits);
    this.queues = streams.map(() => []);
    this.heads = new Int32Array(streams.length);
    this.running = new Int32Array(streams.length).fill(-1);
    this.blockedSince = new Float64Array(streams.length).fill(-1);
    const writer = new Int32Array(buffers.length).fill(-1);
    const position = new Map<number, number>();
    for (let i = 0; i < n; i++) {
      position.set(tasks[i].id, i);
      for (const b of tasks[i].writes) writer[b] = i;
    }
    const placeOf = (id: number, i: number): number => {
      const at = position.get(id);
      if (at === undefined)
        throw internalError(`${tasks[i].name} waits for a task that is not there`);
      return at;
    };
    for (let i = 0; i < n; i++) {
      const task = tasks[i];
      this.seconds[i] = taskSeconds(schedule, task);
      for (const b of task.reads) if (writer[b] >= 0) this.onEnd.add(writer[b], i);
      if (task.afterStart !== undefined)
        for (const id of task.afterStart) this.onStart.add(placeOf(id, i), i);
      if (task.afterEnd !== undefined)
        for (const id of task.afterEnd) this.onEnd.add(placeOf(id, i), i);
      this.queues[task.stream].push(i);
    }
  }

  run(): Happened {
    const { tasks } = this.schedule;
    let now = 0;
    for (let done = 0; done < tasks.length;) {
      this.startAll(now);
      let next = Infinity;
      for (const i of this.running) if (i >= 0) next = Math.min(next, this.end[i]);
      if (next === Infinity)
        throw internalError(`${this.stuck()} waits for a task that never ends`);
      now = next;
      for (let s = 0; s < this.running.length; s++) {
        const i = this.running[s];
        if (i < 0 || this.end[i] > now) continue;
        this.running[s] = -1;
        this.endOrder[i] = this.happened++;
        this.headroom?.end(i);
        done++;
        this.onEnd.release(i);
        if (s !== COMPUTE) this.pace(now);
      }
    }
    return this;
  }

  /** Starts whatever can start now. A start may let another stream's head start. */
  private startAll(now: number): void {
    for (let moved = true; moved;) {
      moved = false;
      for (let s = 0; s < this.running.length; s++) {
        const queue = this.queues[s];
        if (this.running[s] >= 0 || this.heads[s] >= queue.length) continue;
        if (this.schedule.oneAtATime === true && this.running.some((i) => i >= 0)) return;
        const i = queue[this.heads[s]];
        if (this.waits[i] > 0) continue;
        if (this.headroom?.admits(i) === false) {
          if (this.blockedSince[s] < 0) this.blockedSince[s] = now;
          continue;
        }
        if (this.blockedSince[s] >= 0 && now > this.blockedSince[s]) this.delayedTasks++;
        this.blockedSince[s] = -1;
        this.headroom?.start(i);
        this.heads[s]++;
        this.start[i] = now;
        this.startOrder[i] = this.happened++;
        this.end[i] =
          now + this.seconds[i] * (s === COMPUTE && this.communicating() ? this.slowdown : 1);
        this.running[s] = i;
        this.onStart.release(i);
        if (s !== COMPUTE) this.pace(now);
        moved = true;
      }
    }
  }

  private beside = false;

  private communicating(): boolean {
    let beside = false;
    for (let s = 0; s < this.running.length; s++)
      if (s !== COMPUTE && this.running[s] >= 0) beside = true;
    return (this.beside = beside);
  }

  /** The running kernel goes on at another pace when communication begins or ends. */
  private pace(now: number): void {
    const before = this.beside;
    const after = this.communicating();
    const i = this.running[COMPUTE];
    if (before === after || i < 0 || this.slowdown === 1) return;
    const left = this.end[i] - now;
    this.end[i] = now + (after ? left * this.slowdown : left / this.slowdown);
  }

  private stuck(): string {
    const s = this.queues.findIndex((queue, k) => this.heads[k] < queue.length);
    return this.schedule.tasks[this.queues[s][this.heads[s]]].name;
  }
}

/** Length of the time in which a communication stream is busy and the compute stream is not. */
function exposed(spans: readonly Span[]): number {
  const events: { readonly at: number; readonly compute: number; readonly other: number }[] = [];
  for (const { task, start, end } of spans) {
    if (end <= start) continue;
    const [compute, other] = task.stream === COMPUTE ? [1, 0] : [0, 1];
    events.push({ at: start, compute, other }, { at: end, compute: -compute, other: -other });
  }
  events.sort((a, b) => a.at - b.at);
  let [computing, communicating, since, sum] = [0, 0, 0, 0];
  for (const { at, compute, other } of events) {
    if (communicating > 0 && computing === 0) sum += at - since;
    since = at;
    computing += compute;
    communicating += other;
  }
  return sum;
}

/**
 * Adds up what is alive, event by event: what ends at a time is free for what begins after it at
 * the same time.
 */
function memoryCurve(schedule: Schedule, run: Happened): MemoryCurve {
  const { tasks, buffers } = schedule;
  const n = buffers.length;
  // Orders of events: given buffers are there before the first, kept and unread ones stay after the
  // last.
  const from = Int32Array.from(buffers, (b) => (b.given ? -1 : NEVER));
  const to = new Int32Array(n).fill(-1);
  tasks.forEach((task, i) => {
    for (const b of task.writes) from[b] = run.startOrder[i];
    for (const list of [task.reads, task.writes])
      for (const b of list) to[b] = Math.max(to[b], run.endOrder[i]);
  });
  const count = 2 * tasks.length;
  const change = new Float64Array(count);
  const at = new Float64Array(count);
  const starter = new Int32Array(count).fill(-1);
  tasks.forEach((_, i) => {
    at[run.startOrder[i]] = run.start[i];
    at[run.endOrder[i]] = run.end[i];
    starter[run.startOrder[i]] = i;
  });
  let bytes = 0;
  buffers.forEach((b, i) => {
    if (b.kept || (b.given && to[i] < 0)) to[i] = NEVER;
    if (from[i] === NEVER) return;
    if (from[i] < 0) bytes += b.bytes;
    else change[from[i]] += b.bytes;
    if (to[i] !== NEVER) change[to[i]] -= b.bytes;
  });
  const points = [{ at: 0, bytes }];
  let [peakBytes, peakAt, peak] = [bytes, 0, -1];
  for (let e = 0; e < count; e++) {
    if (change[e] === 0) continue;
    bytes += change[e];
    // A time keeps its largest sum, and its last where that is less.
    const last = points[points.length - 1];
    if (last.at !== at[e] || last.bytes > bytes) points.push({ at: at[e], bytes });
    else last.bytes = bytes;
    if (bytes > peakBytes) [peakBytes, peakAt, peak] = [bytes, at[e], e];
  }
  const live = buffers.flatMap((b, i) =>
    b.bytes > 0 && from[i] <= peak && peak < to[i] ? [i] : [],
  );
  const byKind: Record<string, number> = {};
  for (const i of live) byKind[buffers[i].kind] = (byKind[buffers[i].kind] ?? 0) + buffers[i].bytes;
  return {
    peakBytes,
    peakAt,
    peakTask: peak < 0 || starter[peak] < 0 ? undefined : tasks[starter[peak]].name,
    byKind,
    live,
    points,
  };
}

const NEVER = 2 ** 31 - 1;
