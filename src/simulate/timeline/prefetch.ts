/** Moves gathers of parameters ahead in a task list, within a limit on distance and memory. */

import { ShardwrightError } from '../../errors.ts';
import { COMPUTE } from '../work/streams.ts';
import { RangeMost, serialBytes } from './headroom.ts';
import { type Schedule, type Task, writers } from './schedule.ts';

/**
 * Prefetch as a pass: collectives that are made of parameters alone (the gathers of sharded
 * weights) depend on nothing that the step computes, so they may run ahead of the call that reads
 * them. The pass says how far.
 */
interface PrefetchOptions {
  /**
   * Gathers for the calls k + 1, .. k + distance that need one may start when call k does; 0: only
   * when the call before has ended, so that nothing is hidden. Calls that share a gather count
   * once.
   */
  readonly distance: number;
  /**
   * Most bytes of gathered weights whose call has not started; one gather is always allowed.
   * Default no limit.
   */
  readonly limitBytes?: number;
  /**
   * Most bytes alive at once with one task after another: a gather is moved forward only as far as
   * that allows. Default no limit.
   */
  readonly memoryBytes?: number;
}

export interface Prefetched {
  readonly schedule: Schedule;
  /**
   * Collectives that `memoryBytes` keeps nearer to their call than distance and `limitBytes` would.
   */
  readonly heldBack: number;
}

/** The collectives that one call needs: one at least. */
interface Unit {
  /** Position of the call. */
  readonly reader: number;
  /**
   * Positions, in order, of its collectives and of what they need that is made of parameters alone
   * and that no unit before has.
   */
  readonly tasks: number[];
  bytes: number;
}

/**
 * The same tasks with the gathers moved and bounded.
 *
 * @throws E_USAGE for a distance that is no whole number from 0 on
 */
export function prefetch(schedule: Schedule, options: PrefetchOptions): Schedule {
  return prefetched(schedule, options).schedule;
}

/**
 * Tells whether there is anything to move: a program without gathers of weights is the same at
 * every distance.
 */
export function hasGathers(schedule: Schedule): boolean {
  return gatherUnits(schedule).length > 0;
}

/** The same, and what the limit on memory did. @throws as `prefetch` does */
export function prefetched(schedule: Schedule, options: PrefetchOptions): Prefetched {
  const { distance, limitBytes = Infinity, memoryBytes } = options;
  if (!(distance >= 0) || (distance !== Infinity && !Number.isInteger(distance)))
    throw new ShardwrightError(
      'E_USAGE',
      `a prefetch distance of ${distance}, expected a whole number from 0 on`,
    );
  const { tasks, buffers } = schedule;
  const units = gatherUnits(schedule);
  if (units.length === 0) return { schedule, heldBack: 0 };
  if (distance === 0) return { schedule: onDemand(schedule, units), heldBack: 0 };
  const alive = memoryBytes === undefined ? undefined : new RangeMost(serialBytes(schedule));
  const front: Task[] = [];
  const after = new Map<number, Task[]>();
  const moved = new Set<number>();
  // By task: its present position, or (for a moved task) the position right after which it is.
  const stands = Int32Array.from(tasks, (_, at) => at);
  const writer = writers(schedule);
  let heldBack = 0;
  units.forEach((unit, k) => {
    let back = 1;
    let bytes = unit.bytes;
    while (back < distance && k - back >= 0 && (bytes += units[k - back].bytes) <= limitBytes)
      back++;
    const placeOf = (b: number): number => (k - b < 0 ? -1 : units[k - b].reader);
    const made = (at: number): number =>
      tasks[at].writes.reduce((sum, b) => sum + buffers[b].bytes, 0);
    const wanted = back;
    if (alive !== undefined && memoryBytes !== undefined) {
      const own = unit.tasks.reduce((sum, at) => sum + made(at), 0);
      const last = unit.tasks[unit.tasks.length - 1];
      // Data that it shares with an earlier unit may have been held back with that one: it stays
      // behind it, however little it makes.
      const behind = latestBefore(unit, tasks, writer, stands);
      while (
        back > 0 &&
        (placeOf(back) < behind || alive.most(placeOf(back) + 1, last) + own > memoryBytes)
      )
        back--;
      if (back < wanted)
        heldBack += unit.tasks.filter((at) => tasks[at].collective !== undefined).length;
      // It stays where it is written.
      if (back === 0) return;
    }
    const anchor = placeOf(back);
    const list = anchor < 0 ? front : (after.get(anchor) ?? []);
    for (const at of unit.tasks) {
      // Another task that needs it comes first: a gather never moves back.
      if (at < anchor) continue;
      moved.add(at);
      stands[at] = anchor;
      const task = tasks[at];
      const starts = anchor < 0 || task.stream === COMPUTE ? [] : [tasks[anchor].id];
      list.push(
        starts.length === 0
          ? task
          : { ...task, afterStart: [...(task.afterStart ?? []), ...starts] },
      );
      alive?.add(at, made(at));
      alive?.add(anchor + 1, -made(at));
    }
    if (anchor >= 0) after.set(anchor, list);
  });
  const order = [...front];
  tasks.forEach((task, at) => {
    if (!moved.has(at)) order.push(task);
    order.push(...(after.get(at) ?? []));
  });
  return { schedule: { ...schedule, tasks: order }, heldBack };
}

