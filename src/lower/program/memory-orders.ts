/**
 * The memory order of the tensors of a captured program, by the strides that their types state.
 * Local calls keep the order, so a value that was moved and lies in the order of its source is what
 * the kernels expect.
 */
import { ref } from '../../graph/value.ts';
import type { Emitter } from './emitter.ts';

/** Dims from the slowest to the fastest in memory. */
export type DimOrder = readonly number[];

/** Tells whether a tensor lies row by row. */
export function isRowMajor(order: DimOrder): boolean {
  return order.every((dim, place) => dim === place);
}

/** Does something with a value whose dims lie in this order as with one that lies row by row. */
export function inRowMajor(
  emit: Emitter,
  value: string,
  order: DimOrder,
  act: (rows: string) => string,
): string {
  if (isRowMajor(order)) return act(value);
  const permuted = (of: string, dims: DimOrder): string =>
    emit.call('aten.permute.default', [ref(of), [...dims]]);
  const back = order.map((_, dim) => order.indexOf(dim));
  return permuted(act(permuted(value, order)), back);
}
