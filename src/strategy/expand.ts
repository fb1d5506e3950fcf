import {
  isPartialCode,
  partialCode,
  REPLICATE_CODE,
  shardCode,
  shardDimOfCode,
  type ShardingSpace,
} from '../mesh/space.ts';
import type { ReduceOp } from '../mesh/placement.ts';
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
  const slots = list.map((r) => [...r.inputs, ...r.outputs]);
  const codes = slots.map((row) => Int32Array.from(row, slotCode));
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
    if (filter.accepts(combined) && tiesHold(slots, pick, tensors, filter, combined)) {
      const text = combined.join();
      if (!seen.has(text)) {
        seen.set(text, true);
        for (let t = 0; t < width; t++) kept.push(tensors[t] === null ? -1 : filter.id(combined[t]));
        for (let d = 0; d < sizes.length; d++) chosen.push(pick[d]);
      }
    }
    let d = sizes.length - 1;
    while (d >= 0 && (sizes[d] === 1 || pick[d] === list.length - 1)) pick[d--] = 0;
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
  private readonly verdict: Map<number, boolean>[];
  private readonly ids = new Map<number, number>();

  constructor(
    private readonly space: ShardingSpace,
    private readonly sizes: readonly number[],
    private readonly tensors: readonly (TensorMeta | null)[],
    private readonly options: ExpandOptions,
  ) {
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

  id(key: number): number {
    let id = this.ids.get(key);
    if (id === undefined) {
      id = this.space.internCodes(this.digits(key));
      this.ids.set(key, id);
    }
    return id;
  }

  /** Pieces into which the sharding cuts a dim. */
  pieces(key: number, dim: number): number {
    let n = 1;
    this.digits(key).forEach((code, d) => {
      if (code === shardCode(dim)) n *= this.sizes[d];
    });
    return n;
  }

  private check(tensor: TensorMeta | null, key: number): boolean {
    if (tensor === null) return true;
    const digits = this.digits(key);
    let linear = false;
    let other = -1;
    const pieces = new Map<number, number>();
    for (let d = 0; d < digits.length; d++) {
      const code = digits[d];
      if (isPartialCode(code)) {
        if (LINEAR_CODES.has(code)) linear = true;
        else if (other >= 0 && other !== code) return false;
        else other = code;
      } else if (code !== REPLICATE_CODE) {
        const dim = shardDimOfCode(code);
        pieces.set(dim, (pieces.get(dim) ?? 1) * this.sizes[d]);
      }
    }
    if (linear && other >= 0) return false;
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
  slots: readonly (readonly RuleSlot[])[],
  pick: Int32Array,
  tensors: readonly (TensorMeta | null)[],
  filter: TensorFilter,
  keys: Float64Array,
): boolean {
  for (let d = 0; d < pick.length; d++) {
    const row = slots[pick[d]];
    for (let t = 0; t < row.length; t++) {
      const slot = row[t];
      if (slot?.kind !== 'shard') continue;
      const tensor = tensors[t];
      if (tensor === null) return false;
      const units = tensor.shape[slot.dim] / slot.unit;
      const pieces = filter.pieces(keys[t], slot.dim);
      if ((slot.even || slot.scaled || slot.unit > 1) && units % pieces !== 0) return false;
      for (let u = t + 1; u < row.length; u++) {
        const mate = row[u];
        if (
          mate?.kind === 'shard' &&
          mate.tie === slot.tie &&
          !tied(slot, mate, tensor, tensors[u], pieces, filter, keys[u])
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
