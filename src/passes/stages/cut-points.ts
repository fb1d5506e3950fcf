/**
 * Finds where a program can be cut into pipeline stages: the points of its forward pass that few
 * tensors cross.
 */

import { valueBytes } from '../../graph/value.ts';
import { type Dataflow, eachOperandOf, GETITEM } from './dataflow.ts';

/** A point between two forward calls. */
export interface CutPoint {
  /** The call that a stage would begin with. */
  readonly before: string;
  /** Its place among the forward calls. */
  readonly place: number;
  /** Tensors made in front of the point that forward calls behind it read. */
  readonly tensors: number;
  readonly bytes: number;
}

/**
 * The narrow points of the forward pass, in order. Between two calls that read weights lies one:
 * the narrowest, the last among equals, so that a stage begins where its weights are read. It is
 * left out where more tensors cross it than the one before or behind: inside of a residual branch,
 * say. A program that reads no weights may be cut before any call.
 */
export function cutPoints(flow: Dataflow): CutPoint[] {
  const all = crossings(flow);
  const found = narrowest(flow, all);
  return found.filter((point, i) => {
    const around = [found[i - 1], found[i + 1]].filter((p) => p !== undefined);
    return around.every((other) => point.tensors <= other.tensors);
  });
}

/** Every point that only tensors cross, by place; undefined where none may be cut. */
function crossings(flow: Dataflow): (CutPoint | undefined)[] {
  const { graph, calls, place } = flow;
  const last = lastReaders(flow);
  const tensors = new Int32Array(calls.length + 1);
  const bytes = new Float64Array(calls.length + 1);
  const closed = new Int32Array(calls.length + 1);
  graph.nodes.forEach(({ type }, i) => {
    // A value that is made at place a and read at b crosses the points behind a, up to b.
    if (place[i] < 0 || last[i] <= place[i]) return;
    const [from, to] = [place[i] + 1, last[i] + 1];
    const step = type.kind === 'tensor' ? tensors : closed;
    step[from]++;
    step[to]--;
    bytes[from] += valueBytes(type);
    bytes[to] -= valueBytes(type);
  });
  for (let c = 1; c <= calls.length; c++) {
    tensors[c] += tensors[c - 1];
    bytes[c] += bytes[c - 1];
    closed[c] += closed[c - 1];
  }
  return calls.map((node, c) =>
    c === 0 || closed[c] > 0
      ? undefined
      : { before: graph.nodes[node].name, place: c, tensors: tensors[c], bytes: bytes[c] },
  );
}

/** By position, the place of the last forward call that reads the value; -1 where none does. */
function lastReaders({ graph, index, parts, place }: Dataflow): Int32Array {
  const last = new Int32Array(graph.nodes.length).fill(-1);
  graph.nodes.forEach((node, i) => {
    // What is unpacked lies where its tuple does.
    if (parts[i] === 'forward' && node.target !== GETITEM)
      eachOperandOf(index, i, (operand) => (last[operand] = Math.max(last[operand], place[i])));
  });
  return last;
}

function narrowest(
  { index, isWeight, calls }: Dataflow,
  points: readonly (CutPoint | undefined)[],
): CutPoint[] {
  const readsWeights = calls.map((node) => {
    let reads = false;
    eachOperandOf(index, node, (operand) => (reads ||= isWeight[operand] === 1));
    return reads;
  });
  if (!readsWeights.includes(true)) return points.filter((point) => point !== undefined);
  const found: CutPoint[] = [];
  let best: CutPoint | undefined;
  let isBehindWeights = false;
  points.forEach((point, c) => {
    if (isBehindWeights && point !== undefined && (best === undefined || point.bytes <= best.bytes))
      best = point;
    if (!readsWeights[c]) return;
    if (best !== undefined) found.push(best);
    best = undefined;
    isBehindWeights = true;
  });
  return found;
}
