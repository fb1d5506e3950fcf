/** Plays a plan with overlapped communication and gives the use of each stream over the step. */

import { matrixPeak } from '../../cost/compute.ts';
import { hasAdapters } from '../../cost/error-bands.ts';
import { programUtilization } from '../../cost/training/mfu.ts';
import { roleName } from '../../graph/nodes.ts';
import type { Graph } from '../../graph/types.ts';
import { itemAt } from '../../item-at.ts';
import { programFlops } from '../../ops/program-flops.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { Plan } from '../../plan/record/types.ts';
import type { Span, Timeline } from '../../simulate/timeline/play.ts';
import { simulate, type Simulation } from '../../simulate/timeline/simulate.ts';
import { COMPUTE } from '../../simulate/work/streams.ts';
import { matrixDtype } from './layers.ts';

/** The step with overlapped communication, as `simulate` plays it. */
export interface Streams {
  readonly seconds: number;
  readonly serialSeconds: number;
  readonly computeSeconds: number;
  readonly communicationSeconds: number;
  readonly exposedCommunicationSeconds: number;
  readonly mfu: number;
  readonly mfuConvention: string;
  readonly peakBytes: number;
  readonly passes: readonly string[];
  readonly notes: readonly string[];
  /** When the backward pass begins; null for a program without one. */
  readonly backwardAt: number | null;
  readonly streams: readonly StreamUse[];
  /** A short stretch of the step, task by task. */
  readonly closeUp: CloseUp | null;
  /** By kind and mesh dims, the share of its seconds that overlap with compute. */
  readonly overlapped: readonly OverlappedShare[];
}

interface StreamUse {
  readonly name: string;
  readonly busySeconds: number;
  /**
   * Share of each of equally long parts of the step in which the stream works, 0 to 1, three
   * digits.
   */
  readonly busy: readonly number[];
}

export interface CloseUp {
  readonly from: number;
  readonly to: number;
  readonly tasks: readonly {
    readonly stream: number;
    readonly name: string;
    readonly start: number;
    readonly end: number;
  }[];
}

interface OverlappedShare {
  readonly kind: string;
  /** Mesh dims, sorted, joined by a comma. */
  readonly axes: string;
  readonly seconds: number;
  readonly overlappedSeconds: number;
}

/** Parts of the step in a picture of it. */
const PARTS = 360;
/** Kernels in the close-up. */
const CLOSE_UP_TASKS = 28;

/** The share of the peak of all devices that a simulated step of a program reaches. */
export function utilizationOf(
  { schedule, timeline }: Pick<Simulation, 'schedule' | 'timeline'>,
  program: Graph,
  operators: OperatorTable,
): ReturnType<typeof programUtilization> {
  const { forward, backward } = programFlops(program, operators);
  const peak = matrixPeak(schedule.cluster, matrixDtype(program)).flopsPerSecond;
  const passes = backward === 0 ? 1 : hasAdapters(program.nodes.map(roleName)) ? 2 : 3;
  return programUtilization(forward, passes, timeline.seconds, schedule.mesh.size, peak);
}

/** Plays the plan. @throws E_PLAN when the plan is not of this program */
export function streamsOf(program: Graph, plan: Plan, operators: OperatorTable): Streams {
  const simulated = simulate(program, plan, { table: operators });
  const { schedule, timeline, passes, notes } = simulated;
  const { mfu, convention } = utilizationOf(simulated, program, operators);
  const used = schedule.streams.flatMap((name, stream) => {
    const spans = timeline.spans.filter((s) => s.task.stream === stream && s.end > s.start);
    return spans.length > 0 || stream === COMPUTE ? [{ name, stream, spans }] : [];
  });
  const backwardSpans = timeline.spans.filter(
    (s) => s.task.phase === 'backward' && s.task.stream === COMPUTE,
  );
  const backwardAt =
    backwardSpans.length === 0 ? null : Math.min(...backwardSpans.map((s) => s.start));
  return {
    seconds: timeline.seconds,
    serialSeconds: timeline.serialSeconds,
    computeSeconds: timeline.computeSeconds,
    communicationSeconds: timeline.communicationSeconds,
    exposedCommunicationSeconds: timeline.exposedCommunicationSeconds,
    mfu,
    mfuConvention: convention,
    peakBytes: timeline.memory.peakBytes,
    passes,
    notes,
    backwardAt,
    streams: used.map(({ name, spans }) => ({
      name,
      busySeconds: spans.reduce((sum, s) => sum + (s.end - s.start), 0),
      busy: busyParts(spans, timeline.seconds),
    })),
    closeUp: closeUpOf(
      used.map(({ spans }) => spans),
      backwardAt ?? timeline.seconds,
    ),
    overlapped: overlappedShares(timeline, schedule.mesh.names),
  };
}

