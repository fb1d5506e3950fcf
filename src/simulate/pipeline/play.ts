/**
 * Runs a pipeline schedule by events: a device takes its passes in order, each as soon as the
 * device is free and the inputs of the pass have arrived. Activations and their gradients travel
 * during compute, one message at a time on each boundary and direction.
 */

import { checkKinds } from '../../arguments.ts';
import { internalError, ShardwrightError } from '../../errors.ts';
import {
  type Pass,
  passOrder,
  type PipelineSchedule,
  type PipelineShape,
  splitsBackward,
} from './schedules.ts';

/**
 * Seconds of one microbatch on one stage. Where the schedule has no W, backward takes both parts at
 * once.
 */
export interface StageSeconds {
  readonly forward: number;
  readonly backwardInput: number;
  readonly backwardWeight: number;
}

/** Seconds of every stage, forward and backward, and of the messages between them. */
export interface PipelineTimes {
  /** By stage (chunk * devices + device), or one for all. */
  readonly stages: StageSeconds | readonly StageSeconds[];
  /** Seconds of the message from stage k to k + 1; a number for all boundaries. Default 0. */
  readonly hopSeconds?: number | readonly number[];
  /** Seconds of the message back, from stage k + 1 to k. Default `hopSeconds`. */
  readonly hopBackSeconds?: number | readonly number[];
}

export interface PassSpan extends Pass {
  readonly start: number;
  readonly end: number;
}

/** One step of a pipeline: its seconds, its bubble, and every pass in its place. */
export interface PipelineRun {
  readonly schedule: PipelineSchedule;
  /** First start to last end over all devices. */
  readonly seconds: number;
  /** Longest device span (first start to last end) less the longest device's own work. */
  readonly bubbleSeconds: number;
  readonly devices: readonly PipelineDevice[];
}

interface PipelineDevice {
  readonly spans: readonly PassSpan[];
  readonly busySeconds: number;
  /** Share of the whole run that the device waits, 0..1. */
  readonly idleShare: number;
  /**
   * Most microbatches (of a chunk) whose activations are held at once: from the start of F to the
   * end of the last backward.
   */
  readonly kept: number;
}

/**
 * Plays one step of a pipeline schedule, pass by pass.
 *
 * @throws E_USAGE for what `passOrder` refuses, times that are not numbers from 0 on, and lists of
 *   the wrong length
 */
export function playPipeline(
  schedule: PipelineSchedule,
  shape: PipelineShape,
  times: PipelineTimes,
): PipelineRun {
  checkKinds('playPipeline', {
    schedule: [schedule, 'string'],
    shape: [shape, ['devices', 'microbatches']],
    times: [times, ['stages']],
  });
  const { devices: p, microbatches: m, chunks: v = 1 } = shape;
  const order = passOrder(schedule, shape);
  const split = splitsBackward(schedule);
  const count = p * v;
  const { stages, hops } = checkedTimes(times, count);
  // Arrival of the input of F and B, by stage and microbatch; NaN: not yet.
  const ready = { F: filled(count * m), B: filled(count * m), W: filled(count * m) };
  for (let j = 0; j < m; j++) ready.F[j] = 0;
  const linkFree = { F: new Float64Array(count), B: new Float64Array(count) };
  const send = (kind: 'F' | 'B', boundary: number, end: number): number => {
    const arrival = Math.max(end, linkFree[kind][boundary]) + hops[kind][boundary];
    linkFree[kind][boundary] = arrival;
    return arrival;
  };
  const next = new Int32Array(p);
  const free = new Float64Array(p);
  const spans = order.map((): PassSpan[] => []);
  let left = order.reduce((n, list) => n + list.length, 0);
  for (let moved = true; left > 0;) {
    if (!moved)
      throw internalError(
        `schedule ${schedule} of ${p} devices and ${m} microbatches waits for itself`,
      );
    moved = false;
    for (let i = 0; i < p; i++) {
      for (; next[i] < order[i].length; next[i]++, left--, moved = true) {
        const pass = order[i][next[i]];
        const stage = pass.chunk * p + i;
        const slot = stage * m + pass.microbatch;
        const arrived = ready[pass.kind][slot];
        if (Number.isNaN(arrived)) break;
        const start = Math.max(free[i], arrived);
        const end = start + passSeconds(stages[stage], pass.kind, split);
        free[i] = end;
        spans[i].push({ ...pass, start, end });
        if (pass.kind === 'F') {
          if (stage + 1 < count) ready.F[slot + m] = send('F', stage, end);
          else ready.B[slot] = end;
        } else if (pass.kind === 'B') {
          ready.W[slot] = end;
          // The own forward came first: gradients come back through the stages after it.
          if (stage > 0) ready.B[slot - m] = send('B', stage - 1, end);
        }
      }
    }
  }
  return summary(schedule, spans, split);
}

