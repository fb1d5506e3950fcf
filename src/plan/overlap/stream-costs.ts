/**
 * Prices of a planning model by stream. In: a model, bins of its kernels. Out: the model's problem with every price weighted
 * by a packing, and what one choice keeps each stream busy with.
 */
import { internalError } from '../../errors.ts';
import type { Cut } from '../../solver/dual/best-mixture.ts';
import type { Problem } from '../../solver/types.ts';
import type { Model } from '../model/model.ts';
import { isBlocking, kernelOrder, windowOf, type KernelOrder, type MoveWindow } from './kernel-order.ts';
import { MoveTables, type MoveEntry, type MoveParts } from './move-parts.ts';
import { STREAMS, type Packing } from './packing.ts';

/** Where a move can run, in places of a packing. */
interface Place {
  readonly lo: number;
  readonly hi: number;
  /** Whether the kernel after it waits for it and for nothing beside it. Any other move counts on its own stream only. */
  readonly isWaited: boolean;
  /** Whether the compute stream has nothing else to wait for where local copies of the move stand. */
  readonly countsCopies: boolean;
}

interface StreamCostOptions {
  readonly launchSeconds: number;
  /** Most bytes of a bucket of collectives. */
  readonly bucketBytes: number;
  readonly bins: number;
}

/** Parts of the seconds of a model, and the problems that packings make of them. */
export class StreamCosts {
  readonly order: KernelOrder;
  /** Bins of kernels, and what lies between them: the first place is before all kernels, the last after them. */
  readonly places: number;
  /** Streams that some mesh dim works on. */
  readonly streams: readonly number[];
  private readonly binOf: Int32Array;
  /** Before each kernel, and after the last: how many gaps between kernels before it some plan waits for a move in. */
  private readonly waitsBefore: Int32Array;
  private readonly moves: MoveTables;
  private readonly usePlace: readonly Place[];
  private readonly copyPlace: readonly Place[];
  /** Use that makes each copy where the copy is made as early as it can be. */
  private readonly firstUse: Int32Array;

  constructor(
    readonly model: Model,
    private readonly options: StreamCostOptions,
  ) {
    const { mesh } = model.space;
    this.moves = new MoveTables(model, options);
    this.order = kernelOrder(model);
    const bins = Math.max(1, Math.min(options.bins, this.order.count));
    this.places = 2 * bins + 1;
    this.binOf = binsOf(this.order, bins);
    this.streams = [...new Set(mesh.sizes.flatMap((n, d) => (n > 1 ? [this.moves.streamOf([d])] : [])))].sort();
    const waited = this.waitedUses();
    const isWaited = new Uint8Array(this.order.count + 1);
    for (const k of waited) isWaited[windowOf(this.order, model.uses[k]).after + 1] = 1;
    this.order.ofNode.forEach((at, n) => {
      if (at >= 0 && this.nodeParts(n).internal.some((seconds) => seconds > 0)) isWaited[at + 1] = 1;
    });
    this.waitsBefore = new Int32Array(this.order.count + 2);
    isWaited.forEach((waits, at) => (this.waitsBefore[at + 1] = this.waitsBefore[at] + waits));
    this.usePlace = model.uses.map((use, k) => this.place(windowOf(this.order, use), waited.has(k)));
    this.firstUse = new Int32Array(model.copies.length).fill(-1);
    const last = new Int32Array(model.copies.length).fill(-1);
    model.uses.forEach(({ copy }, k) => {
      if (copy < 0) return;
      if (this.firstUse[copy] < 0) this.firstUse[copy] = k;
      last[copy] = k;
    });
    // A copy that the first use does not take is made for another: at the latest for the last.
    this.copyPlace = model.copies.map((_, c) => {
      const uses = model.uses.filter((use) => use.copy === c);
      const windows = uses.map((use) => windowOf(this.order, use));
      const before = windows.reduce((most, w) => Math.max(most, w.before), 0);
      return this.place({ after: windows[0].after, before }, false);
    });
  }

  /**
   * Uses whose moves a kernel waits for one after another: between two kernels the first, and then each that moves what is
   * made of the one before. Others between the same kernels may run beside them, or in one bucket with them.
   */
  private waitedUses(): ReadonlySet<number> {
    const { flow, uses } = this.model;
    const last = new Map<number, number>();
    const out = new Set<number>();
    uses.forEach(({ value, at }, k) => {
      const window = windowOf(this.order, { value, at });
      if (!isBlocking(window)) return;
      const before = last.get(window.after);
      if (before !== undefined && before !== flow.values[value].node) return;
      out.add(k);
      last.set(window.after, at.kind === 'input' && this.order.ofNode[at.node] < 0 ? at.node : -1);
    });
    return out;
  }

