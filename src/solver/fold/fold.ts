/**
 * Folding of repeated layers: share work, not decisions. A long network of equal blocks is
 * shortened to a few of its first and last blocks; what is learnt there (messages and a choice) is
 * spread over the long network. Messages prove a bound whatever they are and a choice is a choice,
 * so nothing depends on the fold being right: a network that only looks periodic just starts with
 * worse messages.
 */
import type { Sides } from '../dual/sides.ts';
import { Trws } from '../dual/trws.ts';
import { Network } from '../network/network.ts';
import { type Blocks, blocksOf, NONE } from './repeated-blocks.ts';

/** Fewest blocks that are worth removing. */
const LEAST_REMOVED = 3;
/** Networks of fewer variables are swept as soon as folded. */
const LEAST_VARIABLES = 800;
/** Complete blocks kept at either end. */
const KEPT_BLOCKS = 1;
/**
 * Depths of colouring to try: deeper ones tell more variables of a block apart but lose more blocks
 * at the ends.
 */
const DEPTHS: readonly number[] = [6, 4, 3, 8];

/** A shortened network and the way back. */
export interface Fold {
  readonly short: Network;
  /**
   * Variable of the long network -> variable of the short one that represents it; -1 for variables
   * that are gone.
   */
  readonly variable: Int32Array;
  /** Edge of the long network -> edge of the short one, or -1. */
  readonly edge: Int32Array;
  /** Variable of the short network -> the variable of the long one it was taken from. */
  readonly origin: Int32Array;
  /**
   * Sweep places in the long network that let all blocks advance together: equal blocks with equal
   * messages then keep equal messages, and all that follows is done once for them.
   */
  readonly lockstep: Int32Array;
  /** Variables of the long network layer by layer, those outside the layers last. */
  readonly layers: Int32Array;
  /** Layer of each variable of the long network, counted from 0; -1 for those in none. */
  readonly layer: Int32Array;
  /** 1: a variable of the long network that is in no layer. */
  readonly outside: Uint8Array;
  /**
   * The same fold with so many more blocks kept on either side of the gap; undefined where too few
   * are left to remove.
   */
  readonly wider: (blocks: number) => Fold | undefined;
}

/** Shortens a pairwise network if it has enough equal blocks. */
export function foldOf(net: Network): Fold | undefined {
  const total = present(net);
  if (total < LEAST_VARIABLES) return undefined;
  let best: Fold | undefined;
  for (const depth of DEPTHS) {
    const blocks = blocksOf(net, depth, KEPT_BLOCKS * 2 + LEAST_REMOVED);
    if (blocks === undefined) continue;
    const kept = Math.max(KEPT_BLOCKS, blocks.spread);
    const from = blocks.first + kept;
    const to = blocks.last - kept + 1;
    if (to - from < LEAST_REMOVED) continue;
    const fold = shorten(new Gap(net, blocks, from, to));
    if (fold.edge.some((e, id) => e < 0 && net.factors[id] !== undefined)) continue;
    if (best === undefined || fold.short.count < best.short.count) best = fold;
    if (2 * best.short.count <= total) break;
  }
  return best !== undefined && 4 * best.short.count <= 3 * total ? best : undefined;
}

function present(net: Network): number {
  let count = 0;
  for (let i = 0; i < net.count; i++) if (net.gone[i] === 0) count++;
  return count;
}

/** Blocks from .. to - 1 of a network, which are removed. */
class Gap {
  constructor(
    readonly net: Network,
    readonly blocks: Blocks,
    readonly from: number,
    readonly to: number,
  ) {}

  has(variable: number): boolean {
    const block = this.blocks.block[variable];
    return block >= this.from && block < this.to;
  }

  /** The variable that has the place of another in a block; -1 for none. */
  counterpart(variable: number, block: number): number {
    const { colour, at, base } = this.blocks;
    const c = colour[variable];
    return at[c]?.[block - base[c]] ?? -1;
  }
}

/** Removes the blocks of a gap and joins the block before it to the one after it. */
function shorten(gap: Gap): Fold {
  const { net, blocks, from, to } = gap;
  const { block } = blocks;
  const origin: number[] = [];
  const name = new Int32Array(net.count).fill(-1);
  for (let i = 0; i < net.count; i++)
    if (net.gone[i] === 0 && !gap.has(i)) name[i] = origin.push(i) - 1;
  const short = keptVariables(net, origin);
  const variable = Int32Array.from(block, (_, i) => {
    if (net.gone[i] === 1) return -1;
    return gap.has(i) ? name[gap.counterpart(i, from - 1)] : name[i];
  });
  const edge = joinedEdges(gap, short, name);
  const lockstep = Int32Array.from(net.place, (own, i) =>
    block[i] >= blocks.first && block[i] <= blocks.last ? net.place[gap.counterpart(i, from)] : own,
  );
  const lowest = block.reduce((least, b) => (b === NONE ? least : Math.min(least, b)), Infinity);
  const wider = (more: number): Fold | undefined =>
    to - from - 2 * more < 1 ? undefined : shorten(new Gap(net, blocks, from + more, to - more));
  return {
    short,
    variable,
    edge,
    origin: Int32Array.from(origin),
    lockstep,
    layers: byLayer(net, block),
    layer: block.map((b) => (b === NONE ? -1 : b - lowest)),
    outside: Uint8Array.from(block, (b) => (b === NONE ? 1 : 0)),
    wider,
  };
}

