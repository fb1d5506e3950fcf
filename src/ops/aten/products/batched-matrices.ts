/**
 * Operators on several tensors that have the batch in common: matrices with their pivots, their
 * right-hand sides or the scales of their reflections. The dims of the batch are cut on all.
 */
import { flat, fromFlat, sizeOf } from '../../../ndarray/array.ts';
import { type KernelCall, tensor } from '../../record/kernel.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
  type TypedContext,
} from '../../record/record.ts';
import { R, type Rule, rule, S } from '../../record/rule.ts';
import { cuttable, linearKinds, need } from '../../rules/dims.ts';
import { onePartial } from '../../rules/partials.ts';

interface Batched {
  readonly schema: string;
  /** Tensor arguments and how many of their last dims are those of a matrix; the first leads. */
  readonly inputs: Readonly<Record<string, number>>;
  /** Right-hand sides, in which the result is linear and whose columns (rows) are independent. */
  readonly side?: string;
  readonly tuple?: boolean;
  readonly results: (
    shapes: readonly (readonly number[])[],
    ctx: OpContext,
  ) => readonly (readonly number[])[];
  readonly each: (
    parts: readonly Float64Array[],
    shapes: readonly (readonly number[])[],
    call: KernelCall,
  ) => readonly ArrayLike<number>[];
}

/** Results of each matrix of a batch that all arguments have. */
export function batched(name: string, spec: Batched): OperatorRecord {
  const names = Object.keys(spec.inputs);
  const split = (
    ctx: OpContext,
  ): { batch: readonly number[]; tails: readonly (readonly number[])[] } => {
    const shapes = names.map((n) => need(ctx, n).shape);
    const batches = shapes.map((shape, i) => shape.slice(0, shape.length - spec.inputs[names[i]]));
    if (batches.some((b) => b.join() !== batches[0].join()))
      ctx.fail(`batches [${batches.map((b) => b.join(', ')).join('] and [')}] differ`);
    return { batch: batches[0], tails: shapes.map((s, i) => s.slice(batches[i].length)) };
  };
  const types = (ctx: OpContext): TensorMeta[] => {
    const { batch, tails } = split(ctx);
    const { dtype } = need(ctx, names[0]);
    return spec.results(tails, ctx).map((tail) => ({ dtype, shape: [...batch, ...tail] }));
  };
  return defineOp(name, {
    schema: spec.schema,
    cls: 'other',
    results: spec.tuple === true ? 'tuple' : 'single',
    infer: types,
    shard: (ctx) => [
      ...cuttable(split(ctx).batch).map((d) =>
        rule(
          ctx.inputs.map(() => S(d)),
          ctx.outputs.map(() => S(d)),
        ),
      ),
      ...(spec.side === undefined ? [] : sideRules(ctx, ctx.indexOf(spec.side))),
    ],
    flops: (ctx) => ({
      matrix: 0,
      vector: 2 * elements(ctx.inputs[0].shape) * (ctx.inputs[0].shape.at(-1) ?? 1),
    }),
    kernel: (call) => {
      const { batch, tails } = split(call.ctx);
      const data = names.map((n) => flat(tensor(call, n)));
      const outputs = types(call.ctx).map(({ shape }) => ({
        shape,
        data: new Float64Array(sizeOf(shape)),
      }));
      for (let i = 0; i < sizeOf(batch); i++) {
        const parts = data.map((x, k) => {
          const size = sizeOf(tails[k]);
          return x.slice(i * size, (i + 1) * size);
        });
        const made = spec.each(parts, tails, call);
        outputs.forEach((out, k) => out.data.set(made[k], i * made[k].length));
      }
      return outputs.map((out) => fromFlat(out.shape, out.data, tensor(call, names[0]).dtype));
    },
  });
}

/** Columns (rows) of the right-hand sides, and right-hand sides that are pending. */
function sideRules(ctx: TypedContext, at: number): Rule[] {
  const { dtype, shape } = ctx.inputs[at];
  const free = shape.length - (ctx.bool('left') ? 1 : 2);
  const columns = rule(
    ctx.inputs.map((_, i) => (i === at ? S(free) : R)),
    [S(free)],
  );
  return [
    ...(shape[free] > 1 ? [columns] : []),
    ...linearKinds(dtype).map((kind) => onePartial(ctx, at, kind)),
  ];
}
