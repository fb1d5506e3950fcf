/**
 * Gives the meaning of an operator on one mesh axis under each mode: the types of its results, the
 * redistributions that the mode makes by itself, and whether the call is an error. `auto` is
 * DTensor: whatever the operands are, the cheapest rule is taken and its redistributions are
 * inserted. `explicit` is JAX with shardings in types: a slice or the reduction of a result is made
 * where there is only one possible meaning. `strict` inserts nothing. `manual` acts on pieces.
 */
import { type AxisType, chunksOf } from '../mesh/local-types/types.ts';
import type { OperatorRecord, TypedContext } from '../ops/record/record.ts';
import { metaBytes } from '../ops/record/record.ts';
import type { Rule, RuleSlot } from '../ops/record/rule.ts';
import {
  type Conflict,
  type OperandType,
  plainRules,
  standsAt,
  typeOperator,
} from './operator-types.ts';

/** How a program says where its values are: by itself (`auto`), in types, or device by device. */
export type Mode = 'auto' | 'explicit' | 'strict' | 'manual';
/** Every mode, the most lenient first. */
export const MODES: readonly Mode[] = ['auto', 'explicit', 'strict', 'manual'];

/** A redistribution that a mode makes without being told. */
interface Implicit {
  /** Position of the operand; undefined of a result. */
  readonly operand?: number;
  readonly kind:
    'all_reduce' | 'all_gather' | 'reduce_scatter' | 'all_to_all' | 'slice' | 'to_partial';
  readonly from: string;
  readonly to: string;
}

type ModeTyping =
  | { readonly results: readonly OperandType[]; readonly implicit: readonly Implicit[] }
  | { readonly conflict: Conflict };

/**
 * Types of a call under a mode.
 *
 * @param ranks of the axis: an average over pieces is one of averages where they are of one size
 */
export function typeInMode(
  mode: Mode,
  record: OperatorRecord,
  ctx: TypedContext,
  operands: readonly OperandType[],
  ranks: number,
): ModeTyping {
  if (mode === 'auto') return auto(record, ctx, operands, ranks);
  if (mode === 'explicit') return explicit(record, ctx, operands, ranks);
  const [found] = typeOperator(record, ctx, [{ size: ranks, meaning: mode }], [operands]);
  if (!('typing' in found)) return found;
  if (found.typing.pending === true)
    return {
      conflict: {
        rule: 'sum over S',
        operands: operands.map((_, i) => i),
        reason: 'the sum over a cut dim is left to a later reduction, without saying so',
        casts: [],
        fix: 'say outPartial',
      },
    };
  return { results: found.typing.results, implicit: [] };
}

/** Data of a type, for systems that do not tell I from R. */
export function data(type: OperandType): OperandType {
  return type === 'I' ? 'R' : type;
}

const slotText = (slot: RuleSlot): string =>
  slot === null || slot.kind === 'replicate'
    ? 'R'
    : slot.kind === 'partial'
      ? slot.op === 'sum'
        ? 'P'
        : `P(${slot.op})`
      : `S(${slot.dim})`;

/**
 * The redistribution that brings an operand to a slot; undefined where there is none. Costs are
 * bytes, and a slice costs next to nothing; a pending sum is reduced whole, as DTensor does.
 */
function moved(
  type: OperandType,
  slot: RuleSlot,
  bytes: number,
): { cost: number; kind?: Implicit['kind'] } | undefined {
  const [from, to] = [data(type), slotText(slot)];
  const cut = from === 'number' ? undefined : chunksOf(from);
  if (from === 'number') return slot?.kind === 'partial' ? undefined : { cost: 0 };
  if (slot?.kind === 'shard' && (slot.inside?.dims.length ?? 0) > 0) return undefined;
  if (from === to) return { cost: 0 };
  if (slot === null) return { cost: 0 };
  if (slot.kind === 'partial')
    return from === 'R' && slot.op !== 'product'
      ? { cost: bytes * 0.02, kind: 'to_partial' }
      : undefined;
  if (slot.kind === 'replicate')
    return from === 'P'
      ? { cost: bytes * 1.9, kind: 'all_reduce' }
      : { cost: bytes, kind: 'all_gather' };
  if (from === 'R') return { cost: bytes * 0.01, kind: 'slice' };
  if (from === 'P') return { cost: bytes * 2.2, kind: 'reduce_scatter' };
  return cut === undefined ? undefined : { cost: bytes * 0.6, kind: 'all_to_all' };
}

