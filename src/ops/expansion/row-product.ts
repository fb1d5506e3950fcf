/**
 * The product of single-dim rules over the mesh dims, one mesh dim at a time: what the rules taken
 * so far make of every tensor is kept for each number of mesh dims, so that a combination which
 * cannot pass is left where it first fails and going on from a prefix costs one step.
 */

import { checkPlannedDims } from '../../mesh/devices/mesh.ts';
import type { Placement } from '../../mesh/placements/placement.ts';
import { StridedShard } from '../../mesh/placements/shards/strided.ts';
import { fromMeshView } from '../../mesh/sharding/mesh-view.ts';
import {
  evenlyShardable,
  fillsAllRanks,
  shardable,
  Sharding,
  strideEvenly,
} from '../../mesh/sharding/sharding.ts';
import {
  FIRST_OTHER_CODE,
  FIRST_SHARD_CODE,
  partialCode,
  REPLICATE_CODE,
  type ShardingSpace,
} from '../../mesh/sharding/space.ts';
import type { TensorMeta } from '../record/record.ts';
import type { RuleSlot } from '../record/rule.ts';
import { takesFurther } from '../record/taken-rows.ts';
import { patternOf, type Patterns } from './patterns.ts';
import { needsOf, type Row, type RowNeeds, someLookEqual, takesAnyCut } from './row.ts';

export interface ProductOptions {
  /**
   * `allow`: a dim may leave trailing ranks short; `forbid`: every sharded dim must divide evenly.
   */
  readonly uneven: 'allow' | 'forbid';
  /** Cuts other than plain shards that rules may be taken with, on any tensor dim; default none. */
  readonly cuts?: readonly Placement[];
  /**
   * Strided cuts that inputs can have, see `Patterns`; rules are taken with these as well, and with
   * no others but those of views. `any`: those that rules speak of.
   */
  readonly patterns?: Patterns | 'any';
  /**
   * True if a merged dim is cut in order only: its first part by outer mesh dims, in strides by the
   * inner ones.
   */
  readonly stridesInside?: boolean;
  /**
   * Mesh dims of one device: `replicate` (default) takes the all-replicate rule there, `expand`
   * every rule.
   */
  readonly unitDims?: 'replicate' | 'expand';
  /** True if strided cuts must divide their dim, see `strideEvenly`; default that they need not. */
  readonly evenStrides?: boolean;
  /**
   * Most stretches of neighbouring mesh dims (those of one device apart) that take different rows,
   * see `mostRuns`; default any number.
   */
  readonly mostRuns?: number;
}

// A sharding's key: its kind codes on the mesh dims, packed into one number in this base.
const BASE = 256;
/** Mesh dims of which a key still fits a float64. */

/** Plain arrays: they are short, made for every call, and cost a tenth of a typed array to make. */
function filled(length: number, value: number): number[] {
  const list: number[] = [];
  for (let i = 0; i < length; i++) list.push(value);
  return list;
}

function zeros(length: number): number[] {
  return filled(length, 0);
}

/** Ids of shardings by key. A pure function of the space, kept for speed. */
const idsOf = new WeakMap<ShardingSpace, Map<number, number>>();

export class RowProduct {
  /** Rows taken, by mesh dim. */
  readonly picked: number[];
  /** True if two combinations may be one strategy. */
  readonly mayRepeat: boolean;
  private readonly sizes: readonly number[];
  private readonly width: number;
  private readonly needs: readonly RowNeeds[];
  /** First of the tensor's dims among the dims of all tensors. */
  private readonly firstDim: readonly number[];
  private readonly dimSizes: readonly number[];
  // By number of mesh dims taken: keys of tensors, pending kinds (-1 none, -2 sum or avg, else the
  // code), pieces of dims.
  private readonly keys: number[][];
  private readonly pending: number[][];
  private readonly pieces: number[][];
  private readonly special: number[];
  /**
   * By number of mesh dims taken: the row of the last one of several devices (-1 none), and the
   * stretches so far.
   */
  private readonly lastRow: number[];
  private readonly runs: number[];
  private readonly mostRuns: number;
  private readonly ids: Map<number, number>;
  /** Cuts that are taken wherever rules accept them, named for dim 0. */
  private readonly free: ReadonlySet<string>;

