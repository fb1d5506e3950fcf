import { fromMeshView } from '../mesh/mesh-view.ts';
import type { Placement, ReduceOp } from '../mesh/placement.ts';
import { evenlyShardable, shardable, Sharding } from '../mesh/sharding.ts';
import {
  FIRST_OTHER_CODE,
  isPartialCode,
  partialCode,
  REPLICATE_CODE,
  shardCode,
  shardDimOfCode,
  type ShardingSpace,
} from '../mesh/space.ts';
import type { TensorMeta } from '../ops/record.ts';
import { R, type Rule, type RuleSlot, type ShardSlot } from '../ops/rule.ts';

/**
 * Single-dim rules expanded to the whole mesh. A strategy takes one rule per mesh dim; it fixes the sharding of every
 * input and output tensor. Candidates are the cartesian product of the rules over the mesh dims (mesh dim 0 slowest,
 * rule order kept, the all-replicate rule first), filtered in this order:
 *
 *  1. partial mixing: a tensor may not hold two kinds of pending reduction, except sum with avg;
 *  2. sizes: every sharded dim needs at least one row per piece (and divides evenly, under the `even` policy);
 *  3. ties: slots of one tie group name dims of equal size, or, when scaled, dims that all divide evenly;
 *  4. duplicates: of strategies with equal shardings the first stays.
 *
 * On a mesh dim of size 1 only the all-replicate rule is taken. Several mesh dims on one tensor dim cut it in mesh order.
 *
 * Rules speak of plain shards. Further cuts (strided, ragged, kinds of the user) are offered with `cuts`: a rule then also
 * stands with such a cut in the place of its shards, wherever it asks nothing of them but to be alike (`cutRows`).
 */

export interface StrategySet {
  readonly count: number;
  readonly inputCount: number;
  readonly outputCount: number;
  /** Sharding ids, row-major count x (inputs, then outputs); -1 for a masked-off result. */
  readonly specs: Int32Array;
  /** For each strategy and mesh dim, the index into `rules`. */
  readonly choice: Int32Array;
  /** The rules that were expanded; 0 is the all-replicate rule. */
  readonly rules: readonly Rule[];
}

export interface ExpandOptions {
  /** `allow`: a dim may leave trailing ranks short; `forbid`: every sharded dim must divide evenly. */
  readonly uneven: 'allow' | 'forbid';
  /** Pending reductions that the producer of each input can leave, as bit sets over PARTIAL_OPS. */
  readonly reachable?: readonly number[];
  /** Cuts other than plain shards that rules may be taken with, on any tensor dim; default none. */
  readonly cuts?: readonly Placement[];
}

/** Bit of a pending reduction in a reachability set. */
export function partialBit(op: ReduceOp): number {
  return 1 << partialCode(op);
}

// Tensor shardings are handled as their kind codes on each mesh dim, packed into one number in this base.
const BASE = 256;

function slotCode(slot: RuleSlot): number {
  if (slot === null || slot.kind === 'replicate') return REPLICATE_CODE;
  return slot.kind === 'shard' ? shardCode(slot.dim) : partialCode(slot.op);
}

/**
 * Expands single-dim rules to the mesh of `space`.
 *
 * @param rules rules without the all-replicate rule
 * @param inputs global metas of the tensor inputs, in schema order
 * @param outputs global metas of the results, null where masked off
 */
export function expandRules(
  space: ShardingSpace,
  rules: readonly Rule[],
  inputs: readonly TensorMeta[],
  outputs: readonly (TensorMeta | null)[],
  options: ExpandOptions,
): StrategySet {
  const tensors: (TensorMeta | null)[] = [...inputs, ...outputs];
  const width = tensors.length;
  const replicate: Rule = {
    inputs: inputs.map(() => R),
    outputs: outputs.map((o) => (o === null ? null : R)),
    origin: 'base',
  };
  const list = [replicate, ...rules.filter((r) => usable(r, inputs.length, outputs.length, options.reachable))];
  const rows = list.map((r, rule): Row => {
    const slots = [...r.inputs, ...r.outputs];
    return { rule, slots, codes: Int32Array.from(slots, slotCode) };
  });
  if (options.cuts !== undefined && options.cuts.length > 0) rows.push(...cutRows(space, rows, options.cuts));
  const codes = rows.map((row) => row.codes);
  const { sizes } = space.mesh;
  const filter = new TensorFilter(space, sizes, tensors, options);

  const kept: number[] = [];
  const chosen: number[] = [];
  const seen = new Map<string, true>();
  const pick = new Int32Array(sizes.length);
  const combined = new Float64Array(width);
  for (;;) {
    // Key of each tensor's sharding: its slot codes in base BASE.
    for (let t = 0; t < width; t++) {
      let key = 0;
      for (let d = 0; d < sizes.length; d++) key = key * BASE + codes[pick[d]][t];
      combined[t] = key;
    }
    if (filter.accepts(combined) && tiesHold(rows, pick, tensors, filter, combined)) {
      const text = combined.join();
      if (!seen.has(text)) {
        seen.set(text, true);
        for (let t = 0; t < width; t++) kept.push(tensors[t] === null ? -1 : filter.id(t, combined[t]));
        for (let d = 0; d < sizes.length; d++) chosen.push(rows[pick[d]].rule);
      }
    }
    let d = sizes.length - 1;
    while (d >= 0 && (sizes[d] === 1 || pick[d] === rows.length - 1)) pick[d--] = 0;
    if (d < 0) break;
    pick[d]++;
  }
  return {
    count: chosen.length / sizes.length,
    inputCount: inputs.length,
    outputCount: outputs.length,
    specs: Int32Array.from(kept),
    choice: Int32Array.from(chosen),
    rules: list,
  };
}

