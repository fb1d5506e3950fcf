/**
 * A tensor on virtual devices: every rank of the mesh has its own array, with the real operands of
 * pending reductions. A global tensor is scattered to such shards by the definition of its sharding
 * alone, so that they can judge what a redistribution plan makes of them.
 */

import { internalError, ShardwrightError } from '../../errors.ts';
import { MaskPartial } from '../../mesh/placements/partials/mask-partial.ts';
import { NormPartial } from '../../mesh/placements/partials/norm-partial.ts';
import { Partial } from '../../mesh/placements/partials/partial.ts';
import type { Pending } from '../../mesh/placements/partials/pending.ts';
import type { Placement } from '../../mesh/placements/placement.ts';
import { heldRows, isPending, refusedCut, type Sharding } from '../../mesh/sharding/sharding.ts';
import type { ShardingSpace } from '../../mesh/sharding/space.ts';
import { elements } from '../../ops/record/record.ts';
import { product } from '../../product.ts';

/** The part of a tensor that one rank holds, row-major. */
export interface Tile {
  readonly shape: readonly number[];
  readonly data: Float64Array;
  /**
   * For a masked lookup, 1 where the element is another rank's, and its value here means nothing.
   */
  readonly masked?: Uint8Array;
}

export interface VirtualTensor {
  readonly space: ShardingSpace;
  /** Id of the sharding in the space. */
  readonly sharding: number;
  /** Global shape. */
  readonly shape: readonly number[];
  /** By rank (place in the mesh). */
  readonly tiles: readonly Tile[];
}

/** Elements of a tensor that a simulation will hold in all. */
const MAX_ELEMENTS = 1 << 26;

/**
 * Lays a global tensor out over the ranks. Operands of pending reductions are drawn from the seed
 * so that they reduce to the value: no rank holds it alone. Ranks that hold the same operand hold
 * the same numbers.
 *
 * @param data global tensor, row-major. Bitwise reductions want whole numbers from 0 to 2^31 - 1,
 *   norms numbers of at least 0
 * @throws E_PLACEMENT when the sharding does not fit the shape, or nobody knows how to take a value
 *   apart
 */
export function scatter(
  space: ShardingSpace,
  sharding: number,
  shape: readonly number[],
  data: Float64Array,
  seed = 1,
): VirtualTensor {
  const { mesh } = space;
  const spec = space.get(sharding);
  const size = elements(shape);
  if (data.length !== size)
    throw new ShardwrightError(
      'E_SHAPE',
      `[${shape.join(', ')}] has ${size} elements, the data ${data.length}`,
    );
  if (size * mesh.size > MAX_ELEMENTS)
    throw new ShardwrightError(
      'E_SHAPE',
      `${mesh.size} ranks with ${size} elements are more than ${MAX_ELEMENTS}`,
      {
        hint: 'simulate a smaller tensor: what a plan does hardly depends on the size',
      },
    );
  checkFits(spec, space, shape);
  const pending = pendingDims(spec, space);
  const operandsOf = new Map<number, Float64Array>();
  const count = mesh.sizeOf(pending);
  const kinds = pending.map((m) => spec.placements[m]);
  const tiles = elementsOf(spec, space, shape).map(({ shape: local, elements }, rank): Tile => {
    const out = new Float64Array(elements.length);
    if (count === 1) {
      elements.forEach((e, i) => (out[i] = data[e]));
      return { shape: local, data: out };
    }
    const mine = operandNumber(rank, pending, space);
    const masked = kinds[0] instanceof MaskPartial ? new Uint8Array(elements.length) : undefined;
    elements.forEach((e, i) => {
      let all = operandsOf.get(e);
      if (all === undefined)
        operandsOf.set(e, (all = takeApart(data[e], kinds, pending, space, seed + 31 * e)));
      out[i] = all[mine];
      // A lookup: one rank owns the row, the others hold rows of somebody else.
      if (masked !== undefined && mine !== ownerOf(seed + 31 * e, count)) masked[i] = 1;
    });
    return { shape: local, data: out, ...(masked !== undefined && { masked }) };
  });
  return { space, sharding, shape, tiles };
}

/**
 * Operands over several pending mesh dims reduced in one go: one kind, or sums and averages
 * together.
 */
export function reduceAll(
  kinds: readonly Placement[],
  sizes: readonly number[],
  operands: readonly number[],
): number {
  const first = kinds[0];
  if (!isPending(first)) throw internalError(`${first.text} is not a pending reduction`);
  if (kinds.every((p) => p.equals(first))) return first.reduce(operands);
  let averaged = 1;
  kinds.forEach((p, i) => {
    if (!(p instanceof Partial) || !p.linear)
      throw internalError(`${first.text} and ${p.text} reduced at once`);
    if (p.op === 'avg') averaged *= sizes[i];
  });
  return Partial.of('sum').reduce(operands) / averaged;
}

/** Mesh dims with more than one device that a reduction is pending on. */
export function pendingDims(spec: Sharding, space: ShardingSpace): number[] {
  return spec.placements.flatMap((p, m) => (isPending(p) && space.mesh.sizes[m] > 1 ? [m] : []));
}

