/**
 * The innermost loops of sweeps, decoding and descent. They are functions of their own, and the same for all three, because
 * a small function is compiled soon and once: much of a short solve is code that has not been compiled yet.
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
    total[a] += c < 0 ? Infinity : weight * from[start + c];
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
    total[a] += c < 0 ? Infinity : cells[base + c * scale];
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
