/** Joins consecutive collectives of a task list, so that each bucket pays its latency once. */

import { nonEmpty } from '../../defined.ts';
import type { CollectiveKind } from '../../mesh/collective-kinds.ts';
import { travelsInBuckets } from '../work/rules.ts';
import { INSIDE, type Schedule, type Task } from './schedule.ts';

/**
 * Bucketing as a pass: gathers of weights of one kind, group and dtype that follow each other
 * become one, and so do sums that no kernel needs (`travelsInBuckets`). The latency of a bucket is
 * paid once. Gathers are brought forward to the first of a bucket, sums wait for the last; a bucket
 * never holds a collective whose result is needed before the bucket can run.
 */
interface BucketOptions {
  /** Most bytes of one bucket. */
  readonly bucketBytes: number;
  /** By position: sums that no kernel needs; undefined: sums are left alone. */
  readonly sums: Uint8Array | undefined;
  /** Seconds of a collective over the flattened group of some mesh dims. */
  seconds(kind: CollectiveKind, bytes: number, meshDims: readonly number[]): number;
}

interface Bucket {
  readonly members: number[];
  bytes: number;
  seconds: number;
  /** Its place: the position of its first or last member. */
  place: number;
  /** First task that reads a result of a member. */
  reader: number;
  /** Last task that makes an input of a member. */
  maker: number;
}

/** The same program with fewer collectives, never a more expensive one. */
export function bucket(schedule: Schedule, options: BucketOptions): Schedule {
  const { tasks } = schedule;
  const merged = new Map<number, Task>();
  const gone = new Set<number>();
  for (const { members, bytes, seconds, place } of bucketsOf(schedule, options)) {
    if (members.length === 1) continue;
    for (const at of members) gone.add(at);
    merged.set(
      place,
      together(
        members.map((at) => tasks[at]),
        bytes,
        seconds,
      ),
    );
  }
  return {
    ...schedule,
    tasks: tasks.flatMap((task, at) => {
      const one = merged.get(at);
      return one !== undefined ? [one] : gone.has(at) ? [] : [task];
    }),
  };
}

/** The collectives that may travel in buckets, in as few as are no more expensive. */
function bucketsOf(schedule: Schedule, options: BucketOptions): readonly Bucket[] {
  const { tasks, buffers } = schedule;
  const { maker, reader } = endsOf(schedule);
  const open = new Map<string, Bucket>();
  const all: Bucket[] = [];
  tasks.forEach((task, at) => {
    const work = task.collective;
    if (work === undefined || task.kernels !== 1 || work.key === INSIDE) return;
    const weight = task.writes.every((b) => buffers[b].weight);
    if (!travelsInBuckets(weight, options.sums?.[at] !== 1)) return;
    const key = `${work.kind} ${work.meshDims.join()} ${work.key} ${weight} ${task.phase}`;
    const own: Bucket = {
      members: [at],
      bytes: work.bytes,
      seconds: task.seconds,
      place: at,
      maker: task.reads.reduce((most, b) => Math.max(most, maker[b]), -1),
      reader: task.writes.reduce((least, b) => Math.min(least, reader[b]), tasks.length),
    };
    const last = open.get(key);
    if (last !== undefined && joins(last, own, weight, work, options)) return;
    open.set(key, own);
    all.push(own);
  });
  return all;
}

/** Adds a bucket of one collective to another where it fits; false where it does not. */
function joins(
  last: Bucket,
  own: Bucket,
  weight: boolean,
  { kind, meshDims }: NonNullable<Task['collective']>,
  options: BucketOptions,
): boolean {
  const bytes = last.bytes + own.bytes;
  if (bytes > options.bucketBytes) return false;
  const place = weight ? last.place : own.place;
  const seconds = options.seconds(kind, bytes, meshDims);
  const fits = Math.max(last.maker, own.maker) < place && (weight || last.reader > place);
  if (!fits || seconds > last.seconds + own.seconds) return false;
  last.members.push(...own.members);
  last.bytes = bytes;
  last.seconds = seconds;
  last.place = place;
  last.reader = Math.min(last.reader, own.reader);
  last.maker = Math.max(last.maker, own.maker);
  return true;
}

/** By buffer: the task that makes it (-1 none), and the first that reads it. */
function endsOf({ tasks, buffers }: Schedule): {
  readonly maker: Int32Array;
  readonly reader: Int32Array;
} {
  const maker = new Int32Array(buffers.length).fill(-1);
  const reader = new Int32Array(buffers.length).fill(tasks.length);
  for (let at = tasks.length - 1; at >= 0; at--) {
    for (const b of tasks[at].reads) reader[b] = at;
    for (const b of tasks[at].writes) maker[b] = at;
  }
  return { maker, reader };
}

/** Collectives as one. */
export function together(members: readonly Task[], bytes: number, seconds: number): Task {
  const [first] = members;
  if (first.collective === undefined) return first;
  const union = (of: (task: Task) => readonly number[] | undefined): number[] => [
    ...new Set(members.flatMap((task) => of(task) ?? [])),
  ];
  const starts = union((t) => t.afterStart);
  const ends = union((t) => t.afterEnd);
  return {
    ...first,
    name: `${members.length} x ${first.collective.kind} (${first.name} ..)`,
    seconds,
    reads: union((t) => t.reads),
    writes: union((t) => t.writes),
    collective: { ...first.collective, bytes },
    members: members.flatMap((task) => task.members ?? [task.id]),
    ...nonEmpty({ afterStart: starts, afterEnd: ends }),
  };
}
