/**
 * The innermost loops of sweeps, decoding and descent. They are functions of their own, and the
 * same for all three, because a small function is compiled soon and once: much of a short solve is
 * code that has not been compiled yet. Infinity is stored and never one side of a conditional
 * expression in a sum: V8 would make every such sum a number on the heap.
 */

/** total[a] += weight * from[start + map[a]]; Infinity where the map is -1. */
export function addMapped(
  total: Float64Array,
  size: number,
  map: Int32Array,
  from: Float64Array,
  start: number,
  weight: number,
): void {
  for (let a = 0; a < size; a++) {
    const c = map[a];
    if (c < 0) total[a] = Infinity;
    else total[a] += weight * from[start + c];
  }
}

/** total[a] += cells[base + map[a] * scale]; Infinity where the map is -1. */
export function addSlice(
  total: Float64Array,
  size: number,
  map: Int32Array,
  cells: Float64Array,
  base: number,
  scale: number,
): void {
  for (let a = 0; a < size; a++) {
    const c = map[a];
    if (c < 0) total[a] = Infinity;
    else total[a] += cells[base + c * scale];
  }
}

/** least[c] = the least total of the values of class c. */
export function leastByClass(
  least: Float64Array,
  classes: number,
  total: Float64Array,
  size: number,
  map: Int32Array,
): void {
  for (let c = 0; c < classes; c++) least[c] = Infinity;
  for (let a = 0; a < size; a++) {
    const c = map[a];
    const t = total[a];
    if (c >= 0 && t < least[c]) least[c] = t;
  }
}

/**
 * costs[c] = the part of the cost of class c that is given away, less the message from its edge.
 */
export function giveShare(
  costs: Float64Array,
  classes: number,
  share: number,
  to: Float64Array,
  start: number,
): void {
  for (let c = 0; c < classes; c++)
    if (costs[c] !== Infinity) costs[c] = Math.floor(costs[c] * share) - to[start + c];
}

/**
 * shifts[start + c] = what class c took from its edge: the opposite of what it gives; 0 where it is
 * forbidden.
 */
export function storeShifts(
  shifts: Float64Array,
  start: number,
  classes: number,
  given: Float64Array,
): void {
  for (let c = 0; c < classes; c++) shifts[start + c] = given[c] === Infinity ? 0 : -given[c];
}

/** rest[a] += weight * (shifts[start + map[a]] - to[start + map[a]]). */
export function addShifted(
  rest: Float64Array,
  size: number,
  map: Int32Array,
  weight: number,
  shifts: Float64Array,
  to: Float64Array,
  start: number,
): void {
  for (let a = 0; a < size; a++) rest[a] += weight * (shifts[start + map[a]] - to[start + map[a]]);
}

/** Tells whether `count` entries from `a` on are those from `b` on. */
export function areEqual(values: Float64Array, a: number, b: number, count: number): boolean {
  for (let k = 0; k < count; k++) if (values[a + k] !== values[b + k]) return false;
  return true;
}

/** Copies `count` entries from `from` on to `to` on, which lie apart. */
export function moveEntries(values: Float64Array, from: number, to: number, count: number): void {
  for (let k = 0; k < count; k++) values[to + k] = values[from + k];
}

/** Takes a number from some entries. */
export function lower(values: Float64Array, from: number, to: number, by: number): void {
  for (let a = from; a < to; a++) values[a] -= by;
}

/** out[from .. to - 1] = the same entries of the values. */
export function copyEntries(
  out: Float64Array,
  values: Float64Array,
  from: number,
  to: number,
): void {
  for (let a = from; a < to; a++) out[a] = values[a];
}

/** least[k] = the least cost of the classes that hold alternative k. */
export function leastByAlternative(
  least: Float64Array,
  count: number,
  costs: Float64Array,
  first: Int32Array,
  second: Int32Array,
): void {
  for (let k = 0; k < count; k++) least[k] = Infinity;
  for (let c = 0; c < first.length; c++) {
    const t = costs[c];
    const a = first[c];
    const b = second[c];
    if (t < least[a]) least[a] = t;
    if (t < least[b]) least[b] = t;
  }
}

/** to[there + c] = the lesser of what the two alternatives of class c give. */
export function lesserAlternative(
  to: Float64Array,
  there: number,
  alternative: Float64Array,
  first: Int32Array,
  second: Int32Array,
): void {
  for (let c = 0; c < first.length; c++) {
    const a = alternative[first[c]];
    const b = alternative[second[c]];
    to[there + c] = a < b ? a : b;
  }
}

/** Position of the least entry, the first of equal ones. */
export function firstLeast(values: Float64Array, count: number): number {
  let best = 0;
  for (let a = 1; a < count; a++) if (values[a] < values[best]) best = a;
  return best;
}

export function smallest(values: Float64Array, from: number, to: number): number {
  let least = Infinity;
  for (let a = from; a < to; a++) if (values[a] < least) least = values[a];
  return least;
}

/** to[there + y] = min over x of costs[x] + cells[x, y]. */
export function throughRows(
  cells: Float64Array,
  costs: Float64Array,
  rows: number,
  columns: number,
  to: Float64Array,
  there: number,
): void {
  for (let y = there; y < there + columns; y++) to[y] = Infinity;
  for (let x = 0, p = 0; x < rows; x++) {
    const c = costs[x];
    if (c === Infinity) {
      p += columns;
      continue;
    }
    for (let y = there; y < there + columns; y++, p++) {
      const s = c + cells[p];
      if (s < to[y]) to[y] = s;
    }
  }
}

/** to[there + x] = min over y of costs[y] + cells[x, y]. */
export function throughColumns(
  cells: Float64Array,
  costs: Float64Array,
  rows: number,
  columns: number,
  to: Float64Array,
  there: number,
): void {
  for (let x = 0, p = 0; x < rows; x++) {
    let least = Infinity;
    for (let y = 0; y < columns; y++, p++) {
      const s = costs[y] + cells[p];
      if (s < least) least = s;
    }
    to[there + x] = least;
  }
}