function checkFits(spec: Sharding, space: ShardingSpace, shape: readonly number[]): void {
  for (const dim of spec.orders.keys()) {
    const reason =
      dim >= shape.length
        ? `it cuts dim ${dim} of a ${shape.length}-D tensor`
        : refusedCut(spec, space.mesh, dim, shape[dim]);
    if (reason !== undefined)
      throw new ShardwrightError(
        'E_PLACEMENT',
        `${spec.text} does not fit [${shape.join(', ')}]: ${reason}`,
      );
  }
}

/** Shape of every rank's tile, and which elements of the global tensor it holds. */
export function elementsOf(
  spec: Sharding,
  space: ShardingSpace,
  shape: readonly number[],
): { shape: number[]; elements: Int32Array }[] {
  const rows = shape.map((size, d) => heldRows(spec, space.mesh, d, size));
  return Array.from({ length: space.mesh.size }, (_, rank) => {
    const local = rows.map((of) => of[rank].length);
    let elements = [0];
    rows.forEach((of, d) => {
      elements = elements.flatMap((base) => of[rank].map((row) => base * shape[d] + row));
    });
    return { shape: local, elements: Int32Array.from(elements) };
  });
}

/** Which operand a rank holds: its coordinates on the pending mesh dims. */
export function operandNumber(
  rank: number,
  pending: readonly number[],
  { mesh }: ShardingSpace,
): number {
  let out = 0;
  for (const m of pending)
    out = out * mesh.sizes[m] + (Math.floor(rank / mesh.strides[m]) % mesh.sizes[m]);
  return out;
}

function ownerOf(seed: number, count: number): number {
  return Math.floor(random(seed)() * count);
}

/**
 * Operands that reduce to a value, none of them the value alone; small whole numbers, so that sums
 * are exact.
 */
function takeApart(
  value: number,
  kinds: readonly Placement[],
  pending: readonly number[],
  space: ShardingSpace,
  seed: number,
): Float64Array {
  const sizes = pending.map((m) => space.mesh.sizes[m]);
  const count = product(sizes);
  const next = random(seed);
  const owner = Math.floor(next() * count);
  const pick = (n: number): number => Math.floor(next() * n);
  const out = new Float64Array(count);
  const kind = kinds[0];
  if (kind instanceof MaskPartial) return out.map((_, i) => (i === owner ? value : pick(100) - 50));
  if (kind instanceof NormPartial) return takeNormApart(value, kind, out, owner, next);
  if (!(kind instanceof Partial)) return byKind(value, kind, out);
  switch (kind.op) {
    case 'sum':
    case 'avg': {
      let rest = value;
      kinds.forEach((p, i) => p instanceof Partial && p.op === 'avg' && (rest *= sizes[i]));
      for (let i = 0; i < count; i++) if (i !== owner) rest -= out[i] = pick(41) - 20;
      out[owner] = rest;
      return out;
    }
    case 'max':
    case 'min':
      return out.map((_, i) =>
        i === owner ? value : kind.op === 'max' ? value - 1 - pick(9) : value + 1 + pick(9),
      );
    case 'product': {
      // Powers of two, so that the product is exact.
      const factors = [2, 0.5, -1, -2, 4];
      let rest = value;
      for (let i = 0; i < count; i++)
        if (i !== owner) rest /= out[i] = factors[pick(factors.length)];
      out[owner] = rest;
      return out;
    }
    case 'band':
      return out.map((_, i) => (i === owner ? value : value | pick(1 << 30)));
    case 'bor':
      return out.map((_, i) => (i === owner ? value : value & pick(1 << 30)));
    case 'bxor': {
      let rest = value;
      for (let i = 0; i < count; i++) if (i !== owner) rest ^= out[i] = pick(1 << 30);
      out[owner] = rest;
      return out;
    }
  }
}

function takeNormApart(
  value: number,
  { p }: NormPartial,
  out: Float64Array,
  owner: number,
  next: () => number,
): Float64Array {
  if (p === Infinity) return out.map((_, i) => (i === owner ? value : value * next()));
  if (p === -Infinity) return out.map((_, i) => (i === owner ? value : value * (1 + next())));
  const weights = out.map(() => 0.1 + next());
  const total = weights.reduce((a, b) => a + b, 0);
  if (p === 0) {
    let rest = value;
    for (let i = 0; i < out.length; i++)
      if (i !== owner) rest -= out[i] = Math.floor(value * next() * 0.2);
    out[owner] = rest;
    return out;
  }
  return out.map((_, i) => value * (weights[i] / total) ** (1 / p));
}

/** A kind that somebody added: as it takes values apart itself. */
function byKind(value: number, kind: Placement, out: Float64Array): Float64Array {
  const pending = kind as Pending;
  return out.map((_, i) => {
    const operand = pending.operand(value, i, out.length);
    if (operand === undefined)
      throw new ShardwrightError(
        'E_PLACEMENT',
        `${kind.text} does not say how a value is taken apart`,
      );
    return operand;
  });
}

/** Numbers from 0 to below 1 by mulberry32. */
export function random(seed: number): () => number {
  let state = Math.imul(seed, 0x9e3779b1) >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
