/**
 * The memory timeline of a plan. In: a model, a choice. Out: the intervals in which every tensor, copy and state is
 * alive.
 */
import { peakOf, type LiveInterval, type MemoryKind } from '../../cost/memory/peak.ts';
import { ownersOfOutputs } from '../../graph/carried.ts';
import { DTYPE_BYTES } from '../../graph/types.ts';
import { elements } from '../../ops/record/record.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { Model, Use } from '../model/model.ts';
import { Routes, type Hop } from './routes.ts';
import { regionLives, type RegionLives } from '../model/region-lives.ts';
import { moved } from '../model/tables.ts';
import type { PlanTimeline } from './types.ts';

/**
 * The bytes that one device holds at every point of a plan, from the real order of the program: each node first brings
 * its inputs where it wants them, one redistribution step a point, and then runs, one point more.
 *
 *  - Every tensor counts its largest local shard. It lives from the point that makes it to the last that reads it.
 *  - Views share the storage of what they look at and keep it alive, all of it. So do slices that take a run of rows of the
 *    leading dim; any other slice of a redistribution (`S(1)`, `_S(0, 2)`) writes a copy, as it is priced.
 *  - Parameters, buffers and optimizer state live throughout, inputs of the program too (they are the caller's).
 *  - Gradients and other outputs are brought to their placement as soon as they are made, and live to the end. What replaces an
 *    input (a new parameter, a new state, an updated buffer) is written over it once nobody reads the old value any more.
 *  - Every step of a redistribution holds its operand and its result; a shared copy lives to its last user.
 *
 * Not counted: workspace inside kernels, buffers of collectives inside operators' own rules, the allocator's slack (a cluster
 * reserves memory for that). A loop body stands once in line, and what its trips share is there through all of them: what it reads
 * from outside, what one trip hands to the next, and the whole of what the trips stack (`region-lives.ts`).
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
  kind: MemoryKind;
  start: number;
  end: number;
}

/** Uses by model in the order of `inProgramOrder`: many plans of one model are looked at. */
const ORDERED = new WeakMap<Model, readonly Use[]>();

export function planMemoryTimeline(model: Model, choice: Int32Array, table: OperatorTable): PlanMemoryTimeline {
  return new Walk(model, choice, table).run();
}

const NO_USES: readonly [Use, readonly Hop[]][] = [];

class Walk {
  private readonly buffers: Buffer[] = [];
  private readonly nodeOfPoint: number[] = [];
  private readonly pointOfNode: Int32Array;
  /** By value id, and by copy variable. */
  private readonly ofValue = new Map<number, Buffer>();
  private readonly ofCopy = new Map<number, Buffer>();
  private readonly toEnd = new Set<Buffer>();
  /** What replaces an input, with the storage of that input, which ends with its last reader until `toEnd` prolongs it. */
  private readonly untilRead: [Buffer, Buffer][] = [];
  private readonly ownerOf: ReturnType<typeof ownersOfOutputs>;
  private readonly lives: RegionLives;
  /** Storage that a call with bodies holds up to its last node, by that node; and the point at which its first node stands. */
  private readonly held = new Map<number, Set<Buffer>>();
  private readonly pointAt = new Map<number, number>();
  private now = -1;

  constructor(
    private readonly model: Model,
    private readonly choice: Int32Array,
    private readonly table: OperatorTable,
  ) {
    this.pointOfNode = new Int32Array(model.graph.nodes.length).fill(-1);
    this.ownerOf = ownersOfOutputs(model.graph);
    this.lives = regionLives(model.graph, model.opened?.regions);
    for (const { start } of model.opened?.regions ?? []) this.pointAt.set(start, 0);
  }