  constructor(
    private readonly space: ShardingSpace,
    private readonly rows: readonly Row[],
    private readonly tensors: readonly (TensorMeta | null)[],
    private readonly options: ProductOptions,
  ) {
    const { sizes } = space.mesh;
    checkPlannedDims(space.mesh);
    this.sizes = sizes;
    this.width = tensors.length;
    this.picked = zeros(sizes.length);
    const all: number[] = [];
    const firstDim: number[] = [];
    for (const meta of tensors) {
      firstDim.push(all.length);
      if (meta !== null) for (const size of meta.shape) all.push(size);
    }
    this.firstDim = firstDim;
    this.dimSizes = all;
    this.keys = [];
    this.pending = [];
    this.pieces = [];
    for (let m = 0; m <= sizes.length; m++) {
      this.keys.push(zeros(tensors.length));
      this.pending.push(filled(tensors.length, -1));
      this.pieces.push(filled(all.length, 1));
    }
    this.special = zeros(sizes.length + 1);
    this.lastRow = filled(sizes.length + 1, -1);
    this.runs = zeros(sizes.length + 1);
    this.mostRuns = options.mostRuns ?? Infinity;
    this.needs = rows.map((row) => needsOf(row, tensors));
    this.mayRepeat =
      (options.cuts?.length ?? 0) > 0 || rows.some((row) => row.strided) || someLookEqual(rows);
    this.free = new Set((options.cuts ?? []).map((cut) => cut.withDim(0).text));
    let ids = idsOf.get(space);
    if (ids === undefined) idsOf.set(space, (ids = new Map<number, number>()));
    this.ids = ids;
  }

  get uneven(): 'allow' | 'forbid' {
    return this.options.uneven;
  }

  /** Number of rows to choose from on a mesh dim: one device replicates. */
  choices(m: number): number {
    return this.sizes[m] === 1 && this.options.unitDims !== 'expand' ? 1 : this.rows.length;
  }

  /**
   * Takes a row on mesh dim `m`, after the rows of the mesh dims before it; those after it are open
   * again. False when no completion can pass: a tensor with two kinds of pending reduction, or a
   * dim with fewer rows than pieces.
   */
  take(m: number, r: number): boolean {
    const needs = this.needs[r];
    if (needs.dead && this.sizes[m] !== 1) return false;
    if (this.mostRuns < Infinity && !this.run(m, r)) return false;
    const { codes, strided, slots } = this.rows[r];
    const keys = this.keys[m];
    const nextKeys = this.keys[m + 1];
    const pending = this.pending[m];
    const nextPending = this.pending[m + 1];
    const nextPieces = this.pieces[m + 1];
    const pieces = this.pieces[m];
    for (let d = 0; d < pieces.length; d++) nextPieces[d] = pieces[d];
    const n = this.sizes[m];
    let special = this.special[m];
    for (let t = 0; t < this.width; t++) {
      const code = strided ? this.codeOf(m, slots[t], codes[t]) : codes[t];
      if (
        code < 0 ||
        (special === 1 &&
          this.options.stridesInside === true &&
          this.cutsAfterStride(keys[t], slots[t], code))
      )
        return false;
      nextKeys[t] = keys[t] * BASE + code;
      let kind = pending[t];
      if (code === REPLICATE_CODE || this.tensors[t] === null) {
        nextPending[t] = kind;
        continue;
      }
      if (code < FIRST_SHARD_CODE) {
        const mine = LINEAR_CODES.has(code) ? -2 : code;
        if (kind !== -1 && kind !== mine) return false;
        kind = mine;
      } else {
        const dim = this.space.dimOfCode(code);
        const shape = this.tensors[t]?.shape ?? [];
        if (dim >= shape.length) return false;
        const at = this.firstDim[t] + dim;
        const count = (nextPieces[at] *= n);
        if (code >= FIRST_OTHER_CODE) special = 1;
        else if (
          this.dimSizes[at] < count ||
          (this.options.uneven === 'forbid' && this.dimSizes[at] % count !== 0)
        )
          return false;
      }
      nextPending[t] = kind;
    }
    this.special[m + 1] = special;
    this.picked[m] = r;
    return true;
  }

  /**
   * Code of a slot on mesh dim `m`: a cut inside other dims has as many chunks as these have
   * indices on a rank by then. -1 where they are cut unevenly, or the space has no number left.
   */
  private codeOf(m: number, slot: RuleSlot, code: number): number {
    if (slot?.kind !== 'shard' || slot.inside === null) return code;
    let factor = 1;
    for (const dim of slot.inside.dims) {
      const at = this.firstDim[slot.inside.tensor] + dim;
      factor *= this.dimSizes[at] / this.pieces[m][at];
    }
    if (factor === 1) return code;
    return Number.isInteger(factor) ? this.space.codeIfAny(new StridedShard(slot.dim, factor)) : -1;
  }

  /**
   * Tells whether a view would cut the first part of a merged dim after a mesh dim before has cut
   * it in strides.
   */
  private cutsAfterStride(key: number, slot: RuleSlot, code: number): boolean {
    if (slot?.kind !== 'shard' || slot.inside === null || code >= FIRST_OTHER_CODE) return false;
    return this.hasSpecial(key, slot.dim);
  }

