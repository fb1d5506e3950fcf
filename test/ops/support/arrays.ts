/**
 * Dense float64 arrays for the validator of sharding rules: row-major, no views. Bools are 0 and 1.
 */
export interface NDArray {
  readonly shape: readonly number[];
  readonly data: Float64Array;
}

export function count(shape: readonly number[]): number {
  return shape.reduce((a, b) => a * b, 1);
}

export function zeros(shape: readonly number[]): NDArray {
  return { shape, data: new Float64Array(count(shape)) };
}

/** Fills by coordinates, row-major. */
export function build(
  shape: readonly number[],
  value: (at: readonly number[], flat: number) => number,
): NDArray {
  const out = zeros(shape);
  const at = shape.map(() => 0);
  for (let flat = 0; flat < out.data.length; flat++) {
    out.data[flat] = value(at, flat);
    for (let d = shape.length - 1; d >= 0; d--) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
  }
  return out;
}

export function flatIndex(shape: readonly number[], at: readonly number[]): number {
  let flat = 0;
  for (let d = 0; d < shape.length; d++) flat = flat * shape[d] + at[d];
  return flat;
}

export function get(x: NDArray, at: readonly number[]): number {
  for (let d = 0; d < x.shape.length; d++)
    if (at[d] < 0 || at[d] >= x.shape[d])
      throw new Error(`index [${at.join()}] outside [${x.shape.join()}]`);
  return x.data[flatIndex(x.shape, at)];
}

/** Value of an operand that broadcasts to the coordinates of a larger result (aligned right). */
export function getBroadcast(x: NDArray, at: readonly number[]): number {
  const shift = at.length - x.shape.length;
  return get(
    x,
    x.shape.map((n, d) => (n === 1 ? 0 : at[d + shift])),
  );
}

export function reshape(x: NDArray, shape: readonly number[]): NDArray {
  if (count(shape) !== x.data.length)
    throw new Error(`[${x.shape.join()}] cannot be seen as [${shape.join()}]`);
  return { shape, data: x.data };
}

/** Rows `start .. start+rows` of one dim. */
export function take(x: NDArray, dim: number, start: number, rows: number): NDArray {
  return build(
    x.shape.map((n, d) => (d === dim ? rows : n)),
    (at) =>
      get(
        x,
        at.map((i, d) => (d === dim ? i + start : i)),
      ),
  );
}

export function concat(parts: readonly NDArray[], dim: number): NDArray {
  const rows = parts.reduce((sum, p) => sum + p.shape[dim], 0);
  const starts: number[] = [];
  let start = 0;
  for (const p of parts) {
    starts.push(start);
    start += p.shape[dim];
  }
  return build(
    parts[0].shape.map((n, d) => (d === dim ? rows : n)),
    (at) => {
      let k = parts.length - 1;
      while (starts[k] > at[dim] || (parts[k].shape[dim] === 0 && k > 0)) k--;
      return get(
        parts[k],
        at.map((i, d) => (d === dim ? i - starts[k] : i)),
      );
    },
  );
}

export function map2(a: NDArray, b: NDArray, f: (x: number, y: number) => number): NDArray {
  if (a.shape.join() !== b.shape.join())
    throw new Error(`shapes [${a.shape.join()}] and [${b.shape.join()}] differ`);
  return { shape: a.shape, data: a.data.map((x, i) => f(x, b.data[i])) };
}

/** Uniform numbers in [0, 1): a linear congruential generator, so that tests repeat. */
export function random(seed: number): () => number {
  let state = (seed * 2654435761 + 12345) >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

export function largestDifference(a: NDArray, b: NDArray): number {
  if (a.shape.join() !== b.shape.join()) return Infinity;
  let worst = 0;
  a.data.forEach((x, i) => {
    const d = Math.abs(x - b.data[i]) / Math.max(1, Math.abs(b.data[i]));
    if (!(d <= worst)) worst = d;
  });
  return worst;
}