/**
 * The place of the last task in an earlier unit that makes an operand of the unit; -1: none does.
 */
function latestBefore(
  unit: Unit,
  tasks: readonly Task[],
  writer: Int32Array,
  stands: Int32Array,
): number {
  let latest = -1;
  for (const at of unit.tasks)
    for (const b of tasks[at].reads)
      if (writer[b] >= 0 && !unit.tasks.includes(writer[b]))
        latest = Math.max(latest, stands[writer[b]]);
  return latest;
}

/** Every gather waits for the end of the kernel before the call that reads it. */
function onDemand(schedule: Schedule, units: readonly Unit[]): Schedule {
  const { tasks } = schedule;
  const waits = new Map<number, number>();
  for (const { reader, tasks: own } of units) {
    const gather = own.find((at) => tasks[at].stream !== COMPUTE) ?? reader;
    let before = gather - 1;
    while (before >= 0 && (tasks[before].stream !== COMPUTE || own.includes(before))) before--;
    if (before >= 0)
      for (const at of own) if (tasks[at].stream !== COMPUTE) waits.set(at, tasks[before].id);
  }
  return {
    ...schedule,
    tasks: tasks.map((task, at) => {
      const id = waits.get(at);
      return id === undefined ? task : { ...task, afterEnd: [...(task.afterEnd ?? []), id] };
    }),
  };
}

/**
 * The gathers of weights, by the first call that is no weight itself and reads what they make; in
 * the order of the calls. Work that gathers need is with the first of them: a call that reads it
 * without a gather has nothing to prefetch, and neither has a gather whose result no call reads.
 */
function gatherUnits({ tasks, buffers }: Schedule): Unit[] {
  const n = tasks.length;
  const isWeight = Uint8Array.from(tasks, (task) =>
    Number(task.writes.length > 0 && task.writes.every((b) => buffers[b].weight)),
  );
  // By buffer: the first call that needs it, and the first that needs a gather of it.
  const first = new Int32Array(buffers.length).fill(n);
  const gathered = new Int32Array(buffers.length).fill(n);
  const units = new Map<number, Unit>();
  for (let at = n - 1; at >= 0; at--) {
    const task = tasks[at];
    let reader = at;
    if (isWeight[at] === 1) {
      reader = task.writes.reduce((least, b) => Math.min(least, first[b]), n);
      const call =
        task.stream === COMPUTE
          ? task.writes.reduce((least, b) => Math.min(least, gathered[b]), n)
          : reader;
      if (call < n) {
        const unit = units.get(call) ?? { reader: call, tasks: [], bytes: 0 };
        unit.tasks.unshift(at);
        if (task.stream !== COMPUTE) unit.bytes += task.collective?.bytes ?? 0;
        units.set(call, unit);
      }
      for (const b of task.reads) gathered[b] = Math.min(gathered[b], call);
    }
    for (const b of task.reads) first[b] = Math.min(first[b], reader);
  }
  return [...units.values()].sort((a, b) => a.reader - b.reader);
}
