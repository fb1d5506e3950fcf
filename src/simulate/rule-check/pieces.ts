/**
 * Defines the placements by execution: the parts of a tensor that the ranks of one mesh dim hold,
 * and the parts that they are said to hold.
 */

import type { ReduceOp } from '../../mesh/placements/placement.ts';
import { flat, fromFlat, type NDArray } from '../../ndarray/array.ts';
import { numbersOf, ofParts, partsOf } from '../../ndarray/complex.ts';
import { philox } from '../../ndarray/random.ts';
import { concat, rows } from '../../ndarray/views.ts';
import type { RuleSlot } from '../../ops/record/rule.ts';

/** One rank's part of a tensor. */
export interface Piece {
  readonly array: NDArray;
  /** Global coordinates of its first element. */
  readonly starts: readonly number[];
}

/**
 * First row and number of rows of a rank: chunks of ceil(size / ranks) rows, later ranks short or
 * empty.
 */
export function chunkOf(
  size: number,
  ranks: number,
  rank: number,
): readonly [start: number, count: number] {
  const chunk = Math.ceil(size / ranks);
  const start = Math.min(size, rank * chunk);
  return [start, Math.min(size, start + chunk) - start];
}

/** Rows of a rank in order: a chunk of the dim, or a piece of each of some equal chunks of it. */
function rowsOf(x: NDArray, dim: number, chunks: number, ranks: number, rank: number): NDArray {
  const size = x.shape[dim] / chunks;
  const [start, count] = chunkOf(size, ranks, rank);
  if (chunks === 1) return rows(x, dim, start, count);
  return concat(
    Array.from({ length: chunks }, (_, k) => rows(x, dim, k * size + start, count)),
    dim,
  );
}

/** How a tensor is taken apart. */
interface Placing {
  /** For a shard: 1, or the number of equal chunks of which each rank has a piece, all whole. */
  readonly chunks?: number;
  /** Number of the tensor among the inputs, and the board of the trial: see `operands`. */
  readonly input?: number;
  readonly board?: number;
}

/** The part of every rank. */
export function place(
  x: NDArray,
  slot: RuleSlot,
  ranks: number,
  { chunks = 1, input = 0, board = 0 }: Placing = {},
): Piece[] {
  // Operands of the imaginary parts are drawn as those of a further input.
  const [real, imaginary] = partsOf(x).map((part, k) =>
    placePart(part, slot, ranks, { chunks, input: input + 50 * k, board }),
  );
  if (imaginary === undefined) return real;
  return real.map((piece, rank) => ({
    ...piece,
    array: ofParts([piece.array, imaginary[rank].array], x.dtype),
  }));
}

function placePart(
  x: NDArray,
  slot: RuleSlot,
  ranks: number,
  { chunks, input, board }: Required<Placing>,
): Piece[] {
  const origin = x.shape.map(() => 0);
  if (slot === null || slot.kind === 'replicate')
    return Array.from({ length: ranks }, () => ({ array: x, starts: origin }));
  if (slot.kind === 'partial')
    return operands(x, slot.op, ranks, input, board).map((array) => ({ array, starts: origin }));
  return Array.from({ length: ranks }, (_, rank) => {
    const [start] = chunkOf(x.shape[slot.dim] / chunks, ranks, rank);
    return {
      array: rowsOf(x, slot.dim, chunks, ranks, rank),
      starts: origin.map((_, d) => (d === slot.dim ? start : 0)),
    };
  });
}

/**
 * Operands whose reduction is `x`, such that nothing passes by accident: shares of sums and
 * averages are unequal, vary over the tensor and carry offsets of the size of the value that
 * cancel; of extremes every element has one holder, neighbours another, and of the others every
 * third is equal, near, or more than the range of values away on the losing side. Over the boards
 * any two inputs of a call have different holders somewhere.
 */
function operands(x: NDArray, op: ReduceOp, ranks: number, input = 0, board = 0): NDArray[] {
  const values = flat(x);
  // Floats that are whole stay whole, so that what loses may tie with other tensors.
  const integer = x.kind !== 'float' || values.every(Number.isInteger);
  const out = Array.from({ length: ranks }, () => new Float64Array(values.length));
  let range = 0;
  for (const v of values) if (Math.abs(v) > range) range = Math.abs(v);
  const holders = checkerboard(x.shape, ranks, (input >> board) + board);
  const share = new Float64Array(ranks);
  for (let i = 0; i < values.length; i++) {
    const [a, b] = philox([i, 2 + board, input, 0], [ranks, 11]);
    splitValue(share, values[i], op, {
      holder: holders[i],
      near: a / 2 ** 32,
      far: b / 2 ** 32,
      away: AWAY[(i + board) % 3] * (2 * range + 1),
      integer,
    });
    for (let r = 0; r < ranks; r++) out[r][i] = share[r];
  }
  return out.map((data) => fromFlat(x.shape, data, x.dtype));
}

/** Equal, near and far, by the range of values. */
const AWAY: readonly number[] = [1, 0.1, 0];

interface Split {
  readonly holder: number;
  /** Two drawn numbers from 0 to below 1. */
  readonly near: number;
  readonly far: number;
  /** Distance from an extreme of what does not hold it. */
  readonly away: number;
  readonly integer: boolean;
}

/**
 * How far rank `r` stays behind an extreme that it does not hold; whole numbers at least 1, unless
 * it ties.
 */
function distance(s: Split, r: number): number {
  const d = s.away * (1 + s.near / (r + 1));
  return s.integer && d > 0 ? Math.max(1, Math.round(d)) : d;
}

