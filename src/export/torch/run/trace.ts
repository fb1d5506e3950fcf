/**
 * Reads the trace that `torch.profiler` exports (Kineto's Chrome JSON, one rank): its events in the
 * order of their starts, and the seconds of calls on a device.
 */
import { ShardwrightError } from '../../../errors.ts';
import { parseAnyDepth } from '../../../text/json.ts';

/** A complete event of a trace; microseconds. */
export interface TraceSpan {
  readonly name: string;
  readonly cat: string;
  readonly tid: number;
  readonly ts: number;
  readonly dur: number;
  /** Ties a kernel to the call that launched it. */
  readonly correlation: number | undefined;
}

/** Categories of events that run on a device. */
const DEVICE = new Set(['kernel', 'gpu_memcpy', 'gpu_memset']);

/** @throws E_SYNTAX, with the place, for text that is not a trace */
export function readTrace(text: string, file: string): TraceSpan[] {
  const hint = 'give what torch.profiler wrote by export_chrome_trace.';
  const value = parseAnyDepth(text, { file, hint }, { what: 'it' });
  const events =
    typeof value === 'object' && value !== null && 'traceEvents' in value
      ? value.traceEvents
      : undefined;
  if (!Array.isArray(events))
    throw new ShardwrightError('E_SYNTAX', 'there is no list traceEvents', { file, hint });
  return (events as (Partial<TraceSpan> & { ph?: string; args?: { correlation?: unknown } })[])
    .flatMap(({ ph, name, cat, tid, ts, dur, args }) =>
      ph === 'X' &&
      typeof name === 'string' &&
      typeof cat === 'string' &&
      typeof ts === 'number' &&
      typeof dur === 'number'
        ? [
            {
              name,
              cat,
              tid: Number(tid),
              ts,
              dur,
              correlation: typeof args?.correlation === 'number' ? args.correlation : undefined,
            },
          ]
        : [],
    )
    .sort((a, b) => a.ts - b.ts || b.dur - a.dur);
}

/**
 * The device that a trace names, as its driver calls it; that of a trace without one is a
 * processor.
 */
export function tracedDevice(text: string): string {
  return (
    /"deviceProperties":\s*\[\s*\{[^}]*?"name":\s*"([^"\\]*)"/.exec(text)?.[1] ?? 'a processor'
  );
}

/** The rank that a trace names as its own; undefined where its process had no group. */
export function tracedRank(text: string): number | undefined {
  const found = /"distributedInfo":\s*\{[^}]*?"rank":\s*(\d+)/.exec(text)?.[1];
  return found === undefined ? undefined : Number(found);
}

/**
 * Microseconds of the device for the calls of one step: kernels, copies and fills belong to the
 * call that launched them.
 */
export class DeviceTimes {
  /** Microseconds from the start of the first call to the end of the last. */
  readonly step: number;
  /** Microseconds in which a kernel ran that is not a collective. */
  readonly busy: number;
  /** Microseconds in which no kernel ran at all. */
  readonly idle: number;
  /** Start and length of the device's work, by the time of its launch. */
  private readonly launched: readonly {
    readonly at: number;
    readonly tid: number;
    readonly dur: number;
  }[];

  constructor(spans: readonly TraceSpan[], within: readonly TraceSpan[]) {
    const launches = new Map<number, TraceSpan>();
    for (const span of spans)
      if (span.cat.startsWith('cuda_') && span.correlation !== undefined)
        launches.set(span.correlation, span);
    const own = spans.flatMap((span) => {
      const by =
        DEVICE.has(span.cat) && span.correlation !== undefined
          ? launches.get(span.correlation)
          : undefined;
      return by !== undefined && within.some(({ ts, dur }) => by.ts >= ts && by.ts <= ts + dur)
        ? [{ span, by }]
        : [];
    });
    this.launched = own
      .map(({ span, by }) => ({ at: by.ts, tid: by.tid, dur: span.dur }))
      .sort((a, b) => a.at - b.at);
    const starts = own.map(({ span }) => span.ts);
    const ends = own.map(({ span }) => span.ts + span.dur);
    this.step = own.length === 0 ? 0 : Math.max(...ends) - Math.min(...starts);
    const ran = own.map(({ span }) => span);
    this.busy = covered(ran.filter(({ name }) => !name.startsWith('nccl')));
    this.idle = this.step - covered(ran);
  }

  of({ ts, dur, tid }: TraceSpan): number {
    let sum = 0;
    for (const one of this.launched)
      if (one.tid === tid && one.at >= ts && one.at <= ts + dur) sum += one.dur;
    return sum;
  }
}

/** Microseconds in which at least one of the spans ran, which are in the order of their starts. */
export function covered(spans: readonly TraceSpan[]): number {
  let until = -Infinity;
  let sum = 0;
  for (const { ts, dur } of spans) {
    sum += Math.max(0, ts + dur - Math.max(until, ts));
    until = Math.max(until, ts + dur);
  }
  return sum;
}
