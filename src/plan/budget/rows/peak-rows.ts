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
import { defined } from '../../../defined.ts';
import { roleName } from '../../../graph/nodes.ts';
import { DTYPE_BYTES } from '../../../graph/types.ts';
import { elements } from '../../../ops/record/record.ts';
import { type CopyVariable, isKeptCopy, type Model } from '../../model/model.ts';
import type { Liveness } from './liveness.ts';

/**
 * The fate of a forward result that the backward pass wants: saved from the first run on,
 * recomputed, or discarded.
 */
export type RematDecision = 'save' | 'recompute' | 'discard';

export interface LiveBytes {
  readonly variable: number;
  /**
   * Amount for each value of the variable. `recompute` and `discard` are `save` where the node has
   * no choice.
   */
  readonly save: Float64Array;
  readonly recompute: Float64Array;
  readonly discard: Float64Array;
}

/** The results that a problem decides about, and the bytes that another row counts. */
interface Counting {
  /** Nodes that have a decision; the results of all others stay as the graph has it. */
  readonly chosen?: Uint8Array | undefined;
  /**
   * Nodes that are saved for certain. With them the amounts are no lower bound but an estimate:
   * what is recomputed is taken to run as soon as anything up to the next anchor is needed, since
   * one chain of recomputed nodes brings all of it.
   */
  readonly anchors?: Uint8Array | undefined;
  /** Results whose storage counts elsewhere, views of them included. */
  readonly elsewhere?: { has(root: number): boolean } | undefined;
}

/** @param point node that runs */
export function liveBytesAt(
  model: Model,
  live: Liveness,
  point: number,
  { chosen, anchors, elsewhere }: Counting = {},
): LiveBytes[] {
  const needs = needsOf(model, live);
  const kept = keptCopiesAt(model, live, point, chosen);
  const at: PeakPoint = {
    model,
    live,
    point,
    chosen,
    elsewhere,
    needs,
    inCopies: new Set(kept.flatMap(({ copy, original }) => (original ? [copy.value] : []))),
    runsFrom: anchors === undefined ? needs.first : chainsOf(model, live, chosen, anchors),
    // Those that several passes add up are there from the first one's end.
    gradients: gradientsBefore(model, model.accumulate === undefined ? point : Infinity),
    viewOf: viewsAlive(model, live, point, chosen),
    read: readLast(model, live, point, needs),
  };
  const ofNodes = model.graph.nodes.flatMap((node, n) => {
    if (model.nodeVariable[n] < 0) return [];
    const amounts = node.kind === 'placeholder' ? inputBytes(at, n) : resultBytes(at, n);
    return amounts === undefined ? [] : [{ variable: model.nodeVariable[n], ...amounts }];
  });
  return [...ofNodes, ...kept.map((copy) => copyBytes(model, copy))];
}

/** A copy that may stay from the forward to the backward pass, and is then there at a point. */
interface KeptCopy {
  readonly copy: CopyVariable;
  /** True if the bytes of the value count here too: the copy stays instead of it. */
  readonly original: boolean;
  /** True for an input of the program or a view of one, which stays beside the copy. */
  readonly isInput: boolean;
}

/**
 * The copies that are alive at a point where they are kept: from the last forward to the first
 * backward use of their value. One that only one pass takes is another value of its variable, so
 * what is counted is certain.
 */
function keptCopiesAt(
  model: Model,
  live: Liveness,
  point: number,
  chosen: Uint8Array | undefined,
): KeptCopy[] {
  const { graph, flow } = model;
  const { from, until } = betweenPasses(model);
  return model.copies.flatMap((copy, c) => {
    const { value, life } = copy;
    if (life === undefined || point < from[c] || point >= until[c]) return [];
    const { node } = flow.values[value];
    const isInput = graph.nodes[flow.values[live.root[value]].node].kind === 'placeholder';
    const original = !isInput && live.view[node] === 0 && chosen?.[node] !== 1;
    return [{ copy, original, isInput }];
  });
}

/** By copy: the node of its last forward use, and that of its first backward use. */
function betweenPasses({ graph, flow, copies, uses }: Model): {
  readonly from: Int32Array;
  readonly until: Int32Array;
} {
  const from = Int32Array.from(copies, ({ value }) => flow.values[value].node);
  const until = new Int32Array(copies.length).fill(graph.nodes.length);
  for (const { copy, phase, value, at } of uses) {
    if (copy < 0) continue;
    // What the program returns is brought to its placement where it is made.
    const node = at.kind === 'input' ? at.node : flow.values[value].node;
    if (phase === 'forward') from[copy] = Math.max(from[copy], node);
    else until[copy] = Math.min(until[copy], node);
  }
  return { from, until };
}

/**
 * Bytes by value of the variable of a copy. Where its value counts with its producer, a kept copy
 * adds what it is larger by.
 */