function splitValue(out: Float64Array, v: number, op: ReduceOp, s: Split): void {
  const n = out.length;
  const whole = (u: number): number => (s.integer ? Math.round(u) : u);
  switch (op) {
    case 'sum':
    case 'avg': {
      const total = op === 'avg' ? v * n : v;
      let rest = total;
      for (let r = 0; r < n - 1; r++) {
        const offset = (r % 2 === 0 ? 1 : -1) * (Math.abs(v) + 1) * (0.5 + s.far);
        out[r] = whole(total * (0.6 - 0.5 * s.near) + offset);
        rest -= out[r];
      }
      out[n - 1] = rest;
      return;
    }
    case 'max':
    case 'min': {
      const side = op === 'max' ? -1 : 1;
      for (let r = 0; r < n; r++) out[r] = r === s.holder ? v : v + side * distance(s, r);
      return;
    }
    case 'product': {
      let rest = v;
      for (let r = 0; r < n - 1; r++) {
        out[r] = s.integer ? (r % 2 === 0 ? -1 : 1) : (r % 2 === 0 ? -1 : 1) * (0.5 + s.near);
        rest /= out[r];
      }
      out[n - 1] = rest + 0;
      return;
    }
    // A second holder now and then: "exactly one" must not pass for "any".
    case 'bor':
      for (let r = 0; r < n; r++)
        out[r] = v !== 0 && (r === s.holder || (s.near < 0.5 && r === 0)) ? v : 0;
      return;
    case 'band':
      for (let r = 0; r < n; r++)
        out[r] = v === 0 && (r === s.holder || (s.near < 0.5 && r === 0)) ? 0 : v === 0 ? 1 : v;
      return;
    case 'bxor': {
      let rest = v;
      for (let r = 0; r < n - 1; r++) rest ^= out[r] = Math.round(s.near) ^ (r & 1);
      out[n - 1] = rest;
      return;
    }
  }
}

/** The rank that holds each element: neighbours along every dim have different holders. */
function checkerboard(shape: readonly number[], ranks: number, shift: number): Int32Array {
  let holders: number[] = [shift];
  for (const size of shape)
    holders = holders.flatMap((h) => Array.from({ length: size }, (_, i) => h + i));
  return Int32Array.from(holders, (h) => h % ranks);
}

/** Largest allowed difference of a float, relative to values above 1. */
const TOLERANCE = 1e-8;

/** Tells whether two arrays of one shape agree: floats to the tolerance, others exactly. */
function agree(a: NDArray, b: NDArray): boolean {
  const x = numbersOf(a);
  const y = numbersOf(b);
  if (x.length !== y.length) return false;
  const exact = isExact(b);
  for (let i = 0; i < x.length; i++) if (!same(x[i], y[i], exact)) return false;
  return true;
}

const isExact = (x: NDArray): boolean => x.kind === 'integer' || x.kind === 'bool';

function same(a: number, b: number, exact: boolean): boolean {
  if (a === b || (Number.isNaN(a) && Number.isNaN(b))) return true;
  return !exact && Math.abs(a - b) <= TOLERANCE * Math.max(1, Math.abs(b));
}

/** Tells whether the ranks hold `whole` in the way that a slot claims. */
export function holds(
  local: readonly NDArray[],
  whole: NDArray,
  slot: RuleSlot,
  chunks = 1,
): boolean {
  if (slot === null) return true;
  if (whole.imaginary !== undefined)
    return partsOf(whole).every((part, k) =>
      holds(
        local.map((x) => partsOf(x)[k]),
        part,
        slot,
        chunks,
      ),
    );
  if (slot.kind === 'shard') {
    if (slot.dim >= whole.rank) return false;
    return local.every((x, rank) => {
      const want = rowsOf(whole, slot.dim, chunks, local.length, rank);
      return sameSizes(x, want) && agree(x, want);
    });
  }
  if (!local.every((x) => sameSizes(x, whole))) return false;
  if (slot.kind === 'replicate') return local.every((x) => agree(x, whole));
  return reducesTo(local, slot.op, whole);
}

/** `agree(reduceRanks(local, op), whole)`, which stops at the first element that differs. */
function reducesTo(local: readonly NDArray[], op: ReduceOp, whole: NDArray): boolean {
  const data = local.map((x) => flat(x));
  const want = flat(whole);
  const [first] = data;
  const join = JOIN[op];
  const exact = isExact(whole);
  for (let i = 0; i < want.length; i++) {
    let v = first[i];
    for (let r = 1; r < data.length; r++) v = join(v, data[r][i]);
    if (!same(op === 'avg' ? v / data.length : v, want[i], exact)) return false;
  }
  return true;
}

function sameSizes(a: NDArray, b: NDArray): boolean {
  return a.rank === b.rank && a.shape.every((n, d) => n === b.shape[d]);
}

/** Elementwise reduction over ranks. */
export function reduceRanks(parts: readonly NDArray[], op: ReduceOp): NDArray {
  const data = parts.map((p) => flat(p));
  const out = Float64Array.from(data[0]);
  for (let r = 1; r < data.length; r++)
    for (let i = 0; i < out.length; i++) out[i] = JOIN[op](out[i], data[r][i]);
  if (op === 'avg') for (let i = 0; i < out.length; i++) out[i] /= parts.length;
  return fromFlat(parts[0].shape, out, parts[0].dtype);
}

const JOIN: Readonly<Record<ReduceOp, (a: number, b: number) => number>> = {
  sum: (a, b) => a + b,
  avg: (a, b) => a + b,
  max: Math.max,
  min: Math.min,
  product: (a, b) => a * b,
  band: (a, b) => a & b,
  bor: (a, b) => a | b,
  bxor: (a, b) => a ^ b,
};