/** A rule on one mesh dim: its slots for inputs and outputs, and the kind codes that they stand for. */
interface Row {
  readonly rule: number;
  readonly slots: readonly RuleSlot[];
  readonly codes: Int32Array;
}

/**
 * The rules with further cuts in the place of plain shards: for every tie group of a rule, all its slots alike. A group
 * takes part only if none of its slots counts rows (`contiguous`: offsets are computed from the rank), cuts in units, or
 * ties dims of different sizes.
 */
function cutRows(space: ShardingSpace, rows: readonly Row[], cuts: readonly Placement[]): Row[] {
  const out: Row[] = [];
  for (const { rule, slots, codes } of rows) {
    const open = new Map<string, boolean>();
    for (const slot of slots)
      if (slot?.kind === 'shard') open.set(slot.tie, (open.get(slot.tie) ?? true) && takesAnyCut(slot));
    let variants: Int32Array[] = [codes];
    for (const [tie, takes] of open) {
      if (!takes) continue;
      const more = variants.flatMap((base) =>
        cuts.map((cut) =>
          base.map((code, t) => {
            const slot = slots[t];
            return slot?.kind === 'shard' && slot.tie === tie ? space.codeOf(cut.withDim(slot.dim)) : code;
          }),
        ),
      );
      variants = [...variants, ...more];
    }
    for (const variant of variants) if (variant !== codes) out.push({ rule, slots, codes: variant });
  }
  return out;
}

/** Whether a slot asks nothing of a cut but to be the same, or even, where its tie group needs it. */
export function takesAnyCut(slot: ShardSlot): boolean {
  return slot.slicing !== 'contiguous' && !slot.scaled && slot.unit === 1;
}

/**
 * Whether a rule can be of use. A rule that only hands pending reductions on needs one input that its producer can leave
 * pending (the others may be made Partial for free). A rule that cuts an input, such as a product over cut rows with a
 * pending bias, or one with no Partial input, always is.
 */
function usable(r: Rule, inputs: number, outputs: number, reachable: readonly number[] | undefined): boolean {
  if (r.inputs.length !== inputs || r.outputs.length !== outputs)
    throw new Error(`internal: rule has ${r.inputs.length}+${r.outputs.length} slots, the call ${inputs}+${outputs}`);
  if (reachable === undefined) return true;
  let wants = false;
  for (let i = 0; i < inputs; i++) {
    const slot = r.inputs[i];
    if (slot?.kind === 'shard') return true;
    if (slot?.kind !== 'partial') continue;
    wants = true;
    if ((reachable[i] & partialBit(slot.op)) !== 0) return true;
  }
  return !wants;
}

/** Filters 1 and 2 for single tensors, remembered per tensor and sharding key. */
class TensorFilter {
  /** Whether any cut may be other than ceil chunks; if not, nothing needs to look for them. */
  readonly mayHaveSpecial: boolean;
  private readonly verdict: Map<number, boolean>[];
  private readonly ids = new Map<number, number>();

  constructor(
    private readonly space: ShardingSpace,
    private readonly sizes: readonly number[],
    private readonly tensors: readonly (TensorMeta | null)[],
    private readonly options: ExpandOptions,
  ) {
    this.mayHaveSpecial = (options.cuts?.length ?? 0) > 0;
    this.verdict = tensors.map(() => new Map<number, boolean>());
  }

  accepts(keys: Float64Array): boolean {
    for (let t = 0; t < keys.length; t++) {
      let ok = this.verdict[t].get(keys[t]);
      if (ok === undefined) {
        ok = this.check(this.tensors[t], keys[t]);
        this.verdict[t].set(keys[t], ok);
      }
      if (!ok) return false;
    }
    return true;
  }

  id(t: number, key: number): number {
    let id = this.ids.get(key);
    if (id === undefined) {
      const digits = this.digits(key);
      if (digits.some((code) => code >= FIRST_OTHER_CODE)) return this.specialId(t, digits);
      id = this.space.internCodes(digits);
      this.ids.set(key, id);
    }
    return id;
  }

  /** Pieces into which the sharding cuts a dim. */
  pieces(key: number, dim: number): number {
    let n = 1;
    this.digits(key).forEach((code, d) => {
      if (this.space.dimOfCode(code) === dim) n *= this.sizes[d];
    });
    return n;
  }

