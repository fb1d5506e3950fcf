import { ShardwrightError } from '../errors.ts';

/**
 * Memory over program time. A buffer is alive from the step that makes it to the step that reads it last, both included;
 * the curve of live bytes changes at those steps only.
 */

/** Bytes that are alive over a range of steps. */
export interface LiveInterval {
  /** First and last step, whole numbers, both included. */
  readonly start: number;
  readonly end: number;
  readonly bytes: number;
  /** What the buffer is, for reports. */
  readonly kind?: MemoryKind;
  readonly name?: string;
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
export interface MemorySpan {
  readonly start: number;
  readonly end: number;
  readonly bytes: number;
}

/** Highest sum of live bytes, the first step that has it, and the buffers that are alive there. */
export interface MemoryPeak {
  readonly peakBytes: number;
  readonly step: number;
  readonly live: readonly LiveInterval[];
  /** Bytes at the peak by kind; intervals without one count as `temporary`. */
  readonly byKind: Readonly<Partial<Record<MemoryKind, number>>>;
}

/**
 * The curve of live bytes, one span between changes, ascending; spans of no bytes are left out. Sums are exact for whole
 * bytes below 2^53.
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
        `${name ?? 'a buffer'} lives from step ${start} to ${end} with ${bytes} bytes; steps rise and bytes are not negative`,
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

/** One value of a schedule: who makes it, and the steps that read it. */
export interface ScheduledValue {
  readonly name: string;
  readonly bytes: number;
  /** Step that makes it; -1 for what is there before the program starts. */
  readonly producer: number;
  readonly readers: readonly number[];
  /** Stays to the end of the program: parameters, optimizer state, outputs. */
  readonly persistent?: boolean;
  readonly kind?: MemoryKind;
  /** Value whose storage it shares (a view, an in-place result): it adds no bytes and keeps the other alive. */
  readonly storageOf?: string;
}

/**
 * Live intervals of a per-node schedule: values that share storage are one buffer, alive while any of them is.
 *
 * @param steps number of steps of the program
 * @throws E_USAGE for an unknown storage owner or one that owns itself in a ring
 */
export function liveIntervals(values: readonly ScheduledValue[], steps: number): LiveInterval[] {
  const byName = new Map(values.map((v) => [v.name, v]));
  const ownerOf = (value: ScheduledValue): ScheduledValue => {
    let owner = value;
    for (let hops = 0; owner.storageOf !== undefined; hops++) {
      const next = byName.get(owner.storageOf);
      if (next === undefined || hops > values.length)
        throw new ShardwrightError('E_USAGE', `'${value.name}' shares storage with '${owner.storageOf}', which ${next === undefined ? 'is no value of the schedule' : 'shares it in a ring'}`); // prettier-ignore
      owner = next;
    }
    return owner;
  };
  const spans = new Map<string, { start: number; end: number }>();
  for (const value of values) {
    const owner = ownerOf(value);
    const start = Math.max(0, value.producer);
    // Nobody reads it: it is alive at the step that makes it.
    const end = value.persistent === true ? steps - 1 : Math.max(start, ...value.readers);
    const span = spans.get(owner.name);
    if (span === undefined) spans.set(owner.name, { start, end });
    else spans.set(owner.name, { start: Math.min(span.start, start), end: Math.max(span.end, end) });
  }
  return values.flatMap((value) => {
    const span = spans.get(value.name);
    if (value.storageOf !== undefined || span === undefined || value.bytes === 0) return [];
    return [{ ...span, bytes: value.bytes, name: value.name, ...(value.kind !== undefined && { kind: value.kind }) }];
  });
}

/** Sizes rounded up to an allocator's blocks. */
export function blockBytes(bytes: number, block = 512): number {
  return Math.ceil(bytes / block) * block;
}

/** Bytes of the largest local shard: ceil chunks on every cut dim, times the element. */
export function localShardBytes(shape: readonly number[], pieces: readonly number[], itemBytes: number): number {
  return shape.reduce((n, size, d) => n * Math.ceil(size / (pieces[d] ?? 1)), itemBytes);
}

/**
 * Elements per rank of a dim that is cut into ceil chunks: trailing ranks hold fewer or none (10 on 4: 3, 3, 3, 1).
 *
 * @param size elements of the dim
 */
export function chunkSizes(size: number, pieces: number): number[] {
  const chunk = Math.ceil(size / pieces);
  return Array.from({ length: pieces }, (_, r) => Math.max(0, Math.min(chunk, size - r * chunk)));
}
