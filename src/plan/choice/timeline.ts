/**
 * Computes the memory timeline of a plan: the intervals in which every tensor, copy and state is
 * alive.
 */
import {
  type LiveInterval,
  type MemoryKind,
  mostLiveBytes,
  peakOf,
} from '../../cost/memory/peak.ts';
import { gradientsOfParameters } from '../../graph/carried.ts';
import type { Output } from '../../graph/types.ts';
import { push } from '../../list-map.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { Model } from '../model/model.ts';
import type { PlanTimeline } from '../record/types.ts';
import { type Hop, Routes } from './routes.ts';
import { type TimelineBasis, timelineBasis } from './timeline-basis.ts';

/**
 * The bytes that one device holds at every point of a plan, from the real order of the program:
 * each node first brings its inputs where it wants them, one redistribution step a point, and then
 * runs, one point more.
 *
 * - Every tensor counts its largest local shard. It lives from the point that makes it to the last
 *   that reads it.
 * - Views share the storage of their source and keep it alive, all of it. So do slices that take a
 *   run of rows of the leading dim; any other slice of a redistribution (`S(1)`, `_S(0, 2)`) writes
 *   a copy, as it is priced.
 * - Parameters, buffers and optimizer state live throughout, inputs of the program too (they are
 *   the caller's).
 * - Gradients and other outputs are brought to their placement as soon as they are made, and live
 *   to the end. What replaces an input (a new parameter, a new state, an updated buffer) is written
 *   over it once nobody reads the old value any more.
 * - Gradients that several passes add up are there throughout. Those that the last pass reduces are
 *   there twice, reduced and not, and what a pass makes of them is added at its end.
 * - Every step of a redistribution holds its operand and its result; a shared copy lives to its
 *   last user.
 *
 * Not counted: workspace inside kernels, buffers of collectives inside operators' own rules, what
 * the local form of a call makes on the way to its result (a lookup in a cut table is made twice:
 * before and after the rows of other ranks become zero), the allocator's slack (a cluster reserves
 * memory for that). A loop body is inlined once, and the values that its trips share are alive
 * through all of them: values read from outside, values that one trip hands to the next, and whole
 * stacked results (`region-lives.ts`).
 */
export interface PlanMemoryTimeline {
  readonly intervals: readonly LiveInterval[];
  /** Node that each point belongs to, by index in the graph. */
  readonly nodeOfPoint: Int32Array;
  /** The point at which each node runs, -1 for nodes that only name a value. */
  readonly pointOfNode: Int32Array;
}

/** Storage of one or more values. */
interface Buffer {
  readonly bytes: number;
  readonly name: string;
  /** The node whose value it holds. */
  readonly node: number;
  kind: MemoryKind;
  start: number;
  end: number;
  /** The last call of the forward pass that reads it, and the first of the backward pass. */
  lastForward?: number;
  firstBackward?: number;
}

export function planMemoryTimeline(model: Model, choice: Int32Array): PlanMemoryTimeline {
  return new Walk(model, choice, model.table).run();
}

/** Peak memory of a choice, in bytes of the fullest device. */
export function choicePeakBytes(model: Model, choice: Int32Array): number {
  return timelinePeakBytes(planMemoryTimeline(model, choice));
}

class Walk {
  private readonly basis: TimelineBasis;
  private readonly routes: Routes;
  private readonly buffers: Buffer[] = [];
  private readonly nodeOfPoint: number[] = [];
  private readonly pointOfNode: Int32Array;
  /** By value id, and by the number of a shared copy. */
  private readonly ofValue: (Buffer | undefined)[];
  private readonly ofCopy = new Map<number, Buffer>();
  private readonly toEnd = new Set<Buffer>();
  /**
   * Values that replace an input, with the storage of that input, which ends with its last reader
   * until `toEnd` prolongs it.
   */
  private readonly untilRead: [Buffer, Buffer][] = [];
  /**
   * Storage that a call with bodies holds up to its last node, by that node; and the point of its
   * first node.
   */
  private readonly held = new Map<number, Set<Buffer>>();
  private readonly pointAt = new Map<number, number>();
  /** Tells the gradients that passes of a step add up. */
  private readonly addsUp: (output: Output) => boolean;
  /** How each of `basis.uses` is served. */
  private readonly hops: (readonly Hop[])[] = [];
  /** By the number of a copy that a node makes: the outputs that take it. */
  private readonly waiting = new Map<number, number[]>();
  private now = -1;

