/**
 * Copies, aliases and changes of dtype. `clone`, `contiguous` and `_to_copy` write their result;
 * `detach` and `alias` are views. The value passes, so every pending reduction does; 2.13
 * all-reduces before `clone`, needlessly.
 */

import type { DType } from '../../../graph/types.ts';
import { isIntegral } from '../../record/dtypes.ts';
import { defineOp, metaBytes, type OpClass, type OperatorRecord } from '../../record/record.ts';
import { ALL_KINDS, P, R, rule } from '../../record/rule.ts';
import { anyS, cuttable } from '../../rules/dims.ts';
import { castKinds, identityKinds } from '../../rules/partials.ts';
import { pointwiseRules } from '../../rules/pointwise.ts';

function identity(
  names: string,
  schema: string,
  cls: OpClass,
  origin: 'base' | 'ext' = 'base',
): OperatorRecord[] {
  return names.split(' ').map((n) =>
    defineOp(`aten.${n}`, {
      schema,
      cls,
      infer: (ctx) => [ctx.inputs[0]],
      shard: (ctx) => [...pointwiseRules(ctx), ...identityKinds(ctx, origin)],
    }),
  );
}

/** A change of dtype; without one, or to the same, a copy (or nothing, for `to`). */
function cast(name: string, schema: string, keyword = 'dtype'): OperatorRecord {
  return defineOp(name, {
    schema,
    cls: 'pointwise',
    infer: (ctx) => [
      { dtype: ctx.dtype(keyword) ?? ctx.inputs[0].dtype, shape: ctx.inputs[0].shape },
    ],
    shard: (ctx) => [...pointwiseRules(ctx), ...castKinds(ctx)],
  });
}

const TARGETS: readonly (readonly [string, DType])[] = [
  ['float', 'f32'],
  ['double', 'f64'],
  ['half', 'f16'],
  ['bfloat16', 'bf16'],
  ['long', 'i64'],
  ['int', 'i32'],
  ['bool', 'b8'],
];

const DEVICE_TAIL = 'bool non_blocking=False, bool copy=False, Any memory_format=None';

export const castOps: readonly OperatorRecord[] = [
  ...identity('clone.default', 'Tensor self, *, Any memory_format=None', 'pointwise', 'ext'),
  ...identity('contiguous.default', 'Tensor self, *, Any memory_format=None', 'pointwise'),
  ...identity(
    'detach_copy.default alias_copy.default lift_fresh_copy.default',
    'Tensor self',
    'pointwise',
    'ext',
  ),
  ...identity(
    'detach.default detach_.default alias.default lift_fresh.default',
    'Tensor self',
    'view',
  ),
  cast(
    'aten._to_copy.default',
    'Tensor self, *, ScalarType? dtype=None, Any layout=None, Any device=None, Any ' +
      'pin_memory=None, bool non_blocking=False, Any memory_format=None',
  ),
  cast('aten.to.dtype', `Tensor self, ScalarType dtype, ${DEVICE_TAIL}`),
  cast('aten.to.device', `Tensor self, Any device, ScalarType dtype, ${DEVICE_TAIL}`),
  cast(
    'aten.to.dtype_layout',
    'Tensor self, *, ScalarType? dtype=None, Any layout=None, Any device=None, Any ' +
      'pin_memory=None, bool non_blocking=False, bool copy=False, Any memory_format=None',
  ),
  cast('prims.convert_element_type.default', 'Tensor a, ScalarType dtype'),
  defineOp('aten.type_as.default', {
    schema: 'Tensor self, Tensor other',
    cls: 'pointwise',
    infer: (ctx) => [{ dtype: ctx.inputs[1].dtype, shape: ctx.inputs[0].shape }],
    // Only the dtype of `other` is read; it is asked for replicated because its shape is its own.
    shard: (ctx) => [
      ...cuttable(ctx.inputs[0].shape).map((d) => rule([anyS(d), R], [anyS(d)])),
      ...castKinds(ctx),
    ],
  }),
  ...TARGETS.map(([n, dtype]) =>
    defineOp(`aten.${n}.default`, {
      schema: 'Tensor self, *, Any memory_format=None',
      cls: 'pointwise',
      infer: (ctx) => [{ dtype, shape: ctx.inputs[0].shape }],
      shard: (ctx) => [...pointwiseRules(ctx), ...castKinds(ctx)],
    }),
  ),
  ...['copy_.default', 'copy.default', 'fill.Tensor', 'fill_.Tensor'].map((name) =>
    defineOp(`aten.${name}`, {
      schema: name.startsWith('fill')
        ? 'Tensor self, Tensor value'
        : 'Tensor self, Tensor src, bool non_blocking=False',
      cls: 'pointwise',
      infer: (ctx) => {
        const [self, value] = ctx.inputs;
        if (name.startsWith('fill') && value.shape.length > 0)
          ctx.fail(`value has ${value.shape.length} dims, expected none`);
        return [self];
      },
      // The old value is overwritten: what it was pending does not matter.
      shard: (ctx) => {
        // Fractions are cut off, so that addends of a fraction make another integer; the largest
        // stays the largest.
        const [self, value] = ctx.inputs.map(({ dtype }) => isIntegral(dtype));
        const kinds =
          self && !value ? ALL_KINDS.filter((kind) => kind === 'max' || kind === 'min') : ALL_KINDS;
        return [
          ...pointwiseRules(ctx),
          ...kinds.map((kind) => rule([P(kind), P(kind)], [P(kind)])),
          ...ALL_KINDS.map((kind) => rule([P(kind), R], [R], { origin: 'ext' })),
          ...ALL_KINDS.flatMap((old) =>
            kinds
              .filter((kind) => kind !== old)
              .map((kind) => rule([P(old), P(kind)], [P(kind)], { origin: 'ext' })),
          ),
        ];
      },
      bytes: (ctx) => metaBytes(ctx.inputs[1]) + metaBytes(ctx.inputs[0]),
    }),
  ),
];
