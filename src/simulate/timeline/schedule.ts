/**
 * Defines the schedule of one device in a step, with prices: tasks in program order on streams that
 * work in parallel, and the buffers that they read and write. Data is the only order between
 * streams, so a pass may move tasks as long as every buffer is still written before it is read;
 * results cannot change.
 */

import type { MemoryKind } from '../../cost/memory/peak.ts';
import { internalError } from '../../errors.ts';
import type { CollectiveKind } from '../../mesh/collective-kinds.ts';

export interface Task {
  /** Stays with the task through passes; unique. */
  readonly id: number;
  readonly name: string;
  /** `copy`: local data movement of a redistribution, on the compute stream. */
  readonly kind: 'compute' | 'collective' | 'copy';
  readonly stream: number;
  /** Work of the task, without its launch. */
  readonly seconds: number;
  /** Kernels in it, each of which is launched; 0 where nothing runs. */
  readonly kernels: number;
  /** Buffers. */
  readonly reads: readonly number[];
  readonly writes: readonly number[];
  readonly phase: 'forward' | 'backward';
  readonly target?: string;
  readonly collective?: CollectiveWork;
  /** For a bucket, the tasks (ids) that it consists of. */
  readonly members?: readonly number[];
  /**
   * Tasks (ids) whose start, or whose end, it waits for in addition to its data: they limit how far
   * ahead it runs.
   */
  readonly afterStart?: readonly number[];
  readonly afterEnd?: readonly number[];
}

interface CollectiveWork {
  readonly kind: CollectiveKind;
  /** Mesh dims of the group. */
  readonly meshDims: readonly number[];
  /** By the convention of its kind. */
  readonly bytes: number;
  /** Reductions: what by; together with the dtype it says which collectives may be one. */
  readonly key: string;
}

/** `CollectiveWork.key` of a collective inside the rule of a call. */
export const INSIDE = 'inside';

export interface Buffer {
  readonly name: string;
  readonly bytes: number;
  readonly kind: MemoryKind;
  /** There from the start: parameters, inputs. */
  readonly given: boolean;
  /** Kept to the end of the step: parameters, states, gradients, results. */
  readonly kept: boolean;
  /** A parameter, or made of parameters alone. */
  readonly weight: boolean;
}

export interface Schedule {
  readonly tasks: readonly Task[];
  readonly buffers: readonly Buffer[];
  /** Names; the first is the compute stream. */
  readonly streams: readonly string[];
  /** Seconds before every kernel. */
  readonly launchSeconds: number;
  /** A device that waits for each call: no two tasks run at the same time. */
  readonly oneAtATime?: boolean;
}

/** Position of every buffer's writer in the order of the tasks, -1 for buffers that are given. */
export function writers(schedule: Schedule): Int32Array {
  const out = new Int32Array(schedule.buffers.length).fill(-1);
  schedule.tasks.forEach((task, at) => {
    for (const b of task.writes) out[b] = at;
  });
  return out;
}

/**
 * Checks that every buffer has one writer before its readers, in program order, and that waits are
 * for earlier tasks.
 *
 * @throws E_INTERNAL naming the task; a pass that breaks this is at fault
 */
export function checkSchedule(schedule: Schedule): void {
  const { tasks, buffers, streams } = schedule;
  const written = Uint8Array.from(buffers, (b) => Number(b.given));
  const seen = new Set<number>();
  for (const task of tasks) {
    const fail = (why: string): never => {
      throw internalError(`the schedule is in disorder: ${task.name} ${why}`);
    };
    if (seen.has(task.id)) fail('stands twice');
    if (!(task.stream >= 0 && task.stream < streams.length)) fail(`runs on stream ${task.stream}`);
    if (!(task.seconds >= 0 && task.seconds < Infinity)) fail(`takes ${task.seconds} s`);
    for (const b of task.reads)
      if (written[b] !== 1) fail(`reads ${buffers[b].name} before it is there`);
    for (const b of task.writes) {
      if (written[b] !== 0) fail(`writes ${buffers[b].name} a second time`);
      written[b] = 1;
    }
    for (const id of [...(task.afterStart ?? []), ...(task.afterEnd ?? [])])
      if (!seen.has(id)) fail(`waits for a task that comes later`);
    seen.add(task.id);
  }
}

/** Seconds of a task with its launches. */
export function taskSeconds(schedule: Schedule, task: Task): number {
  return task.seconds + task.kernels * schedule.launchSeconds;
}
