/**
 * Types of per-device values, one for each mesh axis: what the ranks along the axis hold, and what
 * their gradients are. They are written in words such as `S(1)`, as JAX prints them. Source: the
 * four states of `four-states.ts` and V (values that differ, without a claim how they assemble), as
 * JAX's `shard_map` and the package spmd_types have them.
 */
import { checkKinds } from '../../arguments.ts';
import { internalError, ShardwrightError } from '../../errors.ts';
import { Partial } from '../placements/partials/partial.ts';
import type { Placement } from '../placements/placement.ts';
import { REPLICATE } from '../placements/replicate.ts';
import { Shard } from '../placements/shards/shard.ts';
import { StridedShard } from '../placements/shards/strided.ts';
import { gradientState, type State } from '../views/four-states.ts';
import { PartitionSpec } from '../views/partition-spec.ts';
import { ShardedType } from '../views/sharded-type.ts';

/** Type of a value along one mesh axis. Equal iff the texts are. */
export type AxisType = 'V' | 'R' | 'I' | 'P' | `S(${number})` | StridedType;

/**
 * A cut behind a dim that is whole: a piece of each of `f` chunks of dim `d`, `_S(d,f)`. Views make
 * it and take it back; programs cannot state it, and it prints as V.
 */
type StridedType = `_S(${number},${number})`;

/** Different on every rank; nothing is said of how the pieces assemble. */
export const V: AxisType = 'V';
/** Equal on all ranks, used by each in its own way: gradients are addends. */
export const R: AxisType = 'R';
/** Equal on all ranks, one computation done identically by all. */
export const I: AxisType = 'I';
/** Addends of a pending sum. */
export const P: AxisType = 'P';

/** Pieces that concatenate on a tensor dim. @throws E_SPMD_TYPE for what is not a dim */
export function S(dim: number): AxisType {
  if (!Number.isSafeInteger(dim) || dim < 0)
    throw new ShardwrightError('E_SPMD_TYPE', `S(${dim}) cuts no tensor dim`, {
      hint: 'count dims from 0 at the front, as in S(0)',
    });
  return `S(${dim})`;
}

/** Types by mesh axis, in mesh order; axes of size 1 have none. */
export type LocalType = ReadonlyMap<string, AxisType>;

const CUT = /^S\((\d{1,3})\)$/;

/** Tensor dim that a type cuts; undefined for the others. */
export function cutOf(type: AxisType): number | undefined {
  const found = CUT.exec(type);
  return found === null ? undefined : Number(found[1]);
}

/** Dim and number of chunks of a cut, 1 of a plain one; undefined for other types. */
export function chunksOf(
  type: AxisType,
): { readonly dim: number; readonly chunks: number } | undefined {
  const strided = /^_S\((\d+),(\d+)\)$/.exec(type);
  if (strided !== null) return { dim: Number(strided[1]), chunks: Number(strided[2]) };
  const dim = cutOf(type);
  return dim === undefined ? undefined : { dim, chunks: 1 };
}

/** Placement of a type on one mesh dim; I and R are equal data. */
export function placementOf(type: AxisType): Placement {
  const cut = chunksOf(type);
  if (cut !== undefined)
    return cut.chunks === 1 ? Shard.of(cut.dim) : new StridedShard(cut.dim, cut.chunks);
  if (type === 'V') throw internalError('V is not a placement');
  return type === 'P' ? Partial.of('sum') : REPLICATE;
}

/** Type of a placement on one mesh dim, R of what is equal; undefined for one that is no type. */
export function typeOfPlacement(placement: Placement): AxisType | undefined {
  if (placement instanceof StridedShard) return cutType(placement.dim, placement.factor);
  if (placement instanceof Shard) return `S(${placement.dim})`;
  if (placement instanceof Partial) return placement.op === 'sum' ? 'P' : undefined;
  return placement.kind === 'replicate' ? 'R' : undefined;
}

/** The cut of a dim in a number of chunks: the inverse of `chunksOf`. */
export function cutType(dim: number, chunks: number): AxisType {
  return chunks === 1 ? `S(${dim})` : `_S(${dim},${chunks})`;
}

/** True if a program may state the word as a type. */
export function isAxisType(word: unknown): word is AxisType {
  return typeof word === 'string' && (['V', 'R', 'I', 'P'].includes(word) || CUT.test(word));
}

/** Type of the gradient of a value: P where it is R and the other way round; an involution. */
export function gradientType(type: AxisType): AxisType {
  checkKinds('gradientType', { type: [type, 'string'] });
  if (type === 'V' || chunksOf(type) !== undefined) return type;
  return gradientState(type as State) as AxisType;
}

/** Types of the gradient on every axis. */
export function gradientOf(type: LocalType): LocalType {
  checkKinds('gradientOf', { type: [type, 'types'] });
  return new Map([...type].map(([axis, t]) => [axis, gradientType(t)]));
}

/** `{dp: V, tp: I}`. */
export function axesText(type: LocalType): string {
  checkKinds('axesText', { type: [type, 'types'] });
  return `{${[...type].map(([axis, t]) => `${axis}: ${t}`).join(', ')}}`;
}

/**
 * A value as JAX prints it: `f32[4,2,8]{V:tp}` with the shape of one device, `f32[8,16@tp]{U:dp}`
 * with the global one. An axis that is not marked is I.
 *
 * @param shape sizes of one device where no type is a cut, else global sizes
 */
export function typedText(dtype: string, shape: readonly number[], type: LocalType): string {
  checkKinds('typedText', {
    dtype: [dtype, 'string'],
    shape: [shape, 'integers'],
    type: [type, 'types'],
  });
  const dims = shape.map((): string[] => []);
  const varying: string[] = [];
  const reduced: string[] = [];
  const unreduced: [string, 'sum'][] = [];
  for (const [axis, t] of type) {
    const dim = cutOf(t);
    if (dim !== undefined && dim < dims.length) dims[dim].push(axis);
    else if (t === 'R') reduced.push(axis);
    else if (t === 'P') unreduced.push([axis, 'sum']);
    else if (t !== 'I') varying.push(axis);
  }
  return new ShardedType(dtype, shape, new PartitionSpec(dims, { unreduced, reduced }), varying)
    .text;
}
