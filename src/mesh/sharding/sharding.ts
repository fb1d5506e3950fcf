/**
 * A sharding: one placement for each mesh dim, and the order in which mesh dims cut each tensor
 * dim.
 */

import { checkItems, checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import type { DeviceMesh } from '../devices/mesh.ts';
import { Pending } from '../placements/partials/pending.ts';
import type { Placement } from '../placements/placement.ts';
import { REPLICATE } from '../placements/replicate.ts';

/**
 * A sharding: one placement per mesh dim, and on each cut tensor dim the order in which the mesh
 * dims cut it. The order is mesh order unless it is stated. This is the one form that planning
 * uses; strided lists are a view of it (`mesh-view.ts`).
 */
export class Sharding {
  /** Mesh dims that cut each tensor dim, first cut first; only cut dims have an entry. */
  readonly orders: ReadonlyMap<number, readonly number[]>;
  /** True if every tensor dim is cut in mesh order. */
  readonly inMeshOrder: boolean;
  /**
   * `S(0)R`; positions are printed where the order is not mesh order: `S(0)[1]S(0)[0]`. Equal iff
   * the shardings are (masks apart).
   */
  readonly text: string;
  /**
   * The text with positions on every tensor dim that several mesh dims cut: `S(0)[0]S(0)[1]R`
   * (plans print this).
   */
  readonly orderedText: string;

  /**
   * @param placements one per mesh dim
   * @param orders order on tensor dims where it is not mesh order: a permutation of the mesh dims
   *   that cut the dim
   * @throws E_PLACEMENT when pending reductions do not go together, or an order is not such a
   *   permutation
   */
  constructor(
    readonly placements: readonly Placement[],
    orders: ReadonlyMap<number, readonly number[]> = new Map(),
  ) {
    checkKinds('Sharding', {
      placements: [placements, 'placements'],
      orders: [orders, 'map', 'undefined'],
    });
    checkItems('Sharding', 'placements', placements, 'placement');
    checkPending(placements);
    const natural = new Map<number, number[]>();
    placements.forEach((p, m) => {
      if (p.dim === undefined) return;
      const list = natural.get(p.dim);
      if (list === undefined) natural.set(p.dim, [m]);
      else list.push(m);
    });
    const full = new Map<number, readonly number[]>();
    let inMeshOrder = true;
    for (const [dim, list] of [...natural].sort((a, b) => a[0] - b[0])) {
      const given = orders.get(dim);
      if (given === undefined) {
        full.set(dim, list);
        continue;
      }
      if (
        given.length !== list.length ||
        [...given].sort((a, b) => a - b).some((m, i) => m !== list[i])
      )
        throw new ShardwrightError(
          'E_PLACEMENT',
          `order [${given.join(', ')}] of tensor dim ${dim} must list each of the mesh dims ` +
            `${list.join(', ')} once`,
        );
      full.set(dim, [...given]);
      if (given.some((m, i) => m !== list[i])) inMeshOrder = false;
    }
    for (const dim of orders.keys())
      if (!natural.has(dim))
        throw new ShardwrightError(
          'E_PLACEMENT',
          `an order is given for tensor dim ${dim}, which no mesh dim cuts`,
        );
    this.orders = full;
    this.inMeshOrder = inMeshOrder;
    const disordered = (list: readonly number[]): boolean =>
      list.some((m, i) => i > 0 && m < list[i - 1]);
    this.text = this.print(disordered);
    this.orderedText = this.print(
      (list) => disordered(list) || list.every((m) => placements[m].kind === 'shard'),
    );
  }

  static replicated(meshRank: number): Sharding {
    return new Sharding(new Array<Placement>(meshRank).fill(REPLICATE));
  }

  /** Mesh dims that cut a tensor dim, first cut first. */
  orderOf(dim: number): readonly number[] {
    return this.orders.get(dim) ?? NONE;
  }

  equals(other: Sharding): boolean {
    return (
      this.text === other.text &&
      (!this.hasIdentities || this.placements.every((p, m) => p.equals(other.placements[m])))
    );
  }

  /** Tells whether some placement belongs to a run-time object, so that equal texts may differ. */
  get hasIdentities(): boolean {
    return this.placements.some((p) => p.identity !== undefined);
  }

  toString(): string {
    return this.text;
  }

  private print(numbered: (order: readonly number[]) => boolean): string {
    let out = '';
    this.placements.forEach((p, m) => {
      out += p.text;
      const order = p.dim === undefined ? NONE : this.orderOf(p.dim);
      if (order.length > 1 && numbered(order)) out += `[${order.indexOf(m)}]`;
    });
    return out;
  }
}

const NONE: readonly number[] = [];

/** Tells whether a placement is a pending reduction of any kind. */
export function isPending(p: Placement): p is Pending {
  return p instanceof Pending;
}

/** Tells whether one tensor may have two pending reductions: the same one, or sum with avg. */
export function pendingTogether(a: Placement, b: Placement): boolean {
  return isPending(a) && isPending(b) && a.standsWith(b) && b.standsWith(a);
}

function checkPending(placements: readonly Placement[]): void {
  let first: Placement | undefined;
  for (const p of placements) {
    if (!isPending(p)) continue;
    if (first !== undefined && !pendingTogether(first, p))
      throw new ShardwrightError(
        'E_PLACEMENT',
        `pending reductions ${first.text} and ${p.text} cannot stand on one tensor`,
        {
          hint: 'reduce one of them first; only P(sum) and P(avg) go together',
        },
      );
    first ??= p;
  }
}

/**
 * Tells whether every rank can hold at least one row: each tensor dim is at least as long as the
 * product of the mesh dims that cut it; a strided cut wants its factor times the product up to
 * itself. A cut of a dim that the tensor does not have is not shardable, nor is one that its kind
 * refuses (units that do not add up to the size).
 */
export function shardable(sharding: Sharding, mesh: DeviceMesh, shape: readonly number[]): boolean {
  checkKinds('shardable', {
    sharding: [sharding, 'sharding'],
    mesh: [mesh, 'mesh'],
    shape: [shape, 'integers'],
  });
  for (const [dim, order] of sharding.orders) {
    if (dim >= shape.length) return false;
    let pieces = 1;
    for (const m of order) {
      pieces *= mesh.sizes[m];
      if (shape[dim] < pieces * sharding.placements[m].chunks) return false;
    }
    if (refusedCut(sharding, mesh, dim, shape[dim]) !== undefined) return false;
  }
  return true;
}

/**
 * Tells whether every cut gives every rank equally many rows, in equal chunks: the size divides by
 * the product of the mesh dims that cut it, times the factor of a strided cut for the product up to
 * itself; other kinds are asked.
 */
export function evenlyShardable(
  sharding: Sharding,
  mesh: DeviceMesh,
  shape: readonly number[],
): boolean {
  checkKinds('evenlyShardable', {
    sharding: [sharding, 'sharding'],
    mesh: [mesh, 'mesh'],
    shape: [shape, 'integers'],
  });
  for (const [dim, order] of sharding.orders) {
    if (dim >= shape.length) return false;
    let local = shape[dim];
    for (const m of order) {
      const p = sharding.placements[m];
      if (!p.isEven(local, mesh.sizes[m])) return false;
      local = p.localSize(local, mesh.sizes[m]);
    }
  }
  return true;
}

/**
 * Tells whether each dim with a strided cut gives every rank equally many rows: the pieces of
 * others are not an even stride of one another, and no program of one device is written for them.
 * Dims in plain chunks may be uneven.
 */
export function strideEvenly(
  sharding: Sharding,
  mesh: DeviceMesh,
  shape: readonly number[],
): boolean {
  for (const [dim, order] of sharding.orders) {
    if (!order.some((m) => sharding.placements[m].kind === 'strided')) continue;
    let local = shape[dim];
    for (const m of order) {
      if (mesh.sizes[m] === 1) continue;
      if (!sharding.placements[m].isEven(local, mesh.sizes[m])) return false;
      local = sharding.placements[m].localSize(local, mesh.sizes[m]);
    }
  }
  return true;
}

/**
 * Why some cut of a tensor dim cannot be made, at the local size of some rank; undefined when all
 * can.
 */
export function refusedCut(
  sharding: Sharding,
  mesh: DeviceMesh,
  dim: number,
  size: number,
): string | undefined {
  // Nearly all cuts take any size; shardability is asked for thousands of shardings.
  if (sharding.orderOf(dim).every((m) => sharding.placements[m].anySize)) return undefined;
  // Distinct local sizes after each cut: few, because ranks that hold equally much are one entry.
  let sizes = new Set([size]);
  for (const m of sharding.orderOf(dim)) {
    const p = sharding.placements[m];
    const next = new Set<number>();
    for (const local of sizes) {
      const reason = p.refusal(local, mesh.sizes[m]);
      if (reason !== undefined) return `mesh dim '${mesh.names[m]}': ${reason}`;
      for (let r = 0; r < mesh.sizes[m]; r++) next.add(p.localSize(local, mesh.sizes[m], r));
    }
    sizes = next;
  }
  return undefined;
}

/** Tells whether every rank holds at least one row of a dim. */
export function fillsAllRanks(
  sharding: Sharding,
  mesh: DeviceMesh,
  dim: number,
  size: number,
): boolean {
  let sizes = new Set([size]);
  for (const m of sharding.orderOf(dim)) {
    const next = new Set<number>();
    for (const local of sizes)
      for (let r = 0; r < mesh.sizes[m]; r++)
        next.add(sharding.placements[m].localSize(local, mesh.sizes[m], r));
    sizes = next;
  }
  return !sizes.has(0);
}

/** Shape of the largest local tensor: every cut in order, ceil sizes. */
export function localShape(
  sharding: Sharding,
  mesh: DeviceMesh,
  shape: readonly number[],
): number[] {
  checkKinds('localShape', {
    sharding: [sharding, 'sharding'],
    mesh: [mesh, 'mesh'],
    shape: [shape, 'integers'],
  });
  const out = [...shape];
  for (const [dim, order] of sharding.orders) {
    if (dim >= shape.length)
      throw new ShardwrightError(
        'E_PLACEMENT',
        `${sharding.text} cuts dim ${dim} of a ${shape.length}-D tensor`,
      );
    for (const m of order) out[dim] = sharding.placements[m].localSize(out[dim], mesh.sizes[m]);
  }
  return out;
}

/** Shape of the tensor that one rank (a place in the mesh, not a device id) holds. */
export function localShapeAt(
  sharding: Sharding,
  mesh: DeviceMesh,
  shape: readonly number[],
  rank: number,
): number[] {
  checkKinds('localShapeAt', {
    sharding: [sharding, 'sharding'],
    mesh: [mesh, 'mesh'],
    shape: [shape, 'integers'],
    rank: [rank, 'number'],
  });
  const out = [...shape];
  for (const [dim, order] of sharding.orders) {
    if (dim >= shape.length)
      throw new ShardwrightError(
        'E_PLACEMENT',
        `${sharding.text} cuts dim ${dim} of a ${shape.length}-D tensor`,
      );
    for (const m of order) {
      const coordinate = Math.floor(rank / mesh.strides[m]) % mesh.sizes[m];
      out[dim] = sharding.placements[m].localSize(out[dim], mesh.sizes[m], coordinate);
    }
  }
  return out;
}

/**
 * The sharding with one more cut after all others of that dim. Fully sharded data parallelism on
 * top of tensor parallelism is this: on (dp, tp), `RS(0)` cut further by dp is `S(0)[1]S(0)[0]`, in
 * the mesh view `_S(0, 2)S(0)`.
 *
 * @throws E_PLACEMENT when the mesh dim cuts or reduces something already
 */
export function cutFurther(sharding: Sharding, meshDim: number, cut: Placement): Sharding {
  checkKinds('cutFurther', {
    sharding: [sharding, 'sharding'],
    meshDim: [meshDim, 'number'],
    cut: [cut, 'placement'],
  });
  const old = sharding.placements[meshDim];
  if (old.kind !== 'replicate')
    throw new ShardwrightError(
      'E_PLACEMENT',
      `${sharding.text}: mesh dim ${meshDim} is ${old.text} already`,
      {
        hint: 'only a replicated mesh dim can cut further',
      },
    );
  if (cut.dim === undefined) throw new ShardwrightError('E_PLACEMENT', `${cut.text} cuts nothing`);
  const placements = sharding.placements.map((p, m) => (m === meshDim ? cut : p));
  const orders = new Map(sharding.orders);
  orders.set(cut.dim, [...sharding.orderOf(cut.dim), meshDim]);
  return new Sharding(placements, orders);
}

/** Global row numbers of one tensor dim that each rank of the mesh holds, in local order. */
export function heldRows(
  sharding: Sharding,
  mesh: DeviceMesh,
  dim: number,
  size: number,
): number[][] {
  checkKinds('heldRows', {
    sharding: [sharding, 'sharding'],
    mesh: [mesh, 'mesh'],
    dim: [dim, 'number'],
    size: [size, 'integer'],
  });
  const all = Array.from({ length: size }, (_, i) => i);
  return mesh.devices.map((_, rank) => {
    const at = mesh.coordinates(rank);
    let rows = all;
    for (const m of sharding.orderOf(dim)) {
      const mine = sharding.placements[m].split(rows.length, mesh.sizes[m])[at[m]];
      rows = mine.map((i) => rows[i]);
    }
    return rows;
  });
}
