/**
 * The bytes that are certainly alive while one node runs, as amounts of the values of single
 * variables: the part of `planMemoryTimeline` that needs no knowledge of two variables at once. The
 * memory at that program point is never less in a plan whose tensors stay as their producers leave
 * them up to their last reader: a row made of these amounts cuts none of those away that keeps the
 * budget. (A shared copy that outlives its original may be smaller; no single variable knows.)
 *
 * Not counted: copies that redistributions make, and tensors that are alive only through a view
 * that changes their size. The result is a linear under-estimate of the live bytes at a program
 * point.
 */
import { DTYPE_BYTES } from '../../../graph/types.ts';
import { elements } from '../../../ops/record/record.ts';
import type { Model } from '../../model/model.ts';
import type { Liveness } from './liveness.ts';

/**
 * The fate of a forward result that the backward pass wants: saved from the first run on,
 * recomputed, or discarded.
 */
export type RematDecision = 'save' | 'recompute' | 'discard';

export interface LiveBytes {
  readonly variable: number;
  readonly node: number;
  /**
   * Amount for each strategy of the node. `recompute` and `discard` are `save` where the node has
   * no choice.
   */
  readonly save: Float64Array;
  readonly recompute: Float64Array;
  readonly discard: Float64Array;
}

/**
 * @param point node that runs
 * @param chosen nodes that have a decision; the results of all others stay as the graph has it
 * @param anchors nodes that are saved for certain. With them the amounts are no lower bound but an
 *   estimate: what is recomputed is taken to run as soon as anything up to the next anchor is
 *   needed, since one chain of recomputed nodes brings all of it
 */
export function liveBytesAt(
  model: Model,
  live: Liveness,
  point: number,
  chosen?: Uint8Array,
  anchors?: Uint8Array,
  /** Results whose storage counts elsewhere, views of them included. */
  elsewhere?: { has(root: number): boolean },
): LiveBytes[] {
  const { graph, flow, strategies, space, nodeVariable, stateBytes } = model;
  const runsFrom = anchors === undefined ? undefined : chainsOf(model, live, chosen, anchors);
  const needs = needsOf(model, live);
  const gradients = gradientsBefore(model, point);
  const viewOf = viewsAlive(model, live, point, chosen);
  const read = readLast(model, live, point, needs);
  const rows: LiveBytes[] = [];
  graph.nodes.forEach((node, n) => {
    const variable = nodeVariable[n];
    if (variable < 0) return;
    const { set } = strategies.nodes[n]!;
    const width = set.inputCount + set.outputCount;
    const bytesOf = (value: number, slot: number): Float64Array => {
      const { meta } = flow.values[value];
      const out = new Float64Array(set.count);
      for (let s = 0; s < set.count; s++) {
        const id = set.specs[s * width + slot];
        out[s] =
          elements(id < 0 ? meta.shape : space.localShape(id, meta.shape)) *
          DTYPE_BYTES[meta.dtype];
      }
      return out;
    };
    const state = stateBytes.get(n);
    if (node.kind === 'placeholder') {
      const [value] = flow.results[n];
      if (value === undefined || value < 0) return;
      const gradient =
        state !== undefined && gradients.has(node.meta.roleName ?? node.name) ? state.gradient : 0;
      const tied = node.meta.role === 'parameter' || node.meta.role === 'buffer';
      if (state === undefined && tied) return;
      const amounts =
        state === undefined
          ? bytesOf(value, 0)
          : state.localElements.map(
              (local) => local * (state.parameter + state.optimizer + gradient),
            );
      rows.push({ variable, node: n, save: amounts, recompute: amounts, discard: amounts });
      return;
    }
    if (live.from[n] > point) return;
    let save: Float64Array | undefined;
    let recompute: Float64Array | undefined;
    let discard: Float64Array | undefined;
    const add = (to: Float64Array | undefined, what: Float64Array): Float64Array =>
      to === undefined ? what : to.map((b, s) => b + what[s]);
    for (let k = 0; k < flow.results[n].length; k++) {
      const value = flow.results[n][k];
      if (value < 0 || elsewhere?.has(live.root[value]) === true) continue;
      if (live.view[n] === 1) {
        const isKept = chosen?.[n] === 1 ? point < needs.until[value] : viewOf.has(value);
        if (isKept) save = add(save, bytesOf(value, set.inputCount + k));
        continue;
      }
      const forward = n >= point || point < live.lastForward[value];
      // A value that is kept because the graph says so counts through its views (`viewsAlive`).
      const kept = forward || point < (chosen?.[n] === 1 ? needs.until : live.lastBackward)[value];
      const backward =
        needs.first[value] >= 0 &&
        point >= (runsFrom ?? needs.first)[value] &&
        point < needs.last[value];
      if (!kept && !forward && !backward) continue;
      const bytes = bytesOf(value, set.inputCount + k);
      if (kept) save = add(save, bytes);
      if (forward || backward) recompute = add(recompute, bytes);
      if (forward) discard = add(discard, bytes);
    }
    // A value that nobody reads later is there as this node takes it: in its own placement, or in a
    // copy.
    if (n === point)
      for (const [value, slot] of read) {
        const bytes = bytesOf(value, slot);
        save = add(save, bytes);
        recompute = add(recompute, bytes);
        discard = add(discard, bytes);
      }
    const zero = new Float64Array(set.count);
    if (save !== undefined || recompute !== undefined)
      rows.push({
        variable,
        node: n,
        save: save ?? zero,
        recompute: recompute ?? zero,
        discard: discard ?? zero,
      });
  });
  return rows;
}