function busyParts(spans: readonly Span[], seconds: number): number[] {
  const parts = new Float64Array(PARTS);
  const width = seconds / PARTS;
  if (!(width > 0)) return [...parts];
  for (const { start, end } of spans) {
    for (let k = Math.floor(start / width); k < PARTS && k * width < end; k++)
      parts[k] =
        itemAt(parts, k) + Math.max(0, Math.min(end, (k + 1) * width) - Math.max(start, k * width));
  }
  return Array.from(parts, (busy) => Number(Math.min(1, busy / width).toFixed(3)));
}

/** Some kernels around the middle of the forward pass, and what the other streams do meanwhile. */
function closeUpOf(streams: readonly (readonly Span[])[], forwardEnd: number): CloseUp | null {
  const kernels = [...(streams[0] ?? [])].sort((a, b) => a.start - b.start);
  if (kernels.length === 0) return null;
  const middle = kernels.findIndex((s) => s.end > forwardEnd / 2);
  const first = Math.max(0, Math.min(kernels.length - CLOSE_UP_TASKS, middle - CLOSE_UP_TASKS / 2));
  const shown = kernels.slice(first, first + CLOSE_UP_TASKS);
  const [from, to] = [itemAt(shown, 0).start, itemAt(shown, shown.length - 1).end];
  const tasks = streams.flatMap((spans, stream) =>
    spans
      .filter((s) => s.end > from && s.start < to)
      .map(({ task, start, end }) => ({
        stream,
        name: task.collective === undefined ? task.name : `${task.collective.kind} ${task.name}`,
        start: Math.max(start, from),
        end: Math.min(end, to),
      })),
  );
  return { from, to, tasks };
}

function overlappedShares(timeline: Timeline, names: readonly string[]): OverlappedShare[] {
  const kernels = timeline.spans
    .filter((s) => s.task.stream === COMPUTE && s.end > s.start)
    .sort((a, b) => a.start - b.start);
  const sums = new Map<
    string,
    { kind: string; axes: string; seconds: number; overlappedSeconds: number }
  >();
  for (const { task, start, end } of timeline.spans) {
    const { collective } = task;
    if (collective === undefined || !(end > start)) continue;
    const axes = axesKey(collective.meshDims.map((d) => itemAt(names, d)));
    const key = `${collective.kind} ${axes}`;
    let sum = sums.get(key);
    if (sum === undefined)
      sums.set(key, (sum = { kind: collective.kind, axes, seconds: 0, overlappedSeconds: 0 }));
    sum.seconds += end - start;
    for (const kernel of kernels.slice(firstEndingAfter(kernels, start))) {
      if (kernel.start >= end) break;
      sum.overlappedSeconds += Math.min(end, kernel.end) - Math.max(start, kernel.start);
    }
  }
  return [...sums.values()].sort((a, b) =>
    `${a.kind} ${a.axes}` < `${b.kind} ${b.axes}` ? -1 : 1,
  );
}

/** Mesh dims of a group whatever the order in which they are named. */
export function axesKey(names: readonly string[]): string {
  return [...names].sort().join(',');
}

/** Kernels of one stream follow each other, so that they are sorted by their ends too. */
function firstEndingAfter(spans: readonly Span[], time: number): number {
  let [low, high] = [0, spans.length];
  while (low < high) {
    const mid = (low + high) >> 1;
    if (itemAt(spans, mid).end > time) high = mid;
    else low = mid + 1;
  }
  return low;
}