  constructor(
    private readonly model: Model,
    private readonly choice: Int32Array,
    table: OperatorTable,
  ) {
    this.basis = timelineBasis(model, table);
    this.routes = new Routes(model, choice);
    this.addsUp = model.accumulate === undefined ? () => false : gradientsOfParameters(model.graph);
    this.pointOfNode = new Int32Array(model.graph.nodes.length).fill(-1);
    this.ofValue = new Array<Buffer | undefined>(model.flow.values.length).fill(undefined);
    for (const { start } of model.opened?.regions ?? []) this.pointAt.set(start, 0);
  }

  run(): PlanMemoryTimeline {
    const { graph, flow } = this.model;
    this.route();
    for (let n = 0; n < graph.nodes.length; n++) {
      if (this.pointAt.has(n)) this.pointAt.set(n, this.now + 1);
      if (flow.alias[n] < 0) {
        if (graph.nodes[n].kind === 'placeholder') this.placeholder(n);
        else this.call(n);
        for (const value of flow.results[n])
          for (const k of this.basis.returned.get(value) ?? [])
            if (!this.waits(k)) this.output(k, n);
      }
      for (const buffer of this.held.get(n) ?? []) buffer.end = Math.max(buffer.end, this.now);
    }
    // Programs without a call have one point all the same.
    if (this.now < 0) this.point(0);
    for (const [buffer, old] of this.untilRead) buffer.end = Math.max(buffer.end, old.end);
    for (const buffer of this.toEnd) buffer.end = this.now;
    return {
      intervals: this.buffers.filter((b) => b.bytes > 0),
      nodeOfPoint: Int32Array.from(this.nodeOfPoint),
      pointOfNode: this.pointOfNode,
    };
  }

  private route(): void {
    const makers = new Set<number>();
    for (const [k, use] of this.basis.uses.entries()) {
      const hops = this.routes.of(use);
      this.hops.push(hops);
      if (hops.length === 0 || hops[0].copy === undefined) continue;
      if (use.at.kind === 'input') {
        if (hops[0].copy === 'made') makers.add(copyOf(hops));
        // A copy that a node makes is there only then; one that another output makes is there with
        // its value.
      } else if (hops[0].copy === 'reused' && makers.has(copyOf(hops)))
        push(this.waiting, copyOf(hops), k);
    }
  }

  private waits(k: number): boolean {
    return this.waiting.size > 0 && this.waiting.get(copyOf(this.hops[k]))?.includes(k) === true;
  }

  private placeholder(n: number): void {
    const { graph, flow, stateBytes, nodeVariable } = this.model;
    const node = graph.nodes[n];
    const [value] = flow.results[n];
    if (value === undefined || value < 0) return;
    const state = stateBytes.get(n);
    const { role } = node.meta;
    const at = { name: node.name, node: n, start: 0, end: 0 };
    if (state !== undefined) {
      const local = state.localElements[this.choice[nodeVariable[n]]];
      const kind = role === 'parameter' ? 'parameter' : 'buffer';
      const optimizer: Buffer = { ...at, bytes: local * state.optimizer, kind: 'optimizer' };
      this.own(value, { ...at, bytes: local * state.parameter, kind }, true);
      if (optimizer.bytes > 0) {
        this.buffers.push(optimizer);
        this.toEnd.add(optimizer);
      }
      return;
    }
    // The other name of a tied parameter has no storage of its own.
    const tied = role === 'parameter' || role === 'buffer';
    const bytes = tied ? 0 : this.basis.bytesOf(value, this.routes.owned(value));
    this.own(value, { ...at, bytes, kind: 'activation' }, true);
  }

