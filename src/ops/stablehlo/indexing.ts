/**
 * `gather` and `scatter`, whose dimension numbers say for every dim what it is: taken whole,
 * batched with the indices, or indexed. Whole and batched dims follow; cut indices give cut (or
 * summed) results; a cut indexed dim is masked, each rank serving the indices that fall into its
 * rows.
 */

import {
  defineOp,
  elements,
  metaBytes,
  type OpContext,
  type OperatorRecord,
  type TypedContext,
} from '../record/record.ts';
import { P, R, type Rule, rule, type RuleSlot, S } from '../record/rule.ts';
import { additiveKind, anyS, linearKinds, movedKinds, need } from '../rules/dims.ts';

const rows = (dim: number): RuleSlot => S(dim, { slicing: 'contiguous' });

/** Dims of the indices that are not the index vector, in order. */
function indexDims(rank: number, vector: number): number[] {
  return Array.from({ length: rank }, (_, d) => d).filter((d) => d !== vector);
}

interface GatherPlan {
  /** Result dim of each operand dim that is neither collapsed nor batched. */
  readonly windowOf: ReadonlyMap<number, number>;
  /** Result dim of each dim of the indices but the index vector. */
  readonly batchOf: ReadonlyMap<number, number>;
  readonly shape: readonly number[];
}

function gatherPlan(ctx: OpContext): GatherPlan {
  const operand = need(ctx, 'operand').shape;
  const indices = need(ctx, 'start_indices').shape;
  const offsets = ctx.ints('offset_dims');
  const gone = [...ctx.ints('collapsed_slice_dims'), ...ctx.ints('operand_batching_dims')];
  const sizes = ctx.ints('slice_sizes');
  const vector = ctx.int('index_vector_dim');
  if (sizes.length !== operand.length)
    ctx.fail(`slice_sizes has ${sizes.length} entries, expected ${operand.length}`);
  sizes.forEach((n, d) => {
    if (n < 0 || n > operand[d])
      ctx.fail(`a slice of ${n} rows of dim ${d}, which has ${operand[d]}`);
    if (gone.includes(d) && n > 1)
      ctx.fail(`dim ${d} is collapsed or batched, but its slice has ${n} rows`);
  });
  if (vector < 0 || vector > indices.length) ctx.fail(`index_vector_dim ${vector} does not exist`);
  const width = vector === indices.length ? 1 : indices[vector];
  if (width !== ctx.ints('start_index_map').length)
    ctx.fail(
      `index vectors have ${width} entries, start_index_map has ` +
        `${ctx.ints('start_index_map').length}`,
    );
  const windowDims = operand.flatMap((_, d) => (gone.includes(d) ? [] : [d]));
  const batchDims = indexDims(indices.length, vector);
  if (windowDims.length !== offsets.length)
    ctx.fail(`${offsets.length} offset_dims for ${windowDims.length} window dims`);
  const rank = windowDims.length + batchDims.length;
  const shape = new Array<number>(rank).fill(0);
  const windowOf = new Map<number, number>();
  const batchOf = new Map<number, number>();
  offsets.forEach((out, i) => {
    if (!(out in shape)) ctx.fail(`offset dim ${out} does not exist in a result of ${rank} dims`);
    windowOf.set(windowDims[i], out);
    shape[out] = sizes[windowDims[i]];
  });
  let next = 0;
  for (let out = 0; out < rank; out++) {
    if (offsets.includes(out)) continue;
    const dim = batchDims[next++];
    if (dim === undefined) ctx.fail('offset_dims repeat a dim');
    batchOf.set(dim, out);
    shape[out] = indices[dim];
  }
  return { windowOf, batchOf, shape };
}

