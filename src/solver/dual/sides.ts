/**
 * Lists the constant input of a sweep of messages: the sides of all edges, variable by variable in
 * the order of the sweep, in flat arrays. Networks that differ only in the costs of their
 * variables, as those of different prices do, share them.
 */
import type { Network } from '../network/network.ts';
import type { MinPairs } from '../store/min-pairs.ts';

export interface Sides {
  /**
   * Start of each slot (2 * edge + side) in the messages; the message of slot s covers start[s] ..
   * start[s + 1] - 1.
   */
  readonly start: Int32Array;
  /** Variables in the order of a forward sweep. */
  readonly order: Int32Array;
  /**
   * Sides of variable i: begin[i] .. begin[i + 1] - 1 in the arrays below, earlier neighbours
   * first, later ones from middle[i].
   */
  readonly begin: Int32Array;
  readonly middle: Int32Array;
  readonly slot: Int32Array;
  readonly other: Int32Array;
  /** The number of equal edges of its variable that a side represents. */
  readonly weight: Float64Array;
  readonly maps: readonly Int32Array[];
  readonly cells: readonly Float64Array[];
  /**
   * The table of each side taken apart, and whether along this side's axis (2) or the other's (1).
   */
  readonly minPairs: readonly (MinPairs | null)[];
  readonly along: Uint8Array;
  /** The place where kernels find the table that a side's messages go through; -1: none. */
  readonly place: Int32Array;
  /** Part of its cost that a variable gives each edge. */
  readonly share: Float64Array;
  /** 1: the k-th variable of the order has the sides that the one before it has, one by one. */
  readonly isTwin: Uint8Array;
  /** Most values of a variable, and most classes of a side. */
  readonly largest: number;
  readonly widest: number;
}

/** @param weights per slot; default 1 */
export function sidesOf(net: Network, rank: Int32Array, weights?: Float64Array): Sides {
  const sweep = sweepOf(net, rank);
  const list = listSides(net, sweep, weights);
  const found = {
    ...messagesOf(net),
    order: sweep.order,
    largest: sweep.largest,
    ...list,
    share: sharesOf(net.count, list),
  };
  return {
    ...found,
    isTwin: Uint8Array.from(found.order, (i, k) =>
      k > 0 && areTwins(found, found.order[k - 1], i) ? 1 : 0,
    ),
  };
}

/** Where the message of each slot starts. */
function messagesOf({ factors }: Network): Pick<Sides, 'start' | 'widest'> {
  const start = new Int32Array(2 * factors.length + 1);
  let length = 0;
  let widest = 1;
  for (let e = 0; e < factors.length; e++) {
    const f = factors[e];
    start[2 * e] = length;
    if (f !== undefined) {
      if (f.vars.length !== 2)
        throw new Error('internal: message passing needs a pairwise network');
      length += f.table.dims[0];
      start[2 * e + 1] = length;
      length += f.table.dims[1];
      widest = Math.max(widest, f.table.dims[0], f.table.dims[1]);
    } else {
      start[2 * e + 1] = length;
    }
  }
  start[2 * factors.length] = length;
  return { start, widest };
}

/** The order of a forward sweep, and the sizes of what it meets. */
interface Sweep {
  readonly order: Int32Array;
  /** Turn of each variable in the order. */
  readonly turn: Int32Array;
  readonly sideCount: number;
  readonly largest: number;
}

function sweepOf(net: Network, rank: Int32Array): Sweep {
  const present: number[] = [];
  let largest = 1;
  let sideCount = 0;
  for (let i = 0; i < net.count; i++) {
    if (net.gone[i] === 1) continue;
    present.push(i);
    sideCount += net.incident[i].length;
    largest = Math.max(largest, net.size[i]);
  }
  present.sort((a, b) => rank[a] - rank[b] || a - b);
  const order = Int32Array.from(present);
  const turn = new Int32Array(net.count);
  order.forEach((i, k) => (turn[i] = k));
  return { order, turn, sideCount, largest };
}

