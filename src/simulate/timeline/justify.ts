/**
 * Tasks moved as late as they can run, and then as early. In: a schedule and when its tasks run. Out: the same tasks in an order that
 * takes no longer, and often less.
 *
 * Forward-backward improvement of a schedule with limited resources (Valls, Ballestín and Quintanilla, Justification and RCPSP: a
 * technique that pays, 2005). Each task, the last to end first, goes into the latest free place of its stream before what waits for
 * it. Then each, the first to start first, goes into the earliest place after what it waits for. A stream is free in each
 * pass where a task was before, so no pass is longer. Kernels keep their order.
 */
import { internalError } from '../../errors.ts';
import { taskSeconds, writers, type Schedule } from './schedule.ts';

/** @param spans when the tasks of the schedule run, in their order */
export function justified(schedule: Schedule, spans: readonly Span[]): Schedule {
  const { tasks } = schedule;
  const { ended, started } = precedence(schedule);
  const total = spans.reduce((most, { end }) => Math.max(most, end), 0);
  const mirrored = (list: readonly Span[]): Span[] => list.map(({ start, end }) => ({ start: total - end, end: total - start })); // prettier-ignore
  // What waits for a start alone has no like in reversed time: the second pass holds it.
  const late = packed(schedule, order(mirrored(spans), -1), reversed(ended), undefined);
  const early = packed(schedule, order(mirrored(late), 1), ended, started);
  return { ...schedule, tasks: afterWaits(order(early, 1), ended, started).map((at) => tasks[at]) };
}

interface Span {
  readonly start: number;
  readonly end: number;
}

/** By task: those that must have ended, or started, before it starts. */
type Waits = readonly (readonly number[])[];

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
    const out = new Set(task.reads.flatMap((b) => (writer[b] >= 0 ? [writer[b]] : [])));
    for (const id of task.afterEnd ?? []) out.add(of(id));
    if (task.kind === 'compute') {
      if (kernel >= 0) out.add(kernel);
      kernel = at;
    }
    return [...out];
  });
  return { ended, started: tasks.map((task) => (task.afterStart ?? []).map(of)) };
}

function reversed(waits: Waits): Waits {
  const out = waits.map((): number[] => []);
  waits.forEach((list, at) => {
    for (const first of list) out[first].push(at);
  });
  return out;
}

/** Tasks by their start; of those that start together the first in the schedule first, or the last. */
function order(spans: readonly Span[], sign: 1 | -1): number[] {
  return spans.map((_, at) => at).sort((a, b) => spans[a].start - spans[b].start || spans[a].end - spans[b].end || sign * (a - b));
} // prettier-ignore

/** The same sequence with each task after what it waits for: of those that start together one may wait for another. */
function afterWaits(sequence: readonly number[], ended: Waits, started: Waits): number[] {
  const out: number[] = [];
  const isOut = new Uint8Array(sequence.length);
  const put = (at: number): void => {
    if (isOut[at] === 1) return;
    isOut[at] = 1;
    for (const first of [...ended[at], ...started[at]]) put(first);
    out.push(at);
  };
  for (const at of sequence) put(at);
  return out;
}

/** Puts each task, in that order, into the first free place of its stream after what it waits for. */
function packed(schedule: Schedule, sequence: readonly number[], ended: Waits, started: Waits | undefined): Span[] {
  const spans = new Array<Span | undefined>(schedule.tasks.length).fill(undefined);
  const busy = schedule.streams.map((): Span[] => []);
  const place = (at: number): Span => {
    const known = spans[at];
    if (known !== undefined) return known;
    const task = schedule.tasks[at];
    const seconds = taskSeconds(schedule, task);
    let start = ended[at].reduce((most, other) => Math.max(most, place(other).end), 0);
    start = (started?.[at] ?? []).reduce((most, other) => Math.max(most, place(other).start), start);
    if (seconds > 0) start = take(busy[task.stream], start, seconds);
    return (spans[at] = { start, end: start + seconds });
  };
  for (const at of sequence) place(at);
  return spans.map((span, at) => span ?? place(at));
}

/** Takes the first free place of so many seconds from `from` on, and says where it begins. */
function take(busy: Span[], from: number, seconds: number): number {
  let [low, high] = [0, busy.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (busy[middle].end <= from) low = middle + 1;
    else high = middle;
  }
  let start = from;
  while (low < busy.length && busy[low].start - start < seconds * (1 - ROUNDING)) start = Math.max(start, busy[low++].end);
  busy.splice(low, 0, { start, end: start + seconds });
  return start;
} // prettier-ignore

/** A place that is too short by this share of a task holds it: times are sums of doubles. */
const ROUNDING = 1e-9;
