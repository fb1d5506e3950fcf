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
 * The same tasks with the gathers moved and bounded, and what the limit on memory held back.
 *
 * @throws E_USAGE for a distance that is not a whole number from 0 on
 */
export function prefetch(schedule: Schedule, options: PrefetchOptions): Prefetched {
  const { distance } = options;
  if (!(distance >= 0) || (distance !== Infinity && !Number.isInteger(distance)))
    throw new ShardwrightError(
      'E_USAGE',
      `a prefetch distance of ${distance}, expected a whole number from 0 on`,
    );
  const units = gatherUnits(schedule);
  if (units.length === 0) return { schedule, heldBack: 0 };
  if (distance === 0) return { schedule: onDemand(schedule, units), heldBack: 0 };
  const mover = new GatherMover(schedule, units, options);
  units.forEach((_, k) => mover.move(k));
  return mover.result();
}

/**
 * Tells whether there is anything to move: a program without gathers of weights is the same at
 * every distance.
 */
export function hasGathers(schedule: Schedule): boolean {
  return gatherUnits(schedule).length > 0;
}

/** Moves units forward, in their order. */
class GatherMover {
  private readonly front: Task[] = [];
  /** Moved tasks by the position right after which they are. */
  private readonly after = new Map<number, Task[]>();
  private readonly moved = new Set<number>();
  /** By task: its present position, or (for a moved task) the position right after which it is. */
  private readonly stands: Int32Array;
  private readonly writer: Int32Array;
  /** Bytes alive; undefined without a limit on them. */
  private readonly alive: RangeMost | undefined;
  private heldBack = 0;

  constructor(
    private readonly schedule: Schedule,
    private readonly units: readonly Unit[],
    private readonly options: PrefetchOptions,
  ) {
    this.stands = Int32Array.from(schedule.tasks, (_, at) => at);
    this.writer = writers(schedule);
    this.alive =
      options.memoryBytes === undefined ? undefined : new RangeMost(serialBytes(schedule));
  }

  move(k: number): void {
    const wanted = this.wanted(k);
    const back = this.within(k, wanted);
    const unit = this.units[k];
    if (back < wanted)
      this.heldBack += unit.tasks.filter(
        (at) => this.schedule.tasks[at].collective !== undefined,
      ).length;
    // At 0 it stays where it is written.
    if (back > 0) this.place(unit, this.placeOf(k, back));
  }

  result(): Prefetched {
    const order = [...this.front];
    this.schedule.tasks.forEach((task, at) => {
      if (!this.moved.has(at)) order.push(task);
      order.push(...(this.after.get(at) ?? []));
    });
    return { schedule: { ...this.schedule, tasks: order }, heldBack: this.heldBack };
  }

  /** How many units ahead the distance and the bytes in flight let a unit go. */
  private wanted(k: number): number {
    const { units } = this;
    const { distance, limitBytes = Infinity } = this.options;
    let back = 1;
    let { bytes } = units[k];
    while (back < distance && k - back >= 0 && (bytes += units[k - back].bytes) <= limitBytes)
      back++;
    return back;
  }

  /** The same within the limit on memory. */
  private within(k: number, wanted: number): number {
    const { alive } = this;
    const { memoryBytes } = this.options;
    if (alive === undefined || memoryBytes === undefined) return wanted;
    const unit = this.units[k];
    const own = unit.tasks.reduce((sum, at) => sum + this.made(at), 0);
    const last = unit.tasks[unit.tasks.length - 1];
    // Data that it shares with an earlier unit may have been held back with that one: it stays
    // behind it, however little it makes.
    const behind = latestBefore(unit, this.schedule.tasks, this.writer, this.stands);
    const fits = (place: number): boolean =>
      place >= behind && alive.most(place + 1, last) + own <= memoryBytes;
    let back = wanted;
    while (back > 0 && !fits(this.placeOf(k, back))) back--;
    return back;
  }

  /** Position of the call so many units before a unit; -1: the start of the program. */
  private placeOf(k: number, back: number): number {
    return k - back < 0 ? -1 : this.units[k - back].reader;
  }

  private place(unit: Unit, anchor: number): void {
    const { tasks } = this.schedule;
    const list = anchor < 0 ? this.front : (this.after.get(anchor) ?? []);
    for (const at of unit.tasks) {
      // Another task that needs it comes first: a gather never moves back.
      if (at < anchor) continue;
      this.moved.add(at);
      this.stands[at] = anchor;
      const task = tasks[at];
      list.push(
        anchor < 0 || task.stream === COMPUTE
          ? task
          : { ...task, afterStart: [...(task.afterStart ?? []), tasks[anchor].id] },
      );
      this.alive?.add(at, this.made(at));
      this.alive?.add(anchor + 1, -this.made(at));
    }
    if (anchor >= 0) this.after.set(anchor, list);
  }

  /** Bytes that a task writes. */
  private made(at: number): number {
    const { tasks, buffers } = this.schedule;
    return tasks[at].writes.reduce((sum, b) => sum + buffers[b].bytes, 0);
  }
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
 * The gathers of weights, by the first call that is not a weight itself and reads what they make;
 * in the order of the calls. Work that gathers need is with the first of them: a call that reads it
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