  /** Whether a dim is cut otherwise than in ceil chunks. */
  hasSpecial(key: number, dim: number): boolean {
    return this.digits(key).some((code) => code >= FIRST_OTHER_CODE && this.space.dimOfCode(code) === dim);
  }

  /** Whether all ranks hold equally many rows of every dim. */
  even(t: number, key: number): boolean {
    const tensor = this.tensors[t];
    return tensor !== null && evenlyShardable(this.sharding(this.digits(key)), this.space.mesh, tensor.shape);
  }

  /** Whether two dims are cut by the same mesh dims in the same ways. */
  sameCuts(key: number, dim: number, otherKey: number, otherDim: number): boolean {
    const { space } = this;
    const other = this.digits(otherKey);
    return this.digits(key).every((code, d) => {
      const cuts = space.dimOfCode(code) === dim;
      if (cuts !== (space.dimOfCode(other[d]) === otherDim)) return false;
      return !cuts || space.placementOf(code).withDim(otherDim).equals(space.placementOf(other[d]));
    });
  }

  private sharding(digits: readonly number[]): Sharding {
    return new Sharding(digits.map((code) => this.space.placementOf(code)));
  }

  /** Strides that are an order of mesh dims have one form only, the order; where the pieces are the same. */
  private specialId(t: number, digits: readonly number[]): number {
    const sharding = this.sharding(digits);
    const { mesh } = this.space;
    const even = evenlyShardable(sharding, mesh, this.tensors[t]?.shape ?? []);
    return this.space.intern(even ? fromMeshView(sharding.placements, mesh) : sharding);
  }

  private check(tensor: TensorMeta | null, key: number): boolean {
    if (tensor === null) return true;
    const digits = this.digits(key);
    let linear = false;
    let other = -1;
    let special = false;
    const pieces = new Map<number, number>();
    for (let d = 0; d < digits.length; d++) {
      const code = digits[d];
      if (code >= FIRST_OTHER_CODE) special = true;
      else if (isPartialCode(code)) {
        if (LINEAR_CODES.has(code)) linear = true;
        else if (other >= 0 && other !== code) return false;
        else other = code;
      } else if (code !== REPLICATE_CODE) {
        const dim = shardDimOfCode(code);
        pieces.set(dim, (pieces.get(dim) ?? 1) * this.sizes[d]);
      }
    }
    if (linear && other >= 0) return false;
    if (special) {
      const fits = this.options.uneven === 'forbid' ? evenlyShardable : shardable;
      return fits(this.sharding(digits), this.space.mesh, tensor.shape);
    }
    for (const [dim, n] of pieces) {
      const size = tensor.shape[dim];
      if (size === undefined || size < n) return false;
      if (this.options.uneven === 'forbid' && size % n !== 0) return false;
    }
    return true;
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

/** Filter 3: the tie groups of the rule taken on each mesh dim, judged at the full sharding of each tensor. */
function tiesHold(
  rows: readonly Row[],
  pick: Int32Array,
  tensors: readonly (TensorMeta | null)[],
  filter: TensorFilter,
  keys: Float64Array,
): boolean {
  for (let d = 0; d < pick.length; d++) {
    const row = rows[pick[d]].slots;
    for (let t = 0; t < row.length; t++) {
      const slot = row[t];
      if (slot?.kind !== 'shard') continue;
      const tensor = tensors[t];
      if (tensor === null) return false;
      const units = tensor.shape[slot.dim] / slot.unit;
      const pieces = filter.pieces(keys[t], slot.dim);
      if ((slot.even || slot.scaled || slot.unit > 1) && units % pieces !== 0) return false;
      const special = filter.mayHaveSpecial && filter.hasSpecial(keys[t], slot.dim);
      // Another mesh dim may have brought a special cut to the same dim.
      if (special && (!takesAnyCut(slot) || (slot.even && !filter.even(t, keys[t])))) return false;
      for (let u = t + 1; u < row.length; u++) {
        const mate = row[u];
        if (
          mate?.kind === 'shard' &&
          mate.tie === slot.tie &&
          (!tied(slot, mate, tensor, tensors[u], pieces, filter, keys[u]) ||
            (filter.mayHaveSpecial && !filter.sameCuts(keys[t], slot.dim, keys[u], mate.dim)))
        )
          return false;
      }
    }
  }
  return true;
}

function tied(
  a: ShardSlot,
  b: ShardSlot,
  first: TensorMeta,
  second: TensorMeta | null,
  pieces: number,
  filter: TensorFilter,
  secondKey: number,
): boolean {
  if (second === null) return false;
  // The mesh dims that cut the two dims must be the same ones: a rule on one mesh dim speaks for its own cut only.
  if (filter.pieces(secondKey, b.dim) !== pieces) return false;
  return a.scaled || b.scaled || first.shape[a.dim] === second.shape[b.dim];
}