function gatherRules(ctx: TypedContext): Rule[] {
  const { dtype, shape } = need(ctx, 'operand');
  const indices = need(ctx, 'start_indices').shape;
  const { windowOf, batchOf } = gatherPlan(ctx);
  const sizes = ctx.ints('slice_sizes');
  const batched = ctx.ints('operand_batching_dims');
  const withIndices = ctx.ints('start_indices_batching_dims');
  const indexed = ctx.ints('start_index_map');
  const rules: Rule[] = [];
  // A dim that is taken whole: its start is 0, or is clamped to 0.
  for (const [dim, out] of windowOf)
    if (shape[dim] > 1 && sizes[dim] === shape[dim])
      rules.push(rule([anyS(dim), R], [anyS(out)], { rewrite: 'local-shape' }));
  batched.forEach((dim, i) => {
    const out = batchOf.get(withIndices[i]);
    if (out !== undefined && shape[dim] > 1 && indices[withIndices[i]] === shape[dim])
      // A window of one row needs at least one row.
      rules.push(rule([S(dim, { filled: true }), S(withIndices[i])], [S(out)]));
  });
  for (const [dim, out] of batchOf)
    if (indices[dim] > 1 && !withIndices.includes(dim))
      rules.push(rule([R, anyS(dim)], [anyS(out)]));
  for (const kind of movedKinds(dtype)) rules.push(rule([P(kind), R], [P(kind)]));
  for (const dim of indexed)
    if (shape[dim] > 1 && sizes[dim] === 1)
      rules.push(
        rule([rows(dim), R], [P(additiveKind(dtype))], { origin: 'ext', rewrite: 'mask' }),
      );
  return rules;
}

const gather = defineOp('stablehlo.gather', {
  schema:
    'Tensor operand, Tensor start_indices, *, int[] offset_dims=[], int[] ' +
    'collapsed_slice_dims=[], int[] operand_batching_dims=[], int[] ' +
    'start_indices_batching_dims=[], int[] start_index_map=[], int index_vector_dim=0, int[] ' +
    'slice_sizes, bool indices_are_sorted=False',
  cls: 'other',
  infer: (ctx) => [{ dtype: need(ctx, 'operand').dtype, shape: gatherPlan(ctx).shape }],
  shard: gatherRules,
  flops: () => ({ matrix: 0, vector: 0 }),
  // The rows read, the indices and the result; the rest of the table is not touched.
  bytes: (ctx) =>
    metaBytes(ctx.inputs[1]) + 2 * (ctx.outputs[0] === null ? 0 : metaBytes(ctx.outputs[0])),
});

// ---- scatter
// -----------------------------------------------------------------------------

interface ScatterPlan {
  /** Update dim of each input dim that is neither inserted nor batched. */
  readonly windowOf: ReadonlyMap<number, number>;
  /** Update dim of each dim of the indices but the index vector. */
  readonly scatterOf: ReadonlyMap<number, number>;
}

function scatterPlan(ctx: OpContext): ScatterPlan {
  const inputs = ctx.list('inputs');
  const updates = ctx.list('updates');
  const [input, update] = [inputs[0]?.meta.shape, updates[0]?.meta.shape];
  if (input === undefined || update === undefined || inputs.length !== updates.length)
    return ctx.fail(`${inputs.length} inputs and ${updates.length} updates; they come in pairs`);
  const indices = need(ctx, 'scatter_indices').shape;
  const gone = [...ctx.ints('inserted_window_dims'), ...ctx.ints('input_batching_dims')];
  const windows = ctx.ints('update_window_dims');
  const windowDims = input.flatMap((_, d) => (gone.includes(d) ? [] : [d]));
  if (windowDims.length !== windows.length)
    ctx.fail(`${windows.length} update_window_dims for ${windowDims.length} window dims`);
  const scatterDims = indexDims(indices.length, ctx.int('index_vector_dim'));
  if (update.length !== windows.length + scatterDims.length)
    ctx.fail(
      `the update has ${update.length} dims, expected ${windows.length + scatterDims.length}`,
    );
  const windowOf = new Map<number, number>();
  windows.forEach((at, i) => {
    if (!(at in update)) ctx.fail(`update window dim ${at} does not exist`);
    if (update[at] > input[windowDims[i]])
      ctx.fail(`update dim ${at} is larger than input dim ${windowDims[i]}`);
    windowOf.set(windowDims[i], at);
  });
  const scatterOf = new Map<number, number>();
  let next = 0;
  update.forEach((size, at) => {
    if (windows.includes(at)) return;
    const dim = scatterDims[next++];
    if (dim === undefined || indices[dim] !== size)
      ctx.fail(`update dim ${at} of size ${size} does not fit the indices`);
    scatterOf.set(dim, at);
  });
  return { windowOf, scatterOf };
}