type SideList = Omit<Sides, 'start' | 'order' | 'share' | 'isTwin' | 'largest' | 'widest'>;

function listSides(net: Network, { turn, sideCount }: Sweep, weights?: Float64Array): SideList {
  const { pool, factors } = net;
  const begin = new Int32Array(net.count + 1);
  const middle = new Int32Array(net.count);
  const slot = new Int32Array(sideCount);
  const other = new Int32Array(sideCount);
  const weight = new Float64Array(sideCount).fill(1);
  const along = new Uint8Array(sideCount);
  const place = new Int32Array(sideCount);
  const maps: Int32Array[] = [];
  const cells: Float64Array[] = [];
  const minPairs: (MinPairs | null)[] = [];
  let at = 0;
  for (let i = 0; i < net.count; i++) {
    begin[i] = at;
    for (const later of [false, true]) {
      if (later) middle[i] = at;
      if (net.gone[i] === 1) continue;
      for (const edge of net.incident[i]) {
        const f = factors[edge];
        if (f === undefined) continue;
        const side = f.vars[0] === i ? 0 : 1;
        const far = f.vars[1 - side];
        if (turn[far] > turn[i] !== later) continue;
        slot[at] = 2 * edge + side;
        if (weights !== undefined) weight[at] = weights[2 * edge + side];
        const own = splitAlong(net, edge, side);
        const pairs = own ?? splitAlong(net, edge, side === 0 ? 1 : 0);
        along[at] = own !== null ? 2 : 1;
        const [rows, columns] = f.table.dims;
        place[at] =
          pairs === null
            ? pool.kernels.place(f.table.cells, rows, columns)
            : pool.kernels.place(pairs.cells, pairs.count, pairs.cells.length / pairs.count);
        minPairs.push(pairs);
        other[at++] = far;
        maps.push(pool.mapOf(f.maps[side]));
        cells.push(f.table.cells);
      }
    }
  }
  begin[net.count] = at;
  return { begin, middle, slot, other, weight, maps, cells, minPairs, along, place };
}

/** Each variable gives its cost in equal parts to its earlier or its later edges. */
function sharesOf(count: number, { begin, middle, weight }: SideList): Float64Array {
  const share = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    let earlier = 0;
    let later = 0;
    for (let s = begin[i]; s < middle[i]; s++) earlier += weight[s];
    for (let s = middle[i]; s < begin[i + 1]; s++) later += weight[s];
    share[i] = 1 / Math.max(earlier, later, 1);
  }
  return share;
}

function areTwins(
  { begin, middle, slot, weight, maps, cells, minPairs, along }: Omit<Sides, 'isTwin'>,
  i: number,
  j: number,
): boolean {
  const [a, b] = [begin[i], begin[j]];
  const count = begin[i + 1] - a;
  if (begin[j + 1] - b !== count || middle[j] - b !== middle[i] - a) return false;
  for (let k = 0; k < count; k++) {
    if (
      cells[a + k] !== cells[b + k] ||
      maps[a + k] !== maps[b + k] ||
      ((slot[a + k] ^ slot[b + k]) & 1) === 1
    )
      return false;
    if (
      weight[a + k] !== weight[b + k] ||
      minPairs[a + k] !== minPairs[b + k] ||
      along[a + k] !== along[b + k]
    )
      return false;
  }
  return true;
}

/**
 * The table of an edge taken apart along one of its axes, where the variable there is known to be a
 * pair of alternatives.
 */
function splitAlong(net: Network, edge: number, side: 0 | 1): MinPairs | null {
  const f = net.factors[edge];
  if (f === undefined) return null;
  const v = f.vars[side];
  const first = net.minPairs[2 * v];
  const second = net.minPairs[2 * v + 1];
  return first < 0 || second < 0
    ? null
    : net.pool.minPairsMemo.find(f.table, side, f.maps[side], first, second);
}