  private place(window: MoveWindow, isWaited: boolean): Place {
    const [lo, hi] = [this.placeAfter(window.after), this.placeBefore(window.before)];
    return { lo, hi, isWaited, countsCopies: isWaited || this.isFree(window) };
  }

  /** Whether the compute stream waits for no move where local copies of one can stand. */
  private isFree({ after, before }: MoveWindow): boolean {
    return this.waitsBefore[before + 1] === this.waitsBefore[after + 1];
  }

  /** First place in which what waits for the end of a kernel can run. */
  private placeAfter(kernel: number): number {
    if (kernel < 0) return 0;
    const bin = this.binOf[kernel];
    const isLast = kernel + 1 === this.order.count || this.binOf[kernel + 1] > bin;
    return 2 * bin + (isLast ? 2 : 1);
  }

  /** Last place in which what a kernel waits for can run. */
  private placeBefore(kernel: number): number {
    if (kernel >= this.order.count) return this.places - 1;
    const bin = this.binOf[kernel];
    const isFirst = kernel === 0 || this.binOf[kernel - 1] < bin;
    return 2 * bin + (isFirst ? 0 : 1);
  }

  private placeOfKernel(kernel: number): number {
    return 2 * this.binOf[kernel] + 1;
  }

  /**
   * The model's problem with weighted prices: every bound on it is one on the overlapped step.
   *
   * @param serial share of the prices one after another that is added; with more than 0 the problem bounds nothing, but its
   *   plans move less that may or may not be hidden
   * @param prices `likely`: a move that hides takes its share of a full bucket. That is what it takes most often, and bounds nothing
   */
  problem(packing: Packing, serial = 0, prices: HiddenPrices = 'proven'): Problem {
    const { model } = this;
    const { problem, unitsPerSecond, quantum } = model;
    const vectors: Float64Array[] = [];
    const tables: { rows: number; columns: number; costs: Float64Array }[] = [];
    const known = new Map<string, number>();
    const shared = <T>(store: T[], key: string, make: () => T): number => {
      let at = known.get(key);
      if (at === undefined) known.set(key, (at = store.push(make()) - 1));
      return at;
    };
    // Rounded down, so that a bound in units is one in seconds.
    const units = (seconds: number, base: number): number =>
      Math.floor((seconds * unitsPerSecond + serial * base) / quantum) * quantum;
    const unary = Int32Array.from(model.variables, (variable, v) => {
      const id = problem.unary[v];
      const base = problem.vectors[id];
      if (variable.kind === 'node') {
        const weights = this.nodeWeights(packing, variable.node);
        return shared(vectors, `v${id}:${weights.kernel}:${weights.internal}`, () => this.nodeVector(variable.node, base, weights).map((c, a) => units(c, base[a]))); // prettier-ignore
      }
      if (variable.kind === 'output') return shared(vectors, `v${id}`, () => base.map(() => 0));
      const weights = this.moveWeights(packing, this.copyPlace[variable.copy]);
      return shared(vectors, `v${id}:${weights.key}`, () => {
        const parts = this.moves.ofCopy(model.copies[variable.copy], this.timesOfCopy(variable.copy), id);
        return base.map((cost, z) => units(weighed(parts, z, weights, prices), cost));
      });
    });
    const table = Int32Array.from(problem.edges.table, (id, e) => {
      const base = problem.tables[id];
      const edge = model.edges[e];
      if (edge.kind !== 'use') return shared(tables, `t${id}`, () => base);
      const k = edge.use;
      const use = model.uses[k];
      const place = this.usePlace[k];
      const weights = this.moveWeights(packing, place);
      const makes = use.copy >= 0 && this.firstUse[use.copy] === k;
      const late = makes ? this.moveWeights(packing, this.copyPlace[use.copy]) : undefined;
      return shared(tables, `t${id}:${weights.key}:${late?.key ?? ''}`, () => {
        const parts = this.moves.ofUse(use, id);
        const made = late === undefined ? undefined : this.moves.ofMaking(use, id);
        const costs = base.costs.map(
          (cost, i) =>
          cost === Infinity ? Infinity : units(weighed(parts, i, weights, prices) + (made === undefined || late === undefined ? 0 : Math.max(0, weighed(made, i, weights, prices) - weighed(made, i, late, prices))), cost), // prettier-ignore
        );
        return { rows: base.rows, columns: base.columns, costs };
      });
    });
    return { ...problem, vectors, tables, unary, edges: { ...problem.edges, table } };
  }

