/**
 * One operator, one record. Everything that the planner knows of an operator stands in its record:
 * how results are typed, which placements are right, how much work it is. A record never sees a
 * mesh or a price.
 */

import { checkKinds } from '../../arguments.ts';
import { defined } from '../../defined.ts';
import { DTYPE_BYTES } from '../../graph/types.ts';
import type { ShardingSpace } from '../../mesh/sharding/space.ts';
import { product } from '../../product.ts';
import type { OpContext, TensorMeta, TypedContext } from './call.ts';
import { categoryOf } from './dtypes.ts';
import type { Kernel } from './kernel.ts';
import { LINEAR_KINDS, type Rule } from './rule.ts';
import { type ArgSchema, parseSchema } from './schema.ts';

export type { OpContext, ScalarArg, TensorMeta, TypedContext } from './call.ts';

export type OpClass =
  | 'pointwise'
  | 'view'
  | 'matmul'
  | 'reduction'
  | 'attention'
  | 'norm'
  | 'factory'
  | 'random'
  | 'collective'
  | 'control'
  | 'other';

export interface OpWork {
  /** Matrix-unit work, 2 per multiply-add. */
  readonly matrix: number;
  /** Everything else; used for time estimates only. */
  readonly vector: number;
}

/** One operator: schema, result types, FLOPs and bytes, sharding rules, kernel and samples. */
export interface OperatorRecord {
  /** Canonical name with overload, `aten.mm.default`. */
  readonly name: string;
  readonly aliases: readonly string[];
  readonly schema: readonly ArgSchema[];
  readonly cls: OpClass;
  /** `tuple` operators are read through getitem even with one result. */
  readonly results: 'single' | 'tuple';
  /** Result types, or an `E_TYPE` error; null for a masked-off result. */
  infer(ctx: OpContext): readonly (TensorMeta | null)[];
  /**
   * The types that PyTorch gives on another device or in another memory order, where a graph states
   * them: statistics of another width, say.
   */
  variants?(ctx: OpContext): readonly (readonly (TensorMeta | null)[])[];
  /**
   * Single-dim rules without the all-replicate rule, which the expansion adds. Empty means
   * "replicated only".
   */
  shard(ctx: TypedContext): readonly Rule[];
  /**
   * Where rules of single mesh dims do not hold in every combination: whether these shardings,
   * inputs first, hold together on the whole mesh.
   */
  holds?(space: ShardingSpace, ids: readonly number[]): boolean;
  flops(ctx: TypedContext): OpWork;
  /** Bytes read and written at the sizes of the context. */
  bytes(ctx: TypedContext): number;
  /**
   * Values of an operator that comes with its own kernel; the built-in ones have theirs in a table.
   */
  readonly kernel?: Kernel;
  /**
   * Arguments of calls that its rules are tried with, as text: `x[6,4], x[4,6], 1`. Sizes that 2
   * and 3 ranks divide (6) and that they do not (5) say most. Built-in operators have theirs in
   * tables; elementwise ones get them from the schema.
   */
  readonly samples?: readonly string[];
}

interface OperatorSpec {
  readonly schema: string;
  readonly cls: OpClass;
  readonly aliases?: readonly string[];
  readonly results?: 'single' | 'tuple';
  infer(ctx: OpContext): readonly (TensorMeta | null)[];
  variants?(ctx: OpContext): readonly (readonly (TensorMeta | null)[])[];
  shard?(ctx: TypedContext): readonly Rule[];
  /** See `OperatorRecord.holds`. */
  holds?(space: ShardingSpace, ids: readonly number[]): boolean;
  flops?(ctx: TypedContext): OpWork;
  bytes?(ctx: TypedContext): number;
  readonly kernel?: Kernel;
  /** See `OperatorRecord.samples`. */
  readonly samples?: readonly string[];
}

/**
 * Completes a record: schema parsed, default work (one vector operation per output element) and
 * default bytes.
 */
export function defineOp(name: string, spec: OperatorSpec): OperatorRecord {
  checkKinds('defineOp', { name: [name, 'string'], spec: [spec, ['schema', 'cls', 'infer']] });
  return {
    name,
    aliases: spec.aliases ?? [],
    schema: parseSchema(spec.schema),
    cls: spec.cls,
    results: spec.results ?? 'single',
    infer: (ctx) => spec.infer(ctx),
    shard: (ctx) => (spec.shard === undefined ? [] : orderedOnly(spec.shard(ctx), ctx)),
    flops: (ctx) => (spec.flops !== undefined ? spec.flops(ctx) : defaultWork(spec.cls, ctx)),
    bytes: (ctx) => (spec.bytes !== undefined ? spec.bytes(ctx) : defaultBytes(spec.cls, ctx)),
    ...(spec.variants === undefined
      ? {}
      : { variants: (ctx: OpContext) => spec.variants?.(ctx) ?? [] }),
    ...(spec.holds === undefined
      ? {}
      : {
          holds: (space: ShardingSpace, ids: readonly number[]) =>
            spec.holds?.(space, ids) !== false,
        }),
    ...defined({ kernel: spec.kernel, samples: spec.samples }),
  };
}

/** Complex numbers have no order: of their pending reductions only sums and averages exist. */
function orderedOnly(rules: readonly Rule[], { inputs, outputs }: TypedContext): readonly Rule[] {
  const metas = [...inputs, ...outputs];
  if (metas.every((meta) => meta === null || categoryOf(meta.dtype) !== 3)) return rules;
  return rules.filter((r) =>
    [...r.inputs, ...r.outputs].every(
      (slot, i) =>
        slot?.kind !== 'partial' ||
        LINEAR_KINDS.includes(slot.op) ||
        categoryOf(metas[i]?.dtype ?? 'f32') !== 3,
    ),
  );
}

/**
 * Tells whether a call draws random numbers; attention does where it drops, and its backward call
 * then takes the same numbers up.
 */
export function drawsNumbers(
  { cls, schema }: Pick<OperatorRecord, 'cls' | 'schema'>,
  call: TypedContext,
): boolean {
  return (
    cls === 'random' || (schema.some((s) => s.name === 'dropout_p') && call.number('dropout_p') > 0)
  );
}

export function elements(shape: readonly number[]): number {
  return product(shape);
}

export function metaBytes(meta: TensorMeta): number {
  return elements(meta.shape) * DTYPE_BYTES[meta.dtype];
}

function defaultWork(cls: OpClass, ctx: TypedContext): OpWork {
  if (cls === 'view') return { matrix: 0, vector: 0 };
  let vector = 0;
  for (const out of ctx.outputs) if (out !== null) vector += elements(out.shape);
  return { matrix: 0, vector };
}

/** Every tensor input read once, every result written once; a view moves nothing. */
function defaultBytes(cls: OpClass, ctx: TypedContext): number {
  if (cls === 'view') return 0;
  let total = 0;
  if (cls !== 'factory') for (const input of ctx.inputs) total += metaBytes(input);
  for (const out of ctx.outputs) if (out !== null) total += metaBytes(out);
  return total;
}
