/**
 * Single-dim rules expanded to the whole mesh. A strategy takes one rule per mesh dim; it fixes the
 * sharding of every input and output tensor. Candidates are the cartesian product of the rules over
 * the mesh dims (mesh dim 0 slowest, rule order kept, the all-replicate rule first), filtered in
 * this order:
 *
 *  1. partial mixing: a tensor may not hold two kinds of pending reduction, except sum with avg;
 *  2. sizes: every sharded dim needs at least one row per piece (and divides evenly, under the
 *     `even` policy);
 *  3. ties: slots of one tie group name dims of equal size, or, when scaled, dims that all divide
 *     evenly;
 *  4. duplicates: of strategies with equal shardings the first stays.
 *
 * On a mesh dim of size 1 only the all-replicate rule is taken. Several mesh dims on one tensor dim
 * cut it in mesh order.
 *
 * Rules speak of plain shards. Further cuts (strided, ragged, kinds of the user) are offered with
 * `cuts`: a rule then also stands with such a cut in the place of its shards, wherever it asks of
 * them only to be equal (`cutRows`).
 */

import type { Placement, ReduceOp } from '../../mesh/placements/placement.ts';
import {
  partialCode,
  REPLICATE_CODE,
  shardCode,
  type ShardingSpace,
} from '../../mesh/sharding/space.ts';
import type { TensorMeta } from '../record/record.ts';
import { isStrided, R, type Rule, type RuleSlot } from '../record/rule.ts';
import { hasCut } from './patterns.ts';
import { type Row, shardsOf, takesAnyCut } from './row.ts';
import { type ProductOptions, RowProduct } from './row-product.ts';

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

export interface ExpandOptions extends ProductOptions {
  /** Pending reductions that the producer of each input can leave, as bit sets over PARTIAL_OPS. */
  readonly reachable?: readonly number[];
  /** Asked of every strategy: see `OperatorRecord.holds`. */
  readonly holds?: (ids: readonly number[]) => boolean;
  /** Asked while there is more to do; what it throws ends the work. */
  readonly checkTime?: () => void;
}

/** Bit of a pending reduction in a reachability set. */
function partialBit(op: ReduceOp): number {
  return 1 << partialCode(op);
}

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
  const list = [
    allReplicate(inputs, outputs),
    ...rules.filter((r) => usable(r, inputs.length, outputs.length, options.reachable)),
  ];
  const rows = list.map((r, rule) => plainRow(r, rule));
  const plain = rows.length;
  if (options.cuts !== undefined && options.cuts.length > 0)
    rows.push(...cutRows(space, rows, options.cuts));
  const { patterns } = options;
  if (patterns !== undefined && patterns !== 'any' && patterns.cuts.length > 0) {
    const fits = (cut: Placement, t: number, dim: number): boolean => hasCut(patterns, t, dim, cut);
    rows.push(...cutRows(space, rows.slice(0, plain), patterns.cuts, fits));
  }
  return expandRows(space, list, rows, inputs, outputs, options);
}

/** The rule that every call has. */
export function allReplicate(
  inputs: readonly TensorMeta[],
  outputs: readonly (TensorMeta | null)[],
): Rule {
  if (outputs.includes(null))
    return replicated(
      inputs.length,
      outputs.map((o) => o && R),
    );
  const byResults = (wholes[inputs.length] ??= []);
  return (byResults[outputs.length] ??= replicated(
    inputs.length,
    outputs.map(() => R),
  ));
}

function replicated(inputs: number, outputs: readonly RuleSlot[]): Rule {
  return { inputs: new Array<RuleSlot>(inputs).fill(R), outputs, origin: 'base' };
}

/** Replicated rules of calls without masked-off results, by numbers of inputs and results. */
const wholes: (Rule | undefined)[][] = [];

/** An unchanged rule, with plain shards. */
export function plainRow(r: Rule, rule: number): Row {
  let shape = shapes.get(r);
  if (shape === undefined) shapes.set(r, (shape = shapeOf(r)));
  return { rule, ...shape };
}

/** Slots and codes of rules: a pure function of the rule. */
const shapes = new WeakMap<Rule, Omit<Row, 'rule'>>();

function shapeOf(r: Rule): Omit<Row, 'rule'> {
  const slots = [...r.inputs, ...r.outputs];
  const codes = new Int32Array(slots.length);
  for (let t = 0; t < slots.length; t++) codes[t] = slotCode(slots[t]);
  return {
    slots,
    codes,
    shards: shardsOf(slots),
    strided: slots.some((s) => s?.kind === 'shard' && isStrided(s)),
    takes: r.takes,
  };
}

/**
 * All combinations of rows over the mesh dims that pass the filters, in order. @param list what
 * `Row.rule` counts
 */