  /**
   * The bound on the step of one choice, as a function of the shares: its seconds of kernels and of moves that kernels wait
   * for, and what a share of 1 of each stretch adds. Where a copy can run in several bins, it is counted in the packing's
   * lightest, so that other shares are never given less than they are worth.
   */
  cut(choice: Int32Array, packing: Packing, prices: HiddenPrices = 'proven'): Cut {
    const { model, places } = this;
    const kernel = new Float64Array(places);
    const grid = (): Float64Array[] => Array.from({ length: STREAMS }, () => new Float64Array(places * places));
    const [deferrable, blocking, waits] = [grid(), grid(), new Float64Array(places * places)];
    const add = ({ parts, at: i }: MoveEntry, place: Place, sign = 1): void => {
      const { lo, hi, isWaited, countsCopies } = place;
      const seconds = secondsOf(parts, isWaited, prices);
      const loads = isWaited ? blocking : deferrable;
      for (let s = 0; s < STREAMS; s++) loads[s][lo * places + hi] += sign * seconds[s][i];
      if (!countsCopies) return;
      if (isWaited) waits[lo * places + hi] += sign * parts.copies[i];
      else kernel[packing.lightest(lo, hi)] += sign * parts.copies[i];
    };
    model.variables.forEach((variable, v) => {
      const a = choice[v];
      if (variable.kind === 'node') {
        const { node } = variable;
        const times = this.runsOf(node);
        const { compute, internal } = this.nodeParts(node);
        if (compute.length === 0) return;
        const at = this.order.ofNode[node];
        if (at >= 0 && compute[a] > 0) kernel[this.placeOfKernel(at)] += times * (compute[a] + this.options.launchSeconds);
        if (internal[a] > 0) {
          const place = this.internalPlace(node);
          const stream = this.lightestStream(packing, place);
          (place.isWaited ? blocking : deferrable)[stream][place.lo * places + place.hi] += times * internal[a];
        }
      } else if (variable.kind === 'copy')
        add(this.moves.copyEntry(model.copies[variable.copy], this.timesOfCopy(variable.copy), model.problem.unary[v], a), this.copyPlace[variable.copy]); // prettier-ignore
    });
    const { first, second, table, firstMap, secondMap } = model.problem.edges;
    model.edges.forEach((edge, e) => {
      if (edge.kind !== 'use') return;
      const k = edge.use;
      const use = model.uses[k];
      const row = firstMap[e] < 0 ? choice[first[e]] : model.problem.maps[firstMap[e]][choice[first[e]]];
      const column = secondMap[e] < 0 ? choice[second[e]] : model.problem.maps[secondMap[e]][choice[second[e]]];
      const i = row * model.problem.tables[table[e]].columns + column;
      const place = this.usePlace[k];
      add(this.moves.useEntry(use, table[e], i), place);
      if (use.copy < 0 || this.firstUse[use.copy] !== k) return;
      const made = this.moves.makingEntry(use, table[e], i);
      const late = this.copyPlace[use.copy];
      if (weighed(made.parts, made.at, this.moveWeights(packing, place), prices) <= weighed(made.parts, made.at, this.moveWeights(packing, late), prices)) return; // prettier-ignore
      add(made, place);
      add(made, late, -1);
    });
    let alone = kernel.reduce((a, b) => a + b, 0) + waits.reduce((a, b) => a + b, 0);
    for (const grid of blocking) alone += grid.reduce((a, b) => a + b, 0);
    const slopes = packing.stretches.map(({ stream, from, to }) => {
      let sum = 0;
      for (let lo = from; lo <= to; lo++) {
        sum -= kernel[lo];
        for (let hi = lo; hi <= to; hi++) {
          sum += deferrable[stream][lo * places + hi] - waits[lo * places + hi];
          for (let s = 0; s < STREAMS; s++) if (s !== stream) sum -= blocking[s][lo * places + hi];
        }
      }
      return sum;
    });
    return { constant: alone, slopes };
  }

  private runsOf(node: number): number {
    return this.model.opened?.loops.runsOf(this.model.graph.nodes[node].name) ?? 1;
  }