/**
 * Pending kind under which writes of different ranks into equal places join, by what the body does.
 */
const JOINS: Readonly<Record<string, 'sum' | 'max' | 'min'>> = {
  add: 'sum',
  maximum: 'max',
  minimum: 'min',
};

function scatterRules(ctx: TypedContext): Rule[] {
  const inputs = ctx.list('inputs').length;
  const { dtype, shape } = ctx.inputs[0];
  const update = ctx.inputs[inputs + 1].shape;
  const { windowOf, scatterOf } = scatterPlan(ctx);
  const slots = (own: RuleSlot, index: RuleSlot, written: RuleSlot): RuleSlot[] =>
    ctx.inputs.map((_, i) => (i < inputs ? own : i === inputs ? index : written));
  const results = (slot: RuleSlot): RuleSlot[] => ctx.outputs.map(() => slot);
  const rules: Rule[] = [];
  for (const [dim, at] of windowOf)
    if (shape[dim] > 1 && update[at] === shape[dim])
      rules.push(rule(slots(S(dim), R, S(at)), results(S(dim))));
  ctx.ints('input_batching_dims').forEach((dim, i) => {
    const index = ctx.ints('scatter_indices_batching_dims')[i];
    const at = scatterOf.get(index);
    if (at !== undefined && shape[dim] > 1 && update[at] === shape[dim])
      rules.push(rule(slots(S(dim), S(index), S(at)), results(S(dim))));
  });
  const reducer = ctx.has('reducer') ? ctx.text('reducer') : '';
  // Several inputs share one body, of which nothing more is known.
  const join =
    inputs === 1 && Object.hasOwn(JOINS, reducer) && dtype !== 'b8' ? JOINS[reducer] : undefined;
  const passing =
    reducer === 'second'
      ? movedKinds(dtype)
      : join === 'sum'
        ? linearKinds(dtype)
        : join === undefined
          ? []
          : [join];
  for (const kind of passing)
    rules.push(
      rule(slots(P(kind), R, P(kind)), results(P(kind)), {
        origin: kind === 'sum' ? 'base' : 'ext',
      }),
    );
  if (join !== undefined)
    for (const [dim, at] of scatterOf)
      if (update[at] > 1 && !ctx.ints('scatter_indices_batching_dims').includes(dim))
        rules.push(rule(slots(P(join), S(dim), S(at)), results(P(join)), { origin: 'ext' }));
  // The indexed dim cut: each rank drops the writes that fall outside its rows.
  for (const dim of ctx.ints('scatter_dims_to_operand_dims'))
    if (shape[dim] > 1 && ctx.ints('inserted_window_dims').includes(dim))
      rules.push(
        rule(slots(rows(dim), R, R), results(rows(dim)), { origin: 'ext', rewrite: 'mask' }),
      );
  return rules;
}

/**
 * `reducer`: what the body does with old and new value (`add`, `maximum`, `second` = overwrite);
 * else `body`.
 */
const scatter = defineOp('stablehlo.scatter', {
  schema:
    'Tensor[] inputs, Tensor scatter_indices, Tensor[] updates, *, int[] ' +
    'update_window_dims=[], int[] inserted_window_dims=[], int[] input_batching_dims=[], ' +
    'int[] scatter_indices_batching_dims=[], int[] scatter_dims_to_operand_dims=[], int ' +
    'index_vector_dim=0, bool indices_are_sorted=False, bool unique_indices=False, str? ' +
    'reducer=None, Any body=None',
  cls: 'other',
  results: 'tuple',
  infer: (ctx) => {
    scatterPlan(ctx);
    return ctx.list('inputs').flatMap((member) => (member === null ? [] : [member.meta]));
  },
  shard: scatterRules,
  flops: (ctx) => ({ matrix: 0, vector: elements(ctx.inputs.at(-1)?.shape ?? []) }),
});

export const indexingOps: readonly OperatorRecord[] = [gather, scatter];
