/**
 * Takes a plan and gives the bytes alive on the fullest device at every step of the program, by
 * kind.
 */

import { type LiveInterval, type MemoryKind, peakOf } from '../../cost/memory/peak.ts';
import { itemAt } from '../../item-at.ts';
import { planMemoryTimeline } from '../../plan/choice/timeline.ts';
import type { Reopened } from '../../plan/questions/explain.ts';

/**
 * Live bytes on the fullest device at every program point, by kind. (JSON calls a program point a
 * moment.)
 */
export interface MemoryCurve {
  readonly moments: number;
  readonly peakBytes: number;
  readonly peakMoment: number;
  /** Node that runs, or whose inputs are being brought, at the peak. */
  readonly peakNode: string;
  readonly phase: 'forward' | 'backward';
  /** First program point of the backward pass; null where there is none. */
  readonly backwardAt: number | null;
  readonly kinds: readonly CurveKind[];
  /**
   * In each of equally many program points, at the fullest of them: bytes of each of `kinds`,
   * bottom first.
   */
  readonly points: readonly (readonly number[])[];
  /** The largest tensors alive at the peak that are not a parameter, gradient or state. */
  readonly largest: readonly LiveTensor[];
}

interface LiveTensor {
  readonly name: string;
  readonly bytes: number;
  readonly kind: MemoryKind;
  /** Program points from which to which it is alive, both included. */
  readonly from: number;
  readonly to: number;
}

type CurveKind = 'parameters' | 'optimizer' | 'gradients' | 'activations' | 'copies in flight';

const KINDS: readonly CurveKind[] = [
  'parameters',
  'optimizer',
  'gradients',
  'activations',
  'copies in flight',
];
const KIND_OF: Readonly<Record<MemoryKind, CurveKind>> = {
  parameter: 'parameters',
  buffer: 'parameters',
  optimizer: 'optimizer',
  gradient: 'gradients',
  activation: 'activations',
  temporary: 'activations',
  reserved: 'activations',
  communication: 'copies in flight',
};
const POINTS = 200;
const LARGEST = 10;

/**
 * The curve of a plan, from the placements that it takes: the same program points as
 * `plan.memory.timeline`.
 */
export function memoryCurveOf({ prepared, choice }: Reopened): MemoryCurve {
  const { model } = prepared;
  const { intervals, nodeOfPoint } = planMemoryTimeline(model, choice);
  const peak = peakOf(intervals);
  const phaseAt = (point: number): 'forward' | 'backward' =>
    model.flow.phases[nodeOfPoint[point] ?? -1] ?? 'forward';
  const backwardAt = nodeOfPoint.findIndex((_, point) => phaseAt(point) === 'backward');
  return {
    moments: nodeOfPoint.length,
    peakBytes: peak.peakBytes,
    peakMoment: peak.step,
    peakNode: model.graph.nodes[nodeOfPoint[peak.step] ?? -1]?.name ?? '',
    phase: phaseAt(peak.step),
    backwardAt: backwardAt < 0 ? null : backwardAt,
    kinds: KINDS,
    points: pointsOf(intervals, nodeOfPoint.length),
    largest: [...peak.live]
      .filter(({ kind = 'temporary' }) =>
        ['activations', 'copies in flight'].includes(KIND_OF[kind]),
      )
      .sort(
        (a, b) =>
          b.bytes - a.bytes || a.start - b.start || ((a.name ?? '') < (b.name ?? '') ? -1 : 1),
      )
      .slice(0, LARGEST)
      .map(({ name = '', bytes, kind = 'temporary', start, end }) => ({
        name,
        bytes,
        kind,
        from: start,
        to: end,
      })),
  };
}

function pointsOf(intervals: readonly LiveInterval[], total: number): number[][] {
  const changes = KINDS.map(() => new Float64Array(total + 1));
  for (const { start, end, bytes, kind = 'temporary' } of intervals) {
    const change = itemAt(changes, KINDS.indexOf(KIND_OF[kind]));
    change[start] = itemAt(change, start) + bytes;
    change[end + 1] = itemAt(change, end + 1) - bytes;
  }
  const count = Math.min(POINTS, total);
  const points: number[][] = [];
  const live = KINDS.map(() => 0);
  let most = -1;
  for (let t = 0; t < total; t++) {
    changes.forEach((change, k) => (live[k] = itemAt(live, k) + itemAt(change, t)));
    const at = Math.floor((t * count) / total);
    const sum = live.reduce((n, bytes) => n + bytes, 0);
    if (at === points.length) {
      points.push([...live]);
      most = sum;
    } else if (sum > most) {
      points[at] = [...live];
      most = sum;
    }
  }
  return points;
}
