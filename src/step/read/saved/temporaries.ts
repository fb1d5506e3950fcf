/** Gives the peak bytes of each unit that are neither states nor saved activations. */

import { planMemoryTimeline } from '../../../plan/choice/timeline.ts';
import type { Model } from '../../../plan/model/model.ts';
import type { GraphUnits } from '../graph-units.ts';
import type { GatheredRepeats } from './key-values.ts';

/** The values of a program that are kept for the backward pass, and those that are made twice. */
interface Kept {
  readonly units: GraphUnits;
  /** Nodes whose results are kept. */
  readonly kept: ReadonlySet<number>;
  readonly repeats: readonly GatheredRepeats[];
  /** Nodes whose values are states on their way, which are counted with the states. */
  readonly moved?: (node: number) => boolean;
}

/**
 * The most bytes alive in each unit of a device that are neither states nor kept. An operand that
 * is gathered for a product of the forward pass is gathered again for its gradient; in between a
 * device keeps only its own part (Megatron-LM's `LinearWithGradAccumulationAndAsyncCommunication`).
 */
export function temporaryBytes(
  model: Model,
  choice: Int32Array,
  { units, kept, repeats, moved = () => false }: Kept,
): Float64Array {
  const { nodes } = model.graph;
  const names = new Set([...kept].map((n) => nodes[n].name));
  const twice = new Map(repeats.flatMap((r) => r.nodes.map((n) => [nodes[n].name, r] as const)));
  const { intervals, nodeOfPoint, pointOfNode } = planMemoryTimeline(model, choice);
  const change = new Float64Array(nodeOfPoint.length + 1);
  const alive = (start: number, end: number, bytes: number): void => {
    change[start] += bytes;
    change[end + 1] -= bytes;
  };
  for (const interval of intervals) {
    const { start, end, bytes, kind, name, node = -1, lastForward, firstBackward } = interval;
    if (kind !== 'activation' && kind !== 'communication') continue;
    if (moved(node)) continue;
    if (kind === 'communication' && lastForward !== undefined && firstBackward !== undefined) {
      alive(start, lastForward, bytes);
      alive(firstBackward, end, bytes);
      continue;
    }
    if (kind === 'activation' && name !== undefined && names.has(name)) continue;
    // A copy that the device does not need shows the storage of what it reads, and what is written
    // into a buffer has its place there.
    if (node >= 0 && nodes[units.root[node]].meta.role === 'buffer') continue;
    const isShown = kind === 'activation' && node >= 0 && units.root[node] !== node;
    if (isShown && kept.has(units.root[node])) continue;
    if (isShown) {
      alive(start + 1, end, bytes);
      continue;
    }
    const made = name === undefined || kind !== 'activation' ? undefined : twice.get(name);
    if (made?.gradient === undefined || end < pointOfNode[made.gradient]) alive(start, end, bytes);
    else {
      alive(start, pointOfNode[made.attention], bytes);
      alive(pointOfNode[made.gradient], end, bytes);
    }
  }
  return mostByUnit(change, nodeOfPoint, units);
}

/** The largest sum of the changes so far, at the points of each unit. */
function mostByUnit(
  change: Float64Array,
  nodeOfPoint: Int32Array,
  { unit, count }: GraphUnits,
): Float64Array {
  const most = new Float64Array(count);
  let live = 0;
  nodeOfPoint.forEach((n, t) => {
    live += change[t];
    most[unit[n]] = Math.max(most[unit[n]], live);
  });
  return most;
}
