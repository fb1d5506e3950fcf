/**
 * Single-dim sharding rules: which placements of inputs and outputs are right together on ONE mesh
 * dim. A rule is only the mathematics; meshes, sizes of groups and costs belong to the expansion
 * (`src/strategy`). The system follows the single-dim strategies of PyTorch 2.13 DTensor; where a
 * rule goes beyond them it is marked `ext`.
 */

import { checkKinds } from '../../arguments.ts';
import { suggestion, wrongArgument } from '../../errors.ts';
import type { CollectiveKind } from '../../mesh/collective-kinds.ts';
import type { ReduceOp } from '../../mesh/placements/placement.ts';
import type { TypedContext } from './call.ts';

/**
 * A cut inside every index of some dims of another tensor of the call: a strided shard with one
 * chunk for each such index that a rank holds after the outer mesh dims have cut. Example: batch
 * and sequence, [B, S], are merged to [B * S]; `dp` cuts the batch and `cp` the sequence. A rank of
 * `dp` holds B / dp indices of the batch, so the cut over `cp` is a strided shard of B / dp chunks.
 * Without dims it is a plain shard, in a merged dim that other mesh dims may cut in this way.
 */
interface Inside {
  /** Position among inputs, then outputs. */
  readonly tensor: number;
  readonly dims: readonly number[];
}

/** The cut of a rule of one dim of a tensor. */
export interface ShardSlot {
  readonly kind: 'shard';
  /** Tensor dim, never negative. */
  readonly dim: number;
  /** Slots of one tie group are cut the same way; default group `''`. */
  readonly tie: string;
  /**
   * `same`: every member of the group has equal placement and order. `any`: the index only passes
   * through or is summed. `contiguous`: plain Shard only, because offsets are computed from the
   * rank.
   */
  readonly slicing: 'same' | 'any' | 'contiguous';
  /** The dim (counted in units) must divide by the number of pieces over all mesh dims. */
  readonly even: boolean;
  /** The dim is cut in multiples of this many rows: heads, groups. */
  readonly unit: number;
  /**
   * Every rank must hold a row: the operator is not defined on none (the largest of no values, a
   * window over no rows).
   */
  readonly filled: boolean;
  /**
   * Members of the group may differ in size (flatten, split, repeat); legal only if every member
   * divides evenly.
   */
  readonly scaled: boolean;
  /** The place of the cut inside a dim that a view merges or splits. */
  readonly inside: Inside | null;
}
interface ReplicateSlot {
  readonly kind: 'replicate';
}
interface PartialSlot {
  readonly kind: 'partial';
  readonly op: ReduceOp;
}
/** The placement that a rule asks of one tensor; null where the tensor is absent. */
export type RuleSlot = ShardSlot | ReplicateSlot | PartialSlot | null;

/** A collective that the lowered body of a rule runs itself, on the mesh dim of the rule. */
export interface InternalCollective {
  readonly kind: CollectiveKind;
  /**
   * Bytes as the cost models count them (of an all_gather what comes out); the context holds the
   * sizes of the largest shard, and `members` is the size of the group.
   */
  readonly bytes: (ctx: TypedContext, members: number) => number;
  /** The call of a body that it is, where the operator is a region of per-device code. */
  readonly site?: CollectiveSite;
}

/**
 * A collective that a program wrote: the node of the body, and the types that it takes to each
 * other on its axis.
 */
export interface CollectiveSite {
  /** `body/node`. */
  readonly node: string;
  readonly from: string;
  readonly to: string;
  /** The type of its result, as JAX prints it. */
  readonly type: string;
  readonly source?: string;
  /** Runs of a node in a branch, weighted as the branch is, for one run of the region. */
  readonly times?: number;
}

/**
 * Rows that a device takes, for its call, of tensors that are whole on the mesh dim: those that its
 * own rows of a cut input read, as the query heads of a device read some of the key heads. Mesh
 * dims before it may have cut both into whole groups. A result is put back among zeros. Prices take
 * the sizes from `asRun`, and lowering writes the slices.
 */
export interface TakenRows {
  /** The tensors of which rows are taken, by position among inputs, then results. */
  readonly of: readonly number[];
  /** The dim of the rows, in these tensors and in the cut input. */
  readonly dim: number;
  /** Position of the cut input. Each device has neighbouring rows of it. */
  readonly by: number;
  /** Neighbouring rows of the cut input that read one row. */
  readonly each: number;
}

export interface Rule {
  /**
   * One slot per tensor input in schema order (list members flattened, absent tensors left out).
   */
  readonly inputs: readonly RuleSlot[];
  /** One slot per result; null for a result that the call masks off. */
  readonly outputs: readonly RuleSlot[];
  /** `base`: PyTorch 2.13 has it. `ext`: not in PyTorch; executed by `rules --check`. */
  readonly origin: 'base' | 'ext';
  /**
   * The lowering must rewrite arguments or body when this rule is used: a short word for how
   * (`mask`, `local-shape`, `offset`).
   */
  readonly rewrite?: string;
  /** Rows that the local call takes of whole tensors; absent: it takes all that the device has. */
  readonly takes?: TakenRows;
  /**
   * Mesh dims, by name, that the rule is for: other mesh dims do not take it, and these take only
   * rules that name them. Regions of per-device code use it, whose specs state the types on their
   * axes.
   */
  readonly axes?: readonly string[];
  /**
   * Collectives inside the rewritten body, to be priced with the rule; absent for purely local
   * rules.
   */
  readonly collectives?: readonly InternalCollective[];
  /**
   * The traffic of the rewritten body, where it is several calls instead of the operator's own
   * kernel; absent: the traffic of the operator.
   */
  readonly body?: (local: TypedContext) => BodyTraffic;
}

