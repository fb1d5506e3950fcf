/**
 * Takes a call of StableHLO and gives the loop that XLA makes of it. Every program of JAX is
 * compiled, so that none of its calls runs alone. Sources: "XLA:GPU Architecture Overview" of
 * OpenXLA (what is inside a fusion is never in memory, and a fusion is one kernel; products run in
 * libraries; a softmax is one kernel), and the sources of XLA that the rules name.
 */

import type { CallTraffic } from '../../cost/compute.ts';
import type { Graph } from '../../graph/types.ts';
import {
  elements,
  metaBytes,
  type OperatorRecord,
  type TypedContext,
} from '../../ops/record/record.ts';
import type { LoopForm } from './loop-form.ts';

/** Operators of the programs that XLA compiles. */
const XLA_OPERATORS = /^(stablehlo|chlo)\./;

/** Calls of class `other` that become loops: what they write depends on each element alone. */
const ELEMENTWISE: ReadonlySet<string> = new Set(
  ['concatenate', 'pad', 'reverse', 'get_dimension_size', 'reduce_window'].map(
    (name) => `stablehlo.${name}`,
  ),
);
/** Calls that look up rows of their first operand: they read as much of it as they write. */
const LOOKUPS: ReadonlySet<string> = new Set(['stablehlo.gather', 'stablehlo.dynamic_slice']);
/**
 * Values that are added up where the sum is needed rather than by a kernel of its own: fewer than a
 * warp has threads, where they do not divide it (`IsUnnestedReductionFasterThanElemental` of
 * `reduction_utils.cc`).
 */
const WARP = 32;

export function isXlaOperator(name: string): boolean {
  return XLA_OPERATORS.test(name);
}

/** Tells whether a program is one that XLA compiles: a text of JAX. */
export function isXlaProgram(graph: Graph): boolean {
  return graph.nodes.some(({ kind, target }) => kind === 'call' && isXlaOperator(target));
}

/** The loop of a call; undefined where a library runs it. */
export function xlaLoop({ name, cls }: OperatorRecord, ctx: TypedContext): LoopForm | undefined {
  const out = ctx.outputs[0];
  if (out === null || out === undefined) return undefined;
  const count = elements(out.shape);
  const each = { over: 'each', count, rows: count, whole: false } as const;
  if (cls === 'pointwise' || cls === 'factory' || cls === 'random' || ELEMENTWISE.has(name))
    return { ...each, reads: () => true };
  if (LOOKUPS.has(name)) return { ...each, reads: (input) => input !== 0, lookups: 1 };
  return name === 'stablehlo.reduce' ? reductionForm(ctx, each) : undefined;
}

/** A reduction is the last of a kernel, or in the midst of it where the kernel keeps its rows. */
function reductionForm(ctx: TypedContext, each: Omit<LoopForm, 'reads'>): LoopForm {
  const { shape } = ctx.inputs[0];
  const rows = each.count;
  const count = elements(shape);
  const width = rows === 0 ? 0 : count / rows;
  const dims = [...ctx.ints('dimensions')].sort((a, b) => a - b);
  const isTrailing = dims.every((d, i) => d === shape.length - dims.length + i);
  // As many elements as before: XLA has a reshape for it (`HandleReduce` of
  // `algebraic_simplifier.cc`).
  if (width === 1) return { ...each, reads: (input) => input === 0 };
  const reads = (): boolean => true;
  if (width < WARP && (!isTrailing || WARP % width !== 0)) return { ...each, count: rows, reads };
  return { over: isTrailing && rows > 1 ? 'rows' : 'columns', count, rows, whole: false, reads };
}

/**
 * Traffic of a call that writes rows of its first operand; undefined for others. XLA updates in
 * place (`CanShareOperandBufferWithUser` of `hlo_dataflow_analysis.cc`): rows that are not written
 * stay where they are.
 */
export function xlaTraffic({ name }: OperatorRecord, ctx: TypedContext): CallTraffic | undefined {
  const isScatter = name === 'stablehlo.scatter';
  if (!isScatter && name !== 'stablehlo.dynamic_update_slice') return undefined;
  const updated = isScatter ? ctx.list('inputs').length : 1;
  const outputs = ctx.outputs.filter((meta) => meta !== null);
  const written = outputs.reduce((sum, meta) => sum + metaBytes(meta), 0);
  const [first, count] = isScatter ? [updated + 1, updated] : [1, 1];
  const updates = ctx.inputs.slice(first, first + count);
  const rows = updates.reduce((sum, meta) => sum + metaBytes(meta), 0);
  // What is scattered is added to what is there, which is read before it is written.
  const share = written === 0 ? 0 : ((isScatter ? 2 : 1) * rows) / written;
  return {
    inputs: ctx.inputs.map((_, input) => (input < updated ? 0 : 1)),
    outputs: ctx.outputs.map(() => share),
    kernels: 1,
  };
}
