/**
 * States which pending reductions pass through which functions: the groups of rules that
 * elementwise operators and reductions share. A kind passes through f when f(reduce(x_r)) =
 * reduce(f(x_r)) for every split of x over the ranks. On bools a pending `or` is `bor` and a
 * pending `and` is `band`; sums and averages of bools do not exist.
 */

import type { ReduceOp } from '../../mesh/placements/placement.ts';
import { isFloating, isIntegral } from '../record/dtypes.ts';
import type { TypedContext } from '../record/record.ts';
import { ALL_KINDS, LINEAR_KINDS, P, R, type Rule, rule, type RuleSlot } from '../record/rule.ts';

type Extra = (ctx: TypedContext) => readonly Rule[];

/** Kinds that exist for the dtype of the first output. */
function kindsFor(ctx: TypedContext, kinds: readonly ReduceOp[]): readonly ReduceOp[] {
  return ctx.outputs[0]?.dtype === 'b8' ? [] : kinds;
}

/** Pending kind `from` on input `i`, the others replicated, every result pending `to`. */
export function onePartial(
  ctx: TypedContext,
  i: number,
  from: ReduceOp,
  to: ReduceOp = from,
  origin: 'base' | 'ext' = 'base',
): Rule {
  const inputs = ctx.inputs.map((_, j): RuleSlot => (i === j ? P(from) : R));
  return rule(
    inputs,
    ctx.outputs.map((o) => (o === null ? null : P(to))),
    { origin },
  );
}

/** Every named input pending the same way, the rest replicated. */
export function jointPartial(
  ctx: TypedContext,
  names: readonly string[],
  kind: ReduceOp,
  origin: 'base' | 'ext' = 'ext',
): Rule {
  const at = names.map((name) => ctx.indexOf(name));
  const inputs = ctx.inputs.map((_, j): RuleSlot => (at.includes(j) ? P(kind) : R));
  return rule(
    inputs,
    ctx.outputs.map((o) => (o === null ? null : P(kind))),
    { origin },
  );
}

/**
 * Linear in the one tensor argument `name` (default the first) with everything else fixed: sum and
 * average pass.
 */
export function linearIn(name?: string, origin: 'base' | 'ext' = 'ext'): Extra {
  return (ctx) => {
    const i = name === undefined ? 0 : ctx.indexOf(name);
    return i < 0
      ? []
      : kindsFor(ctx, LINEAR_KINDS).map((kind) => onePartial(ctx, i, kind, kind, origin));
  };
}

/** Unary and non-decreasing: the maximum of the values is the value of the maximum. */
export const nonDecreasing: Extra = (ctx) => [onePartial(ctx, 0, 'max'), onePartial(ctx, 0, 'min')];

/** Rules like `nonDecreasing`, where PyTorch 2.13 has none. */
export const nonDecreasingExt: Extra = (ctx) => [
  onePartial(ctx, 0, 'max', 'max', 'ext'),
  onePartial(ctx, 0, 'min', 'min', 'ext'),
];

/** Unary and non-increasing: maximum and minimum change places. */
export const nonIncreasing: Extra = (ctx) => [
  onePartial(ctx, 0, 'max', 'min'),
  onePartial(ctx, 0, 'min', 'max'),
];

/** The value itself passes: all kinds, and on bools the two that bools have. */
export function identityKinds(ctx: TypedContext, origin: 'base' | 'ext' = 'base'): Rule[] {
  const kinds: readonly ReduceOp[] = ctx.outputs[0]?.dtype === 'b8' ? ['bor', 'band'] : ALL_KINDS;
  return kinds.map((kind) => onePartial(ctx, 0, kind, kind, origin));
}

/**
 * A change of dtype: everything that the target can still reduce. Rounding is monotone, so maxima
 * pass; towards integers truncation does not commute with sums; a bool target keeps only pending
 * `or` and `and` of bools.
 */
export function castKinds(ctx: TypedContext): Rule[] {
  const from = ctx.inputs[0].dtype;
  const to = ctx.outputs[0]?.dtype ?? from;
  if (from === 'b8') {
    // False < true: a pending `or` is the maximum of the 0/1 numbers, a pending `and` their
    // minimum.
    return to === 'b8'
      ? identityKinds(ctx)
      : [onePartial(ctx, 0, 'bor', 'max', 'ext'), onePartial(ctx, 0, 'band', 'min', 'ext')];
  }
  if (to === 'b8') return [];
  const kinds = isFloating(from) && isIntegral(to) ? (['max', 'min'] as const) : ALL_KINDS;
  return kinds.map((kind) => onePartial(ctx, 0, kind));
}

