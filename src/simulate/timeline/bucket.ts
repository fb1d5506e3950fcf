/** Joins consecutive collectives of a task list, so that each bucket pays its latency once. */

import type { CollectiveKind } from '../../cost/collective-model.ts';
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
  const { tasks, buffers } = schedule;
  const n = tasks.length;
  const maker = new Int32Array(buffers.length).fill(-1);
  const reader = new Int32Array(buffers.length).fill(n);
  for (let at = n - 1; at >= 0; at--) {
    for (const b of tasks[at].reads) reader[b] = at;
    for (const b of tasks[at].writes) maker[b] = at;
  }
  const open = new Map<string, Bucket>();
  const all: Bucket[] = [];
  tasks.forEach((task, at) => {
    const work = task.collective;
    if (work === undefined || task.kernels !== 1 || work.key === INSIDE) return;
    const weight = task.writes.every((b) => buffers[b].weight);
    if (!travelsInBuckets(weight, options.sums?.[at] !== 1)) return;
    const key = `${work.kind} ${work.meshDims.join()} ${work.key} ${weight} ${task.phase}`;
    const own = {
      maker: task.reads.reduce((most, b) => Math.max(most, maker[b]), -1),
      reader: task.writes.reduce((least, b) => Math.min(least, reader[b]), n),
    };
    const last = open.get(key);
    if (last !== undefined && last.bytes + work.bytes <= options.bucketBytes) {
      const place = weight ? last.place : at;
      const seconds = options.seconds(work.kind, last.bytes + work.bytes, work.meshDims);
      const fits = Math.max(last.maker, own.maker) < place && (weight || last.reader > place);
      if (fits && seconds <= last.seconds + task.seconds) {
        last.members.push(at);
        last.bytes += work.bytes;
        last.seconds = seconds;
        last.place = place;
        last.reader = Math.min(last.reader, own.reader);
        last.maker = Math.max(last.maker, own.maker);
        return;
      }
    }
    const fresh: Bucket = {
      members: [at],
      bytes: work.bytes,
      seconds: task.seconds,
      place: at,
      ...own,
    };
    open.set(key, fresh);
    all.push(fresh);
  });
  const merged = new Map<number, Task>();
  const gone = new Set<number>();
  for (const { members, bytes, seconds, place } of all) {
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
    ...(starts.length > 0 ? { afterStart: starts } : {}),
    ...(ends.length > 0 ? { afterEnd: ends } : {}),
  };
}
