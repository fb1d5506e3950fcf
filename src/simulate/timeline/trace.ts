/** Writes simulated steps and pipelines as Chrome trace events. */

import { checkKinds } from '../../arguments.ts';
import type { PipelineRun } from '../pipeline/play.ts';
import { COMPUTE } from '../work/streams.ts';
import type { PlanSchedule } from './from-plan.ts';
import type { Timeline } from './play.ts';
import type { Task } from './schedule.ts';

/**
 * Chrome trace events, as Perfetto and chrome://tracing open them (format: "Trace Event Format",
 * Google, 2016): complete events `X` with start and duration in microseconds, one thread for
 * compute and one for each group of mesh dims that communicates; a counter of the memory; names as
 * metadata `M`; messages between pipeline stages as flows `s` and `f`.
 */
export interface TraceFile {
  readonly displayTimeUnit: 'ms';
  readonly traceEvents: readonly TraceEvent[];
}

export interface TraceEvent {
  readonly name: string;
  readonly ph: 'X' | 'C' | 'M' | 's' | 'f';
  readonly pid: number;
  readonly tid: number;
  /** Microseconds; absent for metadata. */
  readonly ts?: number;
  readonly dur?: number;
  readonly cat?: string;
  readonly id?: string;
  /** Flows end at the slice that encloses them. */
  readonly bp?: 'e';
  readonly args?: Readonly<Record<string, string | number>>;
}

const MICRO = 1e6;

/**
 * The trace of one device. Collectives of one group run on one link, so that no two of a thread
 * overlap.
 */
export function timelineTrace(schedule: PlanSchedule, timeline: Timeline): TraceFile {
  checkKinds('timelineTrace', {
    schedule: [schedule, ['mesh', 'cluster', 'collectives']],
    timeline: [timeline, ['seconds', 'serialSeconds', 'computeSeconds']],
  });
  const names = ['compute'];
  const threads = new Map<string, number>();
  const thread = (task: Task): number => {
    if (task.stream === COMPUTE || task.collective === undefined) return 0;
    const axes = axesOf(schedule, task);
    const known = threads.get(axes);
    if (known !== undefined) return known;
    threads.set(axes, names.length);
    return names.push(axes) - 1;
  };
  const events: TraceEvent[] = [];
  for (const { task, start, end } of timeline.spans) {
    if (!(end > start)) continue;
    const ts = start * MICRO;
    events.push({
      name: task.target ?? task.kind,
      ph: 'X',
      pid: 0,
      tid: thread(task),
      ts,
      dur: end * MICRO - ts,
      cat: task.kind === 'collective' ? 'collective' : 'compute',
      args: {
        node: task.name,
        phase: task.phase,
        ...(task.collective === undefined
          ? {}
          : { bytes: task.collective.bytes, axes: axesOf(schedule, task) }),
      },
    });
  }
  for (const { at, bytes } of timeline.memory.points)
    events.push({
      name: 'memory (MiB)',
      ph: 'C',
      pid: 0,
      tid: 0,
      ts: at * MICRO,
      args: { MiB: bytes / 2 ** 20 },
    });
  return {
    displayTimeUnit: 'ms',
    traceEvents: [...metadata(0, 'every device', names), ...byTime(events)],
  };
}

function axesOf({ mesh }: PlanSchedule, { collective }: Task): string {
  return [...(collective?.meshDims ?? [])]
    .sort((a, b) => a - b)
    .map((d) => mesh.names[d])
    .join('+');
}

/** The trace of a pipeline: a process for every stage, arrows for the messages between them. */
export function pipelineTrace(run: PipelineRun): TraceFile {
  checkKinds('pipelineTrace', { run: [run, ['schedule', 'seconds', 'bubbleSeconds']] });
  const events: TraceEvent[] = [];
  const p = run.devices.length;
  const words = { F: 'forward', B: 'backward', W: 'weight gradients' } as const;
  const spanOf = new Map<
    string,
    { readonly device: number; readonly start: number; readonly end: number }
  >();
  run.devices.forEach(({ spans }, device) => {
    for (const { kind, microbatch, chunk, start, end } of spans) {
      spanOf.set(`${kind} ${chunk * p + device} ${microbatch}`, { device, start, end });
      events.push({
        name: `${kind}${microbatch}`,
        ph: 'X',
        pid: device,
        tid: 0,
        ts: start * MICRO,
        dur: end * MICRO - start * MICRO,
        cat: 'compute',
        args: { pass: words[kind], microbatch, chunk },
      });
    }
  });
  for (const [key, from] of spanOf) {
    const [kind, stage, microbatch] = key.split(' ');
    const next = Number(stage) + (kind === 'F' ? 1 : -1);
    const to = kind === 'W' ? undefined : spanOf.get(`${kind} ${next} ${microbatch}`);
    if (to === undefined) continue;
    const flow = {
      name: kind === 'F' ? 'activation' : 'gradient',
      tid: 0,
      cat: 'p2p',
      id: `${kind}${microbatch} from ${stage}`,
    };
    // The arrow leaves inside its slice: at the end of it the next slice may have begun.
    events.push({ ...flow, ph: 's', pid: from.device, ts: ((from.start + from.end) / 2) * MICRO });
    events.push({ ...flow, ph: 'f', bp: 'e', pid: to.device, ts: to.start * MICRO });
  }
  const named = run.devices.flatMap((_, device) =>
    metadata(device, `stage ${device}`, ['compute']),
  );
  return { displayTimeUnit: 'ms', traceEvents: [...named, ...byTime(events)] };
}

function metadata(pid: number, process: string, threads: readonly string[]): TraceEvent[] {
  return [
    { name: 'process_name', ph: 'M', pid, tid: 0, args: { name: process } },
    ...threads.map((name, tid): TraceEvent => ({
      name: 'thread_name',
      ph: 'M',
      pid,
      tid,
      args: { name },
    })),
  ];
}

function byTime(events: TraceEvent[]): TraceEvent[] {
  return events.sort((a, b) => (a.ts ?? 0) - (b.ts ?? 0) || a.pid - b.pid || a.tid - b.tid);
}
