/** Numbers all shardings of a mesh and gives their kinds and orders by number. */

import { ShardwrightError } from '../../errors.ts';
import type { DeviceMesh } from '../devices/mesh.ts';
import type { PlacementKinds } from '../placements/kinds.ts';
import { Partial, REDUCE_OPS } from '../placements/partials/partial.ts';
import type { Placement, ReduceOp } from '../placements/placement.ts';
import { REPLICATE } from '../placements/replicate.ts';
import { Shard } from '../placements/shards/shard.ts';
import { type ParseOptions, parseSharding } from './parse.ts';
import { isPending, localShape, pendingTogether, Sharding } from './sharding.ts';

/**
 * Kind codes of placements: 0 replicate, 1..8 the pending reductions in the order of REDUCE_OPS, 16
 * + d shard of tensor dim d; further kinds get codes from FIRST_OTHER_CODE in the order in which a
 * space meets them.
 */
export const REPLICATE_CODE = 0;
export const FIRST_SHARD_CODE = 16;
export const FIRST_OTHER_CODE = 96;
const MAX_TENSOR_RANK = FIRST_OTHER_CODE - FIRST_SHARD_CODE;

/** Code of a pending reduction. */
export function partialCode(op: ReduceOp): number {
  return 1 + REDUCE_OPS.indexOf(op);
}
/** Code of a plain shard of a tensor dim. */
export function shardCode(dim: number): number {
  return FIRST_SHARD_CODE + dim;
}
export function isPartialCode(code: number): boolean {
  return code >= 1 && code <= REDUCE_OPS.length;
}
/** Tensor dim of a plain-shard code, -1 for other codes. */
export function shardDimOfCode(code: number): number {
  return code >= FIRST_SHARD_CODE && code < FIRST_OTHER_CODE ? code - FIRST_SHARD_CODE : -1;
}

interface EnumerateOptions {
  /** Pending reductions that mesh dims may carry; default none. */
  readonly partialOps?: readonly ReduceOp[];
  /** Further cuts that mesh dims may make, besides plain shards of every dim. */
  readonly cuts?: readonly Placement[];
  /** Also every order of mesh dims that cut one tensor dim; default mesh order only. */
  readonly orders?: boolean;
}

/**
 * All shardings met on one mesh, as small integers: equal shardings have equal ids, ids count up in
 * the order of first use, id 0 is the replicated one. The hot loops of planning handle ids and the
 * flat code tables only.
 */
export class ShardingSpace {
  /** Id of the sharding that cuts nothing. */
  readonly replicated: number;
  /** Number of mesh dims. */
  readonly meshRank: number;
  private readonly shardings: Sharding[] = [];
  private readonly ids = new Map<string, number>();
  private readonly others: Placement[] = [];
  private readonly otherCodes = new Map<string, number>();
  private readonly identities = new Map<object, number>();
  private refused = false;
  private codes = new Uint8Array(256);
  private positions = new Uint8Array(256);

  /** @param kinds that texts of shardings may use; default those of Shardwright */
  constructor(
    readonly mesh: DeviceMesh,
    private readonly kinds?: PlacementKinds,
  ) {
    this.meshRank = mesh.rank;
    this.replicated = this.intern(Sharding.replicated(mesh.rank));
  }

  /** Number of shardings met so far; ids are 0 .. size-1. */
  get size(): number {
    return this.shardings.length;
  }

