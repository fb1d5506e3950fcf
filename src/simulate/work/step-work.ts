/**
 * Finds where the work of a step can run: for every move the stretch of kernels with which it can
 * overlap, and for one choice its pieces of work with their seconds by stream.
 */
import { internalError } from '../../errors.ts';
import type { Model, NodeSeconds } from '../../plan/model/model.ts';
import {
  isBlocking,
  type KernelOrder,
  kernelOrder,
  type MoveWindow,
  windowOf,
} from './kernel-order.ts';
import {
  type CollectivePrice,
  type MoveEntry,
  type MoveParts,
  MoveTables,
  NO_MOVE,
} from './move-parts.ts';
import { travelsInBuckets, weightValues } from './rules.ts';
import { ANY_LINK, COMPUTE, LINK_STREAMS } from './streams.ts';

/**
 * The places where a piece of work can run, and the streams on which the next kernel waits for it
 * and for nothing else.
 */
export interface Site extends MoveWindow {
  readonly chained: readonly boolean[];
  /**
   * True if no kernel waits for anything wherever its local copies can run: then they lengthen the
   * chain.
   */
  readonly isFree: boolean;
  /**
   * True if a move here is for one kernel or result: from its start to its end it takes what it
   * takes alone, at least.
   */
  readonly hasLatency: boolean;
  /** The least price of its collectives: those that may travel in buckets take less than alone. */
  readonly price: CollectivePrice;
}

/** Takes the work of one choice, piece by piece. */
interface WorkVisitor {
  kernel(at: number, seconds: number): void;
  /** One entry of some parts; `sign` -1 takes back what was counted elsewhere. */
  move(site: Site, entry: MoveEntry, sign: 1 | -1): void;
}

/**
 * Two sound prices of what travels in buckets. `share`: each its share of a full bucket, best where
 * there are many. `added`: those that the first or last kernel leaves no choice alone, and the
 * others what they add; best where one bucket holds all.
 */
type BucketPrice = 'share' | 'added';

interface StepWorkOptions {
  readonly launchSeconds: number;
  /** Most bytes of a bucket of collectives. */
  readonly bucketBytes: number;
  readonly bucketPrice?: BucketPrice;
  /**
   * The same work under another price of buckets: what does not depend on that price is taken from
   * there.
   */
  readonly like?: StepWork;
}

/** The part that no price of buckets changes: the windows of uses, and facts about them. */
interface Windows {
  readonly windows: readonly MoveWindow[];
  readonly isNext: readonly boolean[];
  readonly chained: readonly (readonly boolean[])[];
  readonly isFree: (window: MoveWindow) => boolean;
}

/** Collectives inside the rules of a node, by stream and strategy. */
interface Inside {
  readonly site: Site;
  readonly parts: MoveParts;
}

/** By node, as it is asked for; and the nodes that use what each makes. */
interface NodeWork {
  readonly kernels: Map<number, Float64Array>;
  readonly insides: Map<number, Inside | undefined>;
  users: readonly (readonly number[])[] | undefined;
}

const [NOWHERE, EVERYWHERE] = [false, true].map((is) =>
  new Array<boolean>(LINK_STREAMS + 1).fill(is),
);

export class StepWork {
  readonly order: KernelOrder;
  readonly moves: MoveTables;
  /** Streams that have work, the compute stream among them. */
  readonly streams: readonly number[];
  readonly useSites: readonly Site[];
  readonly copySites: readonly Site[];
  /**
   * For each copy, the use for which a kernel waits first. Where that use takes the copy, the copy
   * is made for it at the latest.
   */
  readonly firstUse: Int32Array;
  /** Tells whether a move of a value may travel in a bucket. */
  private readonly packs: (value: number, window: MoveWindow) => boolean;
  private readonly windows: Windows;
  private readonly nodes: NodeWork;