  /**
   * Counts the stretches of equal rows with row `r` on mesh dim `m`; false when there are too many.
   */
  private run(m: number, r: number): boolean {
    const real = this.sizes[m] > 1;
    const runs = this.runs[m] + (real && r !== this.lastRow[m] ? 1 : 0);
    if (runs > this.mostRuns) return false;
    this.runs[m + 1] = runs;
    this.lastRow[m + 1] = real ? r : this.lastRow[m];
    return true;
  }

  /**
   * Tells whether the rows taken on all mesh dims pass what needs all of them: units, evenness and
   * ties; other cuts' own sizes.
   */
  complete(): boolean {
    const last = this.sizes.length;
    const keys = this.keys[last];
    const pieces = this.pieces[last];
    const special = this.special[last] === 1;
    if (special && !this.specialFits()) return false;
    for (let m = 0; m < last; m++) {
      const needs = this.needs[this.picked[m]];
      for (const { t, slot } of needs.singles) {
        const meta = this.tensors[t];
        if (meta === null) return false;
        const count = pieces[this.firstDim[t] + slot.dim];
        const units = meta.shape[slot.dim] / slot.unit;
        if (
          (slot.even || slot.scaled || slot.unit > 1) &&
          units % (count / this.piecesTaking(t, slot.dim)) !== 0
        )
          return false;
        if (
          slot.filled &&
          !fillsAllRanks(this.sharding(keys[t]), this.space.mesh, slot.dim, meta.shape[slot.dim])
        )
          return false;
        // Another mesh dim may have brought a special cut to the same dim.
        if (
          special &&
          slot.inside === null &&
          this.hasSpecial(keys[t], slot.dim) &&
          (!takesAnyCut(slot) || (slot.even && !this.even(meta, keys[t])))
        )
          return false;
      }
      for (const { t, dim, u, mate } of needs.pairs) {
        // The mesh dims that cut the two dims must be the same ones: a rule on one mesh dim speaks
        // for its own cut only.
        if (
          pieces[this.firstDim[t] + dim] !== pieces[this.firstDim[u] + mate] &&
          !this.takesFurther(t, dim, u, mate) &&
          !this.takesFurther(u, mate, t, dim)
        )
          return false;
        if (special && !this.sameCuts(keys[t], dim, keys[u], mate)) return false;
      }
    }
    return true;
  }

  /**
   * Tells whether a tensor is cut as another is, and further by mesh dims whose rules take rows of
   * the other.
   */
  private takesFurther(t: number, dim: number, other: number, otherDim: number): boolean {
    return takesFurther(this.cutting(t, dim), this.cutting(other, otherDim), (m) => {
      const { takes } = this.rows[this.picked[m]];
      return takes?.dim === otherDim && takes.of.includes(other);
    });
  }

  /** Pieces of a dim that rules make which take rows of what is not cut with it. */
  private piecesTaking(t: number, dim: number): number {
    return this.cutting(t, dim).reduce(
      (n, m) => (this.rows[this.picked[m]].takes === undefined ? n : n * this.sizes[m]),
      1,
    );
  }

  /** The mesh dims of several devices that cut a dim of a tensor, outermost first. */
  private cutting(t: number, dim: number): number[] {
    const { space } = this;
    return this.digits(this.keys[this.sizes.length][t]).flatMap((code, m) =>
      this.sizes[m] > 1 && space.dimOfCode(code) === dim ? [m] : [],
    );
  }

  /** Kind code of a tensor on a mesh dim whose row is taken. */
  codeOn(t: number, m: number): number {
    return this.keys[m + 1][t] % BASE;
  }

  /** Sharding of a tensor under the rows taken; -1 for a masked-off result. */
  id(t: number): number {
    if (this.tensors[t] === null) return -1;
    return this.idOfKey(this.keys[this.sizes.length][t], this.tensors[t]?.shape ?? []);
  }

  /**
   * Tells whether a tensor can have these kinds on the mesh dims: a row for each piece, one kind of
   * pending reduction.
   */
  stands(codes: readonly number[], meta: TensorMeta): boolean {
    let pending = -1;
    for (let m = 0; m < codes.length; m++) {
      const code = codes[m];
      if (code === REPLICATE_CODE) continue;
      if (code < FIRST_SHARD_CODE) {
        const mine = LINEAR_CODES.has(code) ? -2 : code;
        if (pending !== -1 && pending !== mine) return false;
        pending = mine;
        continue;
      }
      const dim = code - FIRST_SHARD_CODE;
      let pieces = 1;
      for (let d = 0; d <= m; d++) if (codes[d] === code) pieces *= this.sizes[d];
      const size = meta.shape[dim] ?? 0;
      if (size < pieces || (this.options.uneven === 'forbid' && size % pieces !== 0)) return false;
    }
    return true;
  }

