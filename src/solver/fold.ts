/**
 * Folding of repeated layers: share work, not decisions. A long network of equal blocks is shortened to a few of its
 * first and last blocks; what is learnt there (messages and a choice) is spread over the long network. Messages prove a
 * bound whatever they are and a choice is a choice, so nothing depends on the fold being right: a network that only looks
 * periodic just starts with worse messages.
 *
 * Blocks are found by content (`colours.ts`): the t-th variable of a colour, in sweep order, belongs to block t, counted up
 * or down. Edges between colours say in which direction and with which offset, so a backward pass that visits the layers
 * in reverse falls into place by itself.
 */
import { Messages } from './bound.ts';
import { colours } from './colours.ts';
import { Network } from './network.ts';

/** Fewest blocks that are worth removing. */
const LEAST_REMOVED = 3;
/** Complete blocks kept at either end. */
const KEPT_BLOCKS = 1;
/** Depths of colouring to try: deeper ones tell more variables of a block apart but lose more blocks at the ends. */
const DEPTHS: readonly number[] = [3, 4, 6, 8];

/** A shortened network and the way back. */
export interface Fold {
  readonly short: Network;
  /** Variable of the long network -> variable of the short one that stands for it; -1 for variables that are gone. */
  readonly variable: Int32Array;
  /** Edge of the long network -> edge of the short one, or -1. */
  readonly edge: Int32Array;
  /** Variable of the short network -> the variable of the long one it was taken from. */
  readonly origin: Int32Array;
}

/** Blocks of the periodic variables. */
interface Blocks {
  readonly colour: Int32Array;
  /** Block of each variable; NONE for variables outside the periodic part. */
  readonly block: Int32Array;
  /** Members of each periodic colour by block - base. */
  readonly at: readonly (Int32Array | undefined)[];
  readonly base: Int32Array;
  /** Blocks first .. last exist in every periodic colour. */
  readonly first: number;
  readonly last: number;
  /** Most blocks that an edge leads forward or back. */
  readonly spread: number;
}

const NONE = -(2 ** 30);