  constructor(
    readonly model: Model,
    private readonly options: StepWorkOptions,
  ) {
    const { mesh } = model.space;
    this.moves = options.like?.moves ?? new MoveTables(model, options);
    this.order = options.like?.order ?? kernelOrder(model);
    const links = mesh.sizes.flatMap((n, d) => (n > 1 ? [this.moves.streams.of([d])] : []));
    this.streams = [...new Set([COMPUTE, ...links])].sort();
    this.nodes = options.like?.nodes ?? {
      kernels: new Map(),
      insides: new Map(),
      users: undefined,
    };
    const weights = weightValues(model.graph, model.flow);
    this.packs = (value, { before }) =>
      travelsInBuckets(weights[value] === 1, before < this.order.count);
    this.windows = options.like?.windows ?? this.windowsOf();
    const { windows, isNext, chained } = this.windows;
    this.useSites = model.uses.map(({ value }, k) =>
      this.siteOf(value, windows[k], chained[k], isNext[k], true),
    );
    this.firstUse = new Int32Array(model.copies.length).fill(-1);
    model.uses.forEach(({ copy }, k) => {
      if (copy < 0) return;
      const first = this.firstUse[copy];
      if (first < 0 || windows[k].before < windows[first].before) this.firstUse[copy] = k;
    });
    // A copy that the first use does not take is made for another: at the latest for the last.
    const latest = new Int32Array(model.copies.length);
    model.uses.forEach(({ copy }, k) => {
      if (copy >= 0) latest[copy] = Math.max(latest[copy], windows[k].before);
    });
    this.copySites = model.copies.map(({ value }, c) =>
      this.siteOf(
        value,
        { after: windows[this.firstUse[c]].after, before: latest[c] },
        NOWHERE,
        false,
        false,
      ),
    );
  }

  /** A move of a value in a window, and how it is priced. */
  private siteOf(
    value: number,
    window: MoveWindow,
    chained: readonly boolean[],
    isFirst: boolean,
    hasLatency: boolean,
  ): Site {
    const isFree = chained === NOWHERE && this.windows.isFree(window);
    const rest = { ...window, chained, isFree, hasLatency };
    if (!this.packs(value, window)) return { ...rest, price: 'alone' };
    const { bucketPrice = 'share' } = this.options;
    if (bucketPrice === 'share') return { ...rest, price: bucketPrice };
    // A bucket may hold several: one of them is priced alone.
    return isFirst
      ? { ...rest, chained: EVERYWHERE, isFree: false, price: 'alone' }
      : { ...rest, chained: NOWHERE, price: bucketPrice };
  }

  private windowsOf(): Windows {
    const windows = this.model.uses.map((use) => windowOf(this.order, use));
    const isNext = this.next(windows);
    return { windows, isNext, chained: this.chained(windows, isNext), isFree: this.free(windows) };
  }

  /** Tells whether in a window no plan waits for a move. */
  private free(windows: readonly MoveWindow[]): (window: MoveWindow) => boolean {
    const { count, ofNode } = this.order;
    const waits = new Uint8Array(count + 1);
    for (const window of windows) if (isBlocking(window)) waits[window.before] = 1;
    ofNode.forEach((at, node) => {
      if (at >= 0 && this.nodeParts(node).internal.some((seconds) => seconds > 0))
        waits[at + 1] = 1;
    });
    const before = new Int32Array(count + 2);
    waits.forEach((is, gap) => (before[gap + 1] = before[gap] + is));
    return (window) => before[window.before + 1] === before[window.after + 1];
  }

  /**
   * Uses whose moves a kernel waits for one after another: between two kernels the first, and then
   * each that moves what is made of the one before.
   */
  private next(windows: readonly MoveWindow[]): readonly boolean[] {
    const { flow, uses } = this.model;
    const last = new Map<number, number>();
    return uses.map(({ value, at }, k) => {
      const { after } = windows[k];
      if (!isBlocking(windows[k])) return false;
      const before = last.get(after);
      if (before !== undefined && before !== flow.values[value].node) return false;
      last.set(after, at.kind === 'input' && this.order.ofNode[at.node] < 0 ? at.node : -1);
      return true;
    });
  }

  /**
   * By use: the streams on which the next kernel waits for its move after all others that it waits
   * for there. Moves between the same two kernels may overlap: the chain is that of `next`. On one
   * kind of links the collectives of all of them run one after another; copies then overlap.
   */
  private chained(
    windows: readonly MoveWindow[],
    isNext: readonly boolean[],
  ): readonly (readonly boolean[])[] {
    const { uses } = this.model;
    const isOneLink = this.streams.length <= 2;
    const beside = new Set(
      windows.flatMap((window, k) => (isBlocking(window) && !isNext[k] ? [window.after] : [])),
    );
    const collectives = EVERYWHERE.map((_, s) => s !== COMPUTE);
    return uses.map((_, k) => {
      if (!isBlocking(windows[k])) return NOWHERE;
      if (isOneLink && beside.has(windows[k].after)) return collectives;
      return isNext[k] ? EVERYWHERE : NOWHERE;
    });
  }

