/**
 * Collectives of a program that is manual over some mesh dims. The rules here speak of the OTHER
 * mesh dims, on which the operation is an ordinary function of its operand; `replica_groups` or
 * `axes` say where it communicates.
 */

import type { ReduceOp } from '../../mesh/placements/placement.ts';
import { defineOp, elements, type OpContext, type OperatorRecord } from '../record/record.ts';
import { P, type Rule, rule } from '../record/rule.ts';
import { anyS, cuttable, linearKinds, movedKinds } from '../rules/dims.ts';

const GROUPS =
  'Any replica_groups=None, Any axes=None, int? channel_id=None, bool use_global_device_ids=False';

/** Size of each group: stated, or the length of the first group. */
function groupSize(ctx: OpContext): number {
  return ctx.int('group_size') > 0
    ? ctx.int('group_size')
    : ctx.fail("argument 'group_size' must be positive");
}

const KINDS: Readonly<Record<string, readonly ReduceOp[]>> = {
  add: ['sum', 'avg'],
  maximum: ['max'],
  minimum: ['min'],
  or: ['bor'],
  and: ['band'],
};

/** Pending kinds that commute with the reduction of the group. */
function kindsOf(ctx: OpContext): readonly ReduceOp[] {
  const reducer = ctx.has('reducer') ? ctx.text('reducer') : '';
  if (!Object.hasOwn(KINDS, reducer)) return [];
  const { dtype } = ctx.inputs[0];
  const exist = dtype === 'b8' ? movedKinds(dtype) : [...linearKinds(dtype), 'max', 'min'];
  return KINDS[reducer].filter((kind) => exist.includes(kind));
}

function along(ctx: OpContext, without: readonly number[], kinds: readonly ReduceOp[]): Rule[] {
  const cuts = cuttable(ctx.inputs[0].shape).filter((d) => !without.includes(d));
  return [
    ...cuts.map((d) => rule([anyS(d)], [anyS(d)])),
    ...kinds.map((kind) => rule([P(kind)], [P(kind)])),
  ];
}

function dimOf(ctx: OpContext, name: string): number {
  const dim = ctx.int(name);
  return dim in ctx.inputs[0].shape
    ? dim
    : ctx.fail(`dim ${dim} does not exist in [${ctx.inputs[0].shape.join(', ')}]`);
}

/** Shape with dim `d` multiplied and divided. @throws E_TYPE where it does not divide */
function scaled(
  ctx: OpContext,
  shape: readonly number[],
  d: number,
  times: number,
  by: number,
): number[] {
  return shape.map((n, i) => {
    if (i !== d) return n;
    return (n * times) % by === 0
      ? (n * times) / by
      : ctx.fail(`dim ${d} of size ${n} does not divide by ${by}`);
  });
}

const allReduce = defineOp('stablehlo.all_reduce', {
  schema: `Tensor[] operands, *, str? reducer=None, Any body=None, ${GROUPS}`,
  cls: 'collective',
  results: 'tuple',
  infer: (ctx) => ctx.inputs,
  shard: (ctx) => (ctx.inputs.length === 1 ? along(ctx, [], kindsOf(ctx)) : []),
  flops: (ctx) => ({ matrix: 0, vector: ctx.inputs.reduce((n, t) => n + elements(t.shape), 0) }),
});

const allGather = defineOp('stablehlo.all_gather', {
  schema: `Tensor operand, *, int all_gather_dim, int group_size, ${GROUPS}`,
  cls: 'collective',
  infer: (ctx) => {
    const { dtype, shape } = ctx.inputs[0];
    return [{ dtype, shape: scaled(ctx, shape, dimOf(ctx, 'all_gather_dim'), groupSize(ctx), 1) }];
  },
  shard: (ctx) => along(ctx, [ctx.int('all_gather_dim')], movedKinds(ctx.inputs[0].dtype)),
  flops: () => ({ matrix: 0, vector: 0 }),
});

const reduceScatter = defineOp('stablehlo.reduce_scatter', {
  schema:
    'Tensor operand, *, int scatter_dimension, int group_size, str? reducer=None, Any ' +
    `body=None, ${GROUPS}`,
  cls: 'collective',
  infer: (ctx) => {
    const { dtype, shape } = ctx.inputs[0];
    return [
      { dtype, shape: scaled(ctx, shape, dimOf(ctx, 'scatter_dimension'), 1, groupSize(ctx)) },
    ];
  },
  shard: (ctx) => along(ctx, [ctx.int('scatter_dimension')], kindsOf(ctx)),
});

const allToAll = defineOp('stablehlo.all_to_all', {
  schema:
    'Tensor operand, *, int split_dimension, int concat_dimension, int split_count, ' + GROUPS,
  cls: 'collective',
  infer: (ctx) => {
    const { dtype, shape } = ctx.inputs[0];
    const count =
      ctx.int('split_count') > 0
        ? ctx.int('split_count')
        : ctx.fail('split_count must be positive');
    const split = scaled(ctx, shape, dimOf(ctx, 'split_dimension'), 1, count);
    return [{ dtype, shape: scaled(ctx, split, dimOf(ctx, 'concat_dimension'), count, 1) }];
  },
  shard: (ctx) =>
    along(
      ctx,
      [ctx.int('split_dimension'), ctx.int('concat_dimension')],
      movedKinds(ctx.inputs[0].dtype),
    ),
  flops: () => ({ matrix: 0, vector: 0 }),
});

/**
 * Data that changes rank unchanged. A rank without a source gets zeros, so only sums pass next to
 * cuts.
 */
function moving(name: string, schema: string): OperatorRecord {
  return defineOp(name, {
    schema: `Tensor operand, *, ${schema}`,
    cls: 'collective',
    infer: (ctx) => [ctx.inputs[0]],
    shard: (ctx) => along(ctx, [], linearKinds(ctx.inputs[0].dtype)),
    flops: () => ({ matrix: 0, vector: 0 }),
  });
}

/** Number of the device: differs by rank, so it is used only where the program is manual. */
function rankNumber(name: string): OperatorRecord {
  return defineOp(name, {
    schema: '*, Any axes=None',
    cls: 'factory',
    infer: () => [{ dtype: 'u32', shape: [] }],
  });
}

export const collectiveOps: readonly OperatorRecord[] = [
  allReduce,
  allGather,
  reduceScatter,
  allToAll,
  moving(
    'stablehlo.collective_permute',
    'Any source_target_pairs=None, Any axes=None, int? channel_id=None',
  ),
  moving('stablehlo.collective_broadcast', GROUPS),
  rankNumber('stablehlo.partition_id'),
  rankNumber('stablehlo.replica_id'),
];