function copyBytes(
  { flow, space }: Model,
  { copy: { variable, value, owned, copy, life }, original, isInput }: KeptCopy,
): LiveBytes {
  const { meta } = flow.values[value];
  const bytes = (id: number): number =>
    elements(space.localShape(id, meta.shape)) * DTYPE_BYTES[meta.dtype];
  const amounts = Float64Array.from(owned, (from, z) => {
    const isKept = isKeptCopy({ copy, ...defined({ life }) }, z);
    if (original) return bytes(isKept ? copy[z] : from);
    if (!isKept) return 0;
    return isInput ? bytes(copy[z]) : Math.max(0, bytes(copy[z]) - bytes(from));
  });
  return { variable, save: amounts, recompute: amounts, discard: amounts };
}

/** A program point, and what is alive there. */
interface PeakPoint {
  readonly model: Model;
  readonly live: Liveness;
  readonly point: number;
  readonly chosen: Uint8Array | undefined;
  readonly elsewhere: { has(root: number): boolean } | undefined;
  /** Values that count with their copy. */
  readonly inCopies: ReadonlySet<number>;
  readonly needs: Needs;
  /** Backward node from which on a recomputed value is there; -1 where it never is. */
  readonly runsFrom: Int32Array;
  /** Roles of parameters whose gradient is there. */
  readonly gradients: ReadonlySet<string>;
  readonly viewOf: ReadonlySet<number>;
  /** Values that the node of the point reads as the last of all, with their input positions. */
  readonly read: readonly (readonly [value: number, slot: number])[];
}

type Amounts = Pick<LiveBytes, RematDecision>;

/** Local bytes of a value by strategy of the node that has it in this slot. */
function slotBytes(
  { flow, strategies, space }: Model,
  n: number,
  value: number,
  slot: number,
): Float64Array {
  const { set } = strategies.nodes[n]!;
  const width = set.inputCount + set.outputCount;
  const { meta } = flow.values[value];
  const out = new Float64Array(set.count);
  for (let s = 0; s < set.count; s++) {
    const id = set.specs[s * width + slot];
    out[s] =
      elements(id < 0 ? meta.shape : space.localShape(id, meta.shape)) * DTYPE_BYTES[meta.dtype];
  }
  return out;
}

/** Bytes of an input of the program; those of a parameter with its states. */
function inputBytes({ model, gradients }: PeakPoint, n: number): Amounts | undefined {
  const { graph, flow, stateBytes } = model;
  const [value] = flow.results[n];
  if (value === undefined || value < 0) return undefined;
  const { name, meta } = graph.nodes[n];
  const state = stateBytes.get(n);
  if (state === undefined && (meta.role === 'parameter' || meta.role === 'buffer'))
    return undefined;
  const gradient =
    state !== undefined && gradients.has(roleName({ name, meta })) ? state.gradient : 0;
  const amounts =
    state === undefined
      ? slotBytes(model, n, value, 0)
      : state.localElements.map((local) => local * (state.parameter + state.optimizer + gradient));
  return { save: amounts, recompute: amounts, discard: amounts };
}

/** Bytes of the results of a call, and of what the call of the point reads as the last of all. */
function resultBytes(at: PeakPoint, n: number): Amounts | undefined {
  const { model, live, point } = at;
  if (live.from[n] > point) return undefined;
  const { set } = model.strategies.nodes[n]!;
  const sums: Partial<Record<RematDecision, Float64Array>> = {};
  const add = (to: RematDecision, what: Float64Array): void => {
    sums[to] = sums[to]?.map((b, s) => b + what[s]) ?? what;
  };
  model.flow.results[n].forEach((value, k) => {
    if (value < 0 || at.elsewhere?.has(live.root[value]) === true || at.inCopies.has(value)) return;
    const decisions = aliveUnder(at, n, value);
    if (decisions.length === 0) return;
    const bytes = slotBytes(model, n, value, set.inputCount + k);
    for (const decision of decisions) add(decision, bytes);
  });
  // A value that nobody reads later is there as this node takes it: in its own placement, or in a
  // copy.
  if (n === point)
    for (const [value, slot] of at.read) {
      const bytes = slotBytes(model, n, value, slot);
      for (const decision of ['save', 'recompute', 'discard'] as const) add(decision, bytes);
    }
  const { save, recompute, discard } = sums;
  if (save === undefined && recompute === undefined) return undefined;
  const zero = new Float64Array(set.count);
  return { save: save ?? zero, recompute: recompute ?? zero, discard: discard ?? zero };
}

/** The decisions under which a result of a node is alive at the point. */
function aliveUnder(at: PeakPoint, n: number, value: number): readonly RematDecision[] {
  const { live, point, chosen, needs, runsFrom, viewOf } = at;
  if (live.view[n] === 1) {
    const isKept = chosen?.[n] === 1 ? point < needs.until[value] : viewOf.has(value);
    return isKept ? ['save'] : [];
  }
  if (n >= point || point < live.lastForward[value]) return ['save', 'recompute', 'discard'];
  // A value that is kept because the graph says so counts through its views (`viewsAlive`).
  const kept = point < (chosen?.[n] === 1 ? needs.until : live.lastBackward)[value];
  const backward = needs.first[value] >= 0 && point >= runsFrom[value] && point < needs.last[value];
  return [...(kept ? (['save'] as const) : []), ...(backward ? (['recompute'] as const) : [])];
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
