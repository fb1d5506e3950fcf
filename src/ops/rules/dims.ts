/**
 * Small words that shape-moving records share: dims of a call, slots, rules that let everything
 * through.
 */

import type { DType } from '../../graph/types.ts';
import type { ReduceOp } from '../../mesh/placements/placement.ts';
import { categoryOf } from '../record/dtypes.ts';
import type { OpContext, TensorMeta, TypedContext } from '../record/record.ts';
import {
  ALL_KINDS,
  LINEAR_KINDS,
  P,
  R,
  type Rule,
  rule,
  type RuleSlot,
  S,
  type ShardOptions,
} from '../record/rule.ts';

/**
 * A dim argument counted from the front.
 *
 * @throws E_TYPE when the dim does not exist
 */
export function normalDim(ctx: OpContext, dim: number, rank: number): number {
  const size = Math.max(rank, 1); // a scalar accepts 0 and -1
  if (dim < -size || dim >= size)
    return ctx.fail(
      `dim ${dim} does not exist in a tensor of ${rank} dims; expected ${-size} to ${size - 1}`,
    );
  return dim < 0 ? dim + size : dim;
}

/**
 * A list argument with one entry for each of `count` dims; where `fill` is given, an absent list
 * counts as full of it.
 *
 * @throws E_TYPE for a list of another length
 */
export function perDim(
  ctx: OpContext,
  name: string,
  count: number,
  fill?: number,
): readonly number[] {
  const list = ctx.ints(name);
  if (list.length === 0 && fill !== undefined) return new Array<number>(count).fill(fill);
  return list.length === count
    ? list
    : ctx.fail(`${name} has ${list.length} entries, expected ${count}`);
}

/** The tensor argument; a missing one is an `E_TYPE` error. */
export function need(ctx: OpContext, name: string): TensorMeta {
  return ctx.tensor(name) ?? ctx.fail(`argument '${name}' must be a tensor`);
}

/** The tensor that PyTorch's schemas call `self`. */
export function self(ctx: OpContext): TensorMeta {
  return need(ctx, 'self');
}

/** Dims that can be cut at all: those with more than one row. */
export function cuttable(shape: readonly number[]): number[] {
  return shape.flatMap((size, dim) => (size > 1 ? [dim] : []));
}

export function sameShape(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((size, i) => size === b[i]);
}

/**
 * Shape after broadcasting.
 *
 * @throws E_TYPE when two sizes differ and neither is 1
 */
export function broadcastAll(ctx: OpContext, shapes: readonly (readonly number[])[]): number[] {
  const rank = Math.max(0, ...shapes.map((s) => s.length));
  const out: number[] = new Array<number>(rank).fill(1);
  for (const shape of shapes)
    shape.forEach((size, i) => {
      const at = rank - shape.length + i;
      if (size === 1 || size === out[at]) return;
      if (out[at] !== 1)
        ctx.fail(`shapes ${shapes.map((s) => `[${s.join(', ')}]`).join(' and ')} do not broadcast`);
      out[at] = size;
    });
  return out;
}

/**
 * Slot of an operand that is broadcast into a result of `outRank` dims, when the result's dim
 * `outDim` is cut.
 */
export function broadcastSlot(
  shape: readonly number[],
  outRank: number,
  outDim: number,
  options: ShardOptions = {},
): RuleSlot {
  const dim = outDim - (outRank - shape.length);
  return dim < 0 || shape[dim] === 1 ? R : S(dim, options);
}

/**
 * Pending kinds that plain data movement keeps: bools have `or` and `and`, complex numbers no
 * order, others all four.
 */
export function movedKinds(dtype: DType): readonly ReduceOp[] {
  if (categoryOf(dtype) === 3) return LINEAR_KINDS;
  return dtype === 'b8' ? BOOL_KINDS : ALL_KINDS;
}
const BOOL_KINDS: readonly ReduceOp[] = ['bor', 'band'];

/** Kinds that functions linear in a tensor of this dtype keep; bools do not add up. */
export function linearKinds(dtype: DType): readonly ReduceOp[] {
  return dtype === 'b8' ? [] : LINEAR_KINDS;
}

/** The kind in which disjoint contributions (zero elsewhere) add up. */
export function additiveKind(dtype: DType): ReduceOp {
  return dtype === 'b8' ? 'bor' : 'sum';
}

/**
 * One rule per kind: the inputs at `pending` pending the same way, every other input replicated;
 * results pending, or replicated (`outputs[i] === 'plain'`), or absent.
 */
export function pendingRules(
  inputCount: number,
  pending: readonly number[],
  outputs: readonly ('pending' | 'plain' | 'none')[],
  kinds: readonly ReduceOp[],
  origin: 'base' | 'ext' = 'base',
): Rule[] {
  return kinds.map((kind) =>
    rule(
      Array.from({ length: inputCount }, (_, i): RuleSlot => (pending.includes(i) ? P(kind) : R)),
      outputs.map((o) => (o === 'none' ? null : o === 'pending' ? P(kind) : R)),
      { origin },
    ),
  );
}

/** One input and one result: the kinds that plain data movement keeps pass. */
export function kindsPass(dtype: DType): Rule[] {
  return pendingRules(1, [0], ['pending'], movedKinds(dtype));
}

/**
 * Slots of the tensors of a call by argument name; those of absent tensors are left out, unnamed
 * tensors replicated.
 */
export function slotsByName(
  ctx: TypedContext,
  slots: Readonly<Record<string, RuleSlot>>,
): RuleSlot[] {
  const inputs: RuleSlot[] = ctx.inputs.map(() => R);
  for (const [name, slot] of Object.entries(slots)) {
    const at = ctx.indexOf(name);
    if (at >= 0) inputs[at] = slot;
  }
  return inputs;
}

/** A slot whose index only passes through or is summed. */
export function anyS(dim: number, options: ShardOptions = {}): RuleSlot {
  return S(dim, { slicing: 'any', ...options });
}

/**
 * One input, results placed as it is: dims outside `touched` follow (shifted by `shift`), `kinds`
 * pass.
 */
export function untouched(
  ctx: TypedContext,
  touched: readonly number[],
  kinds: readonly ReduceOp[],
  options: { shift?: (dim: number) => number; rewrite?: string } = {},
): Rule[] {
  const meta = ctx.inputs[0];
  const shift = options.shift ?? ((dim: number) => dim);
  const rewrite = options.rewrite === undefined ? {} : { rewrite: options.rewrite };
  const cuts = cuttable(meta.shape).filter((dim) => !touched.includes(dim));
  return [
    ...cuts.map((dim) =>
      rule(
        [anyS(dim)],
        ctx.outputs.map(() => anyS(shift(dim))),
        rewrite,
      ),
    ),
    ...pendingRules(
      1,
      [0],
      ctx.outputs.map(() => 'pending'),
      kinds,
    ),
  ];
}
