/**
 * A dense table of costs over classes, row-major; `Infinity` is forbidden. Interned: equal content,
 * equal `id`.
 */
export interface Table {
  readonly id: number;
  readonly dims: readonly number[];
  readonly cells: Float64Array;
}
