/**
 * Carries messages back through series eliminations: from a reparametrisation of the reduced
 * network to one of the network as it was. A variable v between a and b was replaced by the edge
 * g(a, b) = min_v [unary(v) + f(v, a) + h(v, b)]; what g gives a and b, f and h give them instead,
 * and v passes the rest from f to h. The sum of all minima stays exactly the same, so the bound of
 * the short network is a bound of the long one without any of the steps between.
 */
import type { Factor, Network, SeriesElimination } from '../network/network.ts';
import type { Pool } from '../store/pool.ts';
import type { Trws } from './trws.ts';

/** Cost that leaves a factor for each of its two variables, per position. */
export type Shifts = readonly [Float64Array, Float64Array];

/**
 * Stands for an infinite shift: what a factor forbids has any cost to give, and what a variable
 * forbids takes any. Beyond all costs, yet some dozens of them still sum exactly.
 */
const BEYOND = 2 ** 47;

/**
 * Shifts of every factor of a pairwise network after a sweep, by factor number.
 *
 * @param forbidden the shift to positions that the factor forbids
 */
export function shiftsOf(net: Network, messages: Trws, forbidden = BEYOND): (Shifts | undefined)[] {
  return net.factors.map((f, id): Shifts | undefined => {
    if (f === undefined) return undefined;
    const side = (k: 0 | 1): Float64Array => {
      const start = messages.start[2 * id + k];
      const map = net.pool.mapOf(f.maps[k]);
      const shifts = new Float64Array(map.length);
      for (let p = 0; p < map.length; p++)
        shifts[p] = map[p] < 0 ? forbidden : messages.shifts[start + map[p]];
      return shifts;
    };
    return [side(0), side(1)];
  });
}

/**
 * Undoes series eliminations on the shifts of the network that they left (consumed); returns the
 * shifts of the factors of the network before them.
 */
export function liftShifts(
  pool: Pool,
  eliminations: readonly SeriesElimination[],
  shifts: (Shifts | undefined)[],
): (Shifts | undefined)[] {
  for (let k = eliminations.length - 1; k >= 0; k--) undo(eliminations[k], shifts, pool);
  return shifts;
}

function undo(
  { variable, unary, factors, neighbours, made }: SeriesElimination,
  shifts: (Shifts | undefined)[],
  pool: Pool,
): void {
  const wanted = made < 0 ? undefined : shifts[made];
  if (made >= 0) shifts[made] = undefined;
  let own: Float64Array | undefined;
  factors.forEach(([id, f], turn) => {
    const side = f.vars[0] === variable ? 0 : 1;
    const other = f.vars[1 - side];
    own ??= unary < 0 ? new Float64Array(pool.mapOf(f.maps[side]).length) : pool.vectorOf(unary);
    const target = wanted?.[neighbours[0] === other ? 0 : 1];
    let near: Float64Array;
    let far: Float64Array;
    if (turn < factors.length - 1) {
      if (target === undefined)
        throw new Error('internal: an elimination without the shifts of its result');
      far = target;
      near = clamp(leastRest(f, side, far, pool));
      const sum = new Float64Array(own.length);
      for (let p = 0; p < sum.length; p++) sum[p] = own[p] + near[p];
      own = sum;
    } else {
      // The whole cost of the variable enters its last edge, which passes on what the neighbour is
      // to get.
      near = new Float64Array(own.length);
      for (let p = 0; p < near.length; p++) near[p] = -own[p];
      clamp(near);
      far = target ?? clamp(leastRest(f, side === 0 ? 1 : 0, near, pool));
    }
    shifts[id] = side === 0 ? [near, far] : [far, near];
  });
}

/** Bounds the values in place. */
function clamp(values: Float64Array): Float64Array {
  for (let p = 0; p < values.length; p++) {
    if (values[p] > BEYOND) values[p] = BEYOND;
    else if (values[p] < -BEYOND) values[p] = -BEYOND;
  }
  return values;
}

/**
 * min over the positions of the other side of (cost - shift of the other side), per position of the
 * given side.
 */
function leastRest(factor: Factor, side: 0 | 1, shift: Float64Array, pool: Pool): Float64Array {
  const { cells, dims } = factor.table;
  const own = pool.mapOf(factor.maps[side]);
  const theirs = pool.mapOf(factor.maps[1 - side]);
  // By class: positions of one class see the same costs, and only the largest shift of a class
  // counts.
  const most = new Float64Array(dims[1 - side]).fill(-Infinity);
  for (let q = 0; q < theirs.length; q++) {
    const d = theirs[q];
    if (d >= 0 && shift[q] > most[d]) most[d] = shift[q];
  }
  const width = dims[1];
  const least = new Float64Array(dims[side]).fill(Infinity);
  for (let c = 0; c < least.length; c++) {
    for (let d = 0; d < most.length; d++) {
      if (most[d] === -Infinity) continue;
      const rest = cells[side === 0 ? c * width + d : d * width + c] - most[d];
      if (rest < least[c]) least[c] = rest;
    }
  }
  const rest = new Float64Array(own.length);
  for (let p = 0; p < own.length; p++) rest[p] = own[p] < 0 ? Infinity : least[own[p]];
  return rest;
}