  private call(n: number): void {
    const { graph, flow } = this.model;
    const { uses, firstUse, lives, isView } = this.basis;
    const [first, end] = [firstUse[n], firstUse[n + 1]];
    const inputs: Buffer[] = [];
    for (let k = first; k < end; k++) inputs.push(this.carry(k, n));
    if (this.waiting.size > 0)
      for (let k = first; k < end; k++)
        if (this.hops[k][0]?.copy === 'made')
          for (const output of this.waiting.get(copyOf(this.hops[k])) ?? []) this.output(output, n);
    const now = this.point(n);
    this.pointOfNode[n] = now;
    for (const [i, buffer] of inputs.entries()) {
      this.read(buffer, now, n);
      this.hold(buffer, lives.heldUntil(flow.values[uses[first + i].value].node, n), n);
    }
    const stackedFrom = lives.stackedFrom(n);
    for (const value of flow.results[n]) {
      if (value < 0) continue;
      if (isView[n] === 1) this.ofValue[value] = inputs[0];
      else {
        const start = stackedFrom < 0 ? now : (this.pointAt.get(stackedFrom) ?? now);
        const bytes = this.basis.bytesOf(value, this.routes.owned(value));
        const buffer: Buffer = {
          name: graph.nodes[n].name,
          node: n,
          bytes,
          kind: 'activation',
          start,
          end: now,
        };
        this.own(value, buffer);
        this.hold(buffer, lives.carryUntil(n), n);
      }
    }
  }

  /** Notes that a node reads storage at a point. */
  private read(buffer: Buffer, at: number, n: number): void {
    buffer.end = Math.max(buffer.end, at);
    if (this.model.flow.phases[n] === 'forward') buffer.lastForward = at;
    else buffer.firstBackward ??= at;
  }

  /** Keeps storage up to a node that is still to come. */
  private hold(buffer: Buffer, until: number, n: number): void {
    if (until <= n) return;
    const list = this.held.get(until);
    if (list === undefined) this.held.set(until, new Set([buffer]));
    else list.add(buffer);
  }

  /**
   * Brings an output to where it is wanted; it stays to the end, unless it goes where an input was.
   */
  private output(k: number, n: number): void {
    const buffer = this.carry(k, n);
    const { at } = this.basis.uses[k];
    if (at.kind === 'carry') this.hold(buffer, this.basis.lives.carryUntil(at.node), n);
    if (at.kind !== 'output') return;
    const { output } = this.model.flow.outputs[at.output];
    if (output.role === 'grad' && buffer.kind !== 'parameter') {
      buffer.kind = 'gradient';
      if (this.addsUp(output)) this.accumulated(k, buffer);
    }
    const replaced = this.basis.replaced[at.output];
    if (replaced < 0) this.toEnd.add(buffer);
    else this.untilRead.push([buffer, known(this.ofValue[this.model.flow.results[replaced][0]])]);
  }

  /**
   * A gradient of a step of several passes: it is there from their start. Where it is reduced in
   * the last pass, what the others leave is too, beside what this pass adds to it.
   */
  private accumulated(k: number, gradient: Buffer): void {
    gradient.start = 0;
    const { value } = this.basis.uses[k];
    const part = known(this.ofValue[value]);
    if (part === gradient || part.kind === 'parameter') return;
    const bytes = this.basis.bytesOf(value, this.routes.owned(value));
    const sum: Buffer = {
      ...part,
      name: `${part.name}, added up`,
      bytes,
      kind: 'gradient',
      start: 0,
    };
    this.buffers.push(sum);
    this.toEnd.add(sum).add(part);
  }