/** Kernels that run in place of an operator's own one. */
export interface BodyTraffic {
  /** Bytes that all of them read and write. */
  readonly bytes: number;
  readonly kernels: number;
}

/**
 * The traffic of the body with the most, among the rules that a strategy takes, one for each mesh
 * dim.
 */
export function bodyTraffic(
  rules: readonly (Rule | undefined)[],
  local: TypedContext,
): BodyTraffic | undefined {
  let most: BodyTraffic | undefined;
  for (const taken of rules) {
    const body = taken?.body?.(local);
    if (body !== undefined && body.bytes > (most?.bytes ?? 0)) most = body;
  }
  return most;
}

/** The slot of a rule in which a tensor is whole on every device. */
export const R: ReplicateSlot = Object.freeze({ kind: 'replicate' });

/** Pending reduction. */
export function P(op: ReduceOp = 'sum'): PartialSlot {
  checkKinds('P', { op: [op, 'string'] });
  if (!Object.hasOwn(PARTIALS, op))
    throw wrongArgument('P', 'op', `'${op}'`, suggestion(op, Object.keys(PARTIALS), 'reductions'));
  return PARTIALS[op];
}
const partial = (op: ReduceOp): PartialSlot => Object.freeze({ kind: 'partial', op });
const PARTIALS: Readonly<Record<ReduceOp, PartialSlot>> = {
  sum: partial('sum'),
  avg: partial('avg'),
  max: partial('max'),
  min: partial('min'),
  product: partial('product'),
  band: partial('band'),
  bor: partial('bor'),
  bxor: partial('bxor'),
};

export type ShardOptions = Partial<Omit<ShardSlot, 'kind' | 'dim'>>;

/**
 * "Some sharding of tensor dim `dim`". The default is slicing `same` in the unnamed tie group,
 * uneven allowed.
 */
export function S(dim: number, options: ShardOptions = {}): ShardSlot {
  checkKinds('S', { dim: [dim, 'number'], options: [options, 'record', 'undefined'] });
  if (!Number.isInteger(dim) || dim < 0)
    throw wrongArgument('S', 'dim', String(dim), 'dims of a rule count from 0.');
  return {
    kind: 'shard',
    dim,
    tie: '',
    slicing: 'same',
    even: false,
    unit: 1,
    filled: false,
    scaled: false,
    inside: null,
    ...options,
  };
}

export type RuleOptions = Partial<
  Pick<Rule, 'origin' | 'rewrite' | 'takes' | 'collectives' | 'axes' | 'body'>
>;

/** A sharding rule of one mesh dim: a slot for each tensor input and each result. */
export function rule(
  inputs: readonly RuleSlot[],
  outputs: readonly RuleSlot[],
  options: RuleOptions = {},
): Rule {
  checkKinds('rule', {
    inputs: [inputs, 'list'],
    outputs: [outputs, 'list'],
    options: [options, 'record'],
  });
  return { inputs, outputs, origin: 'base', ...options };
}

/** Kinds of pending reduction that commute with linear functions. */
export const LINEAR_KINDS: readonly ReduceOp[] = ['sum', 'avg'];
export const ALL_KINDS: readonly ReduceOp[] = ['sum', 'avg', 'max', 'min'];

/**
 * Text of a slot: `S(0)`, `R`, `P(sum)`, `-`, and `_S(0, d0*d1)` for a cut inside each index of
 * dims 0 and 1.
 */
export function slotText(slot: RuleSlot): string {
  if (slot === null) return '-';
  if (slot.kind === 'replicate') return 'R';
  if (slot.kind === 'partial') return `P(${slot.op})`;
  return isStrided(slot)
    ? `_S(${slot.dim}, ${slot.inside?.dims.map((d) => `d${d}`).join('*')})`
    : `S(${slot.dim})`;
}

/** Tells whether a slot cuts in chunks of other dims, and not in one piece. */
export function isStrided(slot: ShardSlot): boolean {
  return (slot.inside?.dims.length ?? 0) > 0;
}

/**
 * A rule without cuts in strides, whose slots say nothing of other tensors of the call; undefined
 * where it has some.
 */
export function inOnePiece(r: Rule): Rule | undefined {
  const slots = [...r.inputs, ...r.outputs];
  if (slots.every((s) => s?.kind !== 'shard' || s.inside === null)) return r;
  if (slots.some((s) => s?.kind === 'shard' && isStrided(s))) return undefined;
  const plain = (s: RuleSlot): RuleSlot => (s?.kind === 'shard' ? { ...s, inside: null } : s);
  return { ...r, inputs: r.inputs.map(plain), outputs: r.outputs.map(plain) };
}

/** Text of a rule, `S(0), R -> S(0)`. */
export function ruleText(r: Rule): string {
  return `${r.inputs.map(slotText).join(', ')} -> ${r.outputs.map(slotText).join(', ')}`;
}
