/**
 * Blocks of a network that repeats: which variables are the same place of successive layers.
 *
 * Blocks are found by content (`color-refinement.ts`): the t-th variable of a colour, in sweep
 * order, belongs to block t, counted up or down. Edges between colours say in which direction and
 * with which offset, so a backward pass that visits the layers in reverse falls into place by
 * itself. Colours see as far as they are deep, so the outermost layers, which see the ends, differ
 * from the rest; `extend` finds them by walking equal edges outwards.
 */
import type { Network } from '../network/network.ts';
import { refineColours } from './color-refinement.ts';

/** Blocks of the periodic variables. */
export interface Blocks {
  readonly colour: Int32Array;
  /** Block of each variable; NONE for variables outside the periodic part. */
  readonly block: Int32Array;
  /** Members of each periodic colour by block - base. */
  readonly at: readonly (number[] | undefined)[];
  readonly base: Int32Array;
  /** Blocks first .. last exist in every periodic colour. */
  readonly first: number;
  readonly last: number;
  /** Most blocks that an edge leads forward or back. */
  readonly spread: number;
}

export const NONE = -(2 ** 30);

/**
 * Equal blocks of a network, or undefined when fewer than `least` are found by colours of this
 * depth.
 */
export function blocksOf(net: Network, depth: number, least: number): Blocks | undefined {
  const colour = refineColours(net, depth);
  const members: number[][] = [];
  const order: number[] = [];
  for (let i = 0; i < net.count; i++) if (net.gone[i] === 0) order.push(i);
  order.sort((a, b) => net.rank[a] - net.rank[b] || a - b);
  const index = new Int32Array(net.count).fill(-1);
  for (const i of order) index[i] = (members[colour[i]] ??= []).push(i) - 1;
  // Direction (1 or -1; 0: not yet known) and offset of each colour: block = offset + direction *
  // index.
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
  const at: (number[] | undefined)[] = [];
  let first = NONE;
  let last = -NONE;
  for (let c = 0; c < members.length; c++) {
    if (direction[c] === 0) continue;
    const list = members[c];
    if (direction[c] < 0) list.reverse();
    const low = direction[c] > 0 ? offset[c] : offset[c] - (list.length - 1);
    base[c] = low;
    at[c] = list;
    list.forEach((i, k) => (block[i] = low + k));
    first = Math.max(first, low);
    last = Math.min(last, low + list.length - 1);
  }
  const found: Found = { colour, block, at, base };
  while (extend(net, found, first, -1)) first--;
  while (extend(net, found, last, 1)) last++;
  return { ...found, first, last, spread };
}

type Found = Pick<Blocks, 'colour' | 'block' | 'at' | 'base'>;

/**
 * Finds the block next to block `edge` (step 1: after it, -1: before it) by following from
 * variables that are already placed the edges that their twins in block `edge` have. True when
 * every periodic colour has a variable there; otherwise nothing is changed.
 */
function extend(net: Network, found: Found, edge: number, step: 1 | -1): boolean {
  const { colour, block, at, base } = found;
  const wanted = edge + step;
  const memberOf = (c: number, b: number): number => at[c]?.[b - base[c]] ?? -1;
  let missing: number[] = [];
  at.forEach((list, c) => {
    if (list !== undefined && memberOf(c, wanted) < 0) missing.push(c);
  });
  const placed = new Map<number, number>();
  const taken = new Set<number>();
  for (let before = -1; missing.length > 0 && missing.length !== before;) {
    before = missing.length;
    missing = missing.filter((c) => {
      const twin = memberOf(c, edge);
      const v = twin < 0 ? -1 : candidate(net, found, twin, step, placed, taken);
      if (v < 0) return true;
      placed.set(c, v);
      taken.add(v);
      return false;
    });
  }
  if (missing.length > 0) return false;
  for (const [c, v] of placed) {
    const list = at[c];
    if (list === undefined) continue;
    if (step > 0) list.push(v);
    else {
      list.unshift(v);
      base[c]--;
    }
    colour[v] = c;
    block[v] = wanted;
  }
  return true;
}

/**
 * The one free variable that relates to a placed variable as the twin relates to that one's own
 * twin; -1 if none or several.
 */
function candidate(
  net: Network,
  { colour, block, at, base }: Found,
  twin: number,
  step: 1 | -1,
  placed: ReadonlyMap<number, number>,
  taken: ReadonlySet<number>,
): number {
  for (const id of net.incident[twin]) {
    const f = net.factors[id];
    if (f === undefined) continue;
    const side = f.vars[0] === twin ? 0 : 1;
    const near = f.vars[1 - side];
    if (block[near] === NONE) continue;
    const c = colour[near];
    const there = at[c]?.[block[near] + step - base[c]] ?? placed.get(c) ?? -1;
    if (there < 0) continue;
    let found = -1;
    let several = false;
    for (const other of net.incident[there]) {
      const g = net.factors[other];
      if (g === undefined || g.table !== f.table || g.vars[1 - side] !== there) continue;
      if (g.maps[0] !== f.maps[0] || g.maps[1] !== f.maps[1]) continue;
      const v = g.vars[side];
      if (
        block[v] !== NONE ||
        taken.has(v) ||
        net.unary[v] !== net.unary[twin] ||
        net.size[v] !== net.size[twin]
      )
        continue;
      several = found >= 0 && found !== v;
      if (several) break;
      found = v;
    }
    if (found >= 0 && !several) return found;
  }
  return -1;
}

/**
 * Shifts whole colours so that most edges stay in their block; returns the longest edge that is
 * left, in blocks.
 */
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
      longest = Math.max(
        longest,
        Math.abs(found[0] - shift),
        Math.abs(found[found.length - 1] - shift),
      );
    }
    if (!moved) break;
  }
  return longest;
}

/**
 * Neighbour by edge content for edges that are the only ones of their content; -1 for the others.
 */
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