  private nodeParts(node: number): { readonly compute: Float64Array; readonly internal: Float64Array } {
    const entry = this.model.strategies.nodes[node];
    const parts = entry === null ? undefined : this.model.nodeSeconds.get(entry.content);
    if (parts === undefined) throw internalError(`node ${node} has no seconds`);
    return parts;
  }

  private internalPlace(node: number): Place {
    const { ofNode, neededBy, count } = this.order;
    let before = count;
    const users = this.usersOf(node);
    for (const user of users) before = Math.min(before, neededBy[user]);
    return this.place({ after: ofNode[node], before }, isBlocking({ after: ofNode[node], before }));
  }

  private usersOf(node: number): readonly number[] {
    if (this.users === undefined) {
      const users: number[][] = this.model.graph.nodes.map(() => []);
      this.model.uses.forEach(({ value, at }) => {
        if (at.kind === 'input') users[this.model.flow.values[value].node].push(at.node);
      });
      this.users = users;
    }
    return this.users[node];
  }
  private users: readonly (readonly number[])[] | undefined;

  private nodeWeights(packing: Packing, node: number): { readonly kernel: number; readonly internal: number } {
    const at = this.order.ofNode[node];
    const place = this.internalPlace(node);
    return {
      kernel: at < 0 ? 0 : packing.kernel(this.placeOfKernel(at)),
      internal: this.weightOn(packing, place, this.lightestStream(packing, place)),
    };
  }

  /** Collectives inside a rule count on the stream that weighs least: which mesh dims they are of is not told. */
  private lightestStream(packing: Packing, place: Place): number {
    const [head = 0, ...others] = this.streams;
    return others.reduce(
      (best, s) => (this.weightOn(packing, place, s) < this.weightOn(packing, place, best) ? s : best),
      head,
    );
  }

  private nodeVector(node: number, base: Float64Array, { kernel, internal }: { kernel: number; internal: number }): Float64Array {
    const parts = this.nodeParts(node);
    const times = this.runsOf(node);
    const { launchSeconds } = this.options;
    return base.map((cost, a) => {
      if (cost === Infinity) return Infinity;
      const compute = parts.compute[a];
      return times * ((compute > 0 ? kernel * (compute + launchSeconds) : 0) + internal * parts.internal[a]);
    });
  } // prettier-ignore

  private moveWeights(packing: Packing, place: Place): MoveWeights {
    const { lo, hi, isWaited, countsCopies } = place;
    const streams = Array.from({ length: STREAMS }, (_, s) => this.weightOn(packing, place, s));
    const copying = isWaited ? packing.blockingCopy(lo, hi) : packing.kernel(packing.lightest(lo, hi));
    const copies = countsCopies ? copying : 0;
    return { isWaited, streams, copies, key: `${isWaited ? 'w' : 'h'}${streams.join('/')}/${copies}` };
  }

  private weightOn(packing: Packing, { lo, hi, isWaited }: Place, stream: number): number {
    return isWaited ? packing.blocking(stream, lo, hi) : packing.deferrable(stream, lo, hi);
  }

  private timesOfCopy(copy: number): number {
    return this.model.uses[this.firstUse[copy]].times;
  }
}

interface MoveWeights {
  readonly isWaited: boolean;
  readonly streams: readonly number[];
  readonly copies: number;
  readonly key: string;
}

/** What moves that may travel in buckets are priced by: what they add at least, or what they take most often. */
export type HiddenPrices = 'proven' | 'likely';

function secondsOf(parts: MoveParts, isWaited: boolean, prices: HiddenPrices): readonly Float64Array[] {
  if (isWaited) return parts.alone;
  return prices === 'proven' ? parts.bucketed : parts.likely;
}

function weighed(
  parts: MoveParts,
  i: number,
  { isWaited, streams, copies }: MoveWeights,
  prices: HiddenPrices,
): number {
  const seconds = secondsOf(parts, isWaited, prices);
  let sum = copies * parts.copies[i];
  for (let s = 0; s < STREAMS; s++) sum += streams[s] * seconds[s][i];
  return sum;
}

/** Bins of about equal seconds, by position of the kernel. */
function binsOf({ count, seconds }: KernelOrder, bins: number): Int32Array {
  const total = seconds.reduce((a, b) => a + b, 0);
  const out = new Int32Array(count);
  let before = 0;
  for (let k = 0; k < count; k++) {
    out[k] = Math.min(bins - 1, Math.floor((bins * (before + seconds[k] / 2)) / total));
    before += seconds[k];
  }
  return out;
}