  visit(choice: Int32Array, to: WorkVisitor): void {
    const { model } = this;
    const { problem } = model;
    const move = (site: Site, entry: MoveEntry, sign: 1 | -1 = 1): void => {
      if (entry !== NO_MOVE) to.move(site, entry, sign);
    };
    model.variables.forEach((variable, v) => {
      const a = choice[v];
      if (variable.kind === 'node') {
        const { node } = variable;
        const at = this.order.ofNode[node];
        const seconds = at < 0 ? 0 : this.kernelSeconds(node)[a];
        if (seconds > 0) to.kernel(at, seconds);
        const inside = this.insideOf(node);
        if (inside !== undefined) move(inside.site, { parts: inside.parts, at: a });
      } else if (variable.kind === 'copy')
        move(
          this.copySites[variable.copy],
          this.moves.copyEntry(
            model.copies[variable.copy],
            this.timesOfCopy(variable.copy),
            problem.unary[v],
            a,
          ),
        );
    });
    const { first, second, table, firstMap, secondMap } = problem.edges;
    const placed = (map: number, value: number): number =>
      map < 0 ? value : problem.maps[map][value];
    model.edges.forEach((edge, e) => {
      if (edge.kind !== 'use') return;
      const k = edge.use;
      const use = model.uses[k];
      const i =
        placed(firstMap[e], choice[first[e]]) * problem.tables[table[e]].columns +
        placed(secondMap[e], choice[second[e]]);
      move(this.useSites[k], this.moves.useEntry(use, table[e], i));
      if (use.copy < 0 || this.firstUse[use.copy] !== k) return;
      const made = this.moves.makingEntry(use, table[e], i);
      move(this.useSites[k], made);
      move(this.copySites[use.copy], made, -1);
    });
  }

  /** By strategy: seconds of a node's kernel with its launch, all runs together. */
  kernelSeconds(node: number): Float64Array {
    let known = this.nodes.kernels.get(node);
    if (known === undefined) {
      const times = this.runsOf(node);
      const { launchSeconds } = this.options;
      known = this.nodeParts(node).compute.map((seconds) =>
        seconds > 0 ? times * (seconds + launchSeconds) : 0,
      );
      this.nodes.kernels.set(node, known);
    }
    return known;
  }

  /** Undefined where its rules hold no collectives. */
  insideOf(node: number): Inside | undefined {
    const { insides } = this.nodes;
    if (!insides.has(node)) insides.set(node, this.insideMade(node));
    return insides.get(node);
  }

  private insideMade(node: number): Inside | undefined {
    const { internal } = this.nodeParts(node);
    if (!internal.some((seconds) => seconds > 0)) return undefined;
    const times = this.runsOf(node);
    const own = internal.map((seconds) => times * seconds);
    const none = new Float64Array(internal.length);
    const stream = this.streams.length === 2 ? this.streams[1] : ANY_LINK;
    const alone = EVERYWHERE.map((_, s) => (s === stream ? own : none));
    return { site: this.insideSite(node), parts: { alone, share: alone, added: alone } };
  }

  timesOfCopy(copy: number): number {
    return this.model.uses[this.firstUse[copy]].times;
  }

  private insideSite(node: number): Site {
    const { ofNode, neededBy, count } = this.order;
    const before = this.usersOf(node).reduce(
      (least, user) => Math.min(least, neededBy[user]),
      count,
    );
    const window = { after: ofNode[node], before };
    const chained = isBlocking(window) ? EVERYWHERE : NOWHERE;
    return { ...window, chained, isFree: false, hasLatency: true, price: 'alone' };
  }

  private usersOf(node: number): readonly number[] {
    if (this.nodes.users === undefined) {
      const users: number[][] = this.model.graph.nodes.map(() => []);
      this.model.uses.forEach(({ value, at }) => {
        if (at.kind === 'input') users[this.model.flow.values[value].node].push(at.node);
      });
      this.nodes.users = users;
    }
    return this.nodes.users[node];
  }

  private runsOf(node: number): number {
    return this.model.opened?.loops.runsOf(this.model.graph.nodes[node].name) ?? 1;
  }

  private nodeParts(node: number): NodeSeconds {
    const entry = this.model.strategies.nodes[node];
    const parts = entry === null ? undefined : this.model.nodeSeconds.get(entry.content);
    if (parts === undefined) throw internalError(`node ${node} has no seconds`);
    return parts;
  }
}

/** The seconds of a move where it runs. */
export function secondsAt({ price }: Site, parts: MoveParts): readonly Float64Array[] {
  return parts[price];
}