  /** Sharding of plain kinds, one per mesh dim. */
  idOfCodes(codes: readonly number[]): number {
    let key = 0;
    for (const code of codes) key = key * BASE + code;
    return this.idOfKey(key, []);
  }

  private idOfKey(key: number, shape: readonly number[]): number {
    const known = this.ids.get(key);
    if (known !== undefined) return known;
    const digits = this.digits(key);
    if (digits.some((code) => code >= FIRST_OTHER_CODE)) {
      // Strides that are an order of mesh dims have one form only, the order; where the pieces are
      // the same.
      const sharding = this.sharding(key);
      const { mesh } = this.space;
      const even = evenlyShardable(sharding, mesh, shape);
      return this.space.intern(even ? fromMeshView(sharding.placements, mesh) : sharding);
    }
    const id = this.space.internCodes(digits);
    this.ids.set(key, id);
    return id;
  }

  /**
   * Tells whether every strided cut is one that an input can have, or that a view makes here. What
   * it is on one mesh dim follows from the others, so that only whole patterns say anything.
   */
  private knownPatterns(): boolean {
    const { patterns } = this.options;
    if (patterns === 'any') return true;
    const keys = this.keys[this.sizes.length];
    for (let t = 0; t < this.width; t++) {
      const digits = this.digits(keys[t]);
      for (const code of digits) {
        if (code < FIRST_OTHER_CODE) continue;
        const placement = this.space.placementOf(code);
        if (placement.dim === undefined || this.free.has(placement.withDim(0).text)) continue;
        if (this.isMade(t, placement.dim)) continue;
        const found = patternOf(
          digits.map((c) => this.space.placementOf(c)),
          placement.dim,
        );
        if (patterns?.all.has(found) !== true) return false;
      }
    }
    return true;
  }

  /**
   * Tells whether a rule taken here makes the cuts of a result's dim: a view that merges dims into
   * it.
   */
  private isMade(t: number, dim: number): boolean {
    return this.picked.some((r) => {
      const slot = this.rows[r].slots[t];
      return (
        slot?.kind === 'shard' && slot.dim === dim && slot.inside !== null && slot.inside.tensor < t
      );
    });
  }

  private specialFits(): boolean {
    if (!this.knownPatterns()) return false;
    const fits = this.options.uneven === 'forbid' ? evenlyShardable : shardable;
    const keys = this.keys[this.sizes.length];
    for (let t = 0; t < this.width; t++) {
      const meta = this.tensors[t];
      if (meta === null || !this.digits(keys[t]).some((code) => code >= FIRST_OTHER_CODE)) continue;
      const sharding = this.sharding(keys[t]);
      if (!fits(sharding, this.space.mesh, meta.shape)) return false;
      if (this.options.evenStrides === true && !strideEvenly(sharding, this.space.mesh, meta.shape))
        return false;
    }
    return true;
  }

  /** Tells whether a dim is cut otherwise than in ceil chunks. */
  private hasSpecial(key: number, dim: number): boolean {
    return this.digits(key).some(
      (code) => code >= FIRST_OTHER_CODE && this.space.dimOfCode(code) === dim,
    );
  }

  /** Tells whether all ranks hold equally many rows of every dim. */
  private even(meta: TensorMeta, key: number): boolean {
    return evenlyShardable(this.sharding(key), this.space.mesh, meta.shape);
  }

  /** Tells whether two dims are cut by the same mesh dims in the same ways. */
  private sameCuts(key: number, dim: number, otherKey: number, otherDim: number): boolean {
    const { space } = this;
    const other = this.digits(otherKey);
    return this.digits(key).every((code, d) => {
      const cuts = space.dimOfCode(code) === dim;
      if (cuts !== (space.dimOfCode(other[d]) === otherDim)) return false;
      return !cuts || space.placementOf(code).withDim(otherDim).equals(space.placementOf(other[d]));
    });
  }

  private sharding(key: number): Sharding {
    return new Sharding(this.digits(key).map((code) => this.space.placementOf(code)));
  }

  private digits(key: number): number[] {
    const out: number[] = new Array<number>(this.sizes.length);
    let rest = key;
    for (let d = this.sizes.length - 1; d >= 0; d--) {
      out[d] = rest % BASE;
      rest = Math.floor(rest / BASE);
    }
    return out;
  }
}

const LINEAR_CODES = new Set([partialCode('sum'), partialCode('avg')]);
