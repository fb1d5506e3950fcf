/**
 * Softmax, its logarithm, and their backward. Dims other than the normalised one follow. Cutting the normalised dim itself
 * (a vocabulary over ranks) needs the row maximum and the row sum of all ranks: two small all-reduces inside the operator,
 * one in the backward.
 */

import { DTYPE_BYTES, type DType } from '../../../graph/types.ts';
import { floatResult } from '../../record/dtypes.ts';
import { anyS, cuttable, normalDim } from '../../rules/dims.ts';
import { linearIn } from '../../rules/partials.ts';
import { defineOp, elements, type OpContext, type OperatorRecord, type TypedContext } from '../../record/record.ts';
import { rule, S, type InternalCollective, type Rule } from '../../record/rule.ts';

/** Dim that is normalised. */
function softmaxDim(ctx: OpContext): number {
  return normalDim(ctx, ctx.int('dim'), ctx.inputs[0].shape.length);
}

/** All-reduce of one accumulator (f32, or f64 for double input) per row; rows are cut with the context. */
function perRow(dimOf: (ctx: TypedContext) => number): InternalCollective {
  return {
    kind: 'all_reduce',
    bytes(ctx) {
      const { shape, dtype } = ctx.inputs[0];
      const dim = dimOf(ctx);
      return elements(shape.filter((_, d) => d !== dim)) * Math.max(4, DTYPE_BYTES[dtype]);
    },
  };
}

interface Softmax {
  readonly schema: string;
  readonly dtype: (ctx: OpContext) => DType;
  readonly backward: boolean;
  readonly extra?: (ctx: TypedContext) => readonly Rule[];
}

function softmax(name: string, spec: Softmax): OperatorRecord {
  return defineOp(name, {
    schema: spec.schema,
    cls: 'reduction',
    infer: (ctx) => {
      softmaxDim(ctx);
      return [{ dtype: spec.dtype(ctx), shape: ctx.inputs[0].shape }];
    },
    shard(ctx) {
      const dim = softmaxDim(ctx);
      const dims = cuttable(ctx.inputs[0].shape);
      const follow = dims
        .filter((d) => d !== dim)
        .map((d) =>
          rule(
            ctx.inputs.map(() => S(d)),
            [S(d)],
          ),
        );
      const across = dims.includes(dim) ? [acrossRule(ctx, dim, spec.backward)] : [];
      return [...follow, ...(spec.extra?.(ctx) ?? []), ...across];
    },
    flops: (ctx) => ({ matrix: 0, vector: (spec.backward ? 4 : 5) * elements(ctx.inputs[0].shape) }),
  });
}

/** The normalised dim cut, any way: only row statistics cross ranks. */
function acrossRule(ctx: TypedContext, dim: number, backward: boolean): Rule {
  const one = perRow(softmaxDim);
  return rule(
    ctx.inputs.map(() => (backward ? S(dim) : anyS(dim))),
    [backward ? S(dim) : anyS(dim)],
    backward
      ? { origin: 'ext', rewrite: 'all-reduce-sum', collectives: [one] }
      : { origin: 'ext', rewrite: 'all-reduce-max-sum', collectives: [one, one] },
  );
}

const halfToFloat = (ctx: OpContext): DType => {
  const dtype = floatResult(ctx.inputs[0].dtype);
  return ctx.bool('half_to_float') ? 'f32' : dtype;
};
const askedDtype = (ctx: OpContext): DType => ctx.dtype('dtype') ?? floatResult(ctx.inputs[0].dtype);
const FORWARD = 'Tensor self, int dim, bool half_to_float';
const COMPOSITE = 'Tensor self, int dim, ScalarType? dtype=None';
const gradType = (ctx: OpContext): DType => ctx.dtype('input_dtype') ?? ctx.inputs[0].dtype;
const BACKWARD = 'Tensor grad_output, Tensor output, int dim, ScalarType input_dtype';

export const softmaxOps: readonly OperatorRecord[] = [
  softmax('aten._softmax.default', { schema: FORWARD, dtype: halfToFloat, backward: false }),
  softmax('aten._log_softmax.default', { schema: FORWARD, dtype: halfToFloat, backward: false }),
  softmax('aten.softmax.int', { schema: COMPOSITE, dtype: askedDtype, backward: false }),
  softmax('aten.log_softmax.int', { schema: COMPOSITE, dtype: askedDtype, backward: false }),
  softmax('aten._safe_softmax.default', { schema: COMPOSITE, dtype: askedDtype, backward: false }),
  softmax('aten._softmax_backward_data.default', {
    schema: BACKWARD,
    dtype: gradType,
    backward: true,
    extra: linearIn('grad_output'),
  }),
  softmax('aten._log_softmax_backward_data.default', {
    schema: BACKWARD,
    dtype: gradType,
    backward: true,
    extra: linearIn('grad_output'),
  }),
];