/** The cheapest rule, the redistributions of its operands made. */
function auto(
  record: OperatorRecord,
  ctx: TypedContext,
  operands: readonly OperandType[],
  ranks: number,
): ModeTyping {
  const [strict] = typeOperator(
    record,
    ctx,
    [{ size: ranks, meaning: 'strict' }],
    [operands.map(data)],
  );
  if ('typing' in strict) return { results: strict.typing.results, implicit: [] };
  const whole: Rule = {
    inputs: operands.map(() => ({ kind: 'replicate' })),
    outputs: ctx.outputs.map((o) => (o === null ? null : { kind: 'replicate' })),
    origin: 'base',
  };
  let best: { cost: number; rule: Rule; implicit: Implicit[] } | undefined;
  for (const rule of [...plainRules(record, ctx), whole]) {
    if (rule.inputs.length !== operands.length) continue;
    let cost = 0;
    const implicit: Implicit[] = [];
    const fits = rule.inputs.every((slot, i) => {
      const step = moved(operands[i], slot, metaBytes(ctx.inputs[i]));
      if (step === undefined) return false;
      cost += step.cost;
      if (step.kind !== undefined)
        implicit.push({
          operand: i,
          kind: step.kind,
          from: String(data(operands[i])),
          to: slotText(slot),
        });
      return true;
    });
    if (fits && holds(ctx, rule, ranks) && (best === undefined || cost < best.cost))
      best = { cost, rule, implicit };
  }
  const chosen = best ?? { rule: whole, implicit: [] };
  return {
    // An average that is pending counts as a pending reduction; what it is divided by is no matter
    // of types.
    results: chosen.rule.outputs.map((slot): OperandType =>
      slot?.kind === 'partial' ? 'P' : (slotText(slot) as AxisType),
    ),
    implicit: chosen.implicit,
  };
}

/** Tells whether the rule stands at these sizes, and its pending results are sums or averages. */
function holds(ctx: TypedContext, rule: Rule, ranks: number): boolean {
  return (
    standsAt(ctx, rule, ranks) &&
    rule.outputs.every((slot) => slot?.kind !== 'partial' || slot.op === 'sum' || slot.op === 'avg')
  );
}

const NORMALISED = /softmax/;

/** Types a call by JAX's rules of explicit shardings. */
function explicit(
  record: OperatorRecord,
  ctx: TypedContext,
  operands: readonly OperandType[],
  ranks: number,
): ModeTyping {
  const own = operands.map(data);
  const rules = plainRules(record, ctx);
  const sliced = rules.find(
    (rule) =>
      rule.inputs.length === own.length &&
      rule.inputs.every((slot, i) => {
        const step = moved(own[i], slot, 1);
        return step !== undefined && (step.kind === undefined || step.kind === 'slice');
      }) &&
      rule.inputs.some((slot, i) => slot?.kind === 'shard' && own[i] === slotText(slot)),
  );
  const [strict] = typeOperator(record, ctx, [{ size: ranks, meaning: 'strict' }], [own]);
  const refuse = (rule: string, reason: string, fix: string): ModeTyping => ({
    conflict: {
      rule,
      operands: own.flatMap((t, i) => (t === 'R' || t === 'number' ? [] : [i])),
      reason,
      casts: [],
      fix,
    },
  });
  const reduces = (outputs: readonly RuleSlot[]): boolean =>
    outputs.some((slot) => slot?.kind === 'partial');
  if (own.includes('P')) {
    if ('typing' in strict) return { results: strict.typing.results, implicit: [] };
    return refuse(
      strict.conflict.rule,
      'implicit communication of an unreduced operand',
      'reduce it first: reshard, or psum',
    );
  }
  if (sliced === undefined) {
    if ('typing' in strict) return { results: strict.typing.results, implicit: [] };
    const cut = own.findIndex((type) => chunksOf(type as AxisType) !== undefined);
    if (cut >= 0 && NORMALISED.test(record.name))
      return {
        results: ctx.outputs.map(() => own[cut]),
        // The largest and the sum of each row.
        implicit: [
          { kind: 'all_reduce', from: 'P(max)', to: 'R' },
          { kind: 'all_reduce', from: 'P', to: 'R' },
        ],
      };
    return refuse(
      strict.conflict.rule,
      'the shardings of the operands give the result none',
      'state the sharding of the result, or reshard the operand',
    );
  }
  const implicit = sliced.inputs.flatMap((slot, i): Implicit[] =>
    own[i] === 'R' && slot?.kind === 'shard'
      ? [{ operand: i, kind: 'slice', from: 'R', to: slotText(slot) }]
      : [],
  );
  if (!reduces(sliced.outputs)) {
    if (
      sliced.inputs.some((slot) => slot?.kind === 'shard' && (slot.inside?.dims.length ?? 0) > 0) ||
      sliced.outputs.some((slot) => slot?.kind === 'shard' && (slot.inside?.dims.length ?? 0) > 0)
    )
      return refuse(
        'reshape',
        'the cut lies behind a dim that is merged',
        'state the sharding of the result',
      );
    return { results: sliced.outputs.map((slot) => slotText(slot) as OperandType), implicit };
  }
  if (record.cls === 'matmul')
    return refuse(
      'ambiguous',
      'the contraction over a cut dim is ambiguous: replicated or unreduced',
      'state the sharding of the result: replicated costs 1 all_reduce, unreduced none',
    );
  return {
    results: ctx.outputs.map(() => 'R'),
    implicit: [...implicit, { kind: 'all_reduce', from: 'P', to: 'R' }],
  };
}
