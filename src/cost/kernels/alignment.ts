/**
 * Takes a product of matrices and gives its least seconds where rows of a matrix start at places
 * that devices cannot load from in one piece.
 */

import type { DType } from '../../graph/types.ts';
import type { OperatorRecord, TensorMeta, TypedContext } from '../../ops/record/record.ts';
import type { Cluster } from '../hardware/cluster.ts';
import { processorsOf } from './tiles.ts';

/**
 * FLOP/s of a multiprocessor on such products: loads of two bytes feed it, so that the age of its
 * matrix units says little. The geometric mean of the six products of GPT-2's vocabulary (50,257)
 * in `data/calibration/h100-sxm-80gb.json`, 97 to 150 TFLOP/s on 132.
 */
const UNALIGNED_FLOPS_PER_SECOND = 0.94e12;

/** Operands of products by the operator that takes them. */
const OPERANDS: Readonly<Record<string, readonly [string, string]>> = {
  'aten.mm.default': ['self', 'mat2'],
  'aten.addmm.default': ['mat1', 'mat2'],
  'aten.bmm.default': ['self', 'mat2'],
  'aten.baddbmm.default': ['batch1', 'batch2'],
};
const SIXTEEN_BITS: ReadonlySet<DType> = new Set<DType>(['bf16', 'f16']);

/** Tells whether a call is a product whose operands' order in memory has a price. */
export function isLaidOut(record: OperatorRecord): boolean {
  return Object.hasOwn(OPERANDS, record.name);
}

/**
 * Least seconds of a product of 16-bit matrices one of which has rows of an odd number of elements
 * in memory; 0 of others, and on devices whose multiprocessors are not known. Rows of 4 or 8 bytes'
 * alignment were not measured and count as aligned.
 *
 * @param turned by tensor input: whether it lies column by column; absent: only the result's rows
 *   are known
 */
export function unalignedSeconds(
  record: OperatorRecord,
  ctx: TypedContext,
  turned: readonly boolean[] | undefined,
  flops: number,
  { accelerator }: Pick<Cluster, 'accelerator'>,
): number {
  const processors = processorsOf(accelerator);
  const result = ctx.outputs[0];
  if (processors === undefined || !isLaidOut(record) || result === null || result === undefined)
    return 0;
  if (!SIXTEEN_BITS.has(result.dtype)) return 0;
  const lengths = [rowOf(result, false)];
  for (const name of turned === undefined ? [] : OPERANDS[record.name]) {
    const input = ctx.indexOf(name);
    lengths.push(rowOf(ctx.inputs[input], turned?.[input] === true));
  }
  return lengths.some((length) => length % 2 === 1)
    ? flops / (processors * UNALIGNED_FLOPS_PER_SECOND)
    : 0;
}

/** Elements of a row in memory. */
function rowOf({ shape }: TensorMeta, isTurned: boolean): number {
  return shape.at(isTurned ? -2 : -1) ?? 0;
}