  intern(sharding: Sharding): number {
    const key = sharding.hasIdentities
      ? `${sharding.text} ${sharding.placements.map((p) => this.nameOf(p)).join('')}`
      : sharding.text;
    const known = this.ids.get(key);
    if (known !== undefined) return known;
    if (sharding.placements.length !== this.meshRank)
      throw new ShardwrightError(
        'E_PLACEMENT',
        `${sharding.text} has ${sharding.placements.length} placements, but the mesh ` +
          `${this.mesh.text} has ${this.meshRank} dim${this.meshRank === 1 ? '' : 's'}`,
      );
    const id = this.shardings.length;
    const base = id * this.meshRank;
    if (base + this.meshRank > this.codes.length) {
      const grow = (old: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> => {
        const next = new Uint8Array(old.length * 2 + this.meshRank);
        next.set(old);
        return next;
      };
      this.codes = grow(this.codes);
      this.positions = grow(this.positions);
    }
    sharding.placements.forEach((p, m) => {
      this.codes[base + m] = this.codeOf(p);
      this.positions[base + m] = p.dim === undefined ? 0 : sharding.orderOf(p.dim).indexOf(m);
    });
    this.shardings.push(sharding);
    this.ids.set(key, id);
    return id;
  }

  /** Id of the sharding with these kind codes, one per mesh dim, in mesh order. */
  internCodes(codes: ArrayLike<number>): number {
    const placements: Placement[] = [];
    for (let m = 0; m < codes.length; m++) placements.push(this.placementOf(codes[m]));
    return this.intern(new Sharding(placements));
  }

  /** Id of a sharding text such as `S(0)R`. @throws E_SYNTAX or E_PLACEMENT */
  parse(text: string, options: ParseOptions = {}): number {
    const { kinds } = this;
    return (
      this.ids.get(text) ??
      this.intern(parseSharding(text, this.mesh, { ...(kinds && { kinds }), ...options }))
    );
  }

  get(id: number): Sharding {
    const sharding = this.shardings[id];
    if (sharding === undefined)
      throw new RangeError(`internal: no sharding ${id} in a space of ${this.size}`);
    return sharding;
  }

  text(id: number): string {
    return this.get(id).text;
  }

  /** Kind code of a mesh dim, see REPLICATE_CODE and its neighbours. */
  kindAt(id: number, meshDim: number): number {
    return this.codes[id * this.meshRank + meshDim];
  }

  /** Position of the mesh dim among those that cut its tensor dim, 0 where it cuts none. */
  positionAt(id: number, meshDim: number): number {
    return this.positions[id * this.meshRank + meshDim];
  }

  /** Tensor dim that the mesh dim cuts, -1 if none. */
  dimAt(id: number, meshDim: number): number {
    return this.dimOfCode(this.kindAt(id, meshDim));
  }

  /** Tensor dim that a placement of this code cuts, -1 if none. */
  dimOfCode(code: number): number {
    if (code < FIRST_SHARD_CODE) return -1;
    return code < FIRST_OTHER_CODE ? code - FIRST_SHARD_CODE : (this.placementOf(code).dim ?? -1);
  }

  placementOf(code: number): Placement {
    if (code === REPLICATE_CODE) return REPLICATE;
    if (isPartialCode(code)) return Partial.of(REDUCE_OPS[code - 1]);
    const dim = shardDimOfCode(code);
    if (dim >= 0) return Shard.of(dim);
    const other = this.others[code - FIRST_OTHER_CODE];
    if (other === undefined) throw new RangeError(`internal: no placement has code ${code}`);
    return other;
  }

  /** Code of a placement; kinds without a fixed code get the next free one. */
  codeOf(p: Placement): number {
    if (p.kind === 'replicate') return REPLICATE_CODE;
    if (p instanceof Partial) return partialCode(p.op);
    if (p instanceof Shard) {
      if (p.dim >= MAX_TENSOR_RANK)
        throw new ShardwrightError(
          'E_PLACEMENT',
          `${p.text}: tensors have at most ${MAX_TENSOR_RANK} dims`,
        );
      return shardCode(p.dim);
    }
    const name = this.nameOf(p);
    let code = this.otherCodes.get(name);
    if (code === undefined) {
      code = FIRST_OTHER_CODE + this.others.length;
      if (code > 255)
        throw new ShardwrightError(
          'E_PLACEMENT',
          `more than ${256 - FIRST_OTHER_CODE} special placements`,
        );
      this.others.push(p);
      this.otherCodes.set(name, code);
    }
    return code;
  }

  /**
   * The code of a placement, or -1 where the space has no number left, which `hasRefused` then
   * says.
   */
  codeIfAny(p: Placement): number {
    const isFull = FIRST_OTHER_CODE + this.others.length > 255;
    if (!isFull || this.otherCodes.has(this.nameOf(p))) return this.codeOf(p);
    this.refused = true;
    return -1;
  }

  /** Tells whether some placement was not taken because the space had no number left for it. */
  get hasRefused(): boolean {
    return this.refused;
  }

  /** Text of a placement, with the number of the run-time object that it belongs to. */
  private nameOf(p: Placement): string {
    if (p.identity === undefined) return p.text;
    let number = this.identities.get(p.identity);
    if (number === undefined) this.identities.set(p.identity, (number = this.identities.size));
    return `${p.text}#${number}`;
  }

  /** Tells whether any mesh dim of more than one device carries a pending reduction. */
  isPartial(id: number): boolean {
    for (let m = 0; m < this.meshRank; m++) {
      const code = this.kindAt(id, m);
      if (code === REPLICATE_CODE || this.mesh.sizes[m] === 1) continue;
      if (isPartialCode(code) || (code >= FIRST_OTHER_CODE && isPending(this.placementOf(code))))
        return true;
    }
    return false;
  }

  /** Number of pieces that a tensor dim is cut into. */
  pieces(id: number, dim: number): number {
    let n = 1;
    for (let m = 0; m < this.meshRank; m++) if (this.dimAt(id, m) === dim) n *= this.mesh.sizes[m];
    return n;
  }

  /**
   * Shape of the largest local tensor (ceil chunks). @throws E_PLACEMENT when a dim is cut that the
   * shape lacks
   */
  localShape(id: number, shape: readonly number[]): number[] {
    const out = [...shape];
    const base = id * this.meshRank;
    for (let m = 0; m < this.meshRank; m++) {
      const code = this.codes[base + m];
      if (code >= FIRST_OTHER_CODE) return localShape(this.get(id), this.mesh, shape);
      if (code < FIRST_SHARD_CODE) continue;
      const dim = code - FIRST_SHARD_CODE;
      if (dim >= out.length) return localShape(this.get(id), this.mesh, shape);
      // Nested ceilings equal one ceiling of the product, so the order does not matter here.
      out[dim] = Math.ceil(out[dim] / this.mesh.sizes[m]);
    }
    return out;
  }

  /**
   * Ids of all shardings of a tensor of this rank: every mesh dim of several devices replicated,
   * pending, or cutting one tensor dim. Sorted by codes of the mesh dims, outermost first; orders
   * of one such list follow each other.
   */
  enumerate(rank: number, options: EnumerateOptions = {}): number[] {
    const pending = (options.partialOps ?? []).map((op) => Partial.of(op));
    const choices: Placement[] = [REPLICATE, ...pending];
    for (let d = 0; d < rank; d++) choices.push(Shard.of(d));
    choices.push(...(options.cuts ?? []).filter((p) => p.dim !== undefined && p.dim < rank));
    const out: number[] = [];
    const chosen: Placement[] = [];
    const walk = (m: number): void => {
      if (m === this.meshRank) {
        for (const orders of options.orders === true ? allOrders(chosen) : MESH_ORDER)
          out.push(this.intern(new Sharding([...chosen], orders)));
        return;
      }
      for (const p of this.mesh.sizes[m] === 1 ? [REPLICATE] : choices) {
        if (isPending(p) && chosen.some((q) => isPending(q) && !pendingTogether(p, q))) continue;
        chosen.push(p);
        walk(m + 1);
        chosen.pop();
      }
    };
    walk(0);
    return out;
  }
}

const MESH_ORDER: readonly ReadonlyMap<number, readonly number[]>[] = [new Map()];

/** Every choice of an order for the tensor dims that several placements cut; mesh order first. */
function allOrders(placements: readonly Placement[]): Map<number, number[]>[] {
  const cut = new Map<number, number[]>();
  placements.forEach((p, m) => {
    if (p.dim !== undefined) cut.set(p.dim, [...(cut.get(p.dim) ?? []), m]);
  });
  let out = [new Map<number, number[]>()];
  for (const [dim, list] of cut) {
    if (list.length < 2) continue;
    out = out.flatMap((orders) =>
      permutations(list).map((order) => new Map(orders).set(dim, order)),
    );
  }
  return out;
}

/** All permutations, in lexicographic order of positions. */
export function permutations(list: readonly number[]): number[][] {
  if (list.length <= 1) return [[...list]];
  return list.flatMap((head, i) =>
    permutations([...list.slice(0, i), ...list.slice(i + 1)]).map((rest) => [head, ...rest]),
  );
}
