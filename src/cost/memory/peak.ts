/**
 * Memory over program time. A buffer is alive from the step that makes it to the step that reads it
 * last, both included; the curve of live bytes changes at those steps only.
 */

import { ShardwrightError } from '../../errors.ts';

/** Bytes that are alive over a range of steps. */
export interface LiveInterval {
  /** First and last step, whole numbers, both included. */
  readonly start: number;
  readonly end: number;
  readonly bytes: number;
  /** The kind of the buffer, for reports. */
  readonly kind?: MemoryKind;
  readonly name?: string;
  /** Index of the node whose value it holds, of buffers of a program. */
  readonly node?: number;
  /** Steps of the last call of the forward pass that reads it, and of the first of the backward. */
  readonly lastForward?: number;
  readonly firstBackward?: number;
}

export const MEMORY_KINDS = [
  'parameter',
  'gradient',
  'optimizer',
  'buffer',
  'activation',
  'temporary',
  'communication',
  'reserved',
] as const;
export type MemoryKind = (typeof MEMORY_KINDS)[number];

/** Live bytes from one step up to the next change. */
interface MemorySpan {
  readonly start: number;
  readonly end: number;
  readonly bytes: number;
}

/** Highest sum of live bytes, the first step that has it, and the buffers that are alive there. */
interface MemoryPeak {
  readonly peakBytes: number;
  readonly step: number;
  readonly live: readonly LiveInterval[];
  /** Bytes at the peak by kind; intervals without one count as `temporary`. */
  readonly byKind: Readonly<Partial<Record<MemoryKind, number>>>;
}

/**
 * The curve of live bytes, one span between changes, ascending; spans of no bytes are left out.
 * Sums are exact for whole bytes below 2^53.
 *
 * @throws E_USAGE for an interval that ends before it starts, or with negative bytes
 */
export function memoryTimeline(intervals: readonly LiveInterval[]): MemorySpan[] {
  const events = changes(intervals);
  const steps = Float64Array.from(events.keys()).sort();
  const spans: MemorySpan[] = [];
  let bytes = 0;
  steps.forEach((step, i) => {
    bytes += events.get(step) ?? 0;
    const end = i + 1 < steps.length ? steps[i + 1] - 1 : step;
    const last = spans.at(-1);
    if (bytes === 0) return;
    if (last?.bytes === bytes && last.end === step - 1) spans[spans.length - 1] = { ...last, end };
    else spans.push({ start: step, end, bytes });
  });
  return spans;
}

/** Bytes that appear (or vanish, the step after the last) at each step. */
function changes(intervals: readonly LiveInterval[]): Map<number, number> {
  const events = new Map<number, number>();
  for (const { start, end, bytes, name } of intervals) {
    if (!(end >= start) || !(bytes >= 0) || !Number.isInteger(start) || !Number.isInteger(end))
      throw new ShardwrightError(
        'E_USAGE',
        `${name ?? 'a buffer'} lives from step ${start} to ${end} with ${bytes} bytes; steps ` +
          'rise and bytes are not negative',
      );
    events.set(start, (events.get(start) ?? 0) + bytes);
    events.set(end + 1, (events.get(end + 1) ?? 0) - bytes);
  }
  return events;
}

/** The peak of the curve; zero at step 0 without intervals. */
export function peakOf(intervals: readonly LiveInterval[]): MemoryPeak {
  let peak: MemorySpan = { start: 0, end: 0, bytes: 0 };
  for (const span of memoryTimeline(intervals)) if (span.bytes > peak.bytes) peak = span;
  const live = intervals.filter((i) => i.bytes > 0 && i.start <= peak.start && i.end >= peak.start);
  const byKind: Partial<Record<MemoryKind, number>> = {};
  for (const { kind = 'temporary', bytes } of live) byKind[kind] = (byKind[kind] ?? 0) + bytes;
  return { peakBytes: peak.bytes, step: peak.start, live, byKind };
}

/**
 * The bytes of `peakOf` for intervals within so many steps from 0 on, without what is alive there:
 * a search asks for thousands of peaks.
 */
export function mostLiveBytes(intervals: readonly LiveInterval[], steps: number): number {
  const change = new Float64Array(steps + 1);
  for (const { start, end, bytes } of intervals) {
    change[start] += bytes;
    change[end + 1] -= bytes;
  }
  let [bytes, most] = [0, 0];
  for (const more of change) if ((bytes += more) > most) most = bytes;
  return most;
}
