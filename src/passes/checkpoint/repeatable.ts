/** Decides whether a forward call may be recomputed in the backward pass. */

import type { OpClass, OperatorRecord } from '../../ops/record/record.ts';

/** Classes whose recomputation need not give the same numbers, or is not one kernel. */
const ONCE: ReadonlySet<OpClass> = new Set<OpClass>(['random', 'control', 'collective', 'other']);

/**
 * Operators of the class `other` that only move elements: recomputation gives the same, and is one
 * kernel.
 */
const MOVES: ReadonlySet<string> = new Set([
  'aten.cat.default',
  'aten.stack.default',
  'aten.constant_pad_nd.default',
  'aten.repeat.default',
  'aten.repeat_interleave.self_int',
  'aten.embedding.default',
  'aten.one_hot.default',
  'aten.index.Tensor',
  'aten.index_select.default',
  'aten.gather.default',
  'stablehlo.concatenate',
  'stablehlo.pad',
  'stablehlo.gather',
  'stablehlo.dynamic_slice',
]);

/**
 * Tells whether a forward call may be recomputed in the backward pass; operators without a record
 * never may.
 */
export function mayRecompute(
  target: string,
  record: Pick<OperatorRecord, 'cls'> | undefined,
): boolean {
  return record !== undefined && (!ONCE.has(record.cls) || MOVES.has(target));
}
