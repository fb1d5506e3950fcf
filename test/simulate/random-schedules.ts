import fc from 'fast-check';
import { expect } from 'vitest';

import type { Timeline } from '../../src/simulate/timeline/play.ts';
import {
  type Buffer,
  type Schedule,
  type Task,
  taskSeconds,
} from '../../src/simulate/timeline/schedule.ts';

/** Schedules to play, and the rules that every timeline keeps. */

const WEIGHT: Buffer = {
  name: 'w',
  bytes: 0,
  kind: 'parameter',
  given: true,
  kept: true,
  weight: true,
};

/**
 * Layers without order among them: each computes once its weight is gathered. A gathered weight is
 * one byte.
 */
export function gatheredLayers(layers: number, gather: number, compute: number): Schedule {
  const tasks: Task[] = [];
  const buffers: Buffer[] = [];
  for (let i = 0; i < layers; i++) {
    const [stored, whole, out] = [3 * i, 3 * i + 1, 3 * i + 2];
    buffers.push(
      WEIGHT,
      {
        name: `gathered ${i}`,
        bytes: 1,
        kind: 'communication',
        given: false,
        kept: false,
        weight: true,
      },
      { name: `out ${i}`, bytes: 0, kind: 'activation', given: false, kept: false, weight: false },
    );
    const collective = { kind: 'all_gather', meshDims: [0], bytes: 1, key: 'f32' } as const;
    tasks.push(
      {
        id: 2 * i,
        name: `gather ${i}`,
        kind: 'collective',
        stream: 1,
        seconds: gather,
        kernels: 1,
        reads: [stored],
        writes: [whole],
        phase: 'forward',
        collective,
      },
      {
        id: 2 * i + 1,
        name: `compute ${i}`,
        kind: 'compute',
        stream: 0,
        seconds: compute,
        kernels: 1,
        reads: [whole],
        writes: [out],
        phase: 'forward',
      },
    );
  }
  return { tasks, buffers, streams: ['compute', 'links'], launchSeconds: 0 };
}

/**
 * Tasks of one second each that write a buffer of their own name; `w` is a weight of no bytes and
 * `x` an input of 3.
 */
export function program(
  list: readonly {
    readonly name: string;
    readonly stream: number;
    readonly reads: readonly string[];
    readonly bytes: number;
    readonly weight?: boolean;
  }[],
): Schedule {
  const buffers: Buffer[] = [
    WEIGHT,
    { name: 'x', bytes: 3, kind: 'activation', given: true, kept: false, weight: false },
    ...list.map(({ name, bytes, weight = false }): Buffer => ({
      name,
      bytes,
      kind: 'activation',
      given: false,
      kept: false,
      weight,
    })),
  ];
  const named = new Map(buffers.map((b, i) => [b.name, i]));
  const tasks = list.map(({ name, stream, reads, bytes }, id): Task => {
    const common = {
      id,
      name,
      stream,
      seconds: 1,
      kernels: 0,
      reads: reads.map((r) => named.get(r) ?? -1),
      writes: [id + 2],
      phase: 'forward' as const,
    };
    if (stream === 0) return { ...common, kind: 'compute', target: 'aten.mm.default' };
    return {
      ...common,
      kind: 'collective',
      collective: { kind: 'all_gather', meshDims: [stream], bytes, key: 'f32' },
    };
  });
  return { tasks, buffers, streams: ['compute', 'one', 'two'], launchSeconds: 0 };
}

/**
 * A random program: tasks on three streams that read what earlier ones wrote. Every task takes
 * time.
 */
