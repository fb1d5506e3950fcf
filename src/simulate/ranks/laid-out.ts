/**
 * Arrays laid out over the ranks of a mesh, and put together again, by the definition of the
 * sharding alone.
 */

import { internalError } from '../../errors.ts';
import { heldRows, isPending } from '../../mesh/sharding/sharding.ts';
import type { ShardingSpace } from '../../mesh/sharding/space.ts';
import { flat, fromFlat, type NDArray } from '../../ndarray/array.ts';
import { ofParts, partsOf } from '../../ndarray/complex.ts';
import { elements } from '../../ops/record/record.ts';
import { pendingDims, reduceAll } from './shards.ts';

/** Flat positions in a tensor of this shape that each rank holds, in local order. */
function positionsOf(
  space: ShardingSpace,
  sharding: number,
  shape: readonly number[],
): Int32Array[] {
  const spec = space.get(sharding);
  const rows = shape.map((size, dim) => heldRows(spec, space.mesh, dim, size));
  return space.mesh.devices.map((_, rank) => {
    let positions = Int32Array.of(0);
    rows.forEach((of, d) => {
      const own = of[rank];
      const next = new Int32Array(positions.length * own.length);
      let at = 0;
      for (let i = 0; i < positions.length; i++) {
        const base = positions[i] * shape[d];
        for (let k = 0; k < own.length; k++) next[at++] = base + own[k];
      }
      positions = next;
    });
    return positions;
  });
}

/** The part of an array that each rank holds. The sharding has no pending reduction. */
export function layOut(space: ShardingSpace, sharding: number, x: NDArray): NDArray[] {
  const byPart = partsOf(x).map((part) => layOutPart(space, sharding, part));
  return byPart[0].map((_, rank) =>
    ofParts(
      byPart.map((byRank) => byRank[rank]),
      x.dtype,
    ),
  );
}

function layOutPart(space: ShardingSpace, sharding: number, x: NDArray): NDArray[] {
  const spec = space.get(sharding);
  if (pendingDims(spec, space).length > 0)
    throw internalError(`${spec.text} is pending: nothing to lay out`);
  const rows = x.shape.map((size, dim) => heldRows(spec, space.mesh, dim, size));
  const data = flat(x);
  return positionsOf(space, sharding, x.shape).map((positions, rank) => {
    const own = new Float64Array(positions.length);
    for (let i = 0; i < own.length; i++) own[i] = data[positions[i]];
    return fromFlat(
      rows.map((of) => of[rank].length),
      own,
      x.dtype,
    );
  });
}

interface PutTogether {
  /**
   * Row-major; pending reductions done. Of complex numbers first the real parts, then the imaginary
   * ones.
   */
  readonly data: Float64Array;
  /** Largest difference between ranks that should hold the same. */
  readonly disagreement: number;
}

/**
 * The tensor that the arrays of the ranks represent. @throws E_INTERNAL when no rank has an element
 */
export function putTogether(
  space: ShardingSpace,
  sharding: number,
  shape: readonly number[],
  byRank: readonly NDArray[],
): PutTogether {
  const parts = partsOf(byRank[0]).map((_, k) =>
    putPartTogether(
      space,
      sharding,
      shape,
      byRank.map((x) => partsOf(x)[k]),
    ),
  );
  if (parts.length === 1) return parts[0];
  const data = Float64Array.from(parts.flatMap((part) => [...part.data]));
  return { data, disagreement: Math.max(...parts.map((part) => part.disagreement)) };
}

function putPartTogether(
  space: ShardingSpace,
  sharding: number,
  shape: readonly number[],
  byRank: readonly NDArray[],
): PutTogether {
  const { mesh } = space;
  const spec = space.get(sharding);
  const size = elements(shape);
  const pending = pendingDims(spec, space);
  const kinds = pending.map((m) => spec.placements[m]);
  const sizes = pending.map((m) => mesh.sizes[m]);
  const count = mesh.sizeOf(pending);
  const operands = Array.from({ length: count }, () => new Float64Array(size));
  const seen = Array.from({ length: count }, () => new Uint8Array(size));
  let disagreement = 0;
  positionsOf(space, sharding, shape).forEach((positions, rank) => {
    let which = 0;
    for (const m of pending)
      which = which * mesh.sizes[m] + (Math.floor(rank / mesh.strides[m]) % mesh.sizes[m]);
    const [operand, known] = [operands[which], seen[which]];
    const data = flat(byRank[rank]);
    if (data.length !== positions.length)
      throw internalError(
        `rank ${rank} holds ${data.length} elements of ${spec.text}, expected ${positions.length}`,
      );
    for (let i = 0; i < positions.length; i++) {
      const p = positions[i];
      if (known[p] === 1) disagreement = Math.max(disagreement, difference(operand[p], data[i]));
      else operand[p] = data[i];
      known[p] = 1;
    }
  });
  if (seen.some((known) => known.includes(0)))
    throw internalError(`no rank holds some element of ${spec.text}`);
  if (count === 1) return { data: operands[0], disagreement };
  const type = byRank[0].kind === 'bool' ? 'bool' : 'number';
  const [first] = kinds;
  const column = new Array<number>(count);
  const data = new Float64Array(size);
  for (let e = 0; e < size; e++) {
    for (let i = 0; i < count; i++) column[i] = operands[i][e];
    data[e] =
      type === 'bool' && isPending(first)
        ? first.reduce(column, type)
        : reduceAll(kinds, sizes, column);
  }
  return { data, disagreement };
}

/**
 * Distance of two numbers; 0 for equal infinities and for two NaN, infinite where only one is
 * finite.
 */
export function difference(a: number, b: number): number {
  if (a === b || (Number.isNaN(a) && Number.isNaN(b))) return 0;
  const d = Math.abs(a - b);
  return Number.isNaN(d) ? Infinity : d;
}