/** A network of some variables of another, without edges. */
function keptVariables(net: Network, origin: readonly number[]): Network {
  const short = new Network(
    net.pool,
    Int32Array.from(origin, (i) => net.size[i]),
  );
  origin.forEach((i, k) => {
    short.unary[k] = net.unary[i];
    short.priced[k] = net.priced[i];
    short.rank[k] = net.rank[i];
    short.place[k] = net.place[i];
    short.minPairs[2 * k] = net.minPairs[2 * i];
    short.minPairs[2 * k + 1] = net.minPairs[2 * i + 1];
  });
  for (const row of net.rows)
    short.rows.push({ bound: row.bound, amounts: Int32Array.from(origin, (i) => row.amounts[i]) });
  short.constant = net.constant;
  short.quantum = net.quantum;
  short.tolerance = net.tolerance;
  return short;
}

/**
 * Adds the edges that are left, and those that join the two sides of the gap. Edge of the long
 * network -> edge of the short one, or -1.
 */
function joinedEdges(gap: Gap, short: Network, name: Int32Array): Int32Array {
  const { net, blocks } = gap;
  const edge = new Int32Array(net.factors.length).fill(-1);
  const open: number[] = [];
  for (let id = 0; id < net.factors.length; id++) {
    const f = net.factors[id];
    if (f === undefined) continue;
    const vars = joinedEnds(gap, f.vars, name);
    if (vars === undefined) open.push(id);
    else edge[id] = short.addFactor({ vars, maps: f.maps, table: f.table });
  }
  for (const id of open) edge[id] = twinOf(net, blocks, edge, id, gap.from);
  return edge;
}

/**
 * The ends of an edge in the short network. One that enters the gap comes out where the gap ends;
 * undefined where both ends are in the gap, or the other side has no such variable.
 */
function joinedEnds(
  gap: Gap,
  ends: readonly number[],
  name: Int32Array,
): readonly number[] | undefined {
  const { block } = gap.blocks;
  const within = ends.filter((i) => gap.has(i)).length;
  if (within === 2) return undefined;
  const vars = ends.map((i) => name[i]);
  if (within === 0) return vars;
  const inside = gap.has(ends[0]) ? 0 : 1;
  const outside = block[ends[1 - inside]];
  if (outside === NONE || outside >= gap.to) return undefined;
  const far = gap.counterpart(ends[inside], block[ends[inside]] + gap.to - gap.from);
  if (far < 0 || name[far] < 0) return undefined;
  return vars.map((v, side) => (side === inside ? name[far] : v));
}

/** Variables layer by layer, those outside the layers last. */
function byLayer(net: Network, block: Int32Array): Int32Array {
  const layerOf = (i: number): number => (block[i] === NONE ? Infinity : block[i]);
  return Int32Array.from(net.gone.keys()).sort(
    (i, j) =>
      (layerOf(i) === layerOf(j) ? net.rank[i] - net.rank[j] : layerOf(i) - layerOf(j)) || i - j,
  );
}

/**
 * Short edge of the edge of equal content whose first block is the last one before the gap, or -1.
 */
function twinOf(net: Network, blocks: Blocks, edge: Int32Array, id: number, from: number): number {
  const { colour, block, at, base } = blocks;
  const f = net.factors[id];
  if (f === undefined) return -1;
  const low = Math.min(...f.vars.map((i) => block[i]).filter((b) => b !== NONE));
  const shift = low - (from - 1);
  const [u, v] = f.vars.map((i) =>
    block[i] === NONE ? i : (at[colour[i]]?.[block[i] - shift - base[colour[i]]] ?? -1),
  );
  // Search from a periodic end: hubs have long lists.
  const start = block[f.vars[0]] === NONE ? v : u;
  if (u < 0 || v < 0) return -1;
  for (const other of net.incident[start]) {
    const g = net.factors[other];
    if (
      g === undefined ||
      edge[other] < 0 ||
      g.table !== f.table ||
      g.vars[0] !== u ||
      g.vars[1] !== v
    )
      continue;
    if (g.maps[0] === f.maps[0] && g.maps[1] === f.maps[1]) return edge[other];
  }
  return -1;
}

/**
 * Messages of the long network from those of the short one, to be followed by a sweep.
 *
 * @param sides what sweeps of the long network in lock step read, where that is known
 */
export function spreadMessages(fold: Fold, from: Trws, net: Network, sides?: Sides): Trws {
  const out = new Trws(net, fold.lockstep, undefined, sides);
  for (let e = 0; e < fold.edge.length; e++) {
    const twin = fold.edge[e];
    if (twin < 0) continue;
    const a = from.start[2 * twin];
    const b = from.start[2 * twin + 2];
    out.to.set(from.to.subarray(a, b), out.start[2 * e]);
  }
  return out;
}

/** Messages of the short network from those of the long one. */
export function gatherMessages(fold: Fold, from: Trws, short: Network): Trws {
  const out = new Trws(short);
  const done = new Uint8Array(short.factors.length);
  for (let e = 0; e < fold.edge.length; e++) {
    const twin = fold.edge[e];
    if (twin < 0 || done[twin] === 1) continue;
    done[twin] = 1;
    out.to.set(from.to.subarray(from.start[2 * e], from.start[2 * e + 2]), out.start[2 * twin]);
  }
  return out;
}

/** Positions of the long network from those of the short one. */
export function spreadChoice(fold: Fold, at: Int32Array): Int32Array {
  return fold.variable.map((v) => (v < 0 ? -1 : at[v]));
}