  run(): PlanMemoryTimeline {
    const { graph, flow } = this.model;
    const routes = new Routes(this.model, this.choice);
    const ofNode = new Map<number, [Use, readonly Hop[]][]>();
    const atValue = new Map<number, [Use, readonly Hop[]][]>();
    const atCopy = new Map<number, [Use, readonly Hop[]][]>();
    const makers = new Set<number>();
    for (const use of inProgramOrder(this.model)) {
      const hops = routes.of(use);
      if (use.at.kind === 'input') {
        if (hops[0]?.copy === 'made') makers.add(use.copy);
        push(ofNode, use.at.node, [use, hops]);
        // A copy that a node makes is there only then; one that another output makes is there with its value.
      } else if (hops[0]?.copy === 'reused' && makers.has(use.copy)) push(atCopy, use.copy, [use, hops]);
      else push(atValue, use.value, [use, hops]);
    }
    graph.nodes.forEach((node, n) => {
      if (this.pointAt.has(n)) this.pointAt.set(n, this.now + 1);
      if (flow.alias[n] < 0) {
        if (node.kind === 'placeholder') this.placeholder(n, routes);
        else this.call(n, ofNode.get(n) ?? NO_USES, atCopy, routes);
        for (const value of flow.results[n])
          for (const [use, hops] of atValue.get(value) ?? []) this.output(use, hops, n);
      }
      for (const buffer of this.held.get(n) ?? []) buffer.end = Math.max(buffer.end, this.now);
    });
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

  private placeholder(n: number, routes: Routes): void {
    const { graph, flow, stateBytes, nodeVariable } = this.model;
    const node = graph.nodes[n];
    const [value] = flow.results[n];
    if (value === undefined || value < 0) return;
    const state = stateBytes.get(n);
    const { role } = node.meta;
    const at = { name: node.name, start: 0, end: 0 };
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
    const bytes = tied ? 0 : this.bytes(value, routes.owned(value));
    this.own(value, { ...at, bytes, kind: 'activation' }, true);
  }

  private call(
    n: number,
    uses: readonly [Use, readonly Hop[]][],
    waiting: ReadonlyMap<number, readonly [Use, readonly Hop[]][]>,
    routes: Routes,
  ): void {
    const { graph, flow } = this.model;
    const node = graph.nodes[n];
    const inputs = uses.map(([use, hops]) => this.carry(use, hops, n));
    for (const [use, hops] of uses)
      if (hops[0]?.copy === 'made')
        for (const [output, way] of waiting.get(use.copy) ?? []) this.output(output, way, n);
    const now = this.point(n);
    this.pointOfNode[n] = now;
    uses.forEach(([use], i) => {
      inputs[i].end = Math.max(inputs[i].end, now);
      this.hold(inputs[i], this.lives.heldUntil(flow.values[use.value].node, n), n);
    });
    const stackedFrom = this.lives.stackedFrom(n);
    const isView = this.table.get(node.target)?.cls === 'view' && inputs.length === 1 && stackedFrom < 0;
    for (const value of flow.results[n]) {
      if (value < 0) continue;
      if (isView) this.ofValue.set(value, inputs[0]);
      else {
        const start = stackedFrom < 0 ? now : (this.pointAt.get(stackedFrom) ?? now);
        const bytes = this.bytes(value, routes.owned(value));
        const buffer: Buffer = { name: node.name, bytes, kind: 'activation', start, end: now };
        this.own(value, buffer);
        this.hold(buffer, this.lives.carryUntil(n), n);
      }
    }
  }

  /** Keeps storage up to a node that is still to come. */
  private hold(buffer: Buffer, until: number, n: number): void {
    if (until <= n) return;
    const list = this.held.get(until);
    if (list === undefined) this.held.set(until, new Set([buffer]));
    else list.add(buffer);
  }

  /** Brings an output to where it is wanted; it stays to the end, unless it goes where an input was. */
  private output(use: Use, hops: readonly Hop[], n: number): void {
    const buffer = this.carry(use, hops, n);
    if (use.at.kind === 'carry') this.hold(buffer, this.lives.carryUntil(use.at.node), n);
    if (use.at.kind !== 'output') return;
    const { output } = this.model.flow.outputs[use.at.output];
    if (output.role === 'grad' && buffer.kind !== 'parameter') buffer.kind = 'gradient';
    const replaced = output.role === 'grad' ? undefined : this.ownerOf(output);
    if (replaced === undefined) this.toEnd.add(buffer);
    else this.untilRead.push([buffer, this.known(this.ofValue, this.model.flow.results[replaced][0])]);
  }

  /** Takes a value through its redistributions, one point a step, and gives the storage that the use reads. */
  private carry(use: Use, hops: readonly Hop[], n: number): Buffer {
    const { flow, redistributor, graph } = this.model;
    const { meta, node } = flow.values[use.value];
    const type = moved(meta);
    let buffer = this.known(this.ofValue, use.value);
    // What a call with bodies does not change is moved before it.
    const before = use.at.kind === 'input' ? this.pointAt.get(this.lives.heldFrom(node, n)) : undefined;
    for (const { from, to, copy } of hops) {
      if (copy === 'reused') {
        buffer = this.known(this.ofCopy, use.copy);
        continue;
      }
      for (const step of redistributor.plan(type, from, to)?.steps ?? []) {
        if (step.kind === 'relabel' || (step.kind === 'slice' && step.bytes === 0) || step.groupSize === 1) continue;
        const now = this.point(n);
        const at = Math.min(before ?? now, now);
        buffer.end = Math.max(buffer.end, at);
        buffer = {
          name: `${graph.nodes[node].name} in ${this.model.space.text(step.to)}`,
          bytes: this.bytes(use.value, step.to),
          kind: 'communication',
          start: at,
          end: at,
        };
        this.buffers.push(buffer);
      }
      if (copy === 'made') this.ofCopy.set(use.copy, buffer);
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
    this.ofValue.set(value, buffer);
    if (persistent) this.toEnd.add(buffer);
  }

  private known<K>(store: ReadonlyMap<K, Buffer>, key: K): Buffer {
    const found = store.get(key);
    if (found === undefined) throw new Error('internal: a value is read before it is made');
    return found;
  }

  private bytes(value: number, sharding: number): number {
    const { meta } = this.model.flow.values[value];
    return elements(this.model.space.localShape(sharding, meta.shape)) * DTYPE_BYTES[meta.dtype];
  }
}

/** Uses by nodes in their order, then what the program returns: the order in which shared copies are made. */
function inProgramOrder(model: Model): readonly Use[] {
  let ordered = ORDERED.get(model);
  if (ordered === undefined) {
    const at = (use: Use): number => (use.at.kind === 'input' ? use.at.node : Infinity);
    // Equal ones keep their order.
    ORDERED.set(model, (ordered = [...model.uses].sort((a, b) => compare(at(a), at(b)))));
  }
  return ordered;
}

function compare(a: number, b: number): number {
  return a === b ? 0 : a < b ? -1 : 1;
}

function push<K, V>(map: Map<K, V[]>, key: K, item: V): void {
  const list = map.get(key);
  if (list === undefined) map.set(key, [item]);
  else list.push(item);
}

/** Points of the curve that a plan keeps. */
const CURVE_POINTS = 96;

/** The most bytes alive at once, without what is alive there. */
export function timelinePeakBytes({ intervals, nodeOfPoint }: PlanMemoryTimeline): number {
  const change = new Float64Array(nodeOfPoint.length + 1);
  for (const { start, end, bytes } of intervals) {
    change[start] += bytes;
    change[end + 1] -= bytes;
  }
  let [bytes, most] = [0, 0];
  for (const more of change) if ((bytes += more) > most) most = bytes;
  return most;
}

/** The memory timeline that a plan records. */
export function planTimeline(model: Model, memory: PlanMemoryTimeline): PlanTimeline {
  const { graph, flow } = model;
  const peak = peakOf(memory.intervals);
  const node = memory.nodeOfPoint[peak.step];
  const states = (peak.byKind.parameter ?? 0) + (peak.byKind.buffer ?? 0) + (peak.byKind.optimizer ?? 0) + (peak.byKind.gradient ?? 0); // prettier-ignore
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
