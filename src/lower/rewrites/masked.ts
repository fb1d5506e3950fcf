/**
 * Turns indices into a cut dim into local indices and the mask of the rows that a rank has, to read
 * and write rows by number.
 */
import type { Arg } from '../../graph/types.ts';
import { ref } from '../../graph/value.ts';
import type { Emitter } from '../program/emitter.ts';
import type { Piece } from '../program/pieces.ts';
import { atRank, combine, plus, type RankInt } from '../program/rank-int.ts';

interface OwnRows {
  /** Row numbers counted from the rank's first row; those of other ranks are `instead`. */
  readonly rows: string;
  /** True where the row is another rank's. */
  readonly outside: string;
}

/**
 * Row numbers of the whole dim as numbers of the rank's own rows.
 *
 * @param wraps size of the dim, if negative numbers count from its end
 */
export function ownRows(
  emit: Emitter,
  indices: string,
  piece: Piece,
  instead: RankInt,
  wraps?: number,
): OwnRows {
  let numbers = indices;
  if (wraps !== undefined) {
    const negative = emit.call('aten.lt.Scalar', [ref(indices), 0]);
    const turned = emit.call('aten.add.Tensor', [ref(indices), wraps]);
    numbers = emit.call('aten.where.self', [ref(negative), ref(turned), ref(indices)]);
  }
  const shifted = emit.call('aten.sub.Tensor', [ref(numbers), emit.int(piece.start)]);
  const below = emit.call('aten.lt.Scalar', [ref(shifted), 0]);
  const above = emit.call('aten.ge.Scalar', [ref(shifted), emit.int(piece.rows)]);
  const outside = emit.call('aten.bitwise_or.Tensor', [ref(below), ref(above)]);
  const rows = emit.call('aten.masked_fill.Scalar', [
    ref(shifted),
    ref(outside),
    emit.int(instead),
  ]);
  return { rows, outside };
}

/**
 * The tensor with at least one row in a dim: reading row 0 must work on a rank that has no rows.
 */
export function notEmpty(emit: Emitter, value: string, dim: number): string {
  const rows = emit.type(value).shape[dim];
  if (typeof rows === 'number' ? rows > 0 : rows.values.every((n) => n > 0)) return value;
  return padEnd(
    emit,
    value,
    dim,
    combine([rows], 'padding of an empty piece', (n) => (n === 0 ? 1 : 0)),
  );
}

/** Rows of one value, zero by default, added at the end of a dim. */
export function padEnd(emit: Emitter, value: string, dim: number, rows: RankInt, fill = 0): string {
  const { shape } = emit.type(value);
  const pad: RankInt[] = new Array<RankInt>(2 * (shape.length - dim)).fill(0);
  pad[2 * (shape.length - 1 - dim) + 1] = rows;
  const filled: Arg = Number.isInteger(fill) ? fill : { kind: 'float', value: fill };
  return emit.call('aten.constant_pad_nd.default', [ref(value), emit.ints(pad), filled]);
}

/** The first rows of a dim, under a name. */
export function firstRows(
  emit: Emitter,
  value: string,
  dim: number,
  rows: RankInt,
  name: string,
): string {
  return emit.call('aten.slice.Tensor', [ref(value), dim, 0, emit.int(rows)], { name });
}

/** One more row than a piece has, where writes for other ranks end up. */
export function oneMore(piece: Piece): RankInt {
  return plus(piece.rows, 1);
}

/** A mask with dims of size 1 added at the end, to broadcast over what is read for each number. */
export function withTrailing(emit: Emitter, mask: string, count: number): string {
  if (count === 0) return mask;
  const { shape } = emit.type(mask);
  return emit.call('aten.reshape.default', [
    ref(mask),
    emit.ints([...shape, ...Array<RankInt>(count).fill(1)]),
  ]);
}

/** Zero where the mask is set. */
export function zeroed(emit: Emitter, value: string, mask: string, name: string): string {
  return emit.call('aten.masked_fill.Scalar', [ref(value), ref(mask), 0], { name });
}

/** Tells whether some rank has no rows of a dim. */
export function someEmpty(rows: RankInt): boolean {
  return typeof rows === 'number'
    ? rows === 0
    : rows.values.some((_, rank) => atRank(rows, rank) === 0);
}
