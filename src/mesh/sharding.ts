import { ShardwrightError } from '../errors.ts';
import { MaskPartial } from './mask-partial.ts';
import type { DeviceMesh } from './mesh.ts';
import { Partial } from './partial.ts';
import type { Placement } from './placement.ts';
import { REPLICATE } from './replicate.ts';
import { StridedShard } from './strided.ts';

/**
 * A sharding: one placement per mesh dim, and on each cut tensor dim the order in which the mesh dims cut it. The order is
 * mesh order unless it is stated. This is the one form that planning uses; strided lists are a view of it
 * (`mesh-view.ts`).
 */
export class Sharding {
  /** Mesh dims that cut each tensor dim, first cut first; only cut dims have an entry. */
  readonly orders: ReadonlyMap<number, readonly number[]>;
  /** Whether every tensor dim is cut in mesh order. */
  readonly inMeshOrder: boolean;
  /** `S(0)R`; positions are printed where the order is not mesh order: `S(0)[1]S(0)[0]`. Equal iff the shardings are. */
  readonly text: string;
  /** As `text`, with positions on every tensor dim that several mesh dims cut: `S(0)[0]S(0)[1]R` (plans print this). */
  readonly orderedText: string;

  /**
   * @param placements one per mesh dim
   * @param orders order on tensor dims where it is not mesh order: a permutation of the mesh dims that cut the dim
   * @throws E_PLACEMENT when pending reductions do not go together, or an order is not such a permutation
   */
  constructor(
    readonly placements: readonly Placement[],
    orders: ReadonlyMap<number, readonly number[]> = new Map(),
  ) {
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
      if (given.length !== list.length || [...given].sort((a, b) => a - b).some((m, i) => m !== list[i]))
        throw new ShardwrightError(
          'E_PLACEMENT',
          `order [${given.join(', ')}] of tensor dim ${dim} must list each of the mesh dims ${list.join(', ')} once`,
        );
      full.set(dim, [...given]);
      if (given.some((m, i) => m !== list[i])) inMeshOrder = false;
    }
    for (const dim of orders.keys())
      if (!natural.has(dim))
        throw new ShardwrightError('E_PLACEMENT', `an order is given for tensor dim ${dim}, which no mesh dim cuts`);
    this.orders = full;
    this.inMeshOrder = inMeshOrder;
    const disordered = (list: readonly number[]): boolean => list.some((m, i) => i > 0 && m < list[i - 1]);
    this.text = this.print(disordered);
    this.orderedText = this.print((list) => disordered(list) || list.every((m) => placements[m].kind === 'shard'));
  }

  static replicated(meshRank: number): Sharding {
    return new Sharding(new Array<Placement>(meshRank).fill(REPLICATE));
  }

  /** Mesh dims that cut a tensor dim, first cut first. */
  orderOf(dim: number): readonly number[] {
    return this.orders.get(dim) ?? NONE;
  }

  equals(other: Sharding): boolean {
    return this.text === other.text;
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

/** Whether a placement is a pending reduction of any kind. */
export function isPending(p: Placement): boolean {
  return p instanceof Partial || p instanceof MaskPartial || p.kind === 'partial';
}

/** Whether two pending reductions may stand on one tensor: the same one, or sum with avg. */
export function pendingTogether(a: Placement, b: Placement): boolean {
  if (a.text === b.text) return true;
  return a instanceof Partial && b instanceof Partial && LINEAR.has(a.op) && LINEAR.has(b.op);
}
const LINEAR = new Set<string>(['sum', 'avg']);

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
 * Whether every rank can hold at least one row: each tensor dim is at least as long as the product of the mesh dims that
 * cut it (times the stride factors). A cut of a dim that the tensor does not have is not shardable.
 */
export function shardable(sharding: Sharding, mesh: DeviceMesh, shape: readonly number[]): boolean {
  for (const [dim, order] of sharding.orders) {
    if (dim >= shape.length) return false;
    if (shape[dim] < piecesWanted(sharding, mesh, order)) return false;
  }
  return true;
}

/** Whether every rank holds equally many rows of every dim. */
export function evenlyShardable(sharding: Sharding, mesh: DeviceMesh, shape: readonly number[]): boolean {
  for (const [dim, order] of sharding.orders) {
    if (dim >= shape.length) return false;
    if (shape[dim] % piecesWanted(sharding, mesh, order) !== 0) return false;
  }
  return true;
}

function piecesWanted(sharding: Sharding, mesh: DeviceMesh, order: readonly number[]): number {
  let pieces = 1;
  for (const m of order) {
    const p = sharding.placements[m];
    pieces *= mesh.sizes[m] * (p instanceof StridedShard ? p.factor : 1);
  }
  return pieces;
}

/** Shape of the largest local tensor: every cut in order, ceil sizes. */
export function localShape(sharding: Sharding, mesh: DeviceMesh, shape: readonly number[]): number[] {
  const out = [...shape];
  for (const [dim, order] of sharding.orders) {
    if (dim >= shape.length)
      throw new ShardwrightError('E_PLACEMENT', `${sharding.text} cuts dim ${dim} of a ${shape.length}-D tensor`);
    for (const m of order) out[dim] = sharding.placements[m].localSize(out[dim], mesh.sizes[m]);
  }
  return out;
}

/** Global row numbers of one tensor dim that each rank of the mesh holds, in local order. */
export function heldRows(sharding: Sharding, mesh: DeviceMesh, dim: number, size: number): number[][] {
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