/** When the backward pass needs a value, by value; -1 where it does not. */
interface Needs {
  /** First and last backward reader of the value or of views of it. */
  readonly first: Int32Array;
  readonly last: Int32Array;
  /**
   * Last backward node until which a kept value is of use, recomputed nodes that start from it
   * included.
   */
  readonly until: Int32Array;
}

/**
 * A recomputed node is taken to happen at the first backward reader of its result, or, where it has
 * none, at the first of what is computed from it.
 */
function needsOf(model: Model, live: Liveness): Needs {
  const { graph, flow } = model;
  const none = graph.nodes.length;
  const runs = new Int32Array(flow.values.length).fill(none);
  const until = Int32Array.from(live.lastBackward);
  const first = Int32Array.from(live.firstBackward);
  const last = Int32Array.from(live.lastBackward);
  for (let n = none - 1; n >= live.split; n--) {
    if (live.view[n] === 0) continue;
    const [input] = flow.inputs[n];
    for (const value of flow.results[n])
      if (value >= 0) last[input] = until[input] = Math.max(last[input], last[value]);
  }
  for (let n = live.split - 1; n >= 0; n--) {
    if (flow.alias[n] >= 0 || live.wanted[n] === 0) continue;
    const isView = live.view[n] === 1;
    for (const value of flow.results[n]) {
      if (value < 0) continue;
      const point = first[value] >= 0 ? first[value] : runs[value];
      for (const input of flow.inputs[n]) {
        runs[input] = Math.min(runs[input], point);
        until[input] = Math.max(until[input], isView ? until[value] : point < none ? point : -1);
        if (!isView || first[value] < 0) continue;
        first[input] = first[input] < 0 ? first[value] : Math.min(first[input], first[value]);
        last[input] = Math.max(last[input], last[value]);
      }
    }
  }
  return { first, last, until };
}

/**
 * The backward node at which a value is recomputed, when all that may be recomputed between anchors
 * is.
 */
function chainsOf(
  { graph, flow }: Model,
  live: Liveness,
  chosen: Uint8Array | undefined,
  anchors: Uint8Array,
): Int32Array {
  const from = live.firstBackward.map((n) => (n < 0 ? graph.nodes.length : n));
  // Backward views are other names: who reads them reads what they look at, later than they run
  // themselves.
  for (let n = live.split - 1; n >= 0; n--) {
    if (flow.alias[n] >= 0 || live.wanted[n] === 0 || chosen?.[n] !== 1 || anchors[n] === 1)
      continue;
    for (const value of flow.results[n])
      if (value >= 0)
        for (const input of flow.inputs[n]) from[input] = Math.min(from[input], from[value]);
  }
  return from;
}

/**
 * Values that a node reads as the last of all, with their input positions: one of each storage,
 * inputs of the program left out.
 */
function readLast(
  model: Model,
  live: Liveness,
  point: number,
  needs: Needs,
): [value: number, slot: number][] {
  const { graph, flow } = model;
  const later = new Set<number>();
  live.root.forEach((root, value) => {
    if (Math.max(live.lastForward[value], live.lastBackward[value], needs.until[value]) > point)
      later.add(root);
  });
  const out: [number, number][] = [];
  const seen = new Set<number>();
  flow.inputs[point].forEach((value, slot) => {
    const root = live.root[value];
    if (
      later.has(root) ||
      seen.has(root) ||
      graph.nodes[flow.values[root].node].kind === 'placeholder'
    )
      return;
    seen.add(root);
    out.push([value, slot]);
  });
  return out;
}

/** Roles of parameters whose gradient is made before a point. */
function gradientsBefore({ flow }: Model, point: number): Set<string> {
  const names = new Set<string>();
  for (const { output, value } of flow.outputs)
    if (
      output.role === 'grad' &&
      value >= 0 &&
      output.of !== undefined &&
      flow.values[value].node < point
    )
      names.add(output.of);
  return names;
}

/**
 * Views that represent their storage: for each storage whose own value nobody reads any more, the
 * last view of the same size that is still to be read. A value that is moved on the way to a view
 * is as large as the view, so its bytes count either way.
 */
function viewsAlive(
  model: Model,
  live: Liveness,
  point: number,
  chosen: Uint8Array | undefined,
): Set<number> {
  const { graph, flow } = model;
  const best = new Map<number, number>();
  const size = (value: number): number =>
    elements(flow.values[value].meta.shape) * DTYPE_BYTES[flow.values[value].meta.dtype];
  const last = (value: number): number =>
    Math.max(live.lastForward[value], live.lastBackward[value]);
  graph.nodes.forEach((_, n) => {
    if (live.view[n] === 0 || n > point || chosen?.[n] === 1) return;
    for (const value of flow.results[n]) {
      if (value < 0 || last(value) <= point) continue;
      const root = live.root[value];
      const producer = graph.nodes[flow.values[root].node];
      if (producer.kind === 'placeholder' || last(root) > point || size(root) !== size(value))
        continue;
      if (chosen?.[flow.values[root].node] === 1) continue;
      const known = best.get(root);
      if (known === undefined || last(known) < last(value)) best.set(root, value);
    }
  });
  return new Set(best.values());
}