  /**
   * Takes a value through its redistributions, one point a step, and gives the storage that the use
   * reads.
   */
  private carry(k: number, n: number): Buffer {
    const use = this.basis.uses[k];
    let buffer = known(this.ofValue[use.value]);
    for (const { from, to, copy, copyId = -1 } of this.hops[k]) {
      if (copy === 'reused') {
        buffer = known(this.ofCopy.get(copyId));
        continue;
      }
      const { node } = this.model.flow.values[use.value];
      // A value that a call with bodies does not change is moved before the call.
      const before =
        use.at.kind === 'input' ? this.pointAt.get(this.basis.lives.heldFrom(node, n)) : undefined;
      for (const { bytes, text } of this.basis.stepsOf(use.value, from, to)) {
        const now = this.point(n);
        const at = Math.min(before ?? now, now);
        this.read(buffer, at, n);
        const name = `${this.model.graph.nodes[node].name} in ${text}`;
        buffer = { name, node, bytes, kind: 'communication', start: at, end: at };
        this.buffers.push(buffer);
      }
      if (copy === 'made') this.ofCopy.set(copyId, buffer);
    }
    // A shared copy or a value that is read where it is: alive up to now at least.
    buffer.end = Math.max(buffer.end, this.now);
    return buffer;
  }

  private point(n: number): number {
    this.nodeOfPoint.push(n);
    return ++this.now;
  }

  private own(value: number, buffer: Buffer, persistent = false): void {
    this.buffers.push(buffer);
    this.ofValue[value] = buffer;
    if (persistent) this.toEnd.add(buffer);
  }
}

/** Number of the shared copy that a use makes or takes; -1 without one. */
function copyOf(hops: readonly Hop[]): number {
  return hops[0]?.copyId ?? -1;
}

function known(buffer: Buffer | undefined): Buffer {
  if (buffer === undefined) throw new Error('internal: a value is read before it is made');
  return buffer;
}

function compare(a: number, b: number): number {
  return a === b ? 0 : a < b ? -1 : 1;
}

/** Points of the curve that a plan keeps. */
const CURVE_POINTS = 96;

/** The most bytes alive at once, without what is alive there. */
export function timelinePeakBytes({ intervals, nodeOfPoint }: PlanMemoryTimeline): number {
  return mostLiveBytes(intervals, nodeOfPoint.length);
}

/** The memory timeline that a plan records. */
export function planTimeline(model: Model, memory: PlanMemoryTimeline): PlanTimeline {
  const { graph, flow } = model;
  const peak = peakOf(memory.intervals);
  const node = memory.nodeOfPoint[peak.step];
  const states =
    (peak.byKind.parameter ?? 0) +
    (peak.byKind.buffer ?? 0) +
    (peak.byKind.optimizer ?? 0) +
    (peak.byKind.gradient ?? 0);
  return {
    peakBytes: peak.peakBytes,
    node: graph.nodes[node]?.name ?? '',
    phase: flow.phases[node] ?? 'forward',
    activationBytes: peak.peakBytes - states,
    byKind: peak.byKind,
    largest: [...peak.live]
      .filter((b) => b.kind === 'activation' || b.kind === 'communication')
      .sort((a, b) => b.bytes - a.bytes || compare(a.start, b.start))
      .slice(0, 8)
      .map(({ name, bytes, kind }) => ({ name: name ?? '', bytes, kind: kind ?? 'temporary' })),
    curve: curveOf(memory),
  };
}

/** The most bytes of each of equally many points, with the node at that point. */
function curveOf({ intervals, nodeOfPoint }: PlanMemoryTimeline): PlanTimeline['curve'] {
  const change = new Float64Array(nodeOfPoint.length + 1);
  for (const { start, end, bytes } of intervals) {
    change[start] += bytes;
    change[end + 1] -= bytes;
  }
  const points = Math.min(CURVE_POINTS, nodeOfPoint.length);
  const curve: { bytes: number; node: number }[] = [];
  let bytes = 0;
  for (let t = 0; t < nodeOfPoint.length; t++) {
    bytes += change[t];
    const k = Math.floor((t * points) / nodeOfPoint.length);
    if (k === curve.length) curve.push({ bytes, node: nodeOfPoint[t] });
    else if (bytes > curve[k].bytes) curve[k] = { bytes, node: nodeOfPoint[t] };
  }
  return curve;
}
