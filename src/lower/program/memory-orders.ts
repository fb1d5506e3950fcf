/**
 * The memory order of the tensors of a captured program, by the strides that their types state.
 * Local calls keep the order, so a value that was moved and lies in the order of its source is what
 * the kernels expect.
 */
import type { ValueType } from '../../graph/types.ts';
import { dimOrder } from '../../ops/strides.ts';

/** Dims from the slowest to the fastest in memory. */
export type DimOrder = readonly number[];

/** Tells whether a tensor lies row by row. */
export function isRowMajor(order: DimOrder): boolean {
  return order.every((dim, place) => dim === place);
}

/** Order of a result of a call that has this type; row-major where no stride is stated. */
export function orderOfResult(type: ValueType, result: number): DimOrder {
  const item = type.kind === 'tuple' ? type.items[result] : type;
  return item?.kind === 'tensor' ? dimOrder(item) : [];
}