export function expandRows(
  space: ShardingSpace,
  list: readonly Rule[],
  rows: readonly Row[],
  inputs: readonly TensorMeta[],
  outputs: readonly (TensorMeta | null)[],
  options: RowFilters,
): StrategySet {
  const { sizes } = space.mesh;
  const product = new RowProduct(space, rows, [...inputs, ...outputs], options);
  const kept = new KeptStrategies(product, rows, inputs.length + outputs.length, options.holds);
  const allowed = rowsByAxis(space, list, rows);
  const next = sizes.map(() => 0);
  let m = 0;
  let taken = 0;
  while (m >= 0) {
    if ((++taken & 1023) === 0) options.checkTime?.();
    const end = product.choices(m);
    let stepped = false;
    while (next[m] < end)
      if (allowed?.[m][next[m]] === false) next[m]++;
      else if (product.take(m, next[m]++)) {
        stepped = true;
        break;
      }
    if (!stepped) next[m--] = 0;
    else if (m + 1 < sizes.length) m++;
    else if (product.complete()) kept.add();
  }
  const { specs, choice } = kept;
  return {
    count: sizes.length === 0 ? 0 : choice.length / sizes.length,
    inputCount: inputs.length,
    outputCount: outputs.length,
    specs: new Int32Array(specs),
    choice: new Int32Array(choice),
    rules: list,
  };
}

/** The conditions that a combination of rows must pass. */
type RowFilters = Pick<
  ExpandOptions,
  | 'uneven'
  | 'cuts'
  | 'patterns'
  | 'stridesInside'
  | 'unitDims'
  | 'evenStrides'
  | 'mostRuns'
  | 'holds'
  | 'checkTime'
>;

/** The strategies of combinations, each once. */
class KeptStrategies {
  /** Shardings of all tensors, and rules of all mesh dims, strategy by strategy. */
  readonly specs: number[] = [];
  readonly choice: number[] = [];
  /** Only rows that look the same, or cuts with several forms, can give one strategy twice. */
  private readonly seen: Set<string> | undefined;

  constructor(
    private readonly product: RowProduct,
    private readonly rows: readonly Row[],
    private readonly width: number,
    private readonly holds: RowFilters['holds'],
  ) {
    this.seen = product.mayRepeat ? new Set<string>() : undefined;
  }

  /** Adds the combination that the product has taken, where it is new and holds. */
  add(): void {
    const { product, specs, seen } = this;
    const from = specs.length;
    for (let t = 0; t < this.width; t++) specs.push(product.id(t));
    if (seen !== undefined) {
      const text = specs.slice(from).join();
      if (seen.has(text)) {
        specs.length = from;
        return;
      }
      seen.add(text);
    }
    if (this.holds?.(specs.slice(from)) === false) {
      specs.length = from;
      return;
    }
    for (const row of product.picked) this.choice.push(this.rows[row].rule);
  }
}

/**
 * Which rows may stand on each mesh dim; undefined where no rule names mesh dims. A mesh dim of one
 * device takes any.
 */
function rowsByAxis(
  space: ShardingSpace,
  list: readonly Rule[],
  rows: readonly Row[],
): boolean[][] | undefined {
  if (list.every(({ axes }) => axes === undefined)) return undefined;
  return space.mesh.dims.map(({ name, size }) => {
    const named = list.some(({ axes }) => axes?.includes(name) === true);
    return rows.map(({ rule }) => {
      const { axes } = list[rule];
      return size === 1 || (named ? axes?.includes(name) === true : axes === undefined);
    });
  });
}

/**
 * The rules with further cuts in the place of plain shards: for every tie group of a rule, all its
 * slots the same way. A group takes part only if none of its slots counts rows (`contiguous`:
 * offsets are computed from the rank), cuts in units, or ties dims of different sizes.
 *
 * @param fits whether a tensor of the call can have a cut on a dim: where given, a group is taken
 * with those cuts only that one of its tensors can have
 */
export function cutRows(
  space: ShardingSpace,
  rows: readonly Row[],
  cuts: readonly Placement[],
  fits: (cut: Placement, t: number, dim: number) => boolean = () => true,
): Row[] {
  const out: Row[] = [];
  const kinds = [...new Map(cuts.map((cut) => [cut.withDim(0).text, cut] as const)).values()];
  for (const row of rows) {
    const { slots, codes, shards } = row;
    const open = new Map<string, boolean>();
    for (const slot of slots)
      if (slot?.kind === 'shard')
        open.set(slot.tie, (open.get(slot.tie) ?? true) && takesAnyCut(slot));
    let variants: Int32Array[] = [codes];
    for (const [tie, takes] of open) {
      if (!takes) continue;
      const more = variants.flatMap((base) =>
        kinds
          .filter((cut) => shards.some(({ t, slot }) => slot.tie === tie && fits(cut, t, slot.dim)))
          .map((cut) =>
            base.map((code, t) => {
              const slot = slots[t];
              return slot?.kind === 'shard' && slot.tie === tie
                ? space.codeOf(cut.withDim(slot.dim))
                : code;
            }),
          ),
      );
      variants = [...variants, ...more];
    }
    for (const variant of variants) if (variant !== codes) out.push({ ...row, codes: variant });
  }
  return out;
}

/**
 * Tells whether a rule can be of use. A rule that only hands pending reductions on needs one input
 * that its producer can leave pending (the others may be made Partial for free). A rule that cuts
 * an input, such as a product over cut rows with a pending bias, or one with no Partial input,
 * always is; so is one that names its mesh dims, where nothing else holds.
 */
function usable(
  r: Rule,
  inputs: number,
  outputs: number,
  reachable: readonly number[] | undefined,
): boolean {
  if (r.inputs.length !== inputs || r.outputs.length !== outputs)
    throw new Error(
      `internal: rule has ${r.inputs.length}+${r.outputs.length} slots, the call ` +
        `${inputs}+${outputs}`,
    );
  if (reachable === undefined || r.axes !== undefined) return true;
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