/** Shortens a pairwise network if it has enough equal blocks. */
export function foldOf(net: Network): Fold | undefined {
  const total = present(net);
  let best: Fold | undefined;
  for (const depth of DEPTHS) {
    const blocks = blocksOf(net, colours(net, depth));
    if (blocks === undefined) continue;
    const kept = Math.max(KEPT_BLOCKS, blocks.spread);
    const from = blocks.first + kept;
    const to = blocks.last - kept + 1;
    if (to - from < LEAST_REMOVED) continue;
    const fold = shorten(net, blocks, from, to);
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

function blocksOf(net: Network, colour: Int32Array): Blocks | undefined {
  const members: number[][] = [];
  const order: number[] = [];
  for (let i = 0; i < net.count; i++) if (net.gone[i] === 0) order.push(i);
  order.sort((a, b) => net.rank[a] - net.rank[b] || a - b);
  const index = new Int32Array(net.count).fill(-1);
  for (const i of order) index[i] = (members[colour[i]] ??= []).push(i) - 1;
  const least = KEPT_BLOCKS * 2 + LEAST_REMOVED;
  // Direction (1 or -1; 0: not yet known) and offset of each colour: block = offset + direction * index.
  const direction = new Int32Array(members.length);
  const offset = new Int32Array(members.length);
  // Colours that occur twice in a block are rare: start from one of the usual size.
  const usual = members.flatMap((m, c) => (m.length >= least ? [c] : []));
  usual.sort((a, b) => members[a].length - members[b].length || a - b);
  if (usual.length === 0) return undefined;
  const seed = usual[usual.length >> 1];
  direction[seed] = 1;
  const queue = [seed];
  for (const c of queue) {
    const middle = members[c].length >> 1;
    const here = neighbours(net, members[c][middle], colour);
    const next = neighbours(net, members[c][middle + 1], colour);
    for (const [key, v] of here) {
      const w = next.get(key);
      if (v < 0 || w === undefined || w < 0) continue;
      const d = colour[v];
      if (d !== colour[w] || direction[d] !== 0 || members[d].length < least) continue;
      const step = index[w] - index[v];
      if (step !== 1 && step !== -1) continue;
      direction[d] = direction[c] * step;
      offset[d] = offset[c] + direction[c] * middle - direction[d] * index[v];
      queue.push(d);
    }
  }
  const spread = straighten(net, colour, members, index, direction, offset);
  const block = new Int32Array(net.count).fill(NONE);
  const base = new Int32Array(members.length);
  const at: (Int32Array | undefined)[] = [];
  let first = NONE;
  let last = -NONE;
  for (let c = 0; c < members.length; c++) {
    if (direction[c] === 0) continue;
    const list = Int32Array.from(members[c]);
    if (direction[c] < 0) list.reverse();
    const low = direction[c] > 0 ? offset[c] : offset[c] - (list.length - 1);
    base[c] = low;
    at[c] = list;
    list.forEach((i, k) => (block[i] = low + k));
    first = Math.max(first, low);
    last = Math.min(last, low + list.length - 1);
  }
  return { colour, block, at, base, first, last, spread };
}

/** Shifts whole colours so that most edges stay in their block; returns the longest edge that is left, in blocks. */
function straighten(
  net: Network,
  colour: Int32Array,
  members: readonly (readonly number[])[],
  index: Int32Array,
  direction: Int32Array,
  offset: Int32Array,
): number {
  const blockOf = (i: number): number => offset[colour[i]] + direction[colour[i]] * index[i];
  const lengths = (c: number): number[] => {
    const i = members[c][members[c].length >> 1];
    const out: number[] = [];
    for (const id of net.incident[i]) {
      for (const v of net.factors[id]?.vars ?? []) {
        if (v !== i && direction[colour[v]] !== 0) out.push(blockOf(v) - blockOf(i));
      }
    }
    return out.sort((a, b) => a - b);
  };
  let longest = 0;
  for (let pass = 0; pass < 8; pass++) {
    let moved = false;
    longest = 0;
    for (let c = 0; c < members.length; c++) {
      if (direction[c] === 0) continue;
      const found = lengths(c);
      if (found.length === 0) continue;
      const middle = found[(found.length - 1) >> 1];
      const other = found[found.length >> 1];
      const shift = middle > 0 ? middle : Math.min(0, other);
      if (shift !== 0) {
        offset[c] += shift;
        moved = true;
      }
      longest = Math.max(longest, Math.abs(found[0] - shift), Math.abs(found[found.length - 1] - shift));
    }
    if (!moved) break;
  }
  return longest;
}

/** Neighbour by edge content for edges that are the only ones of their content; -1 for the others. */
function neighbours(net: Network, i: number, colour: Int32Array): Map<string, number> {
  const out = new Map<string, number>();
  for (const id of net.incident[i]) {
    const f = net.factors[id];
    if (f === undefined) continue;
    const side = f.vars[0] === i ? 0 : 1;
    const other = f.vars[1 - side];
    const key = `${f.table.id},${f.maps.join(',')},${side},${colour[other]}`;
    out.set(key, out.has(key) ? -1 : other);
  }
  return out;
}

/** Removes blocks from .. to - 1 and joins block from - 1 to block `to`. */
function shorten(net: Network, blocks: Blocks, from: number, to: number): Fold {
  const { colour, block, at, base } = blocks;
  const removed = (i: number): boolean => block[i] >= from && block[i] < to;
  const member = (c: number, b: number): number => at[c]?.[b - base[c]] ?? -1;
  const origin: number[] = [];
  const name = new Int32Array(net.count).fill(-1);
  for (let i = 0; i < net.count; i++) if (net.gone[i] === 0 && !removed(i)) name[i] = origin.push(i) - 1;
  const short = new Network(
    net.pool,
    Int32Array.from(origin, (i) => net.size[i]),
  );
  origin.forEach((i, k) => {
    short.unary[k] = net.unary[i];
    short.priced[k] = net.priced[i];
    short.rank[k] = net.rank[i];
  });
  for (const row of net.rows)
    short.rows.push({ bound: row.bound, amounts: Int32Array.from(origin, (i) => row.amounts[i]) });
  short.constant = net.constant;
  const variable = Int32Array.from(block, (_, i) => {
    if (net.gone[i] === 1) return -1;
    return removed(i) ? name[member(colour[i], from - 1)] : name[i];
  });
  const edge = new Int32Array(net.factors.length).fill(-1);
  const open: number[] = [];
  for (let id = 0; id < net.factors.length; id++) {
    const f = net.factors[id];
    if (f === undefined) continue;
    const gap = f.vars.filter(removed).length;
    if (gap === 2) {
      open.push(id);
      continue;
    }
    let vars = f.vars.map((i) => name[i]);
    if (gap === 1) {
      const inside = removed(f.vars[0]) ? 0 : 1;
      const outside = block[f.vars[1 - inside]];
      const far =
        outside === NONE || outside >= to ? -1 : member(colour[f.vars[inside]], block[f.vars[inside]] + to - from);
      if (far < 0 || name[far] < 0) {
        open.push(id);
        continue;
      }
      vars = vars.map((v, side) => (side === inside ? name[far] : v));
    }
    edge[id] = short.addFactor({ vars, maps: f.maps, table: f.table });
  }
  for (const id of open) edge[id] = twinOf(net, blocks, edge, id, from);
  return { short, variable, edge, origin: Int32Array.from(origin) };
}

/** Short edge of the edge of equal content whose first block is the last one before the gap, or -1. */
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
    if (g === undefined || edge[other] < 0 || g.table !== f.table || g.vars[0] !== u || g.vars[1] !== v) continue;
    if (g.maps[0] === f.maps[0] && g.maps[1] === f.maps[1]) return edge[other];
  }
  return -1;
}

/** Messages of the long network from those of the short one, to be followed by a sweep. */
export function spreadMessages(fold: Fold, from: Messages, net: Network): Messages {
  const out = new Messages(net);
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
export function gatherMessages(fold: Fold, from: Messages, short: Network): Messages {
  const out = new Messages(short);
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