export const programs = fc
  .array(
    fc.record({
      stream: fc.integer({ min: 0, max: 2 }),
      seconds: fc.integer({ min: 0, max: 9 }),
      reads: fc.array(fc.nat(1000), { maxLength: 3 }),
      bytes: fc.integer({ min: 0, max: 50 }),
      kept: fc.boolean(),
      fromWeights: fc.boolean(),
    }),
    { minLength: 1, maxLength: 30 },
  )
  .map((list): Schedule => {
    const buffers: Buffer[] = [
      WEIGHT,
      { name: 'x', bytes: 3, kind: 'activation', given: true, kept: false, weight: false },
    ];
    const tasks = list.map((of, id): Task => {
      const weights = buffers.flatMap((b, i) => (b.weight ? [i] : []));
      const pool = of.fromWeights ? weights : buffers.map((_, i) => i);
      const reads = [...new Set(of.reads.map((r) => pool[r % pool.length]))];
      const weight = reads.length > 0 && reads.every((b) => buffers[b].weight);
      buffers.push({
        name: `b${id}`,
        bytes: of.bytes,
        kind: 'activation',
        given: false,
        kept: of.kept,
        weight,
      });
      const common = {
        id,
        name: `t${id}`,
        stream: of.stream,
        seconds: of.seconds,
        kernels: 1,
        reads,
        writes: [buffers.length - 1],
        phase: 'forward' as const,
      };
      if (of.stream === 0) return { ...common, kind: 'compute', target: 'aten.mm.default' };
      const kind = (['all_gather', 'reduce_scatter', 'all_reduce'] as const)[id % 3];
      return {
        ...common,
        kind: 'collective',
        collective: { kind, meshDims: [of.stream], bytes: of.bytes, key: 'f32' },
      };
    });
    return { tasks, buffers, streams: ['compute', 'one', 'two'], launchSeconds: 1 };
  });

/** Checks a timeline against its rules, without looking at how it came about. */
export function judge(schedule: Schedule, timeline: Timeline): void {
  const { tasks, buffers } = schedule;
  const end = new Map<number, number>();
  const start = new Map<number, number>();
  const free = schedule.streams.map(() => 0);
  const made = new Map<number, number>();
  timeline.spans.forEach(({ task, start: s, end: e }, i) => {
    expect(task).toBe(tasks[i]);
    expect(e - s).toBeCloseTo(taskSeconds(schedule, task), 9);
    expect(s).toBeGreaterThanOrEqual(free[task.stream]);
    free[task.stream] = e;
    start.set(task.id, s);
    end.set(task.id, e);
    for (const b of task.writes) made.set(b, e);
  });
  timeline.spans.forEach(({ task, start: s }) => {
    for (const b of task.reads)
      if (!buffers[b].given) expect(s).toBeGreaterThanOrEqual(made.get(b)!);
    for (const id of task.afterStart ?? []) expect(s).toBeGreaterThanOrEqual(start.get(id)!);
    for (const id of task.afterEnd ?? []) expect(s).toBeGreaterThanOrEqual(end.get(id)!);
  });
  // Memory and exposure at every time at which anything happens.
  const times = [...new Set(timeline.spans.flatMap((s) => [s.start, s.end]))].sort((a, b) => a - b);
  const finish = Math.max(0, ...times);
  expect(timeline.seconds).toBe(finish);
  const alive = buffers.map((b, i): [number, number] => {
    const readers = timeline.spans.filter(
      (s) => s.task.reads.includes(i) || s.task.writes.includes(i),
    );
    const maker = timeline.spans.find((s) => s.task.writes.includes(i));
    const to = b.kept || readers.length === 0 ? Infinity : Math.max(...readers.map((s) => s.end));
    return [b.given ? 0 : (maker?.start ?? Infinity), to];
  });
  let [peak, exposed] = [0, 0];
  times.forEach((t, k) => {
    const live = buffers.reduce(
      (sum, b, i) => (alive[i][0] <= t && t < alive[i][1] ? sum + b.bytes : sum),
      0,
    );
    peak = Math.max(peak, live);
    const runs = (compute: boolean): boolean =>
      timeline.spans.some((s) => (s.task.stream === 0) === compute && s.start <= t && t < s.end);
    if (k + 1 < times.length && runs(false) && !runs(true)) exposed += times[k + 1] - t;
  });
  expect(timeline.exposedCommunicationSeconds).toBeCloseTo(exposed, 9);
  expect(timeline.memory.peakBytes).toBe(peak);
  expect(Math.max(0, ...timeline.memory.points.map((p) => p.bytes))).toBe(peak);
}
