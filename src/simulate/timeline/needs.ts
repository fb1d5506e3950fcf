/**
 * Finds, for every task of a schedule, the kernels on both sides of it, between which it can run.
 */

import { kernelNeeds } from '../work/kernel-needs.ts';
import { INSIDE, type Schedule, writers } from './schedule.ts';

/**
 * Sums that may travel in buckets, by position: no kernel needs them, and they are not part of a
 * rule.
 */
export function sumsOf(schedule: Schedule, { need, kernels } = new Needs(schedule)): Uint8Array {
  return Uint8Array.from(schedule.tasks, ({ collective, kernels: runs }, at) =>
    Number(
      collective !== undefined &&
        collective.key !== INSIDE &&
        runs === 1 &&
        need[at] === kernels.length,
    ),
  );
}

/** The kernels before and after each task. */
export class Needs {
  /**
   * Positions of kernels, in program order; and the number of each task among them, -1: it is none.
   */
  readonly kernels: readonly number[];
  readonly numberOf: Int32Array;
  readonly writer: Int32Array;
  /**
   * Number of the last kernel that a task waits for, and of the first that waits for it; a kernel's
   * is its own.
   */
  readonly maker: Int32Array;
  readonly need: Int32Array;

  constructor({ tasks, buffers, ...rest }: Schedule) {
    this.writer = writers({ tasks, buffers, ...rest });
    this.kernels = tasks.flatMap(({ kind }, at) => (kind === 'compute' ? [at] : []));
    this.numberOf = new Int32Array(tasks.length).fill(-1);
    this.kernels.forEach((at, k) => (this.numberOf[at] = k));
    const needs = kernelNeeds({
      kernelOf: this.numberOf,
      kernels: this.kernels.length,
      values: buffers.length,
      reads: (at) => tasks[at].reads,
      writes: (at) => tasks[at].writes,
    });
    this.maker = needs.after;
    this.need = needs.before;
  }
}
