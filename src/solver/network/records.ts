/** What a network is made of, and the way back from an elimination. */
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
}

/** An eliminated variable between at most two others, with what it takes to carry messages back (`dual/lift.ts`). */
export interface SeriesElimination {
  readonly variable: number;
  readonly unary: number;
  /** Its factors with their numbers, one for each neighbour. */
  readonly factors: readonly (readonly [number, Factor])[];
  /** The factor that came of it (or -1), over these variables. */
  readonly made: number;
  readonly neighbours: readonly number[];
}

/** Problem value of an eliminated variable given those of the variables eliminated after it; the first of the best. */
export function bestValue(
  pool: Pool,
  { variable, unary, values, factors, domains }: Bucket,
  choice: Int32Array,
): number {
  const costs = pool.vectorOf(unary);
  const total = costs.slice();
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
        const domain = domains.find((d) => d.variable === u);
        if (domain === undefined) throw new Error('internal: bucket without its neighbour');
        const position = pool.mapOf(pool.inverse(domain.values))[choice[u]];
        const c = position === undefined || position < 0 ? -1 : pool.mapOf(f.maps[k])[position];
        base = c < 0 || base < 0 ? -1 : base + c * stride;
      }
      stride *= f.table.dims[k];
    }
    const map = pool.mapOf(f.maps[axis]);
    for (let a = 0; a < total.length; a++) {
      total[a] += base < 0 || map[a] < 0 ? Infinity : f.table.cells[base + map[a] * own];
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
  return pool.mapOf(values)[chosen];
}
