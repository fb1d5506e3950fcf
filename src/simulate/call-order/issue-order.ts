/**
 * Finds the order in which a host calls the work of a device: one list of calls that runs a
 * schedule as it was timed, and the time that such a list takes. Source: CUDA streams as PyTorch
 * uses them: kernels queue up on one stream, and a collective waits for all kernels that were
 * called before it (`ProcessGroupNCCL` records an event on the current stream when it is called).
 */
import { serialPeakBytes } from '../timeline/headroom.ts';
import { play, type Timeline } from '../timeline/play.ts';
import { type Schedule, type Task, writers } from '../timeline/schedule.ts';
import { COMPUTE } from '../work/streams.ts';

/**
 * The tasks in an order of calls in which each collective starts as it did: it is called before the
 * first kernel that ends after its start. Kernels keep their order, and so do the collectives of
 * each stream. Waits that a pass added to those for data are in the order now, and are dropped.
 */
export function issueOrder(schedule: Schedule, { spans }: Timeline): Schedule {
  const { tasks } = schedule;
  const writer = writers(schedule);
  const kernels: number[] = [];
  const collectives: number[] = [];
  tasks.forEach(({ stream }, at) => (stream === COMPUTE ? kernels : collectives).push(at));
  collectives.sort((a, b) => spans[a].start - spans[b].start || a - b);
  const order: Task[] = [];
  const isCalled = new Uint8Array(tasks.length);
  // A task that takes no time starts and ends at once, so data decides where times are equal.
  const call = (at: number): void => {
    if (isCalled[at] === 1) return;
    isCalled[at] = 1;
    for (const b of tasks[at].reads) if (writer[b] >= 0) call(writer[b]);
    const { afterStart: _start, afterEnd: _end, ...task } = tasks[at];
    order.push(task);
  };
  let next = 0;
  for (const kernel of kernels) {
    while (next < collectives.length && spans[collectives[next]].start < spans[kernel].end)
      call(collectives[next++]);
    call(kernel);
  }
  for (; next < collectives.length; next++) call(collectives[next]);
  return { ...schedule, tasks: order };
}

/** The time and memory of a list of calls. */
export interface CalledStep {
  readonly seconds: number;
  /** Most bytes alive. */
  readonly peakBytes: number;
}

/**
 * Plays tasks in the order in which they are called: a collective waits for the kernel that is
 * called before it. The operand of a gather or an exchange is held until its result is waited for,
 * as gloo does it: where it is read, or where the function returns.
 *
 * @param forwardTasks how many of the tasks are in the forward function, which returns when its
 *   collectives have ended
 * @param allocated the same tasks with memory that is allocated in addition to the priced tensors
 */
export function playCalls(
  schedule: Schedule,
  forwardTasks: number,
  allocated: Schedule = schedule,
): CalledStep {
  return {
    seconds: play(asCalled(schedule, forwardTasks)).seconds,
    peakBytes: serialPeakBytes(sentHeld(allocated, schedule.tasks[forwardTasks - 1]?.id)),
  };
}

function asCalled(schedule: Schedule, forwardTasks: number): Schedule {
  let before: number[] = [];
  const lastOf = new Map<number, number>();
  const tasks = schedule.tasks.map((task, at): Task => {
    if (at === forwardTasks) before.push(...lastOf.values());
    const waits = before;
    if (task.stream === COMPUTE) before = [task.id];
    else lastOf.set(task.stream, task.id);
    // Kernels wait for each other by their stream; the first of the backward function waits for all
    // of the forward one.
    const isBehind = task.stream !== COMPUTE || waits.length > 1;
    return isBehind && waits.length > 0 ? { ...task, afterEnd: [...waits] } : task;
  });
  return { ...schedule, tasks };
}

function sentHeld(schedule: Schedule, lastForward: number | undefined): Schedule {
  const held = new Map<
    number,
    { readonly sent: readonly number[]; readonly results: readonly number[] }
  >();
  const reads = schedule.tasks.map((task) => new Set(task.reads));
  /**
   * Values that travel together are waited for together: then they are no longer held, from the
   * task after `last` on.
   */
  const wait = (b: number, last: number): void => {
    const { sent, results } = held.get(b) ?? { sent: [], results: [] };
    for (const own of sent) reads[last].add(own);
    for (const other of results) held.delete(other);
  };
  schedule.tasks.forEach((task, at) => {
    for (const b of task.reads) wait(b, at - 1);
    const kind = task.collective?.kind;
    if (kind === 'all_gather' || kind === 'all_to_all' || kind === 'collective_permute')
      for (const b of task.writes) held.set(b, { sent: task.reads, results: task.writes });
    if (task.id === lastForward) for (const b of [...held.keys()]) wait(b, at);
  });
  return {
    ...schedule,
    tasks: schedule.tasks.map((task, at): Task => ({ ...task, reads: [...reads[at]] })),
  };
}
