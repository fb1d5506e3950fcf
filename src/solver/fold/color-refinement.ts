/**
 * Colour refinement (1-dimensional Weisfeiler-Leman) of variables by content: two variables share a
 * colour when their costs, their tables and, to some depth, their neighbourhoods are equal. Names
 * and positions play no part, so a layer is recognised at any place.
 */
import type { Network } from '../network/network.ts';
import { KeyTable } from '../store/keys.ts';
import { PairMap } from '../store/pair-map.ts';
import { sortShort } from '../store/short-sort.ts';

const ascending = (a: number, b: number): number => a - b;

/** Colour per variable after `rounds` rounds of refinement; -1 for variables that are gone. */
export function refineColours(net: Network, rounds: number): Int32Array {
  let colour = new Int32Array(net.count).fill(-1);
  const first = new KeyTable();
  for (let i = 0; i < net.count; i++) {
    if (net.gone[i] === 1) continue;
    first.begin().add(net.unary[i]).add(net.priced[i]);
    for (const row of net.rows) first.add(row.amounts[i]);
    colour[i] = first.end();
  }
  let classes = first.count;
  const { begin, content, other } = edgeEnds(net);
  for (let round = 0; round < rounds; round++) {
    const keys = new KeyTable();
    const next = new Int32Array(net.count).fill(-1);
    const sides = new PairMap();
    let count = 0;
    const seen: number[] = [];
    for (let i = 0; i < net.count; i++) {
      if (net.gone[i] === 1) continue;
      seen.length = 0;
      for (let s = begin[i]; s < begin[i + 1]; s++) {
        const b = colour[other[s]];
        let name = sides.get(content[s], b);
        if (name < 0) sides.set(content[s], b, (name = count++));
        seen.push(name);
      }
      sortShort(seen, ascending);
      keys.begin().add(colour[i]);
      for (let s = 0; s < seen.length; s++) keys.add(seen[s]);
      next[i] = keys.end();
    }
    colour = next;
    if (keys.count === classes) break;
    classes = keys.count;
  }
  return apart(net, colour);
}

/** Ends of edges by variable: those of variable i are begin[i] .. begin[i + 1] - 1. */
interface EdgeEnds {
  readonly begin: Int32Array;
  /** One number for each end; ends of edges of equal table and maps on the same side share it. */
  readonly content: Int32Array;
  /** The variable at the other end. */
  readonly other: Int32Array;
}

const NO_FACTORS: readonly number[] = [];

function edgeEnds(net: Network): EdgeEnds {
  const keys = new KeyTable();
  const edges = new Int32Array(net.factors.length);
  for (let e = 0; e < edges.length; e++) {
    const f = net.factors[e];
    if (f !== undefined)
      edges[e] = keys.begin().add(f.table.id).add(f.maps[0]).add(f.maps[1]).end();
  }
  const begin = new Int32Array(net.count + 1);
  const content: number[] = [];
  const other: number[] = [];
  for (let i = 0; i < net.count; i++) {
    const incident = net.gone[i] === 1 ? NO_FACTORS : net.incident[i];
    for (let k = 0; k < incident.length; k++) {
      const id = incident[k];
      const f = net.factors[id];
      if (f === undefined) continue;
      const side = f.vars[0] === i ? 0 : 1;
      content.push(2 * edges[id] + side);
      other.push(f.vars[1 - side]);
    }
    begin[i + 1] = content.length;
  }
  return { begin, content: Int32Array.from(content), other: Int32Array.from(other) };
}

/** Rounds of telling twins apart: the last looks at variables 2^(rounds - 1) places away. */
const TWIN_ROUNDS = 4;

/**
 * Twins within a layer (two projections of one shape) have the same neighbourhood; the variables
 * before and after them in the program tell them apart. Only colours that are more frequent than
 * most are split: the order of the rest may differ between equal layers.
 */
function apart(net: Network, given: Int32Array): Int32Array {
  let colour = given;
  const order: number[] = [];
  for (let i = 0; i < net.count; i++) if (net.gone[i] === 0) order.push(i);
  order.sort((a, b) => net.rank[a] - net.rank[b] || a - b);
  for (let round = 0; round < TWIN_ROUNDS; round++) {
    const sizes: number[] = [];
    for (const i of order) sizes[colour[i]] = (sizes[colour[i]] ?? 0) + 1;
    const usual = mostFrequent(sizes);
    if (usual === 0) return colour;
    const keys = new KeyTable();
    const next = new Int32Array(net.count).fill(-1);
    const reach = 1 << round;
    order.forEach((i, k) => {
      keys.begin().add(colour[i]);
      if (sizes[colour[i]] > usual)
        keys.add(colourAt(colour, order, k - reach)).add(colourAt(colour, order, k + reach));
      next[i] = keys.end();
    });
    colour = next;
  }
  return colour;
}

function colourAt(colour: Int32Array, order: readonly number[], k: number): number {
  return k < 0 || k >= order.length ? -1 : colour[order[k]];
}

/**
 * The size that most variables' colours have, of those with several members; 0 when there is none.
 */
function mostFrequent(sizes: readonly number[]): number {
  const weight = new Map<number, number>();
  for (const size of sizes) if (size > 2) weight.set(size, (weight.get(size) ?? 0) + size);
  let best = 0;
  let most = 0;
  for (const [size, w] of [...weight].sort((a, b) => a[0] - b[0])) {
    if (w > most) {
      most = w;
      best = size;
    }
  }
  return best;
}
