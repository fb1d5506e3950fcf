/**
 * Takes a call and gives the loop that a compiler makes of it. Source: PyTorch's Inductor, which
 * writes loops for elementwise calls, copies, gathers and reductions, and calls libraries for
 * products, attention, sorts and everything else. Calls of StableHLO are XLA's (`xla-loops.ts`).
 */

import type { CallTraffic } from '../../cost/compute.ts';
import { type DType, DTYPE_BYTES } from '../../graph/types.ts';
import { elements, type OperatorRecord, type TypedContext } from '../../ops/record/record.ts';
import { product } from '../../product.ts';
import type { LoopForm } from './loop-form.ts';
import { isXlaOperator, xlaLoop, xlaTraffic } from './xla-loops.ts';

/** Calls of class `other` that become loops: what they write depends on each element alone. */
const ELEMENTWISE: ReadonlySet<string> = new Set(
  [
    'cat.default',
    'concat.default',
    'concatenate.default',
    'stack.default',
    'constant_pad_nd.default',
    'flip.default',
    'roll.default',
    'slice_backward.default',
    'select_backward.default',
    'slice_scatter.default',
    'select_scatter.default',
    'repeat.default',
    'repeat_interleave.self_int',
    'tril.default',
    'triu.default',
    'one_hot.default',
  ].map((name) => `aten.${name}`),
);
/** Calls that look rows or values up: they read as much as they write. */
const LOOKUPS: ReadonlySet<string> = new Set(
  [
    'embedding.default',
    'gather.default',
    'index.Tensor',
    '_unsafe_index.Tensor',
    'index_select.default',
  ].map((name) => `aten.${name}`),
);
/** Reductions that become loops. */
const SUMS = /^aten\.(sum|nansum|mean|prod|amax|amin|any|all|var)\./;
/** Values that a sum adds up without a loop of its own at most (`unroll_reductions_threshold`). */
const UNROLLED = 8;
const always = (): boolean => true;

/** The loop of a call; undefined where a library runs it. */
export function loopForm(record: OperatorRecord, ctx: TypedContext): LoopForm | undefined {
  const { name, cls } = record;
  if (isXlaOperator(name)) return xlaLoop(record, ctx);
  const out = ctx.outputs[0];
  if (out === null || out === undefined) return undefined;
  const each = {
    over: 'each',
    count: elements(out.shape),
    rows: elements(out.shape),
    whole: false,
  } as const;
  if (cls === 'pointwise' || cls === 'factory' || cls === 'random' || ELEMENTWISE.has(name))
    return { ...each, reads: always };
  if (LOOKUPS.has(name)) {
    const table = ctx.indexOf(name.includes('embedding') ? 'weight' : 'self');
    return { ...each, reads: (input) => input !== table, lookups: 1 };
  }
  // The gradient of a loss by classes is a comparison of positions with labels.
  if (name === 'aten.nll_loss_backward.default') {
    const self = ctx.indexOf('self');
    return { ...each, reads: (input) => input !== self };
  }
  if (ctx.inputs.length === 0) return undefined;
  const main = ctx.inputs[0].shape;
  const count = elements(main);
  if (/softmax/.test(name)) return softmaxForm(name, ctx, main, count);
  if (/^aten\.(_fused_rms_norm|native_layer_norm)(_backward)?\.default$/.test(name))
    return normForm(name, ctx, count);
  if (!SUMS.test(name) || ctx.outputs.length !== 1) return undefined;
  const rows = elements(out.shape);
  // Few values are added up where the sum is needed, in one loop with everything else.
  if (count <= UNROLLED * rows) return { ...each, reads: always };
  const dims = reducedDims(name, ctx, main.length);
  const trailing = dims.every((d, i) => d === main.length - dims.length + i);
  return {
    over: trailing && rows > 1 ? 'rows' : 'columns',
    count,
    rows,
    whole: false,
    reads: always,
  };
}

function softmaxForm(
  name: string,
  ctx: TypedContext,
  main: readonly number[],
  count: number,
): LoopForm | undefined {
  const dim = (ctx.int('dim') + main.length) % Math.max(1, main.length);
  if (dim !== main.length - 1) return undefined;
  // The sum of a log softmax's gradient does not ask for the result.
  const output = name.includes('_log_softmax_backward') ? ctx.indexOf('output') : -1;
  const form = { over: 'rows', count, rows: count / Math.max(1, main[dim]), whole: true } as const;
  const statistics = name.includes('backward') ? 1 : 2;
  return {
    ...form,
    statistics,
    reads: always,
    ...(output < 0 ? {} : { once: (input: number) => input === output }),
  };
}

function normForm(name: string, ctx: TypedContext, count: number): LoopForm {
  const width = product(ctx.ints('normalized_shape'));
  const form = { over: 'rows', count, rows: count / Math.max(1, width), whole: true } as const;
  const sums = name.includes('backward') && ctx.outputs.slice(1).some((meta) => meta !== null);
  return { ...form, reads: always, ...(sums ? { sumsRows: true } : {}) };
}

/**
 * Traffic of a call that a compiler takes apart in a way of its own; undefined for others. The
 * gradient of a table is added up in 32 bits from zeros by atomic additions, and cast
 * (`embedding_dense_backward` of PyTorch's decompositions).
 */
export function ownTraffic(record: OperatorRecord, ctx: TypedContext): CallTraffic | undefined {
  if (isXlaOperator(record.name)) return xlaTraffic(record, ctx);
  const out = ctx.outputs[0];
  if (record.name !== 'aten.embedding_dense_backward.default' || out === null || out === undefined)
    return undefined;
  const [gradient] = ctx.inputs;
  const wide = (dtype: DType): number => Math.max(4, DTYPE_BYTES[dtype]) / DTYPE_BYTES[dtype];
  const cast = wide(out.dtype) === 1 ? 0 : 1 + wide(out.dtype);
  return {
    inputs: [1 + 2 * wide(gradient.dtype), 1],
    outputs: [wide(out.dtype) + cast],
    kernels: cast === 0 ? 2 : 3,
  };
}

/** Dims that a reduction sums over, ascending. */
function reducedDims(name: string, ctx: TypedContext, rank: number): number[] {
  const stated =
    name.endsWith('.default') && !/am(ax|in)/.test(name) ? [] : (ctx.optionalInts('dim') ?? []);
  const dims = stated.length === 0 ? Array.from({ length: rank }, (_, d) => d) : stated;
  return dims.map((d) => (d + rank) % Math.max(1, rank)).sort((a, b) => a - b);
}