/**
 * `c1 * self + c2 * other` with tensors: the sums join; averages and extremes pass next to a
 * replicated operand.
 */
export function additiveRules(
  ctx: TypedContext,
  self: number,
  other: number,
  c1: number,
  c2: number,
): Rule[] {
  if (ctx.outputs[0]?.dtype === 'b8') return [];
  const both = (kind: ReduceOp): Rule => rule([P(kind), P(kind)], [P(kind)]);
  const rules = [both('sum'), both('avg'), onePartial(ctx, self, 'avg')];
  rules.push(...extremes(ctx, self, c1, 'base'));
  rules.push(onePartial(ctx, other, 'avg'));
  rules.push(...extremes(ctx, other, c2, 'ext'));
  return rules;
}

/** `c * x + constant`: averages pass, sums only without the constant, extremes by the sign of c. */
export function affineRules(ctx: TypedContext, c: number, constant: number): Rule[] {
  if (ctx.outputs[0]?.dtype === 'b8') return [];
  const rules: Rule[] = [];
  if (constant === 0) rules.push(onePartial(ctx, 0, 'sum', 'sum', 'ext'));
  rules.push(onePartial(ctx, 0, 'avg', 'avg', 'ext'));
  rules.push(...extremes(ctx, 0, c, 'ext'));
  return rules;
}

/** `c * x`: linear kinds, extremes by the sign of c. */
export function scaleRules(ctx: TypedContext, c: number): Rule[] {
  if (ctx.outputs[0]?.dtype === 'b8') return [];
  return [...LINEAR_KINDS.map((kind) => onePartial(ctx, 0, kind)), ...extremes(ctx, 0, c, 'ext')];
}

/**
 * Pending maximum and minimum of input `i` under a function of slope `c` in it; nothing where c is
 * 0 or not a number.
 */
function extremes(ctx: TypedContext, i: number, c: number, origin: 'base' | 'ext'): Rule[] {
  if (c > 0)
    return [onePartial(ctx, i, 'max', 'max', origin), onePartial(ctx, i, 'min', 'min', origin)];
  if (c < 0)
    return [onePartial(ctx, i, 'max', 'min', 'ext'), onePartial(ctx, i, 'min', 'max', 'ext')];
  return [];
}

/**
 * An operand that is only added, times `c`, to a function of the others: averages pass next to
 * replicated others, extremes by the sign of c.
 */
export function addedOperand(ctx: TypedContext, name: string, c: number): Rule[] {
  const i = ctx.indexOf(name);
  if (i < 0 || ctx.outputs[0]?.dtype === 'b8') return [];
  return [onePartial(ctx, i, 'avg', 'avg', 'ext'), ...extremes(ctx, i, c, 'ext')];
}

/**
 * `maximum` (or `minimum`, or logaddexp with no kind): extremes pass next to a replicated operand,
 * and its own kind jointly.
 */
export function latticeRules(ctx: TypedContext, own: 'max' | 'min' | null): Rule[] {
  if (ctx.inputs.length < 2) return [...nonDecreasing(ctx)];
  const rules = (['max', 'min'] as const).flatMap((kind) => [
    onePartial(ctx, 0, kind),
    onePartial(ctx, 1, kind),
  ]);
  if (own !== null) rules.push(rule([P(own), P(own)], [P(own)]));
  return rules;
}

/**
 * A comparison that is non-decreasing (or non-increasing) in each operand: "max over ranks is above
 * b" means "on some rank it is". `rises` says for each tensor operand whether a larger value makes
 * the comparison true.
 */
export function comparisonRules(ctx: TypedContext, rises: readonly boolean[]): Rule[] {
  // In place the truth is written as a number: "any" is then a maximum, "all" a minimum.
  const [any, all] =
    ctx.outputs[0]?.dtype === 'b8' ? (['bor', 'band'] as const) : (['max', 'min'] as const);
  return rises.flatMap((rising, i) => [
    onePartial(ctx, i, 'max', rising ? any : all, 'ext'),
    onePartial(ctx, i, 'min', rising ? all : any, 'ext'),
  ]);
}
