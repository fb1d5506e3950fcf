/**
 * Operations that compute nothing: values kept apart in time, named or constrained, and the size of
 * a dim.
 */

import { defineOp, type OperatorRecord, type TypedContext } from '../record/record.ts';
import { P, R, type Rule, rule, type RuleSlot, S } from '../record/rule.ts';
import { anyS, cuttable, movedKinds, need } from '../rules/dims.ts';
import { identityKinds } from '../rules/partials.ts';
import { pointwiseRules } from '../rules/pointwise.ts';

/** Keeps operations apart in time; every result is its operand. */
const barrier = defineOp('stablehlo.optimization_barrier', {
  schema: 'Tensor[] operand',
  cls: 'view',
  results: 'tuple',
  infer: (ctx) => ctx.inputs,
  shard: (ctx) => {
    const rules: Rule[] = [];
    const one = (i: number, slot: RuleSlot): void => {
      const slots = ctx.inputs.map((_, k): RuleSlot => (k === i ? slot : R));
      rules.push(rule(slots, slots));
    };
    ctx.inputs.forEach((meta, i) => {
      for (const d of cuttable(meta.shape)) one(i, anyS(d));
      for (const kind of movedKinds(meta.dtype)) one(i, P(kind));
    });
    if (ctx.inputs.length < 2) return rules;
    // All operands at once, each at the dim where it can be cut.
    const rank = Math.max(...ctx.inputs.map((meta) => meta.shape.length));
    for (let d = 0; d < rank; d++) {
      const slots = ctx.inputs.map((meta, i): RuleSlot =>
        meta.shape[d] > 1 ? S(d, { slicing: 'any', tie: `${i}` }) : R,
      );
      if (slots.filter((slot) => slot !== R).length > 1) rules.push(rule(slots, slots));
    }
    return rules;
  },
});

/** A value that is only named, constrained or marked: everything passes. */
function identity(name: string, schema: string): OperatorRecord {
  return defineOp(name, {
    schema,
    cls: 'view',
    infer: (ctx) => [ctx.inputs[0]],
    shard: (ctx: TypedContext) => [...pointwiseRules(ctx), ...identityKinds(ctx)],
  });
}

const getDimensionSize = defineOp('stablehlo.get_dimension_size', {
  schema: 'Tensor operand, *, int dimension',
  cls: 'other',
  infer: (ctx) => {
    if (!(ctx.int('dimension') in need(ctx, 'operand').shape))
      ctx.fail(`dim ${ctx.int('dimension')} does not exist`);
    return [{ dtype: 'i32', shape: [] }];
  },
  // The size is known; no element is read.
  shard: (ctx) =>
    cuttable(need(ctx, 'operand').shape).map((d) =>
      rule([anyS(d)], [R], { origin: 'ext', rewrite: 'local-shape' }),
    ),
  flops: () => ({ matrix: 0, vector: 0 }),
});

export const identityOps: readonly OperatorRecord[] = [
  barrier,
  identity('sdy.sharding_constraint', 'Tensor input'),
  identity('sdy.reshard', 'Tensor input'),
  getDimensionSize,
];
