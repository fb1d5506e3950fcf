/** Defines the records of a network, and the way back from an elimination. */
import type { PairMap } from '../store/pair-map.ts';
import type { Pool, Table } from '../store/pool.ts';

/** A table over some variables; `maps[k]` sends the positions of `vars[k]` to classes of axis k. */
export interface Factor {
  readonly vars: readonly number[];
  readonly maps: readonly number[];
  readonly table: Table;
}

/** A linear row over the network: amounts per variable (vector id, or -1 outside the row). */
export interface NetworkRow {
  readonly bound: number;
  amounts: Int32Array;
}

/** An eliminated variable with all that decides its value once the later ones are known. */
export interface Bucket {
  readonly variable: number;
  readonly unary: number;
  /** Map id: position -> problem value, as it was then; the same for the neighbours. */
  readonly values: number;
  readonly factors: readonly Factor[];
  readonly domains: readonly { readonly variable: number; readonly values: number }[];
  /**
   * Best positions that are known of variables with the same costs and tables; absent where nobody
   * keeps them.
   */
  readonly known?: BestPositions;
}

/**
 * The best positions of eliminated variables of equal content, by a number that encodes the
 * positions of their neighbours.
 */
interface BestPositions {
  readonly content: number;
  readonly positions: PairMap;
}

/**
 * An eliminated variable between at most two others, with what it takes to carry messages back
 * (`dual/lift.ts`).
 */
export interface SeriesElimination {
  readonly variable: number;
  readonly unary: number;
  /** Its factors with their numbers, one for each neighbour. */
  readonly factors: readonly (readonly [number, Factor])[];
  /** The factor that came of it (or -1), over these variables. */
  readonly made: number;
  readonly neighbours: readonly number[];
}

/**
 * Problem value of an eliminated variable given those of the variables eliminated after it; the
 * first of the best.
 */
export function bestValue(pool: Pool, bucket: Bucket, choice: Int32Array): number {
  const { values, domains, known } = bucket;
  const places = domains.map(
    ({ variable, values }) => pool.mapOf(pool.inverse(values))[choice[variable]] ?? -1,
  );
  let place = 0;
  for (let k = 0; k < places.length; k++)
    place = place * (pool.mapOf(domains[k].values).length + 1) + places[k] + 1;
  const isKept = known !== undefined && place <= LARGEST_PLACE;
  let position = isKept ? known.positions.get(known.content, place) : -1;
  if (position < 0) {
    position = bestPosition(pool, bucket, places);
    if (isKept) known.positions.set(known.content, place, position);
  }
  return pool.mapOf(values)[position];
}

/** The largest number that encodes the positions of all neighbours. */
const LARGEST_PLACE = 2 ** 31 - 1;

/** @param places position of each neighbour; -1: none */
function bestPosition(
  pool: Pool,
  { variable, unary, factors, domains }: Bucket,
  places: readonly number[],
): number {
  const total = pool.vectorOf(unary).slice();
  for (const f of factors) {
    let base = 0;
    let stride = 1;
    let own = 1;
    let axis = 0;
    for (let k = f.vars.length - 1; k >= 0; k--) {
      const u = f.vars[k];
      if (u === variable) {
        own = stride;
        axis = k;
      } else {
        const domain = domains.findIndex((d) => d.variable === u);
        if (domain < 0) throw new Error('internal: bucket without its neighbour');
        const c = places[domain] < 0 ? -1 : pool.mapOf(f.maps[k])[places[domain]];
        base = c < 0 || base < 0 ? -1 : base + c * stride;
      }
      stride *= f.table.dims[k];
    }
    const map = pool.mapOf(f.maps[axis]);
    for (let a = 0; a < total.length; a++) {
      if (base < 0 || map[a] < 0) total[a] = Infinity;
      else total[a] += f.table.cells[base + map[a] * own];
    }
  }
  let chosen = -1;
  let least = Infinity;
  for (let a = 0; a < total.length; a++) {
    if (total[a] < least) {
      least = total[a];
      chosen = a;
    }
  }
  if (chosen < 0) throw new Error('internal: elimination lost its own optimum');
  return chosen;
}
