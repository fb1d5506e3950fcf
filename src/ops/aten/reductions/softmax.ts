/**
 * Softmax, its logarithm, and their backward. Dims other than the normalised one follow. Cutting
 * the normalised dim itself (a vocabulary over ranks) needs the row maximum and the row sum of all
 * ranks: two small all-reduces inside the operator, one in the backward.
 */

import { type DType, DTYPE_BYTES } from '../../../graph/types.ts';
import { floatResult } from '../../record/dtypes.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TypedContext,
} from '../../record/record.ts';
import {
  type BodyTraffic,
  type InternalCollective,
  type Rule,
  rule,
  S,
} from '../../record/rule.ts';
import { anyS, cuttable, normalDim } from '../../rules/dims.ts';
import { linearIn } from '../../rules/partials.ts';

/** Dim that is normalised. */
function softmaxDim(ctx: OpContext): number {
  return normalDim(ctx, ctx.int('dim'), ctx.inputs[0].shape.length);
}

/**
 * All-reduce of one accumulator (f32, or f64 for double input) per row; rows are cut with the
 * context.
 */
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
      const across = dims.includes(dim) ? [acrossRule(ctx, dim, name, spec.backward)] : [];
      return [...follow, ...(spec.extra?.(ctx) ?? []), ...across];
    },
    flops: (ctx) => ({
      matrix: 0,
      vector: (spec.backward ? 4 : 5) * elements(ctx.inputs[0].shape),
    }),
  });
}

/**
 * The traffic of the local form with the normalised dim cut, in at least 32 bits. Forward: largest,
 * difference, exponential, sum, and a difference or a quotient. Backward of a softmax: product,
 * sum, difference, product; of a log softmax: sum, exponential, difference of a product. A cast is
 * added where the result is narrower.
 */
function formTraffic(local: TypedContext, name: string, backward: boolean): BodyTraffic {
  const count = elements(local.inputs[0].shape);
  const [first, second] = local.inputs.map(({ dtype }) => DTYPE_BYTES[dtype]);
  const wide = Math.max(4, backward ? second : first);
  const isLog = name.includes('log');
  let bytes = 2 * first;
  let kernels = 5;
  if (!backward) {
    bytes += (name.includes('safe') ? 8 : 6) * wide;
    if (isLog) kernels = 6;
    else if (name.includes('safe')) kernels = 7;
  } else {
    const isJoined = isLog && first === wide;
    bytes += (isLog ? (isJoined ? 4 : 6) : 7) * wide + (second === wide ? 0 : second + wide);
    kernels = (isJoined ? 3 : 4) + (second === wide ? 0 : 1);
  }
  const narrow = local.outputs[0] === null ? wide : DTYPE_BYTES[local.outputs[0].dtype];
  const cast = narrow === wide ? 0 : 1;
  return { bytes: count * (bytes + cast * (wide + narrow)), kernels: kernels + cast };
}

/** The normalised dim cut, any way: only row statistics cross ranks. */
function acrossRule(ctx: TypedContext, dim: number, name: string, backward: boolean): Rule {
  const one = perRow(softmaxDim);
  const body = (local: TypedContext): BodyTraffic => formTraffic(local, name, backward);
  return rule(
    ctx.inputs.map(() => (backward ? S(dim) : anyS(dim))),
    [backward ? S(dim) : anyS(dim)],
    backward
      ? { origin: 'ext', rewrite: 'all-reduce-sum', collectives: [one], body }
      : { origin: 'ext', rewrite: 'all-reduce-max-sum', collectives: [one, one], body },
  );
}

const halfToFloat = (ctx: OpContext): DType => {
  const dtype = floatResult(ctx.inputs[0].dtype);
  return ctx.bool('half_to_float') ? 'f32' : dtype;
};
const askedDtype = (ctx: OpContext): DType =>
  ctx.dtype('dtype') ?? floatResult(ctx.inputs[0].dtype);
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
