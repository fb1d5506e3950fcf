/** Decides which tasks may run ahead without the step needing more memory than a limit. */

import type { Schedule } from './schedule.ts';

/**
 * Which tasks may run ahead without the step ever holding more than a limit. Overlapping streams
 * need more memory than one task after another: the result of an early gather is there early, and
 * the operand of a late reduction is there longer.
 *
 * The frontier is the first task in program order that has not ended. The bytes alive now are at
 * most those that the frontier has alive when tasks run one after another, and the results of tasks
 * behind it that have started. So a task j may start when at every place p from the frontier up to
 * j
 *
 *     alive at p one after another + results alive of started tasks behind p + results of j <=
 *     limit
 *
 * The frontier itself may always start, so nothing waits for ever, and where one after another fits
 * the limit all does.
 */
export class Headroom {
  /** By place: bytes one after another, and those of results that are there early. */
  private readonly bytes: RangeMost;
  /**
   * True if one task after another keeps the limit: then every order that waits where it must keeps
   * it too.
   */
  readonly isKept: boolean;
  private readonly ended: Uint8Array;
  private frontier = 0;
  /** By task: bytes of its results. */
  private readonly written: Float64Array;
  /**
   * By buffer: uses by tasks that have not ended, and where it is made; -1 for buffers that are
   * given or stay.
   */
  private readonly users: Int32Array;
  private readonly made: Int32Array;

  constructor(
    private readonly schedule: Schedule,
    private readonly limitBytes: number,
  ) {
    const { tasks, buffers } = schedule;
    const alone = serialBytes(schedule);
    this.bytes = new RangeMost(alone);
    this.isKept = this.bytes.most(0, alone.length) <= limitBytes;
    this.ended = new Uint8Array(tasks.length);
    this.written = Float64Array.from(tasks, ({ writes }) =>
      writes.reduce((sum, b) => sum + buffers[b].bytes, 0),
    );
    this.users = new Int32Array(buffers.length);
    this.made = new Int32Array(buffers.length).fill(-1);
    tasks.forEach((task, i) => {
      for (const b of task.writes) if (!buffers[b].kept) this.made[b] = i;
      for (const b of task.reads) this.users[b]++;
      for (const b of task.writes) this.users[b]++;
    });
  }

  /** Tells whether task i may start now. */
  admits(i: number): boolean {
    const own = this.written[i];
    return (
      own === 0 || i === this.frontier || this.bytes.most(this.frontier, i) + own <= this.limitBytes
    );
  }

  start(i: number): void {
    this.bytes.add(i, this.written[i]);
  }

  end(i: number): void {
    const { tasks, buffers } = this.schedule;
    this.ended[i] = 1;
    while (this.frontier < tasks.length && this.ended[this.frontier] === 1) this.frontier++;
    const { reads, writes } = tasks[i];
    for (const b of reads) this.release(b, buffers[b].bytes);
    for (const b of writes) this.release(b, buffers[b].bytes);
  }

  private release(b: number, bytes: number): void {
    if (--this.users[b] === 0 && this.made[b] >= 0) this.bytes.add(this.made[b], -bytes);
  }
}

/** Bytes alive while each task runs, all tasks one after another in program order. */
export function serialBytes({ tasks, buffers }: Schedule): Float64Array {
  const last = new Int32Array(buffers.length).fill(-1);
  const from = Int32Array.from(buffers, (b) => (b.given ? 0 : -1));
  tasks.forEach((task, i) => {
    for (const b of task.writes) from[b] = i;
    for (const b of task.reads) last[b] = i;
    for (const b of task.writes) last[b] = i;
  });
  const out = new Float64Array(tasks.length + 1);
  buffers.forEach((b, i) => {
    if (from[i] < 0) return;
    out[from[i]] += b.bytes;
    // A buffer that is given and never read stays, as a kept one does.
    if (!b.kept && last[i] >= 0) out[last[i] + 1] -= b.bytes;
  });
  for (let i = 1; i < out.length; i++) out[i] += out[i - 1];
  return out.subarray(0, tasks.length);
}

/** The most bytes of `serialBytes`; 0 without tasks. */
export function serialPeakBytes(schedule: Schedule): number {
  return serialBytes(schedule).reduce((a, b) => Math.max(a, b), 0);
}

/**
 * Numbers by place: something is added to all places before one, and the most of a range is asked.
 * A segment tree.
 */
export class RangeMost {
  private readonly size: number;
  /** Most of the places below a vertex, its own addition included. */
  private readonly top: Float64Array;
  /** The amount that was added to all places below a vertex. */
  private readonly added: Float64Array;

  constructor(values: Float64Array) {
    this.size = 1;
    while (this.size < values.length) this.size *= 2;
    this.top = new Float64Array(2 * this.size).fill(-Infinity);
    this.added = new Float64Array(2 * this.size);
    this.top.set(values, this.size);
    for (let v = this.size - 1; v >= 1; v--)
      this.top[v] = Math.max(this.top[2 * v], this.top[2 * v + 1]);
  }

  /** Adds to every place before `to`. */
  add(to: number, amount: number): void {
    if (to > 0 && amount !== 0) this.addBelow(1, 0, this.size, to, amount);
  }

  /**
   * The most of the places from `from` up to but not including `to`; -Infinity where there is none.
   */
  most(from: number, to: number): number {
    return from < to ? this.mostBelow(1, 0, this.size, from, to) : -Infinity;
  }

  private addBelow(v: number, start: number, end: number, to: number, amount: number): void {
    if (end <= to) {
      this.top[v] += amount;
      this.added[v] += amount;
      return;
    }
    const middle = (start + end) >> 1;
    this.addBelow(2 * v, start, middle, to, amount);
    if (to > middle) this.addBelow(2 * v + 1, middle, end, to, amount);
    this.top[v] = Math.max(this.top[2 * v], this.top[2 * v + 1]) + this.added[v];
  }

  private mostBelow(v: number, start: number, end: number, from: number, to: number): number {
    if (from <= start && end <= to) return this.top[v];
    const middle = (start + end) >> 1;
    const left = from < middle ? this.mostBelow(2 * v, start, middle, from, to) : -Infinity;
    const right = to > middle ? this.mostBelow(2 * v + 1, middle, end, from, to) : -Infinity;
    return Math.max(left, right) + this.added[v];
  }
}
