/**
 * Elementwise operators: one constructor gives broadcasting, PyTorch's type promotion and the
 * sharding rules that every elementwise function has (each output dim cut, inputs cut the same way,
 * replicated where they are broadcast). What a function does to pending reductions is its own and
 * comes as `extra` rules (`partials.ts` has the groups).
 */

import { defined } from '../../defined.ts';
import type { DType } from '../../graph/types.ts';
import { categoryOf, floatResult, resultType } from '../record/dtypes.ts';
import { inPlaceName } from '../record/in-place.ts';
import type { Kernel } from '../record/kernel.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type ScalarArg,
  type TensorMeta,
  type TypedContext,
} from '../record/record.ts';
import { type Rule, rule, type RuleSlot, S } from '../record/rule.ts';
import { broadcastAll, broadcastSlot } from './dims.ts';

export interface PointwiseSpec {
  readonly schema: string;
  readonly aliases?: readonly string[];
  /**
   * `promote` (default): the promoted type of the operands. `float`: the same, integers become f32.
   * `bool`: b8. `first`: the dtype of the first tensor (in-place operators).
   */
  readonly result?: 'promote' | 'float' | 'bool' | 'first' | ((ctx: OpContext) => DType);
  /** Arguments whose types decide; default every tensor and the scalar arguments named `other`. */
  readonly operands?: readonly string[];
  /** Rules beyond the sharded ones. */
  readonly extra?: (ctx: TypedContext) => readonly Rule[];
  /** Vector operations per output element; default 1, of complex numbers 2: one on each part. */
  readonly cost?: number | ((ctx: TypedContext) => number);
  /** Values, where they are not in the tables of kernels. */
  readonly kernel?: Kernel;
  /** See `OperatorRecord.samples`; default those that the schema gives. */
  readonly samples?: readonly string[];
}

/** @throws E_TYPE when called with shapes that do not broadcast */
export function pointwise(name: string, spec: PointwiseSpec): OperatorRecord {
  return defineOp(name, {
    schema: spec.schema,
    cls: 'pointwise',
    aliases: spec.aliases ?? [],
    infer: (ctx) => [{ dtype: resultOf(spec, ctx), shape: broadcast(ctx) }],
    shard: (ctx) => [...pointwiseRules(ctx), ...(spec.extra?.(ctx) ?? [])],
    flops: (ctx) => ({ matrix: 0, vector: costOf(spec, ctx) * elements(outputShape(ctx)) }),
    ...defined({ kernel: spec.kernel, samples: spec.samples }),
  });
}

function costOf({ cost }: PointwiseSpec, ctx: TypedContext): number {
  if (typeof cost === 'function') return cost(ctx);
  return cost ?? (isComplex(ctx) ? 2 : 1);
}

/** Four products and two sums where the numbers are complex. */
export const productCost = (ctx: TypedContext): number => (isComplex(ctx) ? 6 : 1);

const isComplex = (ctx: TypedContext): boolean => categoryOf(ctx.outputs[0]?.dtype ?? 'f32') === 3;

/**
 * `aten.add.Tensor` and its in-place twin `aten.add_.Tensor`, which keeps the dtype of its first
 * argument.
 */
export function withInPlace(name: string, spec: PointwiseSpec): OperatorRecord[] {
  return [
    pointwise(name, spec),
    pointwise(inPlaceName(name), { ...spec, result: 'first', aliases: [] }),
  ];
}

/** Vector operations per element of functions that are evaluated by series or tables. */
export const TRANSCENDENTAL = 8;

/** Elements of the largest sharded piece decide; every output has the same shape. */
function outputShape(ctx: TypedContext): readonly number[] {
  return ctx.outputs[0]?.shape ?? [];
}

/** Shape that all tensor inputs broadcast to. */
function broadcast(ctx: OpContext): readonly number[] {
  return ctx.inputs.length === 1
    ? ctx.inputs[0].shape
    : broadcastAll(
        ctx,
        ctx.inputs.map((t) => t.shape),
      );
}

/** Every output dim of more than one element cut, inputs and outputs. */
export function pointwiseRules(ctx: TypedContext, outputs: number = ctx.outputs.length): Rule[] {
  const shape = broadcast(ctx);
  const rules: Rule[] = [];
  shape.forEach((size, d) => {
    if (size === 1) return;
    const inputs = ctx.inputs.map((meta) => broadcastSlot(meta.shape, shape.length, d));
    rules.push(rule(inputs, Array<RuleSlot>(outputs).fill(S(d))));
  });
  return rules;
}

function resultOf(spec: PointwiseSpec, ctx: OpContext): DType {
  const result = spec.result ?? 'promote';
  if (typeof result === 'function') return result(ctx);
  if (result === 'bool') return 'b8';
  if (result === 'first') return ctx.inputs[0].dtype;
  const promoted = promotedType(ctx, spec.operands);
  return result === 'float' ? floatResult(promoted) : promoted;
}

/** Promoted type of the named arguments, or of every tensor input. */
export function promotedType(ctx: OpContext, operands?: readonly string[]): DType {
  if (operands === undefined) {
    if (ctx.inputs.length === 0) return ctx.fail('needs a tensor argument');
    return resultType({ tensors: ctx.inputs, scalars: [] }) ?? 'f32';
  }
  const tensors: TensorMeta[] = [];
  const scalars: ScalarArg[] = [];
  for (const name of operands) {
    const meta = ctx.tensor(name);
    if (meta !== undefined) tensors.push(meta);
    else {
      const scalar = ctx.scalar(name);
      if (scalar !== undefined) scalars.push(scalar);
    }
  }
  return resultType({ tensors, scalars }) ?? ctx.fail('has no operands');
}