/** Seconds of each stage and each boundary. */
function checkedTimes(
  { stages: stageTimes, hopSeconds = 0, hopBackSeconds = hopSeconds }: PipelineTimes,
  count: number,
): {
  readonly stages: readonly StageSeconds[];
  readonly hops: Readonly<Record<'F' | 'B', readonly number[]>>;
} {
  const stages = perStage(stageTimes, count, 'stages');
  const hops = {
    F: perStage(hopSeconds, count - 1, 'boundaries'),
    B: perStage(hopBackSeconds, count - 1, 'boundaries'),
  };
  for (const seconds of [
    ...hops.F,
    ...hops.B,
    ...stages.flatMap((s) => [s.forward, s.backwardInput, s.backwardWeight]),
  ])
    if (!(seconds >= 0 && seconds < Infinity))
      throw new ShardwrightError('E_USAGE', `a pass or message of ${seconds} seconds`);
  return { stages, hops };
}

/** @param split whether the gradients of weights are a pass of their own */
function passSeconds(
  { forward, backwardInput, backwardWeight }: StageSeconds,
  kind: PassSpan['kind'],
  split: boolean,
): number {
  if (kind === 'F') return forward;
  if (kind === 'W') return backwardWeight;
  return backwardInput + (split ? 0 : backwardWeight);
}

function summary(
  schedule: PipelineSchedule,
  spans: readonly PassSpan[][],
  split: boolean,
): PipelineRun {
  const first = Math.min(...spans.map((list) => list[0].start));
  const last = Math.max(...spans.map((list) => list[list.length - 1].end));
  const seconds = last - first;
  const busy = spans.map((list) => list.reduce((sum, s) => sum + (s.end - s.start), 0));
  const longest = Math.max(...spans.map((list) => list[list.length - 1].end - list[0].start));
  return {
    schedule,
    seconds,
    bubbleSeconds: longest - Math.max(...busy),
    devices: spans.map((list, i) => ({
      spans: list,
      busySeconds: busy[i],
      idleShare: seconds > 0 ? 1 - busy[i] / seconds : 0,
      kept: mostKept(list, split ? 'W' : 'B'),
    })),
  };
}

/**
 * Passes of one device run one after another, so that counting in their order is counting over
 * time.
 */
function mostKept(spans: readonly PassSpan[], last: 'B' | 'W'): number {
  let alive = 0;
  let most = 0;
  for (const { kind } of spans) {
    if (kind === 'F') most = Math.max(most, ++alive);
    else if (kind === last) alive--;
  }
  return most;
}

function filled(n: number): Float64Array {
  return new Float64Array(n).fill(NaN);
}

function perStage<T extends object | number>(
  given: T | readonly T[],
  count: number,
  what: string,
): readonly T[] {
  if (!Array.isArray(given)) return new Array<T>(count).fill(given as T);
  const list = given as readonly T[];
  if (list.length !== count)
    throw new ShardwrightError(
      'E_USAGE',
      `${list.length} times for ${count} ${what} of the pipeline`,
    );
  return list;
}
