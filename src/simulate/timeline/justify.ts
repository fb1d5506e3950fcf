/**
 * Moves the tasks of a timed schedule as late as they can run, and then as early: the new order
 * takes no longer, and often less.
 *
 * Forward-backward improvement of a schedule with limited resources (Valls, Ballestín and
 * Quintanilla, Justification and RCPSP: a technique that pays, 2005). Each task, the last to end
 * first, goes into the latest free place of its stream before the tasks that wait for it. Then
 * each, the first to start first, goes into the earliest place after the tasks that it waits for. A
 * stream is free in each pass where a task was before, so no pass is longer. Kernels keep their
 * order.
 */
import { internalError } from '../../errors.ts';
import { type Schedule, taskSeconds, writers } from './schedule.ts';

/** @param times when the tasks of the schedule run, in their order */
export function justified(schedule: Schedule, times: Times): Schedule {
  const { tasks } = schedule;
  const { ended, started } = precedence(schedule);
  const seconds = Float64Array.from(tasks, (task) => taskSeconds(schedule, task));
  const total = times.end.reduce((most, end) => Math.max(most, end), 0);
  const mirrored = ({ start, end }: Times): Times => ({
    start: end.map((t) => total - t),
    end: start.map((t) => total - t),
  });
  // A wait for a start alone has no counterpart in reversed time: the second pass holds it.
  const late = packed(schedule, seconds, order(mirrored(times), -1), reversed(ended), undefined);
  const early = packed(schedule, seconds, order(mirrored(late), 1), ended, started);
  return { ...schedule, tasks: afterWaits(order(early, 1), ended, started).map((at) => tasks[at]) };
}

/** By task: when it starts and ends. */
interface Times {
  readonly start: Float64Array;
  readonly end: Float64Array;
}

/** By task: those that must have ended, or started, before it starts. */
type Waits = readonly (readonly number[])[];

const NONE: readonly number[] = [];

function precedence(schedule: Schedule): { readonly ended: Waits; readonly started: Waits } {
  const { tasks } = schedule;
  const writer = writers(schedule);
  const position = new Map(tasks.map(({ id }, at) => [id, at]));
  const of = (id: number): number => {
    const at = position.get(id);
    if (at === undefined) throw internalError(`no task has the number ${id}`);
    return at;
  };
  let kernel = -1;
  const ended = tasks.map((task, at) => {
    const out: number[] = [];
    const add = (first: number): void => {
      if (!out.includes(first)) out.push(first);
    };
    for (const b of task.reads) if (writer[b] >= 0) add(writer[b]);
    if (task.afterEnd !== undefined) for (const id of task.afterEnd) add(of(id));
    if (task.kind === 'compute') {
      if (kernel >= 0) add(kernel);
      kernel = at;
    }
    return out;
  });
  return {
    ended,
    started: tasks.map(({ afterStart }) => (afterStart === undefined ? NONE : afterStart.map(of))),
  };
}

function reversed(waits: Waits): Waits {
  const out = waits.map((): number[] => []);
  waits.forEach((list, at) => {
    for (const first of list) out[first].push(at);
  });
  return out;
}

/**
 * Tasks by their start; of those that start together the first in the schedule first, or the last.
 */
function order({ start, end }: Times, sign: 1 | -1): Int32Array {
  return Int32Array.from(start, (_, at) => at).sort(
    (a, b) => start[a] - start[b] || end[a] - end[b] || sign * (a - b),
  );
}

/**
 * The same sequence with each task after what it waits for: of those that start together one may
 * wait for another.
 */
function afterWaits(sequence: Int32Array, ended: Waits, started: Waits): number[] {
  const out: number[] = [];
  const isOut = new Uint8Array(sequence.length);
  const put = (at: number): void => {
    if (isOut[at] === 1) return;
    isOut[at] = 1;
    for (const first of ended[at]) put(first);
    for (const first of started[at]) put(first);
    out.push(at);
  };
  for (const at of sequence) put(at);
  return out;
}

/**
 * Puts each task, in that order, into the first free place of its stream after what it waits for.
 */
function packed(
  { tasks, streams }: Schedule,
  seconds: Float64Array,
  sequence: Int32Array,
  ended: Waits,
  started: Waits | undefined,
): Times {
  const count = tasks.length;
  const start = new Float64Array(count);
  const end = new Float64Array(count);
  const isPlaced = new Uint8Array(count);
  const busy = streams.map((): Busy => ({ starts: [], ends: [] }));
  const place = (at: number): void => {
    if (isPlaced[at] === 1) return;
    let from = 0;
    for (const other of ended[at]) {
      place(other);
      from = Math.max(from, end[other]);
    }
    for (const other of started === undefined ? NONE : started[at]) {
      place(other);
      from = Math.max(from, start[other]);
    }
    isPlaced[at] = 1;
    start[at] = seconds[at] > 0 ? take(busy[tasks[at].stream], from, seconds[at]) : from;
    end[at] = start[at] + seconds[at];
  };
  for (const at of sequence) place(at);
  return { start, end };
}

/** When a stream is not free, ascending. */
interface Busy {
  readonly starts: number[];
  readonly ends: number[];
}

/** Takes the first free place of so many seconds from `from` on, and says where it begins. */
function take({ starts, ends }: Busy, from: number, seconds: number): number {
  let [low, high] = [0, ends.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle] <= from) low = middle + 1;
    else high = middle;
  }
  let start = from;
  while (low < ends.length && starts[low] - start < seconds * (1 - ROUNDING))
    start = Math.max(start, ends[low++]);
  starts.splice(low, 0, start);
  ends.splice(low, 0, start + seconds);
  return start;
}

/** A place that is too short by this share of a task holds it: times are sums of doubles. */
const ROUNDING = 1e-9;
